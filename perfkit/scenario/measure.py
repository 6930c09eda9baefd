"""The sections `measure` and `fleet` of a scenario (how long, how often and from where load is sent), `gate` and `rank` (how results are compared)."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

import pydantic
from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer, SerializerFunctionWrapHandler, WithJsonSchema

from perfkit.scenario.load import ClosedLoadSpec, ColdStartLoadSpec, IdleLoadSpec, LoadSpec, WarmUpLoadSpec
from perfkit.scenario.section import (
    Count,
    Cpus,
    Duration,
    OneOrMoreTexts,
    Rate,
    Section,
    Share,
    Size,
    Text,
    parse_duration,
    parse_host_and_port,
)
from perfkit.scenario.workload import SharedMemorySpec
from perfkit.units import NS_PER_S, write_duration_ns

_EXAMPLE, _PORT = "10.0.0.5:8790", 8790
LOOKS = 4
"""How often `measure.until_decided` looks at a verdict: after the repetitions, and after twice, four and eight times as many."""
DASK_SCHEMES = ("tcp", "tls", "ws", "wss")
"""How the address of a Dask scheduler may begin."""


class WarmUp(Section):
    """What is sent before the window; `warmup: 10s` stands for `warmup: {for: 10s}`."""

    for_ns: Annotated[
        int | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else parse_duration(value)),
        PlainSerializer(lambda value: value if value == "auto" else write_duration_ns(value)),
        WithJsonSchema({"type": ["string", "integer"], "examples": ["auto", "2s"]}),
    ] = Field(default="auto", alias="for")
    """How long it lasts. `auto` excludes the first second, and any part of the window's first third that is not steady yet; where the target was
    cold, it measures again."""
    load: WarmUpLoadSpec | None = None
    """A load of its own, closed or open with a single value, such as `{closed: {concurrency: 8}}`; None for that of the load point. The load
    point's own load follows for a second that is excluded, too; the requests of a trace are all in the window."""

    @pydantic.model_validator(mode="after")
    def _has_one_load(self) -> Self:
        if self.load is None:
            return self
        if self.for_ns == "auto":
            raise ValueError("a warm-up with a load of its own has a length: give for, such as for: 10s")
        if given := [key for key in ("abandon", "retry") if getattr(self.load, key) is not None]:
            raise ValueError(f"a warm-up sends each request once and waits for its answer: remove {' and '.join(given)}")
        if isinstance(self.load, ClosedLoadSpec):
            if self.load.closed.ramp is not None:
                raise ValueError("a scan is no warm-up: give a number of requests in flight, such as concurrency: 8")
            if len(self.load.closed.levels) > 1:
                raise ValueError(f"a warm-up has one load: give one concurrency, found {list(self.load.closed.levels)}")
        elif self.load.open.shape is not None or self.load.open.trace is not None:
            raise ValueError("a warm-up has a steady rate, such as rate: 50/s: remove shape and trace")
        elif len(self.load.open.rates_per_s) > 1:
            raise ValueError(f"a warm-up has one load: give one rate, found {list(self.load.open.rates_per_s)}")
        return self

    @pydantic.model_serializer(mode="wrap")
    def _is_short_without_load(self, handler: SerializerFunctionWrapHandler) -> Any:
        document = handler(self)
        return document if self.load is not None else document.get("for", document.get("for_ns", "auto"))


