"""Samples of the server, its GPUs and the load generator, on the requests' clock."""
