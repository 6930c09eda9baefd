"""The machine behind the figures."""
