"""The server's own v2 statistics."""
