"""Fuzzes the bundled server over HTTP and gRPC: documents, sizes, shapes, messages and frames broken at random.

    python -m benchmarks.fuzz_server [--minutes 10] [--seed 0] [--out reports/fuzz-server.md]

Whatever is sent, the process lives and its memory stays where it was; each answer is a result or a v2 error, in whole
HTTP or as a gRPC status; none of them is a fault of the server's own, and valid requests in between are answered rightly.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import pathlib
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import grpc
import grpc.aio
import h11
import psutil

from benchmarks import fuzzing
from benchmarks.fuzz_server_requests import Call, any_call, any_frames, any_http
from perfkit.protocol import http2, v2_pb2
from perfkit.protocol.compression import decompress

MODELS = (
    "simple",
    "simple_string",
    "simple_identity",
    "identity_fp32",
    "identity_bytes",
    "simple_sequence",
    "simple_dyna_sequence",
    "repeat_int32",
)
_STATUSES = {200, 400, 404, 405, 500, 501, 503}
_PATIENCE_S = 0.2  # for an answer, before the connection is closed: some requests wait for bytes that never come
_HANGS_AFTER_S = 60
_TAKES_ITS_TIME = (b"sequence", b"generate_stream")  # waits for others, or as long as the request says
_WORKERS = 8
_CHECK_EVERY = 200  # trials
_WARM_UP_SHARE, _GROWTH_BYTES = 0.3, 16 << 20
_FAULT = "the server failed"


class BrokenPromiseError(Exception):
    """What the server should never do."""


class Ports(NamedTuple):
    """Where the server listens."""

    http: int
    grpc: int


@contextlib.contextmanager
def running_server(log: list[str], *options: str) -> Iterator[tuple["subprocess.Popen[str]", Ports]]:
    """The server on free ports; it raises where the server ends badly, or has told of a fault, and adds to `log` what it said."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield process, Ports(ready["http_port"], ready["grpc_port"])
    finally:
        _, stderr = process.communicate(timeout=_HANGS_AFTER_S)
    log.append(stderr)
    if process.returncode != 0 or "Traceback" in stderr:
        raise BrokenPromiseError(f"the server ended with exit code {process.returncode}:\n{stderr[-5000:]}")


async def try_http(chance: random.Random, ports: Ports) -> str:
    """One request over a socket, broken somewhere between its document and its bytes."""
    written = any_http(chance)
    is_due = is_whole(written) and not any(word in written for word in _TAKES_ITS_TIME)
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    try:
        writer.write(written)
        status, headers, body = await asyncio.wait_for(_read_answer(reader), _HANGS_AFTER_S if is_due else _PATIENCE_S)
    except TimeoutError:
        if is_due:
            raise BrokenPromiseError(f"a whole request was not answered: {written[:300]!r}") from None
        return "no answer, since it waits for more"
    except ConnectionError:
        return "connection closed"
    finally:
        writer.close()
    if not status:
        return "connection closed"
    return _judge_http(status, headers, body)


def is_whole(written: bytes) -> bool:
    """Whether that is at least one request with all of its body, as h11 reads it; then an answer is due."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    server.receive_data(written)
    try:
        while True:
            event = server.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return False
            if isinstance(event, h11.EndOfMessage):
                return True
    except h11.RemoteProtocolError:
        return False


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[bytes, bytes], bytes]:
    """Status, headers and body of one answer, as h11 reads them; status 0 where there is none."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="POST", target="/", headers=[("Host", "a")]))
    client.send(h11.EndOfMessage())
    status, body = 0, b""
    headers: dict[bytes, bytes] = {}
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(1 << 16)
            if not data and not status:
                return 0, {}, b""
            client.receive_data(data)
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = dict(event.headers)
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
            return status, headers, body


def _judge_http(status: int, headers: dict[bytes, bytes], body: bytes) -> str:
    if status not in _STATUSES:
        raise BrokenPromiseError(f"HTTP status {status}: {body[:200]!r}")
    body = decompress(body, headers.get(b"content-encoding", b"").decode(), 2**31)
    if status != 200 and body:
        text = body.decode().removeprefix("data: ")  # a stream's first event may be an error
        document = json.loads(text)
        if list(document) != ["error"] or not isinstance(document["error"], str) or not document["error"]:
            raise BrokenPromiseError(f"HTTP {status} without a v2 error: {body[:200]!r}")
        if document["error"].startswith(_FAULT):
            raise BrokenPromiseError(f"HTTP {status}: {document['error'][:300]}")
    elif body and not headers[b"content-type"].startswith(b"text/event-stream"):
        json.loads(body[: int(headers.get(b"inference-header-content-length", len(body)))])
    return f"HTTP {status}"


