"""The port that Prometheus scrapes."""

from aiohttp import web

from server_stub.http_front import QUIET_LOGGER
from server_stub.metrics import CONTENT_TYPE, render
from server_stub.repository import Repository


class MetricsFront:
    """Answers `GET /metrics` and nothing else."""

    def __init__(self, repository: Repository, *, shutdown_timeout_s: float) -> None:
        self._repository = repository
        application = web.Application()
        application.add_routes([web.get("/metrics", self._metrics)])
        self._runner = web.AppRunner(
            application, access_log=None, logger=QUIET_LOGGER, shutdown_timeout=shutdown_timeout_s, handle_signals=False
        )

    async def start(self, host: str, port: int) -> int:
        """Listens, and gives the port; raises OSError where it cannot."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stops listening and returns when what is being asked is answered, or the time for it has passed."""
        await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=render(self._repository.loaded).encode(), headers={"Content-Type": CONTENT_TYPE})
