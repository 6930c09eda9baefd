"""The sampler process of a run, or of several one after the other: it reads messages from stdin, writes answers to stdout, and ends when stdin is closed.

Each sampler has a thread of its own and may block: a slow driver or server delays neither the load nor the other samplers.
"""

import concurrent.futures
import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from perfkit.clock import MonotonicClock
from perfkit.process.entry import collect_from_now_on, start_without_collection
from perfkit.process.messages import claim_stdout, load_message, message_bytes
from perfkit.recorder.recent import LiveFigures
from perfkit.telemetry.host.generator import GeneratorSampler
from perfkit.telemetry.host.other_processes import OtherProcessesMeter, TargetProcesses
from perfkit.telemetry.messages import (
    CloseScreen,
    FollowWorkers,
    IntervalTimes,
    LiveMessage,
    LiveView,
    PointBegins,
    PublishMetrics,
    RunEnded,
    ScreenClosed,
    ScreenLines,
    SpansRequest,
    Started,
    TelemetryConfig,
    Waiting,
    WindowReport,
    WindowRequest,
)
from perfkit.telemetry.series import Sampler, SamplerReport, SamplerThread, Series, take_notes
from perfkit.text import bounded, safe_lines

if TYPE_CHECKING:
    from perfkit.telemetry.prometheus.exposition import Exposition, LiveRun
    from perfkit.telemetry.prometheus.otlp_push import OtlpPush
    from perfkit.telemetry.spans.receiver import SpanReceiver

# idle power is measured for 8 s at most, and opening an unused driver takes seconds per GPU; Prometheus waits 10 s for a page
_START_TIMEOUT_S, _WINDOW_TIMEOUT_S, _LATEST_TIMEOUT_S, _VIEW_TIMEOUT_S, _CLOSE_TIMEOUT_S = 40.0, 20.0, 5.0, 0.1, 2.0
# what nearly every run samples, imported before the process is told so
_IMPORTED_AHEAD = (
    "perfkit.telemetry.server.sampler",
    "perfkit.telemetry.gpu.sampler",
    "perfkit.transport.http.transport",
    "perfkit.api_v2.http",
)

_Listener = TypeVar("_Listener")


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Samples one run after another until `requests` ends; a run may end in the middle of a message."""
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            config: TelemetryConfig = load_message(requests)
            _serve(config, requests, answers)


def _serve(config: TelemetryConfig, requests: BinaryIO, answers: BinaryIO) -> None:
    clock = MonotonicClock()
    target = TargetProcesses(config.addresses)
    generator = SamplerThread("generator", GeneratorSampler(clock, others=OtherProcessesMeter(target=target)), clock)
    others = [SamplerThread(name, sampler, clock) for name, sampler in _samplers(config, target, clock).items()]
    threads: list[SamplerThread[Any]] = [generator, *others]

    def answer(message: object) -> None:
        answers.write(message_bytes(message))
        answers.flush()

    live = _live_run(config, threads)
    exposition, error = _expose(config, live)
    push = _push(config, live)
    receiver, spans_error = _receive(config, clock)
    view = None if config.screen is None else config.screen(clock, functools.partial(_latest, threads, _VIEW_TIMEOUT_S))
    try:
        notes = _start_notes(threads, lambda: answer(Waiting()))
        port, spans_port = exposition.port if exposition else None, receiver.port if receiver else None
        answer(Started(notes, port, error, view is not None, spans_port, spans_error))
        while True:
            match load_message(requests):
                case FollowWorkers(pids):
                    generator.submit(lambda sampler, pids=pids: sampler.follow(pids))  # type: ignore[misc] # mypy cannot infer the default
                case WindowRequest() as request:
                    report = _window_report(threads, request, lambda: answer(Waiting()))
                    answer(report if push is None else WindowReport(report.samplers, (*report.notes, *push.take_notes())))
                case SpansRequest(trace_ids, within_s) if receiver:
                    answer(receiver.collected.report(trace_ids, within_s, lambda: answer(Waiting())))
                case PublishMetrics(key, metrics) if live:
                    live.publish(key, metrics)
                case IntervalTimes() as interval if live:
                    live.add_times(interval)
                case LiveFigures() | PointBegins() | ScreenLines() as shown:
                    view = _show(view, shown)
                case CloseScreen():
                    if view is not None:
                        view.close()
                    answer(ScreenClosed())
                case RunEnded():
                    return
    finally:
        if view is not None:
            view.close()
        if push is not None:
            push.close()
        if exposition is not None:
            exposition.close()
        if receiver is not None:
            receiver.close()
        for thread in threads:
            thread.close(_CLOSE_TIMEOUT_S)


def _show(view: LiveView | None, message: LiveMessage) -> LiveView | None:
    """Shows a message; a failing view ends with a warning on stderr, and lines are printed there from then on. Sampling goes on."""
    if view is not None:
        try:
            view.show(message)
        except Exception as error:  # noqa: BLE001 - a bug in the view must not end the telemetry
            with contextlib.suppress(Exception):
                view.close()
            _print_plainly([f"warning: the live view failed and has ended ({type(error).__name__}: {error}); measuring and sampling go on"])
        else:
            return view
    if isinstance(message, ScreenLines):
        _print_plainly(message.texts)
    return None


def _print_plainly(lines: Iterable[str]) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone
        for line in lines:
            sys.stderr.write(f"{safe_lines(bounded(line))}\n")


def _samplers(config: TelemetryConfig, target: TargetProcesses, clock: MonotonicClock) -> dict[str, Sampler[Any]]:
    """The configured samplers by name, besides the generator's; their libraries are imported only if they are used."""
    samplers: dict[str, Sampler[Any]] = {}
    if config.statistics is not None:
        from perfkit.telemetry.server.sampler import ServerStatisticsSampler

        samplers["statistics"] = ServerStatisticsSampler(config.statistics, clock)
    if (server := config.server_cpu) is not None:
        from perfkit.machine.instruction_counter import EventCounter
        from perfkit.machine.process_tree import ProcessTree
        from perfkit.telemetry.host.server_cpu import ServerCpuSampler

        count = EventCounter if server.with_instructions else None
        samplers["server CPU"] = ServerCpuSampler(ProcessTree(server.pid), target, clock, count)
    if (gpus := config.gpus) is not None:
        from perfkit.telemetry.gpu.sampler import GpuSampler

        samplers["gpu"] = GpuSampler(gpus.rate_per_s, clock, idle_ns=gpus.idle_ns, server_pids=target)
    for number, page in enumerate(config.metrics, 1):
        from perfkit.telemetry.prometheus.sampler import MetricsSampler

        samplers[f"metrics {number}"] = MetricsSampler(page, clock)
    return samplers


