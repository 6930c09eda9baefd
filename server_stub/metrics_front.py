"""The port that Prometheus scrapes."""

import dataclasses

from aiohttp import web

from perfkit.protocol import rest
from server_stub.gpu_metrics import Gpus
from server_stub.http_connections import Handler, HttpPort
from server_stub.limits import Limits
from server_stub.metrics import CONTENT_TYPE, render
from server_stub.repository import Repository

_MAX_BODY_BYTES = 2**16  # nobody has anything to say here


class MetricsFront:
    """Answers `GET /metrics` and nothing else."""

    def __init__(self, repository: Repository, gpus: Gpus | None = None, *, limits: Limits | None = None) -> None:
        self._repository, self._gpus = repository, gpus
        limits = dataclasses.replace(limits or Limits(), max_body_bytes=_MAX_BODY_BYTES)
        self._port = HttpPort([web.get("/metrics", self._metrics)], _answer, limits)

    async def start(self, host: str, port: int) -> int:
        """Listens, and gives the port; raises OSError where it cannot."""
        return await self._port.start(host, port)

    async def stop(self) -> None:
        """Stops listening and returns when what is being asked is answered, or the time for it has passed."""
        await self._port.stop()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=render(self._repository.loaded, self._gpus).encode(), headers={"Content-Type": CONTENT_TYPE})


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, body=rest.encode_error(error.reason), content_type=rest.JSON_TYPE)