async def try_call(chance: random.Random, ports: Ports) -> str:
    """One call by grpcio, of a message broken in its fields or its bytes."""
    return await _call(any_call(chance), ports)


async def _call(call: Call, ports: Ports) -> str:
    channel: Any
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        path = f"/inference.GRPCInferenceService/{call.method}"
        try:
            if call.is_stream:
                answers = [
                    one async for one in channel.stream_stream(path)(iter(call.messages), timeout=_HANGS_AFTER_S, wait_for_ready=True)
                ]
                for answer in answers:
                    message = v2_pb2.ModelStreamInferResponse.FromString(answer)
                    if message.error_message.startswith(_FAULT):
                        raise BrokenPromiseError(f"stream: {message.error_message[:300]}")
            else:
                await channel.unary_unary(path)(call.messages[0], timeout=_HANGS_AFTER_S, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED) or (error.details() or "").startswith(_FAULT):
                raise BrokenPromiseError(f"{call.method}: {error.code()}: {error.details()}") from None
            return f"gRPC {error.code().name}" if call.method != "ServerReady" else f"gRPC {error.code().name}: {error.details()}"
        return "gRPC OK"


async def try_frames(chance: random.Random, ports: Ports) -> str:
    """One connection of HTTP/2 frames, broken in their order, their heads or their bytes."""
    written = any_frames(chance)
    reader, writer = await _connect(ports.grpc)
    came = b""
    try:
        writer.write(written)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                while data := await reader.read(1 << 16):
                    came += data
                    if _ended_streams(came):
                        break
    except ConnectionError:
        return "connection closed"
    finally:
        writer.close()
    kinds = _ended_streams(came)
    return f"frames: {kinds}" if kinds else "frames: nothing ended"


