"""The server's command-line options, its limits and its TLS certificate."""

import argparse
import dataclasses
import difflib
import itertools
import os
import pathlib
import ssl
from collections.abc import Sequence
from typing import Any, NoReturn

from perfkit.digits import plain_float, whole_number
from perfkit.errors import UsageError
from perfkit.input_file import read_bounded
from server_stub.executors.onnx_options import DEFAULT, OnnxOptions, parse_onnx_options
from server_stub.models import NAMES
from server_stub.synthetic.declaration import EXAMPLE, SERVICE_EXAMPLES, parse_service_model
from server_stub.synthetic.service_model import ServiceModel
from server_stub.tracing.trace_config import TraceConfig, parse_trace_config


@dataclasses.dataclass(frozen=True, slots=True)
class TlsIdentity:
    """A certificate chain and its key, as PEM and as contexts for HTTP/1.1 and for HTTP/2."""

    certificate: bytes
    key: bytes
    http1_context: ssl.SSLContext
    http2_context: ssl.SSLContext


def read_tls_identity(certificate: pathlib.Path, key: pathlib.Path) -> TlsIdentity:
    """Read both files. Raises UsageError if they cannot be read or do not match."""
    contexts = []
    try:
        # before OpenSSL, which would read a device without an end
        certificate_pem, key_pem = (read_bounded(file, _LARGEST_PEM_BYTES) for file in (certificate, key))
        for protocol in ("http/1.1", "h2"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols([protocol])
            # without a password, OpenSSL would ask for that of an encrypted key on the terminal
            context.load_cert_chain(certificate, key, password="")
            contexts.append(context)
        return TlsIdentity(certificate_pem, key_pem, *contexts)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--tls-cert {certificate} with --tls-key {key} cannot be used: {error}. Both must be PEM files, and the key unencrypted."
        ) from None


def _limit(default: float, metavar: str, maximum: int, text: str) -> Any:
    """A field of `Limits`, with what its option needs."""
    return dataclasses.field(default=default, metadata={"metavar": metavar, "maximum": maximum, "help": text})


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Limits on what clients may use. The help of their options says what they limit."""

    max_body_bytes: int = _limit(2**30, "BYTES", 2**31 - 1, "largest HTTP request body or gRPC message")
    """A gRPC message before and, up to 64 MiB, after decompression."""
    max_connections: int = _limit(1024, "N", 2**20, "concurrent connections per port")
    max_calls: int = _limit(4096, "N", 2**20, "concurrent gRPC calls")
    max_queue: int = _limit(2**16, "N", 2**30, "requests per model, waiting or being executed")
    head_timeout_s: float = _limit(30.0, "S", 86_400, "seconds to receive a request head or complete a handshake")
    """From the start of a connection, or the first byte of a later request, to the end of the request head."""
    body_timeout_s: float = _limit(300.0, "S", 86_400, "seconds to receive an HTTP request body")
    write_timeout_s: float = _limit(60.0, "S", 86_400, "seconds to wait for a client that does not read its response")
    idle_timeout_s: float = _limit(3600.0, "S", 864_000, "seconds until an idle connection is closed")
    stop_timeout_s: float = _limit(5.0, "S", 86_400, "seconds that requests in flight get to finish when the server is stopped")


_METRICS_PORT, _HIGHEST_CPU = 8002, 99_999
_LARGEST_PEM_BYTES = 2**24


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """The server's options. `cpus` None means all CPUs that the process may use."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = _METRICS_PORT
    device: str = "auto"
    """auto, cpu or cuda; see `server_stub.devices.device`."""
    threads: int | None = None
    cpus: frozenset[int] | None = None
    exit_with_stdin: bool = False
    allow_client_shm: bool = False
    """Whether clients may register shared memory regions."""
    models: tuple[str, ...] = ()
    """The models to load at the start. Empty means all, or none if `is_explicit`."""
    model_repository: pathlib.Path | None = None
    """A folder of models that replaces the built-in ones."""
    is_explicit: bool = False
    """Whether clients load and unload models."""
    densenet: pathlib.Path | None = None
    onnx: OnnxOptions = DEFAULT
    """How ONNX models are executed."""
    synthetic: ServiceModel = dataclasses.field(default_factory=ServiceModel)
    """The service model of the model `synthetic`."""
    limits: Limits = dataclasses.field(default_factory=Limits)
    traces: TraceConfig = dataclasses.field(default_factory=TraceConfig)
    tls_cert: pathlib.Path | None = None
    """With `tls_key`: HTTP and gRPC use TLS."""
    tls_key: pathlib.Path | None = None
    log_format: str = "text"
    """text or json."""


