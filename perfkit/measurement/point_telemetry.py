"""The telemetry of one load point: what is read before and after it, and what the samplers report for its window."""

import asyncio
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning
from perfkit.figures.resources import EVENT_LOOP_LAG, GC_PAUSE, MachineFigures
from perfkit.load.loop import StopCause
from perfkit.points.measured import Resources
from perfkit.recorder.recent import LiveFigures
from perfkit.recorder.recording import AnswerTotals, Recording
from perfkit.recorder.window import Window
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.client import TelemetryClient
from perfkit.telemetry.messages import (
    IntervalTimes,
    ModelVersion,
)
from perfkit.telemetry.prometheus.server_times import PageReport, ServerTime, added
from perfkit.telemetry.series import SamplerReport, Series, Span
from perfkit.telemetry.server.statistics import ServerCounts, ServerStatisticsReader
from perfkit.workers.point_recording import PointRecording, WorkloadRecording


@dataclasses.dataclass(frozen=True)
class PointObservation:
    """What telemetry reports for the window of one load point."""

    resources: Resources
    series: tuple[Series, ...]
    warnings: tuple[MeasurementWarning, ...]
    servers: Mapping[int, tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]] = dataclasses.field(default_factory=dict)
    """The server's counts for each workload of a mix that can be told apart, and warnings about them."""
    server_times: Mapping[int, tuple[ServerTime, ...]] = dataclasses.field(default_factory=dict)
    """The same of its page of metrics."""

    def of_workload(self, number: int) -> "PointObservation":
        """What holds for one workload of a mix: the server's CPU time, GPUs and other metrics are those of all together."""
        counts, warnings = self.servers.get(number, (None, ()))
        times = self.server_times.get(number, ())
        own = dataclasses.replace(self.resources, server=counts, server_times=times, server_cpu=None, gpus=(), metrics=())
        return PointObservation(own, (), warnings)


