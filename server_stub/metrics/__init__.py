"""The Prometheus metrics endpoint."""
