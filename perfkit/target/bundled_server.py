"""The bundled server as a child process."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence

from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import TargetError
from perfkit.process.child import Child, NotReadyError
from perfkit.process.start_module import start_module
from perfkit.target.address import WireProtocol
from perfkit.target.started_server import RunningServer, ServerEnd
from perfkit.units import NS_PER_S

_STARTS_WITHIN_S, _STOPS_WITHIN_S = 300, 10


@contextlib.asynccontextmanager
async def bundled_server(
    *models: str,
    device: str,
    threads: int,
    cpus: tuple[int, ...],
    onnx: Sequence[str] = (),
    synthetic: str | None = None,
    allow_client_shm: bool = False,
    is_explicit: bool = False,
    trace_url: str | None = None,
    ports: tuple[int, int] = (0, 0),
    on_line: Callable[[str], None],
    clock: Clock | None = None,
) -> AsyncIterator[RunningServer]:
    """Runs the module `server_stub` on the loopback for the length of the block; a port of 0, for HTTP or gRPC, becomes a free one.

    `onnx` are options `KEY=VALUE` for ONNX models; `allow_client_shm` lets clients register shared memory. `on_line` gets the lines that the server writes to stderr. The description holds the
    time from its start until it was ready, `ready_after_s`. Raises TargetError if it does not start.
    """
    clock = clock or MonotonicClock()
    options = ["--http-port", str(ports[0]), "--grpc-port", str(ports[1]), "--metrics-port", "0", "--exit-with-stdin"]
    options += ["--model", *models, "--device", device, "--threads", str(threads)]
    if onnx:
        options += ["--onnx", *onnx]
    if synthetic is not None:
        options += ["--synthetic", synthetic]
    if is_explicit:  # clients may load and unload its models
        options += ["--model-control-mode", "explicit"]
    if allow_client_shm:
        options += ["--allow-client-shm"]
    if trace_url is not None:
        options += ["--trace-url", trace_url]
    if cpus:
        options += ["--cpus", ",".join(map(str, cpus))]
    started_ns = clock.now_ns()
    async with start_module("server_stub", *options, on_line=on_line, stop_within_s=_STOPS_WITHIN_S) as child:
        try:
            description = json.loads(await child.read_line(_STARTS_WITHIN_S))
        except NotReadyError as error:
            raise TargetError(f"the bundled server did not start: it {error}") from None
        description["ready_after_s"] = (clock.now_ns() - started_ns) / NS_PER_S
        urls: dict[WireProtocol, str] = {
            "http": f"http://127.0.0.1:{description['http_port']}",
            "grpc": f"grpc://127.0.0.1:{description['grpc_port']}",
        }
        ended = asyncio.ensure_future(_end_of(child))
        try:
            yield RunningServer(urls, description, started_ns, child.pid, ended)
        finally:
            ended.cancel()


async def _end_of(child: Child) -> ServerEnd:
    return ServerEnd(await child.wait_for_end(), await child.ended)
