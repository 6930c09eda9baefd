"""Trials of fleets on one machine, whose hosts are network namespaces."""
