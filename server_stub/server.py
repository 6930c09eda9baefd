"""The server's life: models loaded, both fronts opened, the ready line printed, a graceful end."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable

from perfkit.errors import TargetError
from server_stub.config import Options
from server_stub.grpc_front import GrpcFront
from server_stub.http_front import HttpFront
from server_stub.metrics_front import MetricsFront
from server_stub.repository import Repository
from server_stub.settings import Settings
from server_stub.shared_memory import Regions
from server_stub.sources import find_models

SHUTDOWN_TIMEOUT_S = 5.0


async def serve(options: Options) -> None:
    """Serves until a signal, or the end of stdin where the options say so.

    Raises UsageError where a model cannot be loaded, TargetError where a port cannot be had.
    """
    stopped = _stop_event(options)
    cpus = sorted(os.sched_getaffinity(0))
    threads = options.threads or max(1, len(cpus) - 1)
    repository = find_models(options, threads)
    regions, settings = Regions(is_allowed=options.allow_client_shm), Settings()
    http = HttpFront(repository, regions, settings, shutdown_timeout_s=SHUTDOWN_TIMEOUT_S)
    grpc = GrpcFront(repository, regions, settings, shutdown_timeout_s=SHUTDOWN_TIMEOUT_S)
    metrics = MetricsFront(repository, shutdown_timeout_s=SHUTDOWN_TIMEOUT_S)
    try:
        http_port = await _listen(http.start, "HTTP", options.host, options.http_port)
        grpc_port = await _listen(grpc.start, "gRPC", options.host, options.grpc_port)
        metrics_port = await _listen(metrics.start, "metrics", options.host, options.metrics_port)
        # the ports are open by now: who asks meanwhile is told that the server is not ready
        if not await _load(repository, stopped):
            return
        ready = {"event": "ready", "http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port, "pid": os.getpid()}
        ports = f"HTTP {http_port}, gRPC {grpc_port}, metrics {metrics_port}"
        sys.stderr.write(f"serving {', '.join(repository.names)} on {options.host}: {ports}\n")
        sys.stdout.write(json.dumps({**ready, "device": "cpu", "threads": threads, "cpus": cpus}) + "\n")
        sys.stdout.flush()
        await stopped.wait()
    finally:
        await asyncio.gather(http.stop(), grpc.stop(), metrics.stop())
        repository.close()
        regions.close()


async def _load(repository: Repository, stopped: asyncio.Event) -> bool:
    """Loads the models beside the fronts; False where the server is told to end before that is done."""
    loading, stopping = asyncio.ensure_future(asyncio.to_thread(repository.load)), asyncio.ensure_future(stopped.wait())
    await asyncio.wait((loading, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stopped.is_set():
        loading.cancel()
        return False
    await loading
    return True


async def _listen(start: Callable[[str, int], Awaitable[int]], protocol: str, host: str, port: int) -> int:
    try:
        return await start(host, port)
    except OSError as error:
        raise TargetError(f"Port {port} on {host} cannot be opened for {protocol}: {error}") from None


def _stop_event(options: Options) -> asyncio.Event:
    """Set by SIGINT, SIGTERM and, where asked for, the end of stdin."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    if options.exit_with_stdin:
        # a thread, since an event loop can watch a pipe but not every stdin: a file or /dev/null for one
        threading.Thread(target=_await_end_of_stdin, args=(loop, stopped), daemon=True, name="stdin").start()
    return stopped


def _await_end_of_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # a closed stdin has ended as well
    loop.call_soon_threadsafe(stopped.set)
