"""The server in a process of its own, once per session, and clients for it."""

import asyncio
import contextlib
import dataclasses
import http.client
import inspect
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import pytest
import tritonclient.grpc
import tritonclient.http

from tests import forked
from tests.telemetry.fake_nvml.library import compiled


class StartedServer:
    """A server process. `ready` is its ready line."""

    def __init__(self, *arguments: str, environment: Mapping[str, str], module: str = "server_stub") -> None:
        self.process = forked.start(
            [sys.executable, "-m", module, "--http-port=0", "--grpc-port=0", "--exit-with-stdin", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.ready: dict[str, Any] = json.loads(self.line) if self.line else {}

    @property
    def http_port(self) -> int:
        return int(self.ready["http_port"])

    @property
    def grpc_port(self) -> int:
        return int(self.ready["grpc_port"])

    @property
    def metrics_port(self) -> int:
        return int(self.ready["metrics_port"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the server, which must not have failed."""
        code, _, stderr = self.end()
        assert error is not None or (code == 0 and "Traceback" not in stderr), stderr

    def end(self) -> tuple[int, str, str]:
        """Close its stdin and wait: the exit code, the rest of stdout, and stderr."""
        stdout, stderr = self.process.communicate(timeout=120)
        return self.process.returncode, stdout, stderr


@dataclasses.dataclass(frozen=True)
class Answer:
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        length = self.headers.get("Inference-Header-Content-Length")
        return json.loads(self.body[: int(length)] if length else self.body)


class Wire:
    """One connection of the standard library's HTTP client."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def send(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> Answer:
        self._connection.request(method, path, body, dict(headers or {}))
        response = self._connection.getresponse()
        return Answer(response.status, response.headers, response.read())  # type: ignore[arg-type]  # an email.Message reads as a mapping

    def infer(self, document: object, *, binary: bytes = b"", model: str = "simple", header_length: int | None = None) -> Answer:
        """Post an infer request: a JSON document, or bytes instead, followed by binary data."""
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        headers = {}
        if binary or header_length is not None:
            headers["Inference-Header-Content-Length"] = str(len(text) if header_length is None else header_length)
        return self.send("POST", f"/v2/models/{model}/infer", text + binary, headers)

    def close(self) -> None:
        self._connection.close()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True


@pytest.fixture(scope="session")
def compiled_nvml(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A fake of NVIDIA's management library, with the GPUs of a script."""
    return compiled(tmp_path_factory)


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {"PERFKIT_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="session")
def start_server(environment: dict[str, str]):
    return lambda *arguments, **keys: StartedServer(*arguments, environment=environment, **keys)


@pytest.fixture(scope="session")
def server(start_server) -> Iterator[StartedServer]:
    with start_server() as started:
        yield started


@pytest.fixture
def wire(server: StartedServer) -> Iterator[Wire]:
    connection = Wire(server.http_port)
    yield connection
    connection.close()


@pytest.fixture
def wire_to() -> Iterator[Callable[[StartedServer], Wire]]:
    """A function that opens connections to servers. All are closed at the end."""
    with contextlib.ExitStack() as opened:
        yield lambda server: opened.enter_context(contextlib.closing(Wire(server.http_port)))


@pytest.fixture
def triton_http(server: StartedServer) -> Iterator[Any]:
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{server.http_port}") as client:
        yield client


@pytest.fixture
def triton_grpc(server: StartedServer) -> Iterator[Any]:
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        yield client
