"""What a run sees beside its requests: the server's own counts, GPUs, metrics, its own machine; and who watches it live."""

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning, UsageError
from perfkit.load.load_plan import LoadPoint
from perfkit.load.loop import StopCause
from perfkit.measurement.load_points import describe_load
from perfkit.measurement.published_metrics import finished_metrics, started_metrics
from perfkit.measurement.resources import Resources
from perfkit.measurement.target import Target
from perfkit.protocol.statistics import ModelStatistics
from perfkit.recorder.recording import Interval
from perfkit.recorder.window import Window
from perfkit.result.model import Point
from perfkit.scenario.credentials import resolve_metrics_url
from perfkit.scenario.model import Scenario
from perfkit.stats.buckets import BucketCounts
from perfkit.target.address import Address
from perfkit.telemetry.client import TelemetryClient, open_telemetry
from perfkit.telemetry.host.event_loop import EVENT_LOOP_LAG, GC_PAUSE
from perfkit.telemetry.host.generator import MachineFigures
from perfkit.telemetry.messages import GpuConfig, IntervalTimes, MetricsPageConfig, PublishMetrics, StatisticsConfig, TelemetryConfig
from perfkit.telemetry.prometheus.figures import MetricsFigures
from perfkit.telemetry.series import SamplerReport, Series
from perfkit.telemetry.server.statistics import ServerStatisticsReader
from perfkit.transport.base import Transport
from perfkit.units import NS_PER_S
from perfkit.workers.point import PointRecording

_STATISTICS_EVERY_NS = NS_PER_S

Connect = Callable[[Address], AbstractAsyncContextManager[Transport]]
"""A transport to an address, for the length of a block."""


@dataclasses.dataclass(frozen=True)
class PointObservation:
    """What was seen of one load point's window."""

    resources: Resources
    series: tuple[Series, ...]
    warnings: tuple[MeasurementWarning, ...]


class Observation:
    """The telemetry of a run; `notes` are sentences for the run as a whole."""

    def __init__(self, scenario: Scenario, watch: TelemetryClient, connect: Connect, clock: Clock) -> None:
        self._scenario, self._watch, self._connect, self._clock = scenario, watch, connect, clock

    @property
    def notes(self) -> Sequence[str]:
        """What was said until now, each once."""
        return tuple(dict.fromkeys(self._watch.notes))

    @property
    def url(self) -> str:
        """Where the run is published for Prometheus; empty where it is not."""
        return self._watch.url

    def point(self, number: int, address: Address) -> "PointTelemetry":
        """That of one load point, counted from 1."""
        target = self._scenario.target

        async def read() -> Sequence[ModelStatistics]:
            async with self._connect(address) as transport:
                return await transport.model_statistics(target.model, target.version)

        return PointTelemetry(number, ServerStatisticsReader(read, self._clock) if self._scenario.telemetry else None, self._watch)

    def point_started(self, number: int, total: int, planned: LoadPoint) -> None:
        """Tells who watches the run that a load point begins; they are counted from 1."""
        load, name = describe_load(planned.load).title, self._scenario.name
        self._watch.publish(
            PublishMetrics("started", tuple(started_metrics(name, number, total, planned.protocol, load, planned.repetition)))
        )

    def point_finished(self, number: int, point: Point) -> None:
        """Tells who watches the run the figures of a load point."""
        self._watch.publish(PublishMetrics(f"finished {number}", tuple(finished_metrics(self._scenario.name, point))))


