"""The commands of the documentation, and what runs them: `python -m benchmarks.documentation_commands`."""
