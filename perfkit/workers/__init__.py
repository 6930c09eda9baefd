"""Worker processes that generate the load."""
