"""The server's life: models loaded, both fronts opened, the ready line printed, a graceful end."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable

from perfkit.errors import TargetError
from server_stub.config import Options
from server_stub.devices import choose_device
from server_stub.gpu_metrics import find_gpus
from server_stub.grpc_front import GrpcFront
from server_stub.http_front import HttpFront
from server_stub.log import Log
from server_stub.metrics_front import MetricsFront
from server_stub.repository import Repository
from server_stub.settings import Settings
from server_stub.shared_memory import Regions
from server_stub.sources import find_models
from server_stub.tls import read_identity


async def serve(options: Options) -> None:
    """Serves until a signal, or the end of stdin where the options say so.

    Raises UsageError where a model cannot be loaded, TargetError where a port cannot be had.
    """
    settings = Settings()
    log = Log(settings, is_json=options.log_format == "json")
    tls = None if options.tls_cert is None or options.tls_key is None else read_identity(options.tls_cert, options.tls_key)
    device = choose_device(options.device)
    asyncio.get_running_loop().set_exception_handler(log.loop_fault)
    stopped = _stop_event(options, log)
    cpus = sorted(os.sched_getaffinity(0))
    threads = options.threads or max(1, len(cpus) - 1)
    repository = find_models(options, threads, log, device)
    regions = Regions(is_allowed=options.allow_client_shm, driver=device.driver)
    http = HttpFront(repository, regions, settings, limits=options.limits, log=log)
    grpc = GrpcFront(repository, regions, settings, limits=options.limits, log=log)
    metrics = MetricsFront(repository, find_gpus(), limits=options.limits)
    try:
        host = options.host
        http_port = await _listen(
            http.start(host, options.http_port, None if tls is None else tls.context), "HTTP", host, options.http_port
        )
        grpc_port = await _listen(grpc.start(host, options.grpc_port, tls), "gRPC", host, options.grpc_port)
        metrics_port = await _listen(metrics.start(host, options.metrics_port), "metrics", host, options.metrics_port)
        # the ports are open by now: who asks meanwhile is told that the server is not ready
        if not await _load(repository, stopped):
            return
        listening = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port, "pid": os.getpid()}
        ports = f"HTTP {http_port}, gRPC {grpc_port}, metrics {metrics_port}"
        models = repository.names
        log.info(
            "ready",
            f"serving {', '.join(models)} on {host}: {ports}; executing on {device.reason}",
            models=models,
            host=host,
            device=device.kind,
            **listening,
        )
        sys.stdout.write(json.dumps({"event": "ready", **listening, "device": device.kind, "threads": threads, "cpus": cpus}) + "\n")
        sys.stdout.flush()
        await stopped.wait()
    finally:
        await asyncio.gather(http.stop(), grpc.stop(), metrics.stop())
        repository.close()
        regions.close()
        log.info("stopped")


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


async def _listen(starting: Awaitable[int], protocol: str, host: str, port: int) -> int:
    try:
        return await starting
    except OSError as error:
        raise TargetError(f"Port {port} on {host} cannot be opened for {protocol}: {error}") from None


def _stop_event(options: Options, log: Log) -> asyncio.Event:
    """Set by SIGINT, SIGTERM and, where asked for, the end of stdin."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopped, log, signal.Signals(number).name)
    if options.exit_with_stdin:
        # a thread, since an event loop can watch a pipe but not every stdin: a file or /dev/null for one
        threading.Thread(target=_await_end_of_stdin, args=(loop, stopped, log), daemon=True, name="stdin").start()
    return stopped


def _await_end_of_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event, log: Log) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # a closed stdin has ended as well
    loop.call_soon_threadsafe(_stop, stopped, log, "the end of stdin")


def _stop(stopped: asyncio.Event, log: Log, why: str) -> None:
    log.info("stopping", why=why)
    stopped.set()
