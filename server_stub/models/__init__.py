"""The built-in models, by name."""
