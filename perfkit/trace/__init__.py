"""Traces: files with the instants of requests and what they carried, recorded by `perfkit record` or written by other programs."""