def parse_options(arguments: Sequence[str]) -> Options:
    """Parse the command line. Raises UsageError with a message for the user."""
    given = make_parser().parse_args(arguments)
    if given.metrics_port is None:  # free ports suggest several servers on this machine
        given.metrics_port = _METRICS_PORT if given.http_port and given.grpc_port else 0
    ports = {"--http-port": given.http_port, "--grpc-port": given.grpc_port, "--metrics-port": given.metrics_port}
    for option, port in ports.items():
        if not 0 <= port <= 65535:
            raise UsageError(f"{option} {port}: a port must be between 0, which selects a free one, and 65535.")
    for (first, port), (second, other) in itertools.combinations(ports.items(), 2):
        if port == other != 0:
            raise UsageError(f"{first} and {second} are both {port}: use different ports.")
    if given.threads is not None and given.threads < 1:
        raise UsageError(f"--threads {given.threads}: at least 1 thread is required.")
    if given.model_repository is not None and not given.model_repository.is_dir():
        raise UsageError(f"--model-repository {given.model_repository}: there is no such folder.")
    for option, value in (("--densenet", given.densenet), ("--synthetic", given.synthetic)):
        if given.model_repository is not None and value is not None:
            raise UsageError(f"{option} configures a built-in model, but --model-repository replaces the built-in models: remove one.")
    for name in given.model or ():
        if given.model_repository is None and name not in NAMES:
            raise UsageError(f"--model {name}: there is no such built-in model; choose from {', '.join(NAMES)}.")
    if given.densenet is not None and not given.densenet.is_file():
        raise UsageError(f"--densenet {given.densenet}: there is no such file.")
    if (given.tls_cert is None) != (given.tls_key is None):
        raise UsageError("--tls-cert and --tls-key require each other: give both or neither.")
    converted = {
        "cpus": None if given.cpus is None else parse_cpus(given.cpus),
        "models": tuple(dict.fromkeys(given.model or ())),
        "is_explicit": given.model_control_mode == "explicit",
        "synthetic": ServiceModel() if given.synthetic is None else parse_service_model(given.synthetic),
        "limits": _limits(given),
        "traces": parse_trace_config(given.trace_config or (), given.trace_url),
        "onnx": parse_onnx_options(given.onnx or ()),
    }
    if given.model_repository is not None and (converted["onnx"].instances, converted["onnx"].max_batch) != (None, None):
        raise UsageError(
            "--onnx instances and max_batch are for the built-in models: in a --model-repository, config.pbtxt sets instance_group and "
            "max_batch_size."
        )
    plain: dict[str, Any] = {name: value for name, value in vars(given).items() if name in Options.__slots__}
    return Options(**{**plain, **converted})


def _limits(given: argparse.Namespace) -> Limits:
    values = {field.name: getattr(given, field.name) for field in dataclasses.fields(Limits)}
    for field in dataclasses.fields(Limits):
        if not 0 < values[field.name] <= field.metadata["maximum"]:
            raise UsageError(f"{_option(field.name)} {values[field.name]}: must be above 0 and at most {field.metadata['maximum']}.")
    return Limits(**values)


def _option(field: str) -> str:
    """`--max-body` for `max_body_bytes`, `--head-timeout` for `head_timeout_s`."""
    return f"--{field.removesuffix('_bytes').removesuffix('_s').replace('_', '-')}"


