"""The `metrics`, `gpu` and `traces` sections of a scenario: what is sampled besides the requests, and the spans of some of them."""

import re
from typing import TYPE_CHECKING, Annotated, Self

import pydantic
from pydantic import AfterValidator, Field

from perfkit.scenario.load import ColdStartLoadSpec, IdleLoadSpec, LoadSpec, SurgeLoadSpec
from perfkit.scenario.section import Duration, OneOrMoreTexts, Rate, Section, Share, Text, parse_host_and_port
from perfkit.scenario.target import MetricsUrl, Target
from perfkit.units import write_duration_ns

if TYPE_CHECKING:  # figures are imported after the first request
    from perfkit.figures.resources import Stage

_SHORTEST_INTERVAL_NS = 10_000_000
_METRIC_NAME = re.compile(r"[A-Za-z0-9_:*]+")
DEFAULT_SAMPLE_PER_S = 100.0
_EXAMPLE_LISTEN = "127.0.0.1:4318"


def _check_name(name: str) -> str:
    if not _METRIC_NAME.fullmatch(name):
        raise ValueError(f"expected a metric's name, in which * stands for any characters, found {name!r}")
    return name


def _check_whole_name(name: str) -> str:
    if "*" in _check_name(name) or name.endswith(("_bucket", "_sum", "_count")):
        raise ValueError(f"expected the name of a histogram or summary, without *, _bucket, _sum and _count, found {name!r}")
    return name


MetricName = Annotated[Text, AfterValidator(_check_whole_name)]


def _check_interval(interval_ns: int) -> int:
    if interval_ns < _SHORTEST_INTERVAL_NS:
        raise ValueError(f"expected at least {write_duration_ns(_SHORTEST_INTERVAL_NS)}, found {write_duration_ns(interval_ns)}")
    return interval_ns


class Metrics(Section):
    """Additional Prometheus pages, such as that of a DCGM exporter, and how all pages are read."""

    url: Annotated[tuple[MetricsUrl, ...], OneOrMoreTexts] = ()
    """Prometheus pages to sample."""
    names: tuple[Annotated[Text, AfterValidator(_check_name)], ...] = ()
    """Metrics to store besides `nv_*` and `DCGM_FI_*`; `*` stands for any characters."""
    interval_ns: Annotated[Duration, AfterValidator(_check_interval)] = Field(default=1_000_000_000, alias="interval")
    """The time between two readings of a page."""
    queue: MetricName | None = None
    """The histogram or summary of the time in the server's queue, without `_bucket`, `_sum` and `_count`, where perfkit does not know it. Its unit is
    the end of its name, such as `_ms`; seconds without one."""
    preprocess: MetricName | None = None
    """The histogram or summary of the time to prepare inputs, named as that of `queue`."""
    inference: MetricName | None = None
    """The histogram or summary of the time of the inference itself, named as that of `queue`."""
    postprocess: MetricName | None = None
    """The histogram or summary of the time to take the outputs, named as that of `queue`."""
    total: MetricName | None = None
    """The histogram or summary of a request's whole time in the server, named as that of `queue`."""

    @property
    def stages(self) -> "dict[Stage, str]":
        """The metrics by the stages that they are of."""
        stages: tuple[Stage, ...] = ("queue", "preprocess", "inference", "postprocess", "total")
        return {stage: name for stage in stages if (name := getattr(self, stage)) is not None}


class Gpu(Section):
    """Sampling of this machine's GPUs through their driver, if the target is local."""

    sample_rate_per_s: Rate = Field(default=20.0, alias="sample_rate", le=1000)
    """The maximum rate; values that change less often are sampled less often."""
    idle_ns: Duration = Field(default=2_000_000_000, alias="idle", le=8_000_000_000)
    """How long the GPUs' idle power is measured before the run; 0s turns this off."""


def _check_listen(text: str) -> str:
    _, port = parse_host_and_port(text, _EXAMPLE_LISTEN)
    if not port:  # a server must know the port: none that is free
        raise ValueError(f"expected a host and a port, such as {_EXAMPLE_LISTEN}, found {text!r}")
    return text


class Traces(Section):
    """Requests chosen at random carry a `traceparent` header, and the server's spans of them (OpenTelemetry) tell where their time went."""

    listen: Annotated[Text, AfterValidator(_check_listen)] | None = None
    """The host and port at which perfkit receives spans by OTLP over HTTP; by default, for the bundled server, a free port."""
    files: Annotated[tuple[Text, ...], OneOrMoreTexts] = ()
    """In place of `listen`: files of OTLP JSON lines that a collector writes while the load is sent, or trace files of Triton, by name or pattern."""
    sample_per_s: Rate | None = Field(default=None, alias="sample")
    """The number of requests to trace per second; by default 100/s, unless `share` is given."""
    share: Share | None = Field(default=None, gt=0)
    """In place of `sample`: the share of the requests to trace."""

    @pydantic.model_validator(mode="after")
    def _has_one_source_and_one_rate(self) -> Self:
        if self.sample_per_s is not None and self.share is not None:
            raise ValueError("sample and share exclude each other: remove one")
        if self.listen is not None and self.files:
            raise ValueError("listen and files exclude each other: remove one")
        return self

    @property
    def listen_at(self) -> tuple[str, int] | None:
        """The host and port of `listen`."""
        return None if self.listen is None else parse_host_and_port(self.listen, _EXAMPLE_LISTEN)

    @property
    def rate_per_s(self) -> float | None:
        """The requests to trace per second; None if a share is given."""
        return None if self.share is not None else self.sample_per_s or DEFAULT_SAMPLE_PER_S


def check_traces(traces: Traces, target: Target, load: LoadSpec, *, is_streamed: bool, telemetry: bool) -> None:
    """Raises ValueError if requests cannot be traced; the other arguments are the scenario's sections."""
    if is_streamed:
        raise ValueError("traces follow single requests: remove stream, or traces")
    if isinstance(load, IdleLoadSpec | ColdStartLoadSpec | SurgeLoadSpec):
        raise ValueError("traces need a steady load: give load.closed, load.open, load.replay or load.search, or remove traces")
    if any(name.lower() == "traceparent" for name in target.headers):
        raise ValueError("target.headers: traces set the header traceparent: remove it")
    if traces.files and target.compression != "none":
        raise ValueError("traces.files: compressed requests cannot carry an id of their own: remove target.compression, or give listen")
    if not telemetry and not traces.files:
        raise ValueError("traces.listen is served by the process that samples telemetry: remove telemetry: false, or give traces.files")
    has_own_server = bool(target.urls_by_protocol or target.command)
    if traces.files and not has_own_server:
        raise ValueError(
            "traces.files: the bundled server sends its spans to perfkit, and writes no file: remove files, or give target.url"
        )
    if has_own_server and traces.listen is None and not traces.files:
        raise ValueError(
            "traces: perfkit must know where the server sends its spans: give listen, such as 127.0.0.1:4318, and start the server with "
            "that address, such as --trace-config mode=opentelemetry --trace-config opentelemetry,url=http://127.0.0.1:4318/v1/traces"
        )
