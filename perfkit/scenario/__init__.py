"""Scenarios: the model of a scenario, and the YAML file that it is read from."""