class PointTelemetry:
    """The telemetry of one load point, from `begin` before its first request to `finish` after its last answer.

    `statistics` are readers with the numbers of the workloads whose requests they count, `models` the models of the workloads. With
    `has_own_page` the first page of metrics is the server's own; with `starts_gpu_server` perfkit started the server on a GPU.
    """

    def __init__(
        self,
        number: int,
        statistics: Sequence[tuple[ServerStatisticsReader, tuple[int, ...]]],
        models: Sequence[ModelVersion],
        client: TelemetryClient,
        clock: Clock,
        *,
        has_own_page: bool = False,
        is_mix: bool = False,
        starts_gpu_server: bool = False,
    ) -> None:
        self._number, self._statistics, self._models, self._client, self._clock = number, statistics, models, client, clock
        self._began_ns, self._has_own_page, self._is_mix = 0, has_own_page, is_mix
        self._starts_gpu_server = starts_gpu_server

    async def begin(self) -> None:
        """Takes the readings that are due before any request is sent."""
        for reader, _ in self._statistics:
            await reader.before()
            self._began_ns = self._clock.now_ns()

    def follow(self, pids: Sequence[int] = ()) -> None:
        """Names the processes of this machine that generate the load; with a fleet none does, and this process is sampled."""
        self._client.follow(pids or (os.getpid(),))

    def publish_times(self, piece: Recording) -> None:
        """Publishes the times of each second of a recording's piece as live metrics, if they are served."""
        for second, times in piece.times_by_second() if self._client.is_published else ():
            self._client.publish(IntervalTimes(self._number, second, times))

    @property
    def show_live(self) -> Callable[[LiveFigures], None] | None:
        """The function that shows figures in the live view; None without a live view."""
        return self._client.show if self._client.has_screen else None

    async def finish(self, recorded: PointRecording, window: Window) -> PointObservation:
        """Collects what was sampled in the window, after the last answer."""
        if not window.length_ns:
            return PointObservation(Resources(), (), ())
        counts, warnings = None, tuple[MeasurementWarning, ...]()
        servers = dict[int, _Counted]()
        workloads = recorded.workloads
        # the server counted requests of lost workers, which the recording lacks
        is_countable = recorded.ending.cause is not StopCause.TARGET_LOST and not recorded.lost
        counted, sampled = await asyncio.gather(  # at the same time, since each load point waits for both
            self._counted(workloads if is_countable else ()), self._client.window(window.start_ns, window.end_ns)
        )
        for numbers, read in counted:
            if len(numbers) == len(workloads):
                counts, warnings = read
            if self._is_mix and len(numbers) == 1:
                servers[numbers[0]] = read
        reports = sampled.samplers
        if counts is not None and (reset := self._server_reset(reports)):
            counts, warnings, servers = None, (reset,), {}
        if self._client.lost:
            warnings += (MeasurementWarning("telemetry_lost", f"{self._client.lost} This load point lacks it."),)
        warnings += tuple(warning for report in reports.values() for warning in report.warnings)
        if recorded.machines:  # this machine drives a fleet, and sends no load
            reports = {name: report for name, report in reports.items() if name != "generator"}
        own = [series.between(window.start_ns, window.end_ns) for series in recorded.series]
        machine: SamplerReport[MachineFigures] = reports.get("generator", SamplerReport(None))
        pages: list[SamplerReport[PageReport]] = [report for name, report in reports.items() if name.startswith("metrics")]
        times = {
            place: added(time for page in pages if page.summary for time in page.summary.times.get(model, ()))
            for place, model in enumerate(self._models)
            if _is_apart(place, self._models)
        }
        gpus = reports["gpu"].summary if "gpu" in reports and reports["gpu"].summary else ()
        known = {gpu.uuid for gpu in gpus}
        reported = [gpu for page in pages if page.summary for gpu in page.summary.gpus if gpu.uuid not in known]
        resources = Resources(
            server=counts,
            server_times=() if self._is_mix else times.get(0, ()),
            server_cpu=reports["server CPU"].summary if "server CPU" in reports else None,
            gpus=(*gpus, *{gpu.uuid: gpu for gpu in reported}.values()),
            server_has_gpu=self._starts_gpu_server or any(gpu.used_by_server for gpu in gpus) or self._has_gpu_page(reports),
            metrics=tuple(metric for page in pages if page.summary for metric in page.summary.metrics),
            machine=machine.summary,
            event_loop_lag=BucketCounts.of([value for series in own if series.name == EVENT_LOOP_LAG for value in series.values]),
            gc_pauses_ns=tuple(int(pause) for series in own if series.name == GC_PAUSE for pause in series.values),
        )
        return PointObservation(
            resources,
            (*(series for report in reports.values() for series in report.series), *(series for series in own if series.values)),
            tuple(dict.fromkeys(warnings)),
            servers,
            times,
        )

    async def _counted(self, workloads: Sequence[WorkloadRecording]) -> "list[tuple[tuple[int, ...], _Counted]]":
        """What each reader of statistics says of its workloads, by their numbers; nothing without workloads."""
        readers = self._statistics if workloads else ()
        return [(numbers, await _after(reader, [workloads[number] for number in numbers])) for reader, numbers in readers]

    def _has_gpu_page(self, reports: Mapping[str, SamplerReport[Any]]) -> bool:
        """Whether the server's metrics page lists a GPU, as Triton's does."""
        own_page: SamplerReport[PageReport] | None = reports.get("metrics 1") if self._has_own_page else None
        return own_page is not None and own_page.summary is not None and bool(own_page.summary.gpus)

    def _server_reset(self, reports: Mapping[str, SamplerReport[Any]]) -> MeasurementWarning | None:
        """The warning about a server whose counters fell between two readings since the one before the load."""
        resets: Sequence[Span] = (reports["statistics"].summary or ()) if "statistics" in reports else ()
        own_page = reports.get("metrics 1") if self._has_own_page else None
        has_restarted = own_page is not None and any(warning.code == "metrics_reset" for warning in own_page.warnings)
        if not has_restarted and not any(fell_by_ns >= self._began_ns for _, fell_by_ns in resets):
            return None
        message = (
            "The server's counters fell during the load: the server restarted, reloaded the model, or replicas with separate counters "
            "answer in turn, so the point has no server figures."
        )
        return MeasurementWarning("server_counters_reset", message)


def _is_apart(place: int, models: Sequence[ModelVersion]) -> bool:
    """Whether a page of metrics can tell the requests of a workload from those of the others by model and version."""
    name, version = models[place]
    others = [other for number, (other_name, other) in enumerate(models) if number != place and other_name == name]
    return not others or (bool(version) and all(other not in ("", version) for other in others))


_Counted: TypeAlias = tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]


async def _after(reader: ServerStatisticsReader, workloads: Sequence[WorkloadRecording]) -> _Counted:
    sent = AnswerTotals.added(one.recording.answer_totals for one in workloads)
    # a request that was sent again may have been answered on the lost connection, too
    retried = sum(one.connections.retried for one in workloads)
    sent = sent._replace(perhaps_answered=sent.perhaps_answered + retried)
    return await reader.after(sent, sum(one.connections.reconnects for one in workloads))