class Measure(Section):
    """How long, how often and from which processes load is sent; `duration` or `requests` ends a window."""

    warmup: Annotated[
        WarmUp,
        BeforeValidator(
            lambda value: value if isinstance(value, Mapping | WarmUp) else {"for": value}, json_schema_input_type=str | int | WarmUp
        ),
    ] = WarmUp.model_construct()
    """What precedes the window and is left out: a length, `auto`, or a load of its own with a length."""
    duration_ns: Duration | None = Field(default=None, alias="duration", gt=0)
    """The length of each window; the default is 10 s."""
    requests: Count | None = None
    """The number of requests that ends each window, in place of `duration`."""
    drain_ns: Duration | None = Field(default=None, alias="drain")
    """How long answers are awaited after the window; the default is the timeout, with `load.retry` that of all attempts and their pauses, at most 30 s."""
    repetitions: Count = 3
    """How often each load point is measured."""
    until_decided: bool = False
    """Whether load points whose SLO verdict is open are measured again: twice, four times and at most eight times as often. The error of the
    verdicts is divided over these looks. The default with `perfkit run URL --slo` is true, except in a sweep."""
    abort_error_rate: Share | None = None
    """The run ends if a larger share of a load point's requests fails, judged from 20 requests on."""
    workers: Literal["auto"] | Count = "auto"
    """The number of load-generating processes. `auto` follows the machine's calibration (`perfkit calibrate`), and is 1 without one. More help a
    generator that is the bottleneck, if CPUs are free for them."""
    cpus: Cpus | None = None
    """The CPUs of the load generator, such as `[1]` or `0,2-3`; those of the server should be others."""
    checkpoint_ns: Duration = Field(default=60 * NS_PER_S, alias="checkpoint")
    """How often what is measured is forced onto the disk, in whole seconds, so that a power cut takes no more of a window. `perfkit recover`
    makes a result of a run that was killed, also without that."""

    @property
    def warmup_ns(self) -> int | Literal["auto"]:
        """The length of the warm-up; of one with a load of its own, that of this load."""
        return self.warmup.for_ns

    @property
    def looks(self) -> int:
        """How often the SLO verdict of a load point may be looked at."""
        return LOOKS if self.until_decided else 1

    @property
    def most_times(self) -> int:
        """How many times as often as `repetitions` a load point is measured at most."""
        return 1 << (self.looks - 1)

    @pydantic.field_validator("checkpoint_ns")
    @classmethod
    def _is_in_whole_seconds(cls, checkpoint_ns: int) -> int:
        if checkpoint_ns <= 0 or checkpoint_ns % NS_PER_S:
            raise ValueError("expected whole seconds, at least one, such as 30s or 1m")
        return checkpoint_ns

    @pydantic.model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if self.duration_ns is not None and self.requests is not None:
            raise ValueError("duration and requests exclude each other, because each ends the window: remove one")
        return self


GateMetric = Literal[
    "throughput", "p50", "p95", "p99", "cpu_time", "instructions",
    "first_response_p50", "first_response_p99", "first_token_p50", "first_token_p99", "per_token_p50", "per_token_p99",
]  # fmt: skip


class Gate(Section):
    """How `perfkit gate` compares a candidate with a baseline; `perfkit run` ignores this section."""

    profile: Literal["standard"] | None = None
    """`standard` replaces the scenario's load: a closed loop that saturates the baseline (with the highest `load.closed.concurrency`,
    or one found by doubling), then Poisson arrivals at 70 % of its capacity."""
    metrics: Annotated[tuple[GateMetric, ...], Field(min_length=1)] | None = None
    """The metrics that decide; the default is throughput and percentiles, as far as a load point has them. The error rate always decides, too.

    `cpu_time` and `instructions`, those of the server for a request, decide only if they are named; instructions are counted only then. So do the
    times of parts of streamed answers, such as `first_token_p99`."""

    @pydantic.field_validator("metrics")
    @classmethod
    def _is_unique(cls, metrics: tuple[GateMetric, ...] | None) -> tuple[GateMetric, ...] | None:
        if metrics is not None and len(set(metrics)) < len(metrics):
            raise ValueError(f"metrics must be unique, found {list(metrics)}")
        return metrics


ObjectiveName = Literal["goodput", "latency", "cost"]


class TuneConstraints(Section):
    """What the server may use at most, in each window of a tune; a server on this machine."""

    cpu: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """How many CPUs all its processes keep busy together, a mean over the window."""
    gpu_memory_bytes: Annotated[Size, Field(gt=0)] | None = Field(default=None, alias="gpu_memory")
    """The memory used of the GPUs that it may use, by whatever process, at its peak."""


class Tune(Section):
    """What `perfkit tune` varies, and for what; other commands ignore this section."""

    space: Annotated[dict[Text, Annotated[tuple[Text | int | float | bool, ...], Field(min_length=1)]], Field(min_length=1)] | None = None
    """The values of each key: of the model's configuration, such as `instance_group.count: [1, 2, 4]`, or of the places in `target.command`, such
    as `threads: [1, 2]` for `{threads}`. The first value of a place is the present one. The default follows from the model's configuration. Keys of
    an ensemble begin with a member: `MEMBER.instance_group.count`."""
    objective: ObjectiveName = "goodput"
    """`goodput`: the most throughput under the SLO. `latency`: the lowest p99 at `rate`. `cost`: the most throughput for each CPU that the server's
    processes keep busy, where perfkit starts the server."""
    rate_per_s: Rate | None = Field(default=None, alias="rate")
    """With `latency`: Poisson arrivals per second; the default is the single rate of `load.open`."""
    constraints: TuneConstraints | None = None
    """Limits on what the server uses. A configuration that is over one at every load has no place in the answer."""


