"""perf_analyzer's options: their names, the values that each one takes, and the fields that they set. Pure, but for the existence of files."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from perfkit.digits import plain_float

Fields: TypeAlias = Mapping[str, Any]
"""Values by the names of fields of `Options`, and of the few that only the parser has; a part's field is `part.field`."""
Reader: TypeAlias = Callable[[str], Fields]
"""The fields that a value sets. Raises ValueError with what is expected of it."""

_MOST = 2**31 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One option under all its names."""

    names: Sequence[str]
    """With their hyphens."""
    fields: Fields = dataclasses.field(default_factory=dict)
    """What an option without a value sets."""
    read: Reader | None = None
    """What an option with a value sets; None for one that takes none."""
    mode: str = ""
    """The load mode that it chooses."""
    replacement: str = ""
    """What takes the place of an option that is deprecated."""


def _flag(names: str, *fields: str, mode: str = "", replacement: str = "") -> Option:
    return Option(names.split(), dict.fromkeys(fields, True), mode=mode, replacement=replacement)


def _value(names: str, read: Reader, *, mode: str = "", replacement: str = "") -> Option:
    return Option(names.split(), {}, read, mode, replacement)


def _text(field: str) -> Reader:
    return lambda value: {field: value}


def _number(value: str, least: float, kind: str = "number") -> float:
    try:
        number = plain_float(value)
    except ValueError:
        number = math.nan
    if math.isnan(number) or (kind == "whole number" and math.isinf(number)):
        raise ValueError(f"expected a {kind}")
    if number < least:
        raise ValueError(f"expected at least {least}")
    return number


def _whole_number(value: str, least: int, most: int = _MOST) -> int:
    """A whole number, of which decimals are cut off: Model Analyzer writes some with a point."""
    number = int(_number(value, -math.inf, "whole number"))
    if not least <= number <= most:
        raise ValueError(f"expected a whole number from {least} to {most}")
    return number


def _whole(field: str, least: int) -> Reader:
    return lambda value: {field: _whole_number(value, least)}


def _decimal(field: str) -> Reader:
    return lambda value: {field: _number(value, 0)}


def _choice(field: str, *words: str, any_case: bool = False) -> Reader:
    def read(value: str) -> Fields:
        word = value.lower() if any_case else value
        if word not in words:
            raise ValueError(f"expected {', '.join(words[:-1])} or {words[-1]}")
        return {field: word}

    return read


def is_file(name: str) -> bool:
    """Whether it is an existing file, and no folder or device."""
    return name != "" and pathlib.Path(name).is_file()


def _file(field: str) -> Reader:
    def read(value: str) -> Fields:
        if not is_file(value):
            raise ValueError("expected the path of a file")
        return {field: value}

    return read


def _range(value: str, field: str, read: Callable[[str], float]) -> Fields:
    parts = value.split(":")
    if len(parts) > 3:
        raise ValueError("expected start:end:step")
    return {field: dict(zip(("start", "end", "step"), map(read, parts), strict=False))}


def _concurrencies(value: str) -> Fields:
    return _range(value, "concurrency", lambda part: _whole_number(part, 0))


def _concurrency(end: str) -> Reader:
    return lambda value: {"concurrency": {end: _whole_number(value, 0)}}


def _rates(value: str) -> Fields:
    return _range(value, "rate", lambda part: _number(part, 0))


def _percentile(value: str) -> Fields:
    number = _whole_number(value, -1)
    if number == 0 or number > 99:
        raise ValueError("expected 1 to 99, or -1 for the average")
    return {"percentile": None if number == -1 else number}


def _shape(value: str) -> Fields:
    name, colon, sizes = value.rpartition(":")
    if not colon:
        raise ValueError("expected name:size,size,…")
    return {"shapes": {name: tuple(_whole_number(size, 1, 2**63 - 1) for size in sizes.split(","))}}


def _input_data(value: str) -> Fields:
    if is_file(value) or (value and pathlib.Path(value).is_dir()):
        return {"input_data": (value,)}
    if value not in ("zero", "random"):
        raise ValueError("expected zero, random, or the path of a file or folder")
    return {"is_zero_data": True} if value == "zero" else {}


def _sequence_length(value: str) -> Fields:
    if (length := _whole_number(value, -_MOST)) > 0:
        return {"sequences.is_given": True, "sequences.is_length_given": True, "sequences.length": length}
    warning = "WARNING: The sequence length must be > 0. Perf Analyzer will use default value if it is measuring on sequence model."
    return {"sequences.is_given": True, "sequences.is_length_given": True, "warnings": (warning,)}


def _sequence_ids(value: str) -> Fields:
    parts = [_whole_number(part, 0) for part in value.split(":")]
    if len(parts) > 2 or parts != sorted(parts):
        raise ValueError("expected start:end, an end above its start")
    fields: dict[str, Any] = {"sequences.is_given": True, "sequences.first_id": max(parts[0], 1)}
    if len(parts) == 2:
        fields["sequences.end_id"] = parts[1]
    if parts[0] == 0:
        warning = "WARNING: using an invalid start sequence id. Perf Analyzer will use default value if it is measuring on sequence model."
        fields["warnings"] = (warning,)
    return fields


def _of_sequences(read: Reader) -> Reader:
    return lambda value: {"sequences.is_given": True, **read(value)}


def _header(value: str) -> Fields:
    name, colon, content = value.partition(":")
    if not colon:
        raise ValueError("expected name:value")
    return {"headers": {name: content}}


def _parameter(value: str) -> Fields:
    """A request's parameter `name:value:type`; perf_analyzer sends those of three types, and reads a bool as true only if it is `true`."""
    parts = value.split(":")
    if len(parts) != 3:
        raise ValueError("expected name:value:type")
    name, content, kind = parts[0], parts[1], parts[2].lower()
    if kind == "int":
        return {"parameters": {name: _whole_number(content, -_MOST - 1)}}
    if kind in ("bool", "string"):
        return {"parameters": {name: content == "true" if kind == "bool" else content}}
    return {"ignored_parameters": (name,)}


