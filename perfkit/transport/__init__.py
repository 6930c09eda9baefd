"""Transports: ways to send calls, behind the interface in `base`. They know bytes and instants, and no API.

The wire engine speaks HTTP/1.1 and HTTP/2 itself, with uvloop and httptools. The reference engines, aiohttp and grpcio,
are independent implementations of unary calls that it is tested against.
"""
