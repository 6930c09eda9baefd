"""Real Triton on the loopback with the models beside this file, for a `with` block or until Ctrl-C.

    python3 -m benchmarks.peers.triton [--http-port 8000] [--grpc-port 8001] [--peers FOLDER]

`--check` ends it after one answer instead. Run it in the project's folder; like the installer, it needs no packages.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator

from benchmarks.peers.install import peers_folder

MODELS = pathlib.Path(__file__).with_name("triton_models")
_READY_WITHIN_S, _STOP_WITHIN_S = 90, 20


class TritonError(Exception):
    """Triton is not there, or did not start; the text is the sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Triton:
    """A running server."""

    version: str
    http_port: int
    grpc_port: int

    def ask(self, path: str, body: object = None) -> dict[str, object]:
        """What it answers to a GET, or to a POST where there is a body."""
        data = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/{path}", data, timeout=10) as answer:
            document: dict[str, object] = json.load(answer)
        return document


@contextlib.contextmanager
def running_triton(folder: pathlib.Path, http_port: int = 0, grpc_port: int = 0) -> Iterator[Triton]:
    """Triton out of the peers' folder, ready, with its models loaded; port 0 means a free one.

    Raises TritonError, with the end of what Triton logged, where it is not ready in time.
    """
    program = folder / "bin" / "tritonserver"
    if not program.exists():
        raise TritonError(f"{program} is not there: `python3 benchmarks/peers/install.py` installs it")
    with tempfile.TemporaryDirectory(prefix="perfkit-triton-") as name, _free_ports(http_port, grpc_port, 0) as ports:
        log, models = pathlib.Path(name, "log"), pathlib.Path(name, "models")
        shutil.copytree(MODELS, models)  # the Python backend leaves compiled files beside its models
        options = [f"--{kind}-port={port}" for kind, port in zip(("http", "grpc", "metrics"), ports, strict=True)]
        with log.open("wb") as stream:
            command = [str(program), f"--model-repository={models}", "--exit-timeout-secs=5", *options]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
        try:
            _wait_until_ready(process, ports[0], log)
            version = str(Triton("", ports[0], ports[1]).ask("v2")["version"])
            yield Triton(version, ports[0], ports[1])
        finally:
            process.terminate()
            try:
                process.wait(_STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def _free_ports(*asked: int) -> Iterator[list[int]]:
    """Each port as asked for, or one that was free a moment ago: Triton takes no port 0."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in asked]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = [port or one.getsockname()[1] for port, one in zip(asked, sockets, strict=True)]
    yield ports


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int, log: pathlib.Path) -> None:
    deadline_s = time.monotonic() + _READY_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5):
            return
        time.sleep(0.1)
    how = f"ended with exit code {process.returncode}" if process.returncode is not None else f"was not ready in {_READY_WITHIN_S} s"
    last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
    raise TritonError("\n".join([f"Triton {how}; it said last:", *last]))


def _check(triton: Triton) -> None:
    """One inference, since a server can be ready whose Python backend is not."""
    inputs = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for name in ("INPUT0", "INPUT1")]
    answer = triton.ask("v2/models/simple/infer", {"inputs": inputs, "outputs": [{"name": "OUTPUT0"}]})
    outputs = answer["outputs"]
    if not isinstance(outputs, list) or outputs[0]["data"] != list(range(0, 32, 2)):
        raise TritonError(f"Triton does not add: {answer}")


def main() -> int:
    """Serves until it is told to end, or checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--http-port", type=int, help="default 8000; a free one with --check")
    parser.add_argument("--grpc-port", type=int, help="default 8001; a free one with --check")
    parser.add_argument("--peers", type=pathlib.Path, help="where the peers are installed")
    parser.add_argument("--check", action="store_true", help="end after one answer")
    options = parser.parse_args()
    http_port, grpc_port = ((0 if options.check else default) if port is None else port
                            for port, default in ((options.http_port, 8000), (options.grpc_port, 8001)))  # fmt: skip
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end as on Ctrl-C, so that Triton ends too
    try:
        with contextlib.suppress(KeyboardInterrupt), running_triton(peers_folder(options.peers), http_port, grpc_port) as triton:
            if options.check:
                _check(triton)
                print(f"Triton {triton.version} answers")
                return 0
            print(
                f"Triton {triton.version}: http://127.0.0.1:{triton.http_port} and grpc://127.0.0.1:{triton.grpc_port}; Ctrl-C ends it",
                flush=True,
            )
            signal.pause()
    except (TritonError, OSError) as error:
        sys.stderr.write(f"triton: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
