"""The search for the highest arrival rate that meets an SLO."""
