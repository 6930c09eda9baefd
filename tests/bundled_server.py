"""The bundled server as a process that several tests share."""

import contextlib
import json
import subprocess
import sys
import types
from collections.abc import Iterator

from tests import forked


@contextlib.contextmanager
def bundled_server(*options: str) -> Iterator[types.SimpleNamespace]:
    """The URLs of the server with these options, over `http` and `grpc`, and of its page of `metrics`."""
    ports = ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
    command = [sys.executable, "-m", "server_stub", *ports, "--exit-with-stdin", *options]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        http, grpc, metrics = (f"127.0.0.1:{ready[f'{name}_port']}" for name in ("http", "grpc", "metrics"))
        yield types.SimpleNamespace(http=f"http://{http}", grpc=f"grpc://{grpc}", metrics=f"http://{metrics}/metrics")
        process.stdin.close()
