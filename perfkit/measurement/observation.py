"""The telemetry of a run: server statistics, GPUs, metrics pages and the generator's machine; and its live metrics."""

import collections
import dataclasses
import importlib.util
import os
from collections.abc import Mapping, Sequence

from perfkit.clock import Clock
from perfkit.errors import UsageError
from perfkit.installation import install_command
from perfkit.load.point import LoadPoint
from perfkit.measurement.load_points import describe_point
from perfkit.measurement.point_telemetry import PointTelemetry
from perfkit.measurement.run_target import RunTarget
from perfkit.measurement.shared_memory import Connect
from perfkit.measurement.target_probe import ProbedWorkload
from perfkit.protocol.statistics import ModelStatistics
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import Point
from perfkit.scenario.credentials import resolve_metrics_url, secrets_of
from perfkit.scenario.load import ColdStartLoadSpec
from perfkit.scenario.mix import MixedWorkload
from perfkit.scenario.model import Scenario
from perfkit.spans.server_times import ServerTimes
from perfkit.telemetry.client import TelemetryClient
from perfkit.telemetry.messages import (
    GpuConfig,
    LiveMetric,
    MetricsPageConfig,
    ModelVersion,
    OpenView,
    PointBegins,
    PublishConfig,
    PublishMetrics,
    ServerCpuConfig,
    SpansConfig,
    StatisticsConfig,
    TelemetryConfig,
)
from perfkit.telemetry.server.statistics import ComposingModelsReader, OtherClients, ServerStatisticsReader
from perfkit.units import NS_PER_S

_LOST_SPANS = {
    "refused_bodies": "refused bodies (too large, no OTLP, another compression, or too slow)", "malformed": "malformed spans",
    "late": "spans that came too late", "dropped": "spans without room",
}  # fmt: skip
"""By the names of `SpanCounts`; strangers' spans and repeated ones do no harm."""


class Observation:
    """The telemetry of a run."""

    def __init__(
        self, scenario: Scenario, client: TelemetryClient, connect: Connect, clock: Clock, *, starts_gpu_server: bool = False
    ) -> None:
        self._scenario, self._client, self._connect, self._clock = scenario, client, connect, clock
        self._starts_gpu_server = starts_gpu_server
        self._span_counts = collections.Counter[str]()
        self._others = collections.defaultdict[tuple[object, ...], OtherClients](OtherClients)

    @property
    def notes(self) -> Sequence[str]:
        """Notes on the run as a whole, so far; no sentence twice."""
        return tuple(dict.fromkeys(self._client.notes))

    @property
    def url(self) -> str:
        """The URL of the live metrics; empty if none are served."""
        return self._client.url

    def point(self, number: int, workloads: Sequence[ProbedWorkload], *, is_mix: bool = False) -> PointTelemetry:
        """The telemetry of one load point; the first has the number 1."""
        models = [(one.scenario.target.model, one.scenario.target.version) for one in workloads]
        # a start resets the server's statistics
        if not self._scenario.telemetry or isinstance(self._scenario.load, ColdStartLoadSpec):
            return PointTelemetry(number, (), models, self._client, self._clock, is_mix=is_mix)
        groups = list[list[int]]()
        for place, one in enumerate(workloads):
            same = next((group for group in groups if _share_statistics(workloads[group[0]], one)), None)
            if same is None:
                groups.append([place])
            else:
                same.append(place)
        readers = [(self._statistics(workloads[group[0]]), tuple(group)) for group in groups]
        has_own_page = self._scenario.target.metrics_url is not None
        return PointTelemetry(
            number,
            readers,
            models,
            self._client,
            self._clock,
            has_own_page=has_own_page,
            is_mix=is_mix,
            starts_gpu_server=self._starts_gpu_server,
        )

    def _statistics(self, one: ProbedWorkload) -> ServerStatisticsReader:
        target, address, composing_models = one.scenario.target, one.address, one.probed.composing_models

        async def read() -> Sequence[ModelStatistics]:
            async with self._connect(address) as client:
                return address.redacted(tuple(await client.model_statistics(target.model, target.version)))

        async def read_composing() -> Mapping[str, Sequence[ModelStatistics]]:
            async with self._connect(address) as client:
                counted = {one.name: await client.model_statistics(one.name, one.version) for one in composing_models}
            # the server has chosen the names of its ensemble's models, and their versions
            return {address.redact(name): address.redacted(tuple(versions)) for name, versions in counted.items()}

        composing = ComposingModelsReader(read_composing) if composing_models else None
        return ServerStatisticsReader(read, self._clock, composing, self._others[target.model, target.version, address.host, address.port])

    async def spans(self, trace_ids: Sequence[str], within_s: float) -> Mapping[str, ServerTimes]:
        """What the server's spans say of these traces; waits at most `within_s` for them."""
        report = await self._client.spans(trace_ids, within_s)
        self._span_counts.update(dataclasses.asdict(report.counts))
        return report.times

    def note_lost_spans(self) -> None:
        """Adds a note on the server's spans that could not be used, if there were any; called once they have all been taken."""
        told = [f"{words}: {self._span_counts[name]:,}" for name, words in _LOST_SPANS.items() if self._span_counts[name]]
        if told:
            self._client.notes.append(f"Not all that the server sent of traced requests could be used; {', '.join(told)}.")

    @property
    def has_screen(self) -> bool:
        """Whether there is a live view."""
        return self._client.has_screen

    def show_line(self, text: str) -> bool:
        """Prints a line above the live view; False if the live view has ended."""
        return self._client.show_line(text)

    async def close_screen(self) -> None:
        """Removes the live view."""
        await self._client.close_screen()

    def point_begins(self, begins: PointBegins) -> None:
        """Shows in the live view which load point begins."""
        self._client.show(begins)

    def point_started(self, number: int, total: int, load_point: LoadPoint) -> None:
        """Publishes live metrics: load point `number` of `total` begins, counted from 1."""
        self._client.publish(PublishMetrics("started", tuple(_started_metrics(self._scenario.name, number, total, load_point))))

    def point_finished(self, number: int, point: Point) -> None:
        """Publishes the figures of a finished load point as live metrics."""
        self._client.publish(PublishMetrics(f"finished {number}", tuple(_finished_metrics(self._scenario.name, point))))


