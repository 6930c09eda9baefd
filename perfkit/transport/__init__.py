"""Transports: ways to send requests, behind the interface in `base`.

The wire engine speaks HTTP/1.1 and HTTP/2 itself, with uvloop and httptools. The reference engines, aiohttp and grpcio,
are independent implementations that it is tested against.
"""
