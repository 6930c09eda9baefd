"""What to measure: the scenario's model, and the YAML file it is read from."""
