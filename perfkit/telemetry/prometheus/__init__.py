"""Prometheus pages read and written."""
