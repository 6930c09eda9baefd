"""Findings about this machine that would affect a measurement."""
