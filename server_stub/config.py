"""The server's options, read from the command line."""

import argparse
import dataclasses
import itertools
import os
import pathlib
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from perfkit.errors import UsageError
from server_stub.limits import Limits
from server_stub.models import NAMES
from server_stub.synthetic.declaration import EXAMPLE, LAWS, parse_law
from server_stub.synthetic.law import Law

_METRICS_PORT = 8002
_INT32_MAX = 2**31 - 1


class _LimitOption(NamedTuple):
    unit: str
    most: int
    text: str


_LIMITS = {
    "max_body_bytes": _LimitOption("BYTES", _INT32_MAX, "of a request's body over HTTP or a message over gRPC"),
    "max_connections": _LimitOption("N", 2**20, "at a time on each port"),
    "max_calls": _LimitOption("N", 2**20, "over gRPC at a time"),
    "max_queue": _LimitOption("N", 2**30, "requests that one model has at a time, waiting or being answered"),
    "head_timeout_s": _LimitOption("S", 86_400, "seconds for the head of a request, and for a connection's handshake"),
    "body_timeout_s": _LimitOption("S", 86_400, "seconds for the body of a request over HTTP"),
    "write_timeout_s": _LimitOption("S", 86_400, "seconds for a client that reads nothing of its answer over HTTP"),
    "idle_timeout_s": _LimitOption("S", 864_000, "seconds for a connection without a request"),
    "stop_timeout_s": _LimitOption("S", 86_400, "seconds for requests in flight when the server is told to end"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    """How the server runs; `cpus` are the ones it may use, None all that its parent left it."""

    host: str = "127.0.0.1"
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = _METRICS_PORT
    device: str = "auto"
    """auto, cpu or cuda; see `server_stub.devices`."""
    threads: int | None = None
    cpus: frozenset[int] | None = None
    exit_with_stdin: bool = False
    allow_client_shm: bool = False
    """Whether clients may register regions of the system's shared memory."""
    models: tuple[str, ...] = ()
    """The models to load; none named means all."""
    model_repository: pathlib.Path | None = None
    """A folder of models in place of the built-in ones."""
    is_explicit: bool = False
    """Whether models are loaded and unloaded by clients; at the start only those that are named then are."""
    densenet: pathlib.Path | None = None
    synthetic: Law | None = None
    """What the model `synthetic` keeps to; None is the default law."""
    limits: Limits = dataclasses.field(default_factory=Limits)
    tls_cert: pathlib.Path | None = None
    """With `tls_key`: HTTP and gRPC are spoken over TLS."""
    tls_key: pathlib.Path | None = None
    log_format: str = "text"
    """text or json."""


def parse_options(arguments: Sequence[str]) -> Options:
    """Reads the command line; raises UsageError, with a sentence, for what cannot be used."""
    given = _parser().parse_args(arguments)
    if given.metrics_port is None:  # who takes free ports may have several servers
        given.metrics_port = _METRICS_PORT if given.http_port and given.grpc_port else 0
    ports = {"--http-port": given.http_port, "--grpc-port": given.grpc_port, "--metrics-port": given.metrics_port}
    for option, port in ports.items():
        if not 0 <= port <= 65535:
            raise UsageError(f"{option} {port}: a port lies between 0 (a free one is chosen) and 65535.")
    for (first, port), (second, other) in itertools.combinations(ports.items(), 2):
        if port == other != 0:
            raise UsageError(f"{first} and {second} are both {port}: each needs its own.")
    if given.threads is not None and given.threads < 1:
        raise UsageError(f"--threads {given.threads}: ONNX Runtime needs at least 1 thread.")
    if given.model_repository is not None and not given.model_repository.is_dir():
        raise UsageError(f"--model-repository {given.model_repository}: there is no such folder.")
    if given.model_repository is not None and given.densenet is not None:
        raise UsageError("--densenet is a file for a built-in model, which --model-repository takes the place of: give one of the two.")
    if given.model_repository is not None and given.synthetic is not None:
        raise UsageError("--synthetic declares a built-in model, which --model-repository takes the place of: give one of the two.")
    for name in given.model or ():
        if given.model_repository is None and name not in NAMES:
            raise UsageError(f"--model {name}: there is no such built-in model; choose from {', '.join(NAMES)}.")
    if given.densenet is not None and not given.densenet.is_file():
        raise UsageError(f"--densenet {given.densenet}: there is no such file.")
    if (given.tls_cert is None) != (given.tls_key is None):
        raise UsageError("--tls-cert and --tls-key belong together: give both, or neither.")
    return Options(
        host=given.host,
        http_port=given.http_port,
        grpc_port=given.grpc_port,
        metrics_port=given.metrics_port,
        device=given.device,
        threads=given.threads,
        cpus=None if given.cpus is None else parse_cpus(given.cpus),
        exit_with_stdin=given.exit_with_stdin,
        allow_client_shm=given.allow_client_shm,
        models=tuple(dict.fromkeys(given.model or ())),
        model_repository=given.model_repository,
        is_explicit=given.model_control_mode == "explicit",
        densenet=given.densenet,
        synthetic=None if given.synthetic is None else parse_law(given.synthetic),
        limits=_limits(given),
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        log_format=given.log_format,
    )


def _limits(given: argparse.Namespace) -> Limits:
    values = {field: getattr(given, field) for field in _LIMITS}
    for field, value in values.items():
        most = _LIMITS[field].most
        if not 0 < value <= most:
            raise UsageError(f"{_option(field)} {value}: it lies above 0, and is {most} at most.")
    return Limits(**values)


def _option(field: str) -> str:
    """`--max-body` for `max_body_bytes`, `--head-timeout` for `head_timeout_s`."""
    return f"--{field.removesuffix('_bytes').removesuffix('_s').replace('_', '-')}"


def parse_cpus(text: str) -> frozenset[int]:
    """Reads `0,2-3` as {0, 2, 3}; raises UsageError for anything else, and for CPUs this process may not use."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
            raise UsageError(f"--cpus {text}: expected numbers and ranges such as 0,2-3.")
        cpus.update(range(int(first), int(last or first) + 1))
        if dash and int(last) < int(first):
            raise UsageError(f"--cpus {text}: the range {part} ends before it begins.")
    available = os.sched_getaffinity(0)
    if not cpus <= available:
        raise UsageError(f"--cpus {text}: this process may use the CPUs {', '.join(map(str, sorted(available)))} only.")
    return frozenset(cpus)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message[:1].upper()}{message[1:]}; see --help.")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="perfkit serve",
        description="A small v2 (Open Inference Protocol) server over HTTP and gRPC, with built-in models, to measure against.",
        epilog="When it is ready it prints one line of JSON on stdout, with its ports; everything else goes to stderr.",
        allow_abbrev=False,
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default %(default)s)")
    parser.add_argument("--http-port", type=int, default=8000, metavar="PORT", help="0 takes a free one (default %(default)s)")
    parser.add_argument("--grpc-port", type=int, default=8001, metavar="PORT", help="0 takes a free one (default %(default)s)")
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="for Prometheus; 0 takes a free one (default 8002, or a free one where another port is free to choose)",
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where models are executed; auto takes CUDA where all that it needs is there, and says which it took (default %(default)s)",
    )
    parser.add_argument("--threads", type=int, metavar="N", help="threads for one inference (default: the CPUs it may use, less one)")
    parser.add_argument("--cpus", metavar="LIST", help="the CPUs to run on, such as 0,2-3 (default: all)")
    parser.add_argument("--model", action="extend", nargs="+", metavar="NAME", help="load only these models")
    parser.add_argument(
        "--model-repository",
        type=pathlib.Path,
        metavar="DIR",
        help="serve DIR/MODEL/VERSION/model.onnx, as DIR/MODEL/config.pbtxt says if there is one, in place of the built-in models",
    )
    parser.add_argument(
        "--model-control-mode",
        choices=("none", "explicit"),
        default="none",
        help="explicit lets clients load and unload models; at the start only those named by --model are loaded (default %(default)s)",
    )
    parser.add_argument(
        "--densenet",
        type=pathlib.Path,
        metavar="FILE",
        help="serve densenet_onnx from the ONNX model zoo's trained densenet-7 file instead of weights from a seed; "
        "a densenet_labels.txt beside it names the classes",
    )
    parser.add_argument(
        "--synthetic",
        metavar="LAW",
        help=f"the queue that the model synthetic answers by, such as {EXAMPLE.replace('%', '%%')}; "
        f"service is one of {', '.join(LAWS)} (default: service=constant:5ms,servers=1)",
    )
    parser.add_argument(
        "--allow-client-shm",
        action="store_true",
        help="let clients register regions of shared memory: whoever reaches the ports then reads and writes what is in /dev/shm",
    )
    parser.add_argument("--tls-cert", type=pathlib.Path, metavar="FILE", help="speak TLS over HTTP and gRPC with this certificate, as PEM")
    parser.add_argument("--tls-key", type=pathlib.Path, metavar="FILE", help="the certificate's key, as PEM, not encrypted")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="json writes an object a line to stderr")
    defaults = Limits()
    for field, limit in _LIMITS.items():
        default = getattr(defaults, field)
        parser.add_argument(
            _option(field), type=type(default), default=default, dest=field, metavar=limit.unit, help=f"{limit.text} (default %(default)s)"
        )
    parser.add_argument("--exit-with-stdin", action="store_true", help="end when stdin reaches its end, as when the parent dies")
    return parser