def _share_statistics(first: ProbedWorkload, second: ProbedWorkload) -> bool:
    """Whether a server counts the requests of two workloads together, as far as their addresses tell."""
    models = [(one.scenario.target.model, one.scenario.target.version, one.address.host) for one in (first, second)]
    is_one_port = first.address.port == second.address.port
    return models[0] == models[1] and (is_one_port or first.address.protocol != second.address.protocol)


async def observe(
    scenario: Scenario,
    target: RunTarget,
    client: TelemetryClient,
    connect: Connect,
    clock: Clock,
    publish_at: PublishConfig | None,
    screen: "OpenView | None" = None,
    spans: SpansConfig | None = None,
    server_pid: int | None = None,
) -> Observation:
    """Starts the samplers of `client` and waits until they run.

    `publish_at` says where live metrics are served or pushed, `screen` opens a live view. `spans` says where the spans of traced requests are
    received, `server_pid` which process is the server's first. Raises ScenarioError if a variable of a metrics URL is not set, UsageError if
    the port cannot be opened.
    """
    if publish_at is not None:
        option = "--prometheus" if publish_at.listen else "--otlp"
        if not scenario.telemetry:
            raise UsageError(f"{option}: the scenario turns telemetry off, so there are no live metrics; remove telemetry: false")
        if publish_at.otlp and not _has_exporter():
            raise UsageError(f"--otlp needs OpenTelemetry's exporter: {install_command('tracing')}")
    config = None
    if scenario.telemetry:
        config = dataclasses.replace(telemetry_config(scenario, target, publish_at, server_pid), screen=screen, spans=spans)
    if config is not None:
        await client.configure(config)
        if not config.may_see_gpus:
            client.notes.append(
                "GPUs are not measured, because the target runs on another machine: set target.metrics_url to its metrics page."
            )
    device = "" if target.server is None else str(target.server.description.get("device", ""))
    return Observation(scenario, client, connect, clock, starts_gpu_server=device.startswith("cuda"))


