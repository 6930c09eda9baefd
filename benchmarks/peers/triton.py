"""Runs a real Triton on the loopback, with the models beside this file, for a `with` block or until Ctrl-C.

    python3 -m benchmarks.peers.triton [--http-port 8000] [--grpc-port 8001] [--peers FOLDER]

`--check` ends it after one answer. Run it in the project's folder; like the installer, it needs only the standard library.
"""

import argparse
import contextlib
import dataclasses
import functools
import json
import pathlib
import shutil
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError, answers, free_ports, ready_server

MODELS = pathlib.Path(__file__).with_name("triton_models")
_IDENTITY = MODELS / "identity.py"
"""The program of each model that has a configuration alone."""
TRAFFIC_MODELS = pathlib.Path(__file__).with_name("triton_traffic_models")
"""Decoupled models, and others for the kinds of traffic that `traffic` compares."""
ODD_MODELS = pathlib.Path(__file__).with_name("triton_odd_models")
"""An ensemble of two models, for the tests of traces."""
START_MODELS = pathlib.Path(__file__).with_name("triton_start_models")
"""A model that declares how long it loads, and how slow its first answers are."""
_READY_WITHIN_S = 90


@dataclasses.dataclass(frozen=True)
class Triton:
    """A running Triton."""

    version: str
    http_port: int
    grpc_port: int
    metrics_port: int = 0

    def url(self, protocol: str = "http") -> str:
        """The URL for a protocol."""
        return f"{protocol}://127.0.0.1:{self.http_port if protocol == 'http' else self.grpc_port}"

    def request(self, path: str, body: object = None) -> dict[str, object]:
        """The answer to a GET, or to a POST if there is a body."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/{path}", data, timeout=10) as answer:
            document: dict[str, object] = json.loads(answer.read() or b"{}")  # the repository's answers are empty
        return document


@contextlib.contextmanager
def running_triton(
    folder: pathlib.Path,
    http_port: int = 0,
    grpc_port: int = 0,
    *,
    models: pathlib.Path = MODELS,
    options: Sequence[str] = (),
    ready_path: str = "v2/health/ready",
) -> Iterator[Triton]:
    """Runs Triton out of the peers' folder, ready and with its models loaded; port 0 means a free port. Raises PeerError.

    It is ready as soon as it answers at `ready_path`.
    """
    program = folder / "bin" / "tritonserver"
    if not program.exists():
        raise PeerError(f"{program} is not installed: `python3 benchmarks/peers/install.py` installs it")
    with tempfile.TemporaryDirectory(prefix="perfkit-triton-") as name:
        repository, ports = pathlib.Path(name, "models"), free_ports(http_port, grpc_port, 0)
        # a copy, because the Python backend writes compiled files beside its models
        shutil.copytree(models, repository, ignore=shutil.ignore_patterns(_IDENTITY.name))
        for program_folder in [configuration.parent / "1" for configuration in repository.glob("identity_*/config.pbtxt")]:
            program_folder.mkdir(exist_ok=True)
            if not (program_folder / "model.py").exists():
                shutil.copy(_IDENTITY, program_folder / "model.py")
        listen = [f"--{kind}-port={port}" for kind, port in zip(("http", "grpc", "metrics"), ports, strict=True)]
        command = [str(program), f"--model-repository={repository}", "--exit-timeout-secs=5", *listen, *options]
        is_ready = functools.partial(answers, f"http://127.0.0.1:{ports[0]}/{ready_path}")
        with ready_server(command, is_ready, pathlib.Path(name, "log"), within_s=_READY_WITHIN_S):
            version = ""
            with contextlib.suppress(urllib.error.HTTPError):  # restricted metadata
                version = str(Triton("", ports[0], ports[1]).request("v2")["version"])
            yield Triton(version, *ports)


def _check(triton: Triton) -> None:
    """Requests one inference: a server can be ready while its Python backend is not."""
    inputs = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for name in ("INPUT0", "INPUT1")]
    answer = triton.request("v2/models/simple/infer", {"inputs": inputs, "outputs": [{"name": "OUTPUT0"}]})
    outputs = answer["outputs"]
    if not isinstance(outputs, list) or outputs[0]["data"] != list(range(0, 32, 2)):
        raise PeerError(f"Triton answers {answer} instead of sums")


def main() -> int:
    """Serves until Ctrl-C or SIGTERM; with --check, requests one inference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--http-port", type=int, help="default 8000; with --check a free port")
    parser.add_argument("--grpc-port", type=int, help="default 8001; with --check a free port")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    parser.add_argument("--check", action="store_true", help="end after one answer")
    options = parser.parse_args()
    http_port, grpc_port = ((0 if options.check else default) if port is None else port
                            for port, default in ((options.http_port, 8000), (options.grpc_port, 8001)))  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops Triton too, as Ctrl-C does
    try:
        with contextlib.suppress(KeyboardInterrupt), running_triton(peers_folder(options.peers), http_port, grpc_port) as triton:
            if options.check:
                _check(triton)
                print(f"Triton {triton.version} answers")
                return 0
            print(
                f"Triton {triton.version}: {triton.url()} and {triton.url('grpc')}; Ctrl-C stops it",
                flush=True,
            )
            signal.pause()
    except (PeerError, OSError) as error:
        sys.stderr.write(f"triton: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
