"""perf_analyzer's options: what each one sets, and which of them choose a load mode."""

from collections.abc import Callable, Mapping
from typing import Any

from perfkit.perf_analyzer import load_option_values as load_values
from perfkit.perf_analyzer import server_option_values as server_values
from perfkit.perf_analyzer.draft import Draft, Mode
from perfkit.perf_analyzer.load_option_values import Setter, choice, number

SHORT = "vdazc:u:m:x:b:t:p:i:H:l:r:s:f:"
"""The short options, each followed by a colon if it takes a value."""


def _option(field: str) -> Callable[[Draft], None]:
    return lambda draft: draft.set(**{field: True})


def _ignored(_: Draft, __: str) -> None:
    """Only for servers that v2 does not cover."""


def _attribute(name: str) -> Setter:
    return lambda draft, value: setattr(draft, name, value)


def _use_grpc_tls(draft: Draft) -> None:
    draft.uses_grpc_tls = True


def _count_verbosity(draft: Draft) -> None:
    draft.set(verbosity=draft.options.verbosity + 1)


def _set_url(draft: Draft, value: str) -> None:
    draft.set(url=value)
    draft.has_url = True


FLAGS: Mapping[str, Callable[[Draft], None]] = {
    "v": _count_verbosity,
    "d": lambda _: None,
    "a": _option("is_async"),
    "async": _option("is_async"),
    "z": _option("is_zero_data"),
    "streaming": _option("is_streaming"),
    "sync": _option("is_sync"),
    "binary-search": _option("is_binary_search"),
    "ssl-grpc-use-ssl": _use_grpc_tls,
    "verbose-csv": _option("is_verbose_csv"),
    "enable-mpi": _option("is_mpi"),
    "collect-metrics": _option("collects_metrics"),
    "serial-sequences": lambda draft: draft.set_sequences(),
    "version": load_values.print_version,
    "fixed-schedule": lambda _: None,
}
"""The options without a value."""

_INTERVAL = number("interval_ms", 1, "--measurement-interval (-p). The value must be > 0 msec.")
_THRESHOLD = number("latency_threshold_ms", 0, "--latency-threshold (-l). The value must be >= 0 msecs.")
_TRIALS = number("max_trials", 1, "--max-trials (-r). The value must be > 0.")


def _named(*names: str) -> dict[str, Any]:
    return {name: name for name in names}


