"""The server's lifecycle: open the ports, load the models, print the ready line, stop gracefully."""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable

from perfkit.errors import TargetError
from server_stub.devices.device import choose_device
from server_stub.devices.host_memory import HostMemory
from server_stub.grpc.front_end import GrpcFrontEnd
from server_stub.http.front_end import HttpFrontEnd
from server_stub.log import Log
from server_stub.metrics import MetricsFrontEnd, find_gpus
from server_stub.openai.front_end import OpenAiFrontEnd
from server_stub.options import Options, read_tls_identity
from server_stub.receiving import ReceivingThreads, thread_count
from server_stub.repository.repository import Repository
from server_stub.repository.sources import open_repository, open_runtime
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.tracing.otlp_exporter import OtlpExporter
from server_stub.tracing.trace_file import TraceFile
from server_stub.tracing.trace_settings import TraceSettings
from server_stub.tracing.tracer import Tracer


async def serve(options: Options) -> None:
    """Serve until a signal arrives, or stdin ends with `exit_with_stdin`.

    Raises UsageError if a model cannot be loaded, TargetError if a port cannot be opened.
    """
    log = Log(Settings(), is_json=options.log_format == "json")
    tls = None if options.tls_cert is None or options.tls_key is None else read_tls_identity(options.tls_cert, options.tls_key)
    device = choose_device(options.device, has_onnx_on_cpu=options.onnx.provider == "cpu")
    asyncio.get_running_loop().set_exception_handler(log.handle_loop_exception)
    tracer = _make_tracer(options, log)
    stopped = _stop_event(options, log)
    cpus = sorted(os.sched_getaffinity(0))
    threads = options.threads or max(1, len(cpus) - 1)
    onnx = open_runtime(options, threads, device).options.document()
    repository = open_repository(options, threads, log, device)
    regions = SharedMemoryRegions(is_allowed=options.allow_client_shm, driver=device.driver)
    receiving = ReceivingThreads(thread_count(len(cpus)))
    service = Service(repository, regions, log, options.limits, tracer, HostMemory(device.driver), receiving)
    http, grpc = HttpFrontEnd(service, OpenAiFrontEnd(service).routes()), GrpcFrontEnd(service)
    metrics = MetricsFrontEnd(repository, find_gpus(), limits=options.limits)
    try:
        host, context = options.host, None if tls is None else tls.http1_context
        http_port = await _listen(http.start(host, options.http_port, context), "HTTP", host, options.http_port)
        grpc_port = await _listen(grpc.start(host, options.grpc_port, tls), "gRPC", host, options.grpc_port)
        metrics_port = await _listen(metrics.start(host, options.metrics_port), "metrics", host, options.metrics_port)
        # the ports are open already, so that clients learn that the server is not ready
        if not await _load(repository, stopped):
            return
        listening = {"http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port, "pid": os.getpid()}
        ports = f"HTTP {http_port}, gRPC {grpc_port}, metrics {metrics_port}"
        models = repository.names
        message = f"serving {', '.join(models)} on {host}: {ports}; models run on {device.reason}"
        log.info("ready", message, models=models, host=host, device=device.kind, **listening)
        ready = {
            "event": "ready",
            **listening,
            "device": device.kind,
            "threads": threads,
            "cpus": cpus,
            "onnx": {**onnx, **repository.executions},
        }
        sys.stdout.write(json.dumps(ready) + "\n")
        sys.stdout.flush()
        await stopped.wait()
    finally:
        await asyncio.gather(http.stop(), grpc.stop(), metrics.stop())
        receiving.close()
        repository.close()
        regions.close()
        tracer.close()
        log.info("stopped")


def _make_tracer(options: Options, log: Log) -> Tracer:
    """What traces requests. Raises UsageError if traces could not be written or sent."""
    config, settings = options.traces, TraceSettings(options.traces)
    if not config.is_possible:
        return Tracer(settings)
    if config.mode == "triton":
        return Tracer(settings, TraceFile(settings))
    return Tracer(settings, OtlpExporter(config, log.warning, options.limits.stop_timeout_s))


async def _load(repository: Repository, stopped: asyncio.Event) -> bool:
    """Load the models in a thread. Returns False if the server is stopped before that is done."""
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
    """An event set by SIGINT, SIGTERM and, if requested, the end of stdin."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _stop, stopped, log, signal.Signals(number).name)
    if options.exit_with_stdin:
        # in a thread, since event loops cannot wait for files and /dev/null
        threading.Thread(target=_wait_for_end_of_stdin, args=(loop, stopped, log), daemon=True, name="stdin").start()
    return stopped


def _wait_for_end_of_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event, log: Log) -> None:
    try:
        while os.read(0, 4096):
            pass
    except OSError:
        pass  # stdin is closed
    loop.call_soon_threadsafe(_stop, stopped, log, "the end of stdin")


def _stop(stopped: asyncio.Event, log: Log, reason: str) -> None:
    log.info("stopping", why=reason)
    stopped.set()
