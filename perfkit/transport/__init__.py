"""The ways to send a request: `base` is the seam, the rest are engines behind it.

`wire` speaks HTTP/1.1 itself (uvloop and httptools); the reference engines are aiohttp and grpcio, which also serve as
oracles for it.
"""