def parse_cpus(text: str) -> frozenset[int]:
    """Parse `0,2-3` to {0, 2, 3}. Raises UsageError for other text and for CPUs that this process may not use."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        lowest, highest = (whole_number(one, _HIGHEST_CPU) for one in (first, last if dash else first))
        if lowest is None or highest is None:
            raise UsageError(f"--cpus {text[:100]}: expected numbers and ranges such as 0,2-3.")
        cpus.update(range(lowest, highest + 1))
        if highest < lowest:
            raise UsageError(f"--cpus {text}: the range {part} is reversed.")
    available = os.sched_getaffinity(0)
    if not cpus <= available:
        raise UsageError(f"--cpus {text}: this process may only use the CPUs {', '.join(map(str, sorted(available)))}.")
    return frozenset(cpus)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        nearest = ""
        if message.startswith(unrecognized := "unrecognized arguments: "):
            word = message.removeprefix(unrecognized).split()[0].partition("=")[0]
            nearest = "".join(f"; did you mean {option}?" for option in difflib.get_close_matches(word, self._option_string_actions, n=1))
        raise UsageError(f"{message[:1].upper()}{message[1:]}{nearest}; see --help.")


def _int(text: str) -> int:
    """As `int`, of ASCII digits alone."""
    if (number := whole_number(text.removeprefix("-"))) is None:
        raise ValueError
    return -number if text.startswith("-") else number


def make_parser() -> argparse.ArgumentParser:
    """The parser of the server's options."""
    parser = _Parser(
        prog="perfkit serve",
        description="A small v2 (Open Inference Protocol) server with built-in models, over HTTP and gRPC, for testing load generators.",
        epilog="Once ready, the server prints one line of JSON with its ports to stdout. Everything else goes to stderr.",
        allow_abbrev=False,
    )
    parser.register("type", int, _int)
    parser.register("type", float, plain_float)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    parser.add_argument("--http-port", type=int, default=8000, metavar="PORT", help="0 selects a free port (default %(default)s)")
    parser.add_argument("--grpc-port", type=int, default=8001, metavar="PORT", help="0 selects a free port (default %(default)s)")
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="port for Prometheus; 0 selects a free port (default 8002, or a free port if the HTTP or gRPC port is 0)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device that models run on; auto uses CUDA if it works and the CPU otherwise, and logs its choice (default %(default)s)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="threads per inference (default: the number of usable CPUs minus one)")
    parser.add_argument("--cpus", metavar="LIST", help="CPUs to run on, such as 0,2-3 (default: all)")
    parser.add_argument("--model", action="extend", nargs="+", metavar="NAME", help="load only these models")
    parser.add_argument(
        "--model-repository",
        type=pathlib.Path,
        metavar="DIR",
        help="serve DIR/MODEL/VERSION/model.onnx, with DIR/MODEL/config.pbtxt if it exists, instead of the built-in models",
    )
    parser.add_argument(
        "--model-control-mode",
        choices=("none", "explicit"),
        default="none",
        help="explicit: clients load and unload models, and only those named by --model are loaded at the start (default %(default)s)",
    )
    parser.add_argument(
        "--densenet",
        type=pathlib.Path,
        metavar="FILE",
        help="serve densenet_onnx from the ONNX model zoo's densenet-7 file instead of with random weights; "
        "class names are read from densenet_labels.txt in the same folder",
    )
    parser.add_argument(
        "--onnx",
        action="extend",
        nargs="+",
        metavar="KEY=VALUE",
        help="how ONNX models are executed: provider=cpu|cuda|tensorrt, precision=fp32|tf32|fp16|bf16, layout=nchw|nhwc, graphs=on|off, "
        "instances=N, max_batch=N (docs/reference/server.md)",
    )
    parser.add_argument(
        "--synthetic",
        metavar="SERVICE_MODEL",
        help=f"queue that the model synthetic simulates, such as {EXAMPLE.replace('%', '%%')}; "
        f"service is one of {', '.join(SERVICE_EXAMPLES)} (default: service=constant:5ms,servers=1)",
    )
    parser.add_argument(
        "--allow-client-shm",
        action="store_true",
        help="let clients register shared memory regions; anyone who reaches the ports can then read and write files in /dev/shm",
    )
    parser.add_argument(
        "--trace-url",
        metavar="URL",
        help="send spans of each request that carries a traceparent to this URL by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces",
    )
    parser.add_argument(
        "--trace-config",
        action="append",
        metavar="KEY=VALUE",
        help="tracing as Triton takes it: mode=triton|opentelemetry, level=OFF|TIMESTAMPS|TENSORS, rate=N, count=N, triton,file=FILE, "
        "opentelemetry,url=URL and others (docs/reference/server.md); repeat it for each",
    )
    parser.add_argument("--tls-cert", type=pathlib.Path, metavar="FILE", help="PEM certificate; makes HTTP and gRPC use TLS")
    parser.add_argument("--tls-key", type=pathlib.Path, metavar="FILE", help="PEM key of the certificate, unencrypted")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="json: one object per line (default %(default)s)")
    for field in dataclasses.fields(Limits):
        about = field.metadata
        keys = {"type": type(field.default), "default": field.default, "dest": field.name, "metavar": about["metavar"]}
        parser.add_argument(_option(field.name), help=f"{about['help']} (default %(default)s)", **keys)
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop at the end of stdin, such as when the parent process dies")
    return parser
