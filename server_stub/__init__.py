"""The bundled v2 server: `python -m server_stub`, or `perfkit serve`. docs/reference/server.md lists its packages and their layers."""
