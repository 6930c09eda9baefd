"""What the values of options for the server and the protocol stand for; see `load_option_values`."""

import dataclasses
from typing import Literal

from perfkit.perf_analyzer.draft import Draft, refusal
from perfkit.perf_analyzer.load_option_values import Setter, choice, is_file, number
from perfkit.perf_analyzer.number_text import OutOfRangeError, read_int, read_long_or_zero


def grpc_method(_: Draft, value: str) -> None:
    """Checks the method for servers of other protocols over gRPC."""
    if value.count("/") != 1:
        raise refusal(f"Received gRPC method name '{value}' that does not match the format: <package>.<service>/<method>.")


def compression(draft: Draft, value: str) -> None:
    """The compression of requests over gRPC."""
    advice = "The available options are 'gzip', 'deflate', or 'none'."
    choice("compression", "--grpc-compression-algorithm", {word: word for word in ("none", "deflate", "gzip")}, advice)(draft, value)
    draft.has_compression = True


def service_kind(draft: Draft, value: str) -> None:
    """The kind of server."""
    if value not in ("triton", "tfserving", "torchserve", "triton_c_api", "openai", "dynamic_grpc"):
        advice = "The available options are 'triton', 'tfserving', 'torchserve', or 'triton_c_api'."
        raise refusal(f"Failed to parse --service-kind. Unsupported type provided: '{value}'. {advice}")
    draft.service_kind = value


def protocol(draft: Draft, value: str) -> None:
    """HTTP or gRPC, in any case of letters."""
    name = value.lower()
    draft.has_known_protocol = name in ("http", "grpc")
    if draft.has_known_protocol:
        draft.set(protocol=name)


def header(draft: Draft, value: str) -> None:
    """A header `name:value`."""
    name, colon, content = value.partition(":")
    if not colon:
        raise OutOfRangeError(value)
    draft.set(headers={**draft.options.headers, name: content})


def request_parameter(draft: Draft, value: str) -> None:
    """A parameter `name:value:type`."""
    parts = value.split(":")
    if len(parts) != 3:
        raise refusal("Failed to parse --request-parameter. The value does not match <name:value:type>.")
    draft.parameters[parts[0]] = (parts[1], parts[2].lower())


def metrics_url(draft: Draft, value: str) -> None:
    """Where the server's metrics are."""
    draft.set(metrics_url=value)
    draft.has_metrics_url = True


def metrics_interval(draft: Draft, value: str) -> None:
    """How often metrics are read."""
    number("metrics_interval_ms", 1, "--metrics-interval. The value must be > 0 msecs.")(draft, value)
    draft.has_metrics_interval = True


def composing_models(draft: Draft, value: str) -> None:
    """Names of models with or without versions; blanks do not count."""
    names = "".join(value.split()).split(",")
    draft.set(bls_composing_models=(*draft.options.bls_composing_models, *filter(None, names)))


def trace_level(draft: Draft, value: str) -> None:
    """What the server traces; the last one given counts."""
    if value not in ("OFF", "TIMESTAMPS", "TENSORS"):
        advice = "The available options are 'OFF', 'TIMESTAMPS', or 'TENSORS'."
        raise refusal(f"Failed to parse --trace-level. Unsupported type provided: '{value}'. {advice}")
    draft.set_trace(level=value)


def trace_count(draft: Draft, value: str) -> None:
    """How many traces the server writes."""
    count = read_int(value)
    if count < -1:
        raise refusal("Failed to parse --trace-count. The value must be >= 0 or set to -1 (default).")
    draft.set_trace(count=count)


def log_frequency(draft: Draft, value: str) -> None:
    """After how many traces the server starts another file."""
    frequency = read_int(value)
    if frequency < 0:
        raise refusal("Failed to parse --log-frequency. The value must be >= 0.")
    draft.set_trace(log_frequency=frequency)


def tensor_format(field: Literal["input_format", "output_format"], flag: str) -> Setter:
    """Binary or JSON, in any case of letters."""

    def set_format(draft: Draft, value: str) -> None:
        if value.lower() not in ("binary", "json"):
            raise refusal(f"Failed to parse {flag}. Unsupported type provided: '{value}'. The available options are 'binary' or 'json'.")
        draft.set(**{field: value.lower()})

    return set_format


def tls_file(field: Literal["ca", "cert", "key"], flag: str) -> Setter:
    """A file for TLS, which must exist."""
    of_protocol = "grpc_tls" if "grpc" in flag else "http_tls"

    def set_file(draft: Draft, value: str) -> None:
        if not is_file(value):
            raise refusal(f"Failed to parse {flag}. The value must be a valid file path.")
        setattr(draft, of_protocol, dataclasses.replace(getattr(draft, of_protocol), **{field: value}))

    return set_file


def tls_file_type(flag: str) -> Setter:
    """The form of a file for TLS."""

    def set_type(draft: Draft, value: str) -> None:
        if value not in ("PEM", "DER"):
            raise refusal(f"Failed to parse {flag}. Unsupported type provided: '{value}'. The available options are 'PEM' or 'DER'.")
        (draft.der_files.add if value == "DER" else draft.der_files.discard)(flag)

    return set_type


def verifies_peer(draft: Draft, value: str) -> None:
    """Whether the server's certificate is verified."""
    level = read_long_or_zero(value)
    if level not in (0, 1):
        raise refusal("Failed to parse --ssl-https-verify-peer. The value must be either 0 or 1.")
    draft.verifies_peer = level == 1


def verifies_host(draft: Draft, value: str) -> None:
    """Whether the certificate must be for the server's name."""
    level = read_long_or_zero(value)
    if level not in (0, 1, 2):
        raise refusal("Failed to parse --ssl-https-verify-host. The value must be either 0, 1, or 2.")
    draft.verifies_host = level > 0
