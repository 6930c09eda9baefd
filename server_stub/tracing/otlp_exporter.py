"""Hands traces to the process that sends them, so that no request waits for the collector, nor for Python's lock while spans are made."""

import collections
import contextlib
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence

from perfkit.errors import UsageError
from perfkit.override import override
from server_stub.tracing.request_trace import RequestTrace
from server_stub.tracing.trace_config import TraceConfig
from server_stub.tracing.tracer import Exporter

SPANS_PER_TRACE = 3
_PACKAGES = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http", "requests")

Warn = Callable[[str, str], None]
"""Takes an event and a message for the log."""


class OtlpExporter(Exporter):
    """Collects traces for `delay_ms`, then hands them on. What does not fit, or cannot be sent, is counted and reported once at the end."""

    def __init__(self, config: TraceConfig, warn: Warn, close_timeout_s: float) -> None:
        """Raises UsageError if OpenTelemetry is not installed."""
        _check_packages()
        self._config, self._warn, self._close_timeout_s = config, warn, close_timeout_s
        self._waiting: collections.deque[RequestTrace] = collections.deque()
        self._max_waiting = max(1, config.max_waiting // SPANS_PER_TRACE)
        self._has_traces, self._closing = threading.Event(), threading.Event()
        self._lost = 0
        self._process = _start_process(config)
        self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
        self._thread.start()

    @override
    def add(self, trace: RequestTrace) -> None:
        if len(self._waiting) >= self._max_waiting:
            self._lost += 1
            return
        self._waiting.append(trace)
        if not self._has_traces.is_set():
            self._has_traces.set()

    @override
    def close(self) -> None:
        """It takes at most `close_timeout_s`."""
        self._closing.set()
        self._has_traces.set()
        self._thread.join(self._close_timeout_s)
        self._process.kill()  # if the thread has ended, it has nothing left to do
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):  # what is left of a batch cannot be written any more
                assert pipe is not None
                pipe.close()
        self._process.wait()
        if lost := self._lost + len(self._waiting):
            self._warn("traces_lost", f"{lost} traced requests did not reach {self._config.url}")

    def _run(self) -> None:
        is_closing = has_warned = False
        while not is_closing:
            self._has_traces.wait()
            is_closing = self._closing.wait(self._config.delay_ms / 1000)
            self._has_traces.clear()
            while self._waiting:
                count = min(len(self._waiting), max(1, self._config.max_batch // SPANS_PER_TRACE))
                batch = [self._waiting.popleft() for _ in range(count)]
                if not self._is_sent(batch):
                    self._lost += count
                    if not has_warned and not self._closing.is_set():
                        has_warned = True
                        self._warn(
                            "traces_not_sent", f"{self._config.url} does not take traces; the server goes on without, and counts them"
                        )

    def _is_sent(self, batch: Sequence[RequestTrace]) -> bool:
        """Waits until the process has sent a batch, or has given up."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):  # the process has been ended
            pickle.dump(batch, self._process.stdin)
            self._process.stdin.flush()
            return self._process.stdout.readline() == b"sent\n"
        return False


def _check_packages() -> None:
    for name in _PACKAGES:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise UsageError(
                f"sending traces needs the package {name.partition('.')[0]}: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
            )


def _start_process(config: TraceConfig) -> "subprocess.Popen[bytes]":
    """The process that sends batches; it ends with its stdin, so also if the server is killed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    options = json.dumps({"url": config.url, "resource": dict(config.resource)})
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "server_stub.tracing.sending", options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,  # a Ctrl-C is for the server, which lets this process send what is left
    )
