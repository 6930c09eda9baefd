"""Prometheus pages: those of the target are read, the run's live metrics are written."""
