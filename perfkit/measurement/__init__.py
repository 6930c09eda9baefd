"""A scenario turned into a result."""
