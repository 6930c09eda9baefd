"""The process that samples for a run: orders come on its stdin, answers go out on its stdout, and it ends with its stdin."""

import concurrent.futures
import contextlib
import os
import pickle
import sys
from typing import TYPE_CHECKING, Any, BinaryIO

from perfkit.clock import MonotonicClock
from perfkit.telemetry.host.generator import GeneratorSampler
from perfkit.telemetry.messages import FollowWorkers, IntervalTimes, PublishMetrics, Started, TelemetryConfig, WindowReport, WindowRequest
from perfkit.telemetry.prometheus.exposition import Exposition, PublishedRun
from perfkit.telemetry.sampler_thread import SamplerThread
from perfkit.telemetry.series import Sampler, SamplerReport, Series

if TYPE_CHECKING:
    from perfkit.telemetry.prometheus.live_times import LiveTimes

# a rest is 8 s at most, and a driver that nothing else holds open takes seconds a GPU; Prometheus waits 10 s for a page
_STARTS_WITHIN_S, _ANSWERS_WITHIN_S, _SHOWS_WITHIN_S, _ENDS_WITHIN_S = 40.0, 20.0, 5.0, 2.0


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """Takes orders until there come none any more; whoever gave them may go away in the middle of one, or of an answer."""
    with contextlib.suppress(EOFError, pickle.UnpicklingError, BrokenPipeError):
        _serve(orders, answers)


def _serve(orders: BinaryIO, answers: BinaryIO) -> None:
    clock = MonotonicClock()
    watched: TelemetryConfig = pickle.load(orders)  # noqa: S301 - from our own process, through a pipe of ours
    generator = SamplerThread("generator", GeneratorSampler(clock), clock)
    others = [SamplerThread(name, sampler, clock) for name, sampler in _samplers(watched, clock).items()]
    driven: list[SamplerThread[Any]] = [generator, *others]

    def latest() -> list[Series]:
        asked = [one.ask(lambda sampler: sampler.latest()) for one in driven]
        done, _ = concurrent.futures.wait(asked, _SHOWS_WITHIN_S)  # one that hangs has nothing to show
        return [series for one in asked if one in done and one.exception() is None for series in one.result()]

    def answer(message: object) -> None:
        pickle.dump(message, answers)
        answers.flush()

    run, times, error, server = PublishedRun(latest), None, "", None
    if watched.listen is not None:
        try:
            server = Exposition(watched.listen, run)
        except OSError as failure:
            error = failure.strerror or str(failure)
    try:
        answer(Started(_begun(driven), server.port if server else None, error))
        while True:
            match pickle.load(orders):  # noqa: S301 - as above
                case FollowWorkers(pids):
                    generator.ask(lambda sampler, pids=pids: sampler.follow(pids))  # type: ignore[misc]
                case WindowRequest() as window:
                    answer(_seen(driven, window))
                case PublishMetrics(key, metrics):
                    run.publish(key, metrics)
                case IntervalTimes() as second:
                    times = times or _live_times()
                    times.add(second)
                    run.publish("times", times.metrics())
    finally:
        if server is not None:
            server.close()
        for one in driven:
            one.close(_ENDS_WITHIN_S)


def _samplers(watched: TelemetryConfig, clock: MonotonicClock) -> dict[str, Sampler[Any]]:
    """What is asked for beside the generator, by name; the libraries are imported with it."""
    samplers: dict[str, Sampler[Any]] = {}
    if watched.statistics is not None:
        from perfkit.telemetry.server.sampler import ServerStatisticsSampler

        samplers["statistics"] = ServerStatisticsSampler(watched.statistics, clock)
    if (gpus := watched.gpus) is not None:
        from perfkit.telemetry.gpu.sampler import GpuSampler
        from perfkit.telemetry.server.processes import ServerProcesses

        samplers["gpu"] = GpuSampler(gpus.rate_per_s, clock, rest_ns=gpus.rest_ns, server_pids=ServerProcesses(gpus.addresses))
    for number, page in enumerate(watched.metrics):
        from perfkit.telemetry.prometheus.sampler import MetricsSampler

        samplers[f"metrics {number + 1}"] = MetricsSampler(page, clock)
    return samplers


def _live_times() -> "LiveTimes":
    from perfkit.telemetry.prometheus.live_times import LiveTimes

    return LiveTimes()


def _seen(driven: list[SamplerThread[Any]], window: WindowRequest) -> WindowReport:
    asked = {one.name: one.ask(lambda sampler: sampler.window(window.start_ns, window.end_ns)) for one in driven}
    concurrent.futures.wait(asked.values(), _ANSWERS_WITHIN_S)
    observed: dict[str, SamplerReport[Any]] = {}
    notes = []
    for name, answer in asked.items():
        if not answer.done():
            notes.append(f"Sampling of {name} hangs: there is nothing of this load point.")
        elif (error := answer.exception()) is not None:
            notes.append(f"Sampling of {name} failed: {type(error).__name__}: {error}.")
        else:
            observed[name] = answer.result()
    return WindowReport(observed, (*notes, *_notes([one for one in driven if one.name in observed], _ANSWERS_WITHIN_S)))


def _begun(driven: list[SamplerThread[Any]]) -> tuple[str, ...]:
    """What they noted at their start, and which have not come through it."""
    asked = {one.name: one.take_notes() for one in driven}
    concurrent.futures.wait(asked.values(), _STARTS_WITHIN_S)
    late = [f"Sampling of {name} had not begun after {_STARTS_WITHIN_S:g} s." for name, answer in asked.items() if not answer.done()]
    return (*(note for answer in asked.values() if answer.done() for note in answer.result()), *late)


def _notes(driven: list[SamplerThread[Any]], within_s: float) -> tuple[str, ...]:
    """What all of them noted; one that does not answer is passed over, and may say it later."""
    asked = [one.take_notes() for one in driven]
    done, _ = concurrent.futures.wait(asked, within_s)
    return tuple(note for one in asked if one in done for note in one.result())


if __name__ == "__main__":
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print must not look like an answer
        serve(sys.stdin.buffer, answers)