class PointTelemetry:
    """The telemetry of one load point: `before` its first request, `follow` while it goes on, `after` its last answer."""

    def __init__(self, number: int, statistics: ServerStatisticsReader | None, watch: TelemetryClient) -> None:
        self._number, self._statistics, self._watch = number, statistics, watch

    async def before(self) -> None:
        """Reads what has to be read before anything is sent."""
        if self._statistics is not None:
            await self._statistics.before()

    def follow(self, pids: Sequence[int] = ()) -> None:
        """Says which processes generate the load; this one, where none is named."""
        self._watch.follow(pids or (os.getpid(),))

    def interval(self, interval: Interval) -> None:
        """Hands on a second's times to who watches the run."""
        times = {"service_time": interval.service_time, "response_time": interval.response_time, "start_delay": interval.start_delay}
        self._watch.publish(
            IntervalTimes(self._number, interval.index, {name: packed for name, packed in times.items() if packed is not None})
        )

    async def after(self, recorded: PointRecording, window: Window) -> PointObservation:
        """What there is of the window; it has passed, and every answer has come."""
        if not window.length_ns:
            return PointObservation(Resources(), (), ())
        counts, warnings = None, tuple[MeasurementWarning, ...]()
        if self._statistics is not None and recorded.ending.cause is not StopCause.TARGET_LOST:
            counts, warnings = await self._statistics.after(recorded.recording.sent)
            if recorded.lost:  # their requests stand on the server's side alone
                counts, warnings = None, ()
        seen = (await self._watch.window(window.start_ns, window.end_ns)).observed
        own = [series.between(window.start_ns, window.end_ns) for series in recorded.series]
        machine: SamplerReport[MachineFigures] = seen.get("generator", SamplerReport(None))
        pages: list[SamplerReport[MetricsFigures]] = [observed for name, observed in seen.items() if name.startswith("metrics")]
        gpus = seen["gpu"].summary if "gpu" in seen and seen["gpu"].summary else ()
        known = {gpu.uuid for gpu in gpus}
        told = [gpu for page in pages if page.summary for gpu in page.summary.gpus if gpu.uuid not in known]
        resources = Resources(
            server=counts,
            gpus=(*gpus, *{gpu.uuid: gpu for gpu in told}.values()),
            metrics=tuple(metric for page in pages if page.summary for metric in page.summary.metrics),
            machine=machine.summary,
            lag=BucketCounts.of([value for series in own if series.name == EVENT_LOOP_LAG for value in series.values]),
            gc_pauses_ns=tuple(int(pause) for series in own if series.name == GC_PAUSE for pause in series.values),
        )
        warnings += tuple(warning for observed in seen.values() for warning in observed.warnings)
        return PointObservation(
            resources,
            (*(series for observed in seen.values() for series in observed.series), *(series for series in own if series.values)),
            tuple(MeasurementWarning(code=warning.code, message=warning.message) for warning in dict.fromkeys(warnings)),
        )


@contextlib.asynccontextmanager
async def observing(
    scenario: Scenario, target: Target, connect: Connect, clock: Clock, listen: tuple[str, int] | None
) -> AsyncIterator[Observation]:
    """Samples for the length of the block; `listen` is where the run is published for Prometheus.

    Raises ScenarioError where a variable of a metrics URL is not set, UsageError where it cannot be published.
    """
    if listen is not None and not scenario.telemetry:
        raise UsageError(
            "--prometheus: the scenario's telemetry: false samples nothing, so there is nothing to tell; leave one of the two out"
        )
    wanted = watched(scenario, target, listen) if scenario.telemetry else None
    async with open_telemetry(wanted) as watch:
        if wanted is not None and not wanted.may_see_gpus:
            watch.notes.append(
                "The target is not this machine, and no page of its metrics is named (target.metrics_url): its GPUs are not seen."
            )
        yield Observation(scenario, watch, connect, clock)


def watched(scenario: Scenario, target: Target, listen: tuple[str, int] | None = None) -> TelemetryConfig:
    """What a scenario has sampled; raises ScenarioError where a variable of a metrics URL is not set."""
    urls = [("target.metrics_url", scenario.target.metrics_url)] if scenario.target.metrics_url else []
    urls += [("metrics.url", url) for url in scenario.metrics.url]
    model, addresses = scenario.target.model, tuple(target.addresses.values())
    is_here = all(address.is_local for address in addresses)
    resolved = dict.fromkeys(resolve_metrics_url(key, url) for key, url in urls)
    return TelemetryConfig(
        gpus=GpuConfig(scenario.gpu.sample_rate_per_s, scenario.gpu.idle_ns, addresses) if is_here else None,
        metrics=tuple(
            MetricsPageConfig(url, authorization, model, scenario.metrics.names, scenario.metrics.interval_ns)
            for url, authorization in resolved
        ),
        statistics=StatisticsConfig(addresses[0], model, scenario.target.version, _STATISTICS_EVERY_NS),
        listen=listen,
    )
