"""What a perf_analyzer command line asks for, after its defaults and checks."""

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias

LoadMode: TypeAlias = Literal["concurrency", "request_rate", "request_intervals", "fixed_schedule"]


class CommandLineError(Exception):
    """A command line that is not run, with what to write to stderr and the exit code."""

    def __init__(self, message: str, exit_code: int = 99) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UnsupportedError(CommandLineError):
    """A command line that perf_analyzer accepts, and perfkit cannot run."""


@dataclasses.dataclass(frozen=True, slots=True)
class LoadRange:
    """`start:end:step` of a sweep; an end of 0 means until the latency threshold is passed."""

    start: float = 1
    end: float = 1
    step: float = 1


@dataclasses.dataclass(frozen=True, slots=True)
class TlsFiles:
    """The options `--ssl-*` for the protocol in use; empty paths were not given."""

    is_used: bool = False
    """Over gRPC `--ssl-grpc-use-ssl`; over HTTP a URL with https."""
    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class SequenceOptions:
    """The options of models with sequences."""

    is_given: bool = False
    """Whether any of them was; once the server was asked, whether the model takes sequences."""
    live: int = 4
    """`--num-of-sequences`: the live ones in all modes but concurrency."""
    length: int = 20
    is_length_given: bool = False
    """Without it, a stream of the input data has its own length."""
    length_variation_percent: float = 20.0
    first_id: int | None = None
    """None without `--sequence-id-range`; perf_analyzer then counts from 1."""
    end_id: int | None = None
    """Ids are below it; None without a limit."""


@dataclasses.dataclass(frozen=True, slots=True)
class TraceOptions:
    """Settings for the server's trace, sent before the run; None where not given."""

    level: str | None = None
    rate: str | None = None
    """As given; the server checks it."""
    count: int | None = None
    log_frequency: int | None = None

    @property
    def is_given(self) -> bool:
        """Whether any of them was."""
        return any(value is not None for value in (self.level, self.rate, self.count, self.log_frequency))


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """A valid command line. Names follow perf_analyzer's flags; each unit stands in the name."""

    model: str
    version: str = ""
    protocol: Literal["http", "grpc"] = "http"
    url: str = "localhost:8000"
    """Host and port, or a URL, as given or as the default of the protocol."""
    batch_size: int = 1

    load_mode: LoadMode = "concurrency"
    load_range: LoadRange = LoadRange()
    """Concurrency, or requests per second; for intervals their mean rate, cut to a whole number."""
    intervals_file: str = ""
    looped_intervals_file: str = ""
    """Its intervals in seconds, repeated for a whole run; only where a model with sequences needs that."""
    distribution: Literal["constant", "poisson"] = "constant"
    is_binary_search: bool = False
    latency_threshold_ms: int = 0
    percentile: int | None = None
    """The percentile of the latency that the threshold and the report use; None means the average."""

    measurement_mode: Literal["time_windows", "count_windows"] = "time_windows"
    interval_ms: int = 5000
    measurement_request_count: int = 50
    request_count: int = 0
    """`--request-count`, or the entries of a fixed schedule after its warm-up; 0 without either."""
    warmup_request_count: int = 0
    max_trials: int = 10
    stability_percent: float = 10.0

    is_async: bool = False
    """`--async`; once the server was asked, whether perf_analyzer would not wait for answers, as with streams and sequences."""
    is_sync: bool = False
    is_streaming: bool = False
    shared_memory: Literal["none", "system", "cuda"] = "none"
    output_shared_memory_bytes: int = 102_400
    max_threads: int | None = None
    sequences: SequenceOptions = SequenceOptions()

    input_data: tuple[str, ...] = ()
    """Paths of JSON files or of one folder; empty for generated data."""
    is_zero_data: bool = False
    string_length: int = 128
    string_data: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """Without the batch dimension."""

    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    tls: TlsFiles = TlsFiles()
    input_format: Literal["binary", "json"] = "binary"
    output_format: Literal["binary", "json"] = "binary"
    compression: Literal["none", "gzip", "deflate"] = "none"
    parameters: Mapping[str, bool | int | str] = dataclasses.field(default_factory=dict)
    ignored_parameters: tuple[str, ...] = ()
    """Names of request parameters of a type other than bool, int and string, which perf_analyzer does not send."""
    trace: TraceOptions = TraceOptions()

    csv_file: str = ""
    is_verbose_csv: bool = False
    export_file: str = ""
    is_verbose: bool = False
    """`-v`: each window has a line."""
    collects_metrics: bool = False
    metrics_url: str = ""
    """As given, or `<host>:8002/metrics`."""
    metrics_interval_ms: int = 1000
    bls_composing_models: tuple[str, ...] = ()
    """`name` or `name:version`."""
    is_mpi: bool = False
    warnings: tuple[str, ...] = ()
    """What perf_analyzer's parser writes to stderr about an accepted command line, line by line."""