def _model_names(value: str) -> Fields:
    return {"bls_composing_models": tuple(filter(None, "".join(value.split()).split(",")))}


def _new_path(value: str) -> Fields:
    if value and pathlib.Path(value).exists():
        raise ValueError("expected a path that does not exist yet")
    return {"export_file": value}


def _ignored(_: str) -> Fields:
    return {}


def _verifies(field: str, most: int) -> Reader:
    return lambda value: {field: _whole_number(value, 0, most) > 0}


OPTIONS = (
    _value("-m", _text("model")),
    _value("-x", _text("version")),
    _value("-u", _text("url")),
    _value("-i", _choice("protocol", "http", "grpc", any_case=True)),
    _value("-b", _whole("batch_size", 1)),
    _value("--service-kind", _text("service_kind")),
    # the load
    _value("--concurrency-range", _concurrencies, mode="--concurrency-range"),
    _value("--request-rate-range", _rates, mode="--request-rate-range"),
    _value("--request-intervals", _file("intervals_file"), mode="--request-intervals"),
    _flag("--fixed-schedule", mode="--fixed-schedule"),
    _value("--periodic-concurrency-range", _ignored, mode="--periodic-concurrency-range"),
    _value("--session-concurrency", _ignored, mode="--session-concurrency"),
    _flag("-d", mode="deprecated", replacement="--concurrency-range"),
    _value("-t", _concurrency("start"), mode="deprecated", replacement="--concurrency-range"),
    _value("-c", _concurrency("end"), mode="deprecated", replacement="--concurrency-range"),
    _value("--request-period", _ignored),
    _value("--request-distribution", _choice("distribution", "constant", "poisson")),
    _flag("--binary-search", "is_binary_search"),
    _value("-l --latency-threshold", _whole("latency_threshold_ms", 0)),
    _value("--percentile", _percentile),
    _flag("-a --async", "is_async"),
    _flag("--sync", "is_sync"),
    _flag("--streaming", "is_streaming"),
    _value("--max-threads", _whole("max_threads", 1)),
    # sequences
    _flag("--serial-sequences", "sequences.is_given"),
    _value("--sequence-length", _sequence_length),
    _value("--sequence-length-variation", _of_sequences(_decimal("sequences.length_variation_percent"))),
    _value("--sequence-id-range", _sequence_ids),
    _value("--num-of-sequences", _of_sequences(_whole("sequences.live", 1))),
    # the measurement
    _value("--measurement-mode", _choice("measurement_mode", "time_windows", "count_windows")),
    _value("-p --measurement-interval", _whole("interval_ms", 1)),
    _value("--measurement-request-count", _whole("measurement_request_count", 1)),
    _value("--request-count", _whole("request_count", 1)),
    _value("--warmup-request-count", _whole("warmup_request_count", 0)),
    _value("-r --max-trials", _whole("max_trials", 1)),
    _value("-s --stability-percentage", _decimal("stability_percent")),
    # the data
    _value("--input-data", _input_data),
    _value("--data-directory", lambda value: {"input_data": (value,)}, replacement="--input-data"),
    _flag("-z", "is_zero_data", replacement="--input-data=zero"),
    _value("--shape", _shape),
    _value("--string-length", _whole("string_length", 1)),
    _value("--string-data", _text("string_data")),
    _value("--shared-memory", _choice("shared_memory", "system", "cuda", "none")),
    _value("--output-shared-memory-size", _whole("output_shared_memory_bytes", 0)),
    # the protocol
    _value("-H", _header),
    _value("--request-parameter", _parameter),
    _value("--grpc-compression-algorithm", _choice("compression", "none", "deflate", "gzip")),
    _value("--input-tensor-format", _choice("input_format", "binary", "json", any_case=True)),
    _value("--output-tensor-format", _choice("output_format", "binary", "json", any_case=True)),
    _flag("--ssl-grpc-use-ssl", "grpc_tls.is_used"),
    _value("--ssl-grpc-root-certifications-file", _file("grpc_tls.ca")),
    _value("--ssl-grpc-private-key-file", _file("grpc_tls.key")),
    _value("--ssl-grpc-certificate-chain-file", _file("grpc_tls.cert")),
    _value("--ssl-https-verify-peer", _verifies("verifies_peer", 1)),
    _value("--ssl-https-verify-host", _verifies("verifies_host", 2)),
    _value("--ssl-https-ca-certificates-file", _file("http_tls.ca")),
    _value("--ssl-https-client-certificate-file", _file("http_tls.cert")),
    _value("--ssl-https-client-certificate-type", _choice("certificate_form", "PEM", "DER")),
    _value("--ssl-https-private-key-file", _file("http_tls.key")),
    _value("--ssl-https-private-key-type", _choice("key_form", "PEM", "DER")),
    # the server's trace and metrics
    _value("--trace-level", _choice("trace.level", "OFF", "TIMESTAMPS", "TENSORS")),
    _value("--trace-rate", _text("trace.rate")),
    _value("--trace-count", _whole("trace.count", -1)),
    _value("--log-frequency", _whole("trace.log_frequency", 0)),
    _flag("--collect-metrics", "collects_metrics"),
    _value("--metrics-url", _text("metrics_url")),
    _value("--metrics-interval", _whole("metrics_interval_ms", 1)),
    _value("--bls-composing-models", _model_names),
    # the output
    _flag("-v", "is_verbose"),
    _value("-f", _text("csv_file")),
    _flag("--verbose-csv", "is_verbose_csv"),
    _value("--profile-export-file", _new_path),
    _flag("--enable-mpi", "is_mpi"),
    _flag("--version", "prints_version"),
    # for service kinds that perfkit refuses
    *(_value(name, _ignored) for name in ("--endpoint", "--model-repository", "--model-signature-name", "--grpc-method")),
    _value("--triton-server-directory", _ignored),
)
BY_NAME: Mapping[str, Option] = {name: option for option in OPTIONS for name in option.names}
