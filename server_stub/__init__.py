"""The bundled v2 reference server: `python -m server_stub`, or `perfkit serve`."""