def _live_run(config: TelemetryConfig, threads: Sequence[SamplerThread[Any]]) -> "LiveRun | None":
    """The live metrics, if they are served or pushed."""
    if config.listen is None and not config.otlp:
        return None
    from perfkit.telemetry.prometheus.exposition import LiveRun

    return LiveRun(functools.partial(_latest, threads, _LATEST_TIMEOUT_S))


def _expose(config: TelemetryConfig, run: "LiveRun | None") -> "tuple[Exposition | None, str]":
    """Serves the live metrics if configured; otherwise None, with the reason if the port cannot be used."""
    if config.listen is None or run is None:
        return None, ""
    from perfkit.telemetry.prometheus.exposition import Exposition

    return _listening(functools.partial(Exposition, config.listen, run))


def _push(config: TelemetryConfig, run: "LiveRun | None") -> "OtlpPush | None":
    """Pushes the live metrics if configured."""
    if not config.otlp or run is None:
        return None
    from perfkit.telemetry.prometheus.otlp_push import OtlpPush

    os.environ.update(config.otlp_variables)
    return OtlpPush(config.otlp, run, config.otlp_run)


def _receive(config: TelemetryConfig, clock: MonotonicClock) -> "tuple[SpanReceiver | None, str]":
    """Receives spans if configured; otherwise None, with the reason if the port cannot be used."""
    if config.spans is None:
        return None, ""
    from perfkit.telemetry.spans.receiver import SpanReceiver

    return _listening(functools.partial(SpanReceiver, config.spans, clock))


def _listening(listen: Callable[[], _Listener]) -> tuple[_Listener | None, str]:
    try:
        return listen(), ""
    except OSError as error:
        return None, error.strerror or str(error)


def _latest(threads: Sequence[SamplerThread[Any]], timeout_s: float) -> list[Series]:
    """The newest samples of all samplers, without those that do not answer within the timeout."""
    futures = [thread.submit(lambda sampler: sampler.latest()) for thread in threads]
    done, _ = concurrent.futures.wait(futures, timeout_s)
    return [series for future in futures if future in done and future.exception() is None for series in future.result()]


def wait_for_samplers(futures: Iterable["concurrent.futures.Future[Any]"], timeout_s: float, on_second: Callable[[], None]) -> None:
    """Waits until all are done or the timeout has passed; `on_second` is called after each second of waiting."""
    left = set(futures)
    while True:
        _, left = concurrent.futures.wait(left, min(timeout_s, 1.0))
        timeout_s -= 1.0
        if not left or timeout_s <= 0:
            return
        on_second()


def _window_report(threads: Sequence[SamplerThread[Any]], request: WindowRequest, on_second: Callable[[], None]) -> WindowReport:
    def report(sampler: Sampler[Any]) -> tuple[SamplerReport[Any], list[str]]:
        return sampler.window(request.start_ns, request.end_ns), take_notes(sampler)

    futures = {thread.name: thread.submit(report) for thread in threads}
    wait_for_samplers(futures.values(), _WINDOW_TIMEOUT_S, on_second)
    reports, notes, sampler_notes = dict[str, SamplerReport[Any]](), list[str](), list[str]()
    for name, future in futures.items():
        if not future.done():
            notes.append(f"Sampling of {name} hangs: this load point lacks its data.")
        elif (error := future.exception()) is not None:
            notes.append(f"Sampling of {name} failed: {type(error).__name__}: {error}.")
        else:
            reports[name], taken = future.result()
            sampler_notes += taken
    return WindowReport(reports, (*notes, *sampler_notes))


def _start_notes(threads: Sequence[SamplerThread[Any]], on_second: Callable[[], None]) -> tuple[str, ...]:
    """The samplers' notes at their start, and a note for each that has not started in time."""
    futures = {thread.name: thread.submit(take_notes) for thread in threads}
    wait_for_samplers(futures.values(), _START_TIMEOUT_S, on_second)
    late = [f"Sampling of {name} had not started after {_START_TIMEOUT_S:g} s." for name, future in futures.items() if not future.done()]
    return (*(note for future in futures.values() if future.done() for note in future.result()), *late)


if __name__ == "__main__":
    start_without_collection()
    for module in _IMPORTED_AHEAD:
        importlib.import_module(module)
    collect_from_now_on()
    with contextlib.suppress(BrokenPipeError), claim_stdout() as out:  # perfkit has ended
        serve(sys.stdin.buffer, out)