async def _connect(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection, also to a server that grpcio ended a moment ago, and that is listening again soon."""
    while True:
        try:
            return await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            await asyncio.sleep(_PATIENCE_S / 10)


def _ended_streams(came: bytes) -> str:
    """What ended a stream or the connection first; raises where the bytes are no frames."""
    position = 0
    while position + http2.HEAD_BYTES <= len(came):
        upper, lower, kind, flags, _ = http2.read_head(came, position)
        if kind > http2.CONTINUATION:
            raise BrokenPromiseError(f"bytes that are no frame: {came[position : position + 20]!r}")
        if kind == http2.GOAWAY:
            return "goaway"
        if kind == http2.RST_STREAM:
            return "reset"
        if kind == http2.HEADERS and flags & 1:
            return "trailers"
        position += http2.HEAD_BYTES + (upper << 8 | lower)
    return ""


async def check(ports: Ports) -> None:
    """A valid request over each protocol, answered rightly; raises otherwise."""
    inputs = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for name in ("INPUT0", "INPUT1")]
    body = json.dumps({"inputs": inputs}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    writer.write(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    status, _, answer = await asyncio.wait_for(_read_answer(reader), _HANGS_AFTER_S)
    writer.close()
    if status != 200 or json.loads(answer)["outputs"][0]["data"] != list(range(0, 32, 2)):
        raise BrokenPromiseError(f"a valid request got HTTP {status}: {answer[:300]!r}")
    ready = await _call(Call("ServerReady", (b"",)), ports)
    if ready != "gRPC OK":
        raise BrokenPromiseError(f"a valid call got {ready}")


TRIALS: tuple[Callable[[random.Random, Ports], Any], ...] = (try_http, try_http, try_http, try_call, try_call, try_frames)


class Fuzzing:
    """Trials in several tasks until a time, and what came of them."""

    def __init__(self, ports: Ports, seed: int, process: psutil.Process) -> None:
        self.ports, self.first, self.process = ports, seed, process
        self.seeds = itertools.count(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self.memory_bytes: list[int] = []

    async def run(self, goes_on: Callable[[], bool]) -> None:
        """Until `goes_on` says no, or too much has failed."""
        await check(self.ports)
        await asyncio.gather(*(self._work(goes_on) for _ in range(_WORKERS)))
        try:
            await check(self.ports)
        except BrokenPromiseError as error:
            self.failures.append(f"at the end: {error}")

    async def _work(self, goes_on: Callable[[], bool]) -> None:
        while goes_on() and len(self.failures) < 10:
            await self.trial(next(self.seeds))

    async def trial(self, seed: int) -> None:
        """One seed's trial; a broken promise is kept with it."""
        chance = random.Random(seed)
        trial = chance.choice(TRIALS)
        try:
            self.counts[await asyncio.wait_for(trial(chance, self.ports), _HANGS_AFTER_S)] += 1
            if seed % _CHECK_EVERY == 0:
                await check(self.ports)
        except Exception as error:  # noqa: BLE001 - any error but the expected ones is what this looks for
            print(f"{trial.__name__}, seed {seed}: {error!r}", file=sys.stderr, flush=True)
            self.failures.append(f"{trial.__name__}, seed {seed}: {type(error).__name__}: {error}")

    def sample(self) -> None:
        """Notes how much memory the server has."""
        self.memory_bytes.append(self.process.memory_info().rss)


def growth_bytes(memory_bytes: list[int]) -> int:
    """How much more memory there is at the end than after the warm-up: medians of a tenth of the samples each."""
    steady = memory_bytes[int(len(memory_bytes) * _WARM_UP_SHARE) :]
    width = max(1, len(steady) // 10)
    return round(statistics.median(steady[-width:]) - statistics.median(steady[:width]))


async def _fuzz(options: argparse.Namespace, ports: Ports, process: psutil.Process) -> Fuzzing:
    fuzz, ends = Fuzzing(ports, options.seed, process), time.monotonic() + options.minutes * 60

    async def watch() -> None:
        while True:
            fuzz.sample()
            await asyncio.sleep(1)

    open_telemetry = asyncio.ensure_future(watch())
    await fuzz.run(lambda: time.monotonic() < ends)
    open_telemetry.cancel()
    return fuzz


def main() -> int:
    """Prints what came of the trials; the exit code is 1 where a promise was broken, with the seed that shows it again."""
    options = fuzzing.parse(__doc__)
    failures: list[str] = []
    log: list[str] = []
    fuzz = None
    try:
        limits = ("--max-body=8388608", "--head-timeout=5", "--body-timeout=5", "--allow-client-shm")
        with running_server(log, "--model", *MODELS, *limits) as (process, ports):
            fuzz = asyncio.run(_fuzz(options, ports, psutil.Process(process.pid)))
            failures = fuzz.failures
    except BrokenPromiseError as error:
        failures.append(str(error))
    assert fuzz is not None, "\n".join(failures)
    grown = growth_bytes(fuzz.memory_bytes)
    if grown > _GROWTH_BYTES:
        failures.append(f"the server's memory grew by {grown / 2**20:.1f} MiB after the warm-up")
    _tell(options, fuzz, grown, failures, restarts="".join(log).count("is started again"))
    return 1 if failures else 0


def _tell(options: argparse.Namespace, fuzz: Fuzzing, grown: int, failures: list[str], *, restarts: int) -> None:
    sampled = fuzz.memory_bytes[:: max(1, len(fuzz.memory_bytes) // 10)]
    lines = [
        "# The bundled server against requests broken at random",
        "",
        f"{options.minutes:g} minutes, {fuzz.counts.total():,} trials from seed {options.seed}, Python {platform.python_version()}.",
        "Each answer is a result or a v2 error and none a fault of the server's own; the process lives, and valid requests in between",
        f"({fuzz.counts.total() // _CHECK_EVERY:,} of them over each protocol) are answered rightly.",
        "",
        "| came to | how often |",
        "|---|---:|",
        *(f"| {outcome} | {number:,} |" for outcome, number in fuzz.counts.most_common()),
        "",
        f"Resident memory, every tenth of the time: {', '.join(f'{one / 2**20:.0f}' for one in sampled)} MiB;",
        f"from the end of the warm-up (30 %) to the end it grew by {grown / 2**20:.1f} MiB.",
        "",
        f"grpcio's server ended {restarts} times at method names that are no UTF-8, and was started again.",
        "",
        *(f"- broken: {failure}" for failure in failures),
        "" if failures else "No promise was broken.",
    ]
    print("\n".join(lines))
    if options.out:
        pathlib.Path(options.out).write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
