"""The load generator's own machine."""
