"""This machine: its description, CPUs, limits, and readings of how busy it is."""