WITH_VALUE: Mapping[str, Setter] = {
    "m": load_values.text("model"),
    "x": load_values.text("version"),
    "u": _set_url,
    "i": server_values.protocol,
    "b": number("batch_size", 1, "-b (batch size). The value must be > 0."),
    "t": load_values.concurrency_limit("start"),
    "c": load_values.concurrency_limit("end"),
    "p": _INTERVAL,
    "measurement-interval": _INTERVAL,
    "l": _THRESHOLD,
    "latency-threshold": _THRESHOLD,
    "r": _TRIALS,
    "max-trials": _TRIALS,
    "s": load_values.stability,
    "stability-percentage": load_values.stability,
    "H": server_values.header,
    "f": load_values.text("csv_file"),
    "max-threads": number("max_threads", 1, "--max-threads. The value must be > 0."),
    "sequence-length": load_values.sequence_length,
    "sequence-length-variation": load_values.length_variation,
    "sequence-id-range": load_values.sequence_ids,
    "num-of-sequences": load_values.live_sequences,
    "percentile": load_values.percentile,
    "data-directory": load_values.data_path,
    "input-data": load_values.input_data,
    "shape": load_values.shape,
    "string-length": number("string_length", 1, "--string-length. The value must be > 0"),
    "string-data": load_values.text("string_data"),
    "concurrency-range": load_values.concurrency_range,
    "request-rate-range": load_values.rate_range,
    "request-intervals": load_values.intervals_file,
    "periodic-concurrency-range": load_values.periodic_range,
    "session-concurrency": load_values.session_concurrency,
    "request-period": load_values.request_period,
    "request-distribution": load_values.distribution,
    "shared-memory": choice(
        "shared_memory", "--shared-memory", _named("system", "cuda", "none"), "The available options are 'system', 'cuda', or 'none'."
    ),
    "output-shared-memory-size": number("output_shared_memory_bytes", 0, "--output-shared-memory-size. The value must be >= 0."),
    "service-kind": server_values.service_kind,
    "endpoint": _attribute("endpoint"),
    "model-repository": _attribute("model_repository"),
    "triton-server-directory": _attribute("server_directory"),
    "model-signature-name": _ignored,
    "grpc-method": server_values.grpc_method,
    "grpc-compression-algorithm": server_values.compression,
    "measurement-mode": choice(
        "measurement_mode",
        "--measurement-mode",
        _named("time_windows", "count_windows"),
        "The available options are 'time_windows' or 'count_windows'.",
    ),
    "measurement-request-count": number("measurement_request_count", 1, "--measurement-request-count. The value must be > 0."),
    "request-count": load_values.request_count,
    "warmup-request-count": number("warmup_request_count", 0, "--warmup-request-count. The value must be >= 0."),
    "request-parameter": server_values.request_parameter,
    "ssl-grpc-root-certifications-file": server_values.tls_file("ca", "--ssl-grpc-root-certifications-file"),
    "ssl-grpc-private-key-file": server_values.tls_file("key", "--ssl-grpc-private-key-file"),
    "ssl-grpc-certificate-chain-file": server_values.tls_file("cert", "--ssl-grpc-certificate-chain-file"),
    "ssl-https-verify-peer": server_values.verifies_peer,
    "ssl-https-verify-host": server_values.verifies_host,
    "ssl-https-ca-certificates-file": server_values.tls_file("ca", "--ssl-https-ca-certificates-file"),
    "ssl-https-client-certificate-file": server_values.tls_file("cert", "--ssl-https-client-certificate-file"),
    "ssl-https-client-certificate-type": server_values.tls_file_type("--ssl-https-client-certificate-type"),
    "ssl-https-private-key-file": server_values.tls_file("key", "--ssl-https-private-key-file"),
    "ssl-https-private-key-type": server_values.tls_file_type("--ssl-https-private-key-type"),
    "trace-level": server_values.trace_level,
    "trace-rate": lambda draft, value: draft.set_trace(rate=value),
    "trace-count": server_values.trace_count,
    "log-frequency": server_values.log_frequency,
    "metrics-url": server_values.metrics_url,
    "metrics-interval": server_values.metrics_interval,
    "bls-composing-models": server_values.composing_models,
    "input-tensor-format": server_values.tensor_format("input_format", "--input-tensor-format"),
    "output-tensor-format": server_values.tensor_format("output_format", "--output-tensor-format"),
    "profile-export-file": load_values.export_file,
}
"""The options with a value."""

LONG: Mapping[str, bool] = {name: name in WITH_VALUE for name in (*FLAGS, *WITH_VALUE) if len(name) > 1}
"""The long options, and whether each takes a value."""

MODES: Mapping[str, Mode] = {
    "concurrency-range": "Concurrency",
    "periodic-concurrency-range": "PeriodicConcurrency",
    "request-rate-range": "RequestRate",
    "request-intervals": "CustomIntervals",
    "fixed-schedule": "FixedSchedule",
    "session-concurrency": "SessionConcurrency",
    "c": "DeprecatedConcurrency",
    "d": "DeprecatedConcurrency",
    "t": "DeprecatedConcurrency",
}
"""The load modes of the options that choose one."""

DEPRECATED: Mapping[str, str] = {
    "c": "--concurrency-range",
    "d": "--concurrency-range",
    "t": "--concurrency-range",
    "z": "--input-data=zero",
    "data-directory": "--input-data",
}
"""What deprecated options are to be replaced with."""
