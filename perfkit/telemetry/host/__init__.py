"""The load generator's own machine and event loops."""
