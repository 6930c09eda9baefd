"""The server's own statistics."""