def telemetry_config(
    scenario: Scenario, target: RunTarget, publish_at: PublishConfig | None = None, server_pid: int | None = None
) -> TelemetryConfig:
    """What telemetry samples for a scenario; raises ScenarioError if a variable of a metrics URL is not set.

    `server_pid` is the first process of a server that was started outside of the run; otherwise it is that of the target.
    """
    if server_pid is None and target.server is not None and not isinstance(scenario.load, ColdStartLoadSpec):  # which restarts it
        server_pid = target.server.pid
    with_instructions = scenario.gate is not None and "instructions" in (scenario.gate.metrics or ())
    urls = [("target.metrics_url", scenario.target.metrics_url)] if scenario.target.metrics_url else []
    urls += [("metrics.url", url) for url in scenario.metrics.url]
    model, addresses = scenario.target.model, tuple(target.addresses.values())
    is_here = all(address.is_local for address in addresses)
    resolved = dict.fromkeys(resolve_metrics_url(key, url) for key, url in urls)
    secrets = frozenset[str]().union(*(address.secrets for address in addresses), *(secrets_of(value) for _, value in resolved))
    return TelemetryConfig(
        addresses=tuple(one for address in addresses for one in (address, *address.replicas)),
        gpus=GpuConfig(scenario.gpu.sample_rate_per_s, scenario.gpu.idle_ns) if is_here else None,
        metrics=tuple(
            MetricsPageConfig(
                url,
                authorization,
                model,
                scenario.metrics.names,
                scenario.metrics.interval_ns,
                secrets,
                scenario.target.version,
                tuple(dict.fromkeys(_model_of(scenario, one) for one in scenario.workloads or ())),
                scenario.metrics.stages,
            )
            for url, authorization in resolved
        ),
        # of several models the series could not be told apart, and a start resets them
        statistics=None
        if scenario.workloads or isinstance(scenario.load, ColdStartLoadSpec)
        else StatisticsConfig(addresses[0], model, scenario.target.version, NS_PER_S, bool(urls)),
        server_cpu=None if server_pid is None else ServerCpuConfig(server_pid, with_instructions),
        listen=publish_at.listen if publish_at else None,
        otlp=publish_at.otlp if publish_at else "",
        otlp_run=publish_at.run if publish_at else "",
        otlp_variables={name: value for name, value in os.environ.items() if publish_at and name.startswith("OTEL_")},
    )


def _has_exporter() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:  # of one of its parents
        return False


def _model_of(scenario: Scenario, workload: MixedWorkload) -> ModelVersion:
    target, own = scenario.target, workload.target or {}
    return str(workload.model or own.get("model") or target.model), str(workload.version or own.get("version") or target.version)


def _started_metrics(scenario: str, number: int, total: int, load_point: LoadPoint) -> list[LiveMetric]:
    labels = {
        "scenario": scenario,
        "protocol": "mixed" if load_point.is_mix else load_point.parts[0].protocol,
        "load": describe_point(load_point).title,
        "repetition": str(load_point.repetition + 1),
    }
    return [
        LiveMetric("points", "Load points of the run, repetitions included.", "gauge", {"scenario": scenario}, total),
        LiveMetric("point_number", "Number of the current load point, from 1.", "gauge", {"scenario": scenario}, number),
        LiveMetric("point_info", "1 for the current load point.", "gauge", labels, 1),
    ]


def _finished_metrics(scenario: str, point: Point) -> list[LiveMetric]:
    """Times are in seconds, as is usual for Prometheus."""
    labels = {"scenario": scenario, "protocol": point.protocol, "load": point.load.title, "repetition": str((point.repetition or 0) + 1)}
    if point.workload is not None:
        labels["workload"] = f"{point.workload}{' alone' * point.alone}"
    metrics = [
        LiveMetric("point_throughput_per_second", "Successful responses per second.", "gauge", labels, point.throughput_per_s),
        LiveMetric("point_error_ratio", "1 - ok / scheduled requests.", "gauge", labels, point.error_rate),
        LiveMetric(
            "point_valid",
            "1 if the figures are those of the target when warm, 0 if the load generator limited them or the target was cold.",
            "gauge",
            labels,
            int(point.valid),
        ),
    ]
    for name, quantile in QUANTILES.items():
        value_ns = getattr(point.times, name)
        if value_ns is not None and point.times.count:
            text = f"Percentiles of the {point.times_name}, as far as there are enough samples."
            quantile_labels = {**labels, "quantile": f"{quantile:g}"}
            metrics.append(
                LiveMetric(f"point_{point.times_name.replace(' ', '_')}_seconds", text, "gauge", quantile_labels, value_ns / NS_PER_S)
            )
    return metrics
