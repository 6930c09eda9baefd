"""The ways to execute a model."""