RankFigure = Literal[
    "throughput", "goodput", "capacity", "energy", "gpu_memory", "error_rate", "p50", "p90", "p95", "p99", "p99_9", "p99_99"
]  # fmt: skip


class Rank(Section):
    """How the cases of a sweep are ranked; the SLO is always a constraint."""

    by: RankFigure | None = None
    """The default is the capacity of searches, the p99 of single rates, and the throughput of all else."""
    where: Annotated[tuple[Text, ...], OneOrMoreTexts] = ()
    """Constraints such as `p99 < 50ms` and `gpu_memory < 40GiB`."""

    @pydantic.field_validator("where")
    @classmethod
    def _can_be_read(cls, where: tuple[str, ...]) -> tuple[str, ...]:
        # imports NumPy, which scenarios without a ranking do not need
        from perfkit.stats.ranking import parse_constraint

        for text in where:
            parse_constraint(text, get_args(RankFigure))
        return where


def _check_listen(text: str) -> str:
    parse_host_and_port(text, _EXAMPLE)
    return text


def _check_scheduler(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if scheme not in DASK_SCHEMES or not separator or not rest:
        raise ValueError(f"expected the address of a Dask scheduler, such as tcp://host:8786, found {text!r}")
    return text


class Fleet(Section):
    """Several machines send the load together, one schedule divided among them; this perfkit drives them and sends no request itself."""

    kind: Literal["worker", "dask"] = "worker"
    """`worker`: `perfkit worker --join` is started on each machine by hand; `dask`: a Dask cluster starts it."""
    workers: Count | None = None
    """The number of machines; with Dask, one on each of its hosts by default. Each runs `measure.workers` processes."""
    scheduler: Annotated[Text, AfterValidator(_check_scheduler)] | None = None
    """The address of the Dask scheduler."""
    listen: Annotated[Text, AfterValidator(_check_listen)] | None = None
    """The host and port at which the machines join; port 0 picks a free one. By default port 8790 of 127.0.0.1 for a target on this machine, and
    of all addresses for another."""
    token_file: Text | None = None
    """A file with the secret that all machines share; by default the environment variable PERFKIT_FLEET_TOKEN, or a new secret."""
    tls_cert: Text | None = None
    """A PEM certificate, for TLS between this perfkit and the machines."""
    tls_key: Text | None = None
    """The certificate's PEM key, unencrypted."""
    join_within_ns: Duration = Field(default=120 * NS_PER_S, alias="join_within")
    """How long the machines have to join."""
    on_loss: Literal["continue", "stop"] = "continue"
    """What the other machines do when one is lost: go on to the end of the load point, and carry the whole load of the next; or stop."""

    @pydantic.model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.kind == "dask" and self.scheduler is None:
            raise ValueError("kind: dask needs scheduler, the address of the Dask scheduler, such as tcp://host:8786")
        if self.kind == "worker" and self.scheduler is not None:
            raise ValueError("scheduler goes with kind: dask: give that, or remove scheduler")
        if self.kind == "worker" and self.workers is None:
            raise ValueError("workers is missing: give the number of machines that join (--machines with --fleet)")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key belong together: give both")
        return self

    def listen_at(self, *, target_is_local: bool) -> tuple[str, int]:
        """The host and port of `listen`."""
        if self.listen is None:
            return "127.0.0.1" if target_is_local else "0.0.0.0", _PORT  # noqa: S104 - the machines are others, and prove that they know the token
        return parse_host_and_port(self.listen, _EXAMPLE)


def check_fleet(load: LoadSpec, shared_memory: SharedMemorySpec) -> None:
    """Raises ValueError if a fleet cannot send this load; the arguments are the scenario's sections."""
    if shared_memory is not None:
        raise ValueError("shared_memory needs the load generator on the server's machine: remove shared_memory, or fleet")
    if isinstance(load, ColdStartLoadSpec | IdleLoadSpec):
        raise ValueError("fleet: cold starts and idle gaps are measured one request at a time: remove fleet, or give another load")
