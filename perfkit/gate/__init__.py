"""A candidate server compared with a baseline, to a verdict."""
