"""Fuzzes the bundled server over HTTP and gRPC with randomly broken documents, sizes, shapes, messages and frames.

    python -m benchmarks.fuzz_server [--minutes 10] [--seed 0] [--out reports/fuzz-server.md]

Guarantees that it checks, whatever a client sends: the process survives and its memory does not grow; every answer is a
result or a v2 error, as complete HTTP or as a gRPC status, and none reports a fault of the server itself; valid requests in
between get correct answers.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import grpc
import grpc.aio
import h11
import psutil

from benchmarks import fuzzing
from benchmarks.fuzz_server_requests import Call, any_call, any_frames, any_http
from benchmarks.processes import RunningServer, running_server
from benchmarks.report import table_head, table_row
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
_WAIT_S = 0.2  # then the connection is closed: an incomplete request gets no answer
_TIMEOUT_S = 60
_SLOW_PATHS = (b"sequence", b"generate_stream")  # these wait for other requests, or as long as the request says
_WORKERS = 8
_CHECK_EVERY = 200  # trials
_WARM_UP_SHARE, _GROWTH_BYTES = 0.3, 16 << 20
_FAULT = "the server failed"


class ViolationError(Exception):
    """The server violated a guarantee."""


class Ports(NamedTuple):
    """The ports of the server on the loopback."""

    http: int
    grpc: int


def server_failures(server: RunningServer, log: IO[str]) -> list[str]:
    """A sentence if the ended server failed or logged a traceback."""
    log.seek(0)
    text = log.read()
    if server.process.returncode == 0 and "Traceback" not in text:
        return []
    return [f"the server ended with exit code {server.process.returncode}:\n{text[-5000:]}"]


async def try_http(rng: random.Random, ports: Ports) -> str:
    """One broken HTTP request over a socket."""
    written = any_http(rng)
    must_answer = is_complete(written) and not any(word in written for word in _SLOW_PATHS)
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    try:
        writer.write(written)
        status, headers, body = await asyncio.wait_for(_read_answer(reader), _TIMEOUT_S if must_answer else _WAIT_S)
    except TimeoutError:
        if must_answer:
            raise ViolationError(f"a complete request got no answer: {written[:300]!r}") from None
        return "no answer: the request is incomplete"
    except ConnectionError:
        return "connection closed"
    finally:
        writer.close()
    if not status:
        return "connection closed"
    return _judge_http(status, headers, body)


def is_complete(written: bytes) -> bool:
    """Whether h11 reads at least one complete request in the bytes: then the server must answer."""
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
    """Status, headers and body of one answer as h11 reads them; status 0 if the connection ends first."""
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
        raise ViolationError(f"HTTP status {status}: {body[:200]!r}")
    body = decompress(body, headers.get(b"content-encoding", b"").decode(), 2**31)
    if status != 200 and body:
        text = body.decode().removeprefix("data: ")  # a stream's first event may be an error
        document = json.loads(text)
        if list(document) != ["error"] or not isinstance(document["error"], str) or not document["error"]:
            raise ViolationError(f"HTTP {status} without a v2 error: {body[:200]!r}")
        if document["error"].startswith(_FAULT):
            raise ViolationError(f"HTTP {status}: {document['error'][:300]}")
    elif body and not headers[b"content-type"].startswith(b"text/event-stream"):
        json.loads(body[: int(headers.get(b"inference-header-content-length", len(body)))])
    return f"HTTP {status}"


async def try_call(rng: random.Random, ports: Ports) -> str:
    """One gRPC call, by grpcio, with a broken message."""
    return await _call(any_call(rng), ports)


async def _call(call: Call, ports: Ports) -> str:
    channel: Any
    async with grpc.aio.insecure_channel(f"127.0.0.1:{ports.grpc}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        path = f"/inference.GRPCInferenceService/{call.method}"
        try:
            if call.is_stream:
                answers = [
                    answer async for answer in channel.stream_stream(path)(iter(call.messages), timeout=_TIMEOUT_S, wait_for_ready=True)
                ]
                for answer in answers:
                    message = v2_pb2.ModelStreamInferResponse.FromString(answer)
                    if message.error_message.startswith(_FAULT):
                        raise ViolationError(f"stream: {message.error_message[:300]}")
            else:
                await channel.unary_unary(path)(call.messages[0], timeout=_TIMEOUT_S, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.DEADLINE_EXCEEDED) or (error.details() or "").startswith(_FAULT):
                raise ViolationError(f"{call.method}: {error.code()}: {error.details()}") from None
            return f"gRPC {error.code().name}" if call.method != "ServerReady" else f"gRPC {error.code().name}: {error.details()}"
        return "gRPC OK"


async def try_frames(rng: random.Random, ports: Ports) -> str:
    """One connection with broken HTTP/2 frames."""
    written = any_frames(rng)
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.grpc)
    received = b""
    try:
        writer.write(written)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_S):
                while data := await reader.read(1 << 16):
                    received += data
                    if _ended_streams(received):
                        break
    except ConnectionError:
        return "connection closed"
    finally:
        writer.close()
    kinds = _ended_streams(received)
    return f"frames: {kinds}" if kinds else "frames: no stream ended"


def _ended_streams(received: bytes) -> str:
    """What ended a stream or the connection first; raises ViolationError if the bytes are not frames."""
    position = 0
    while position + http2.HEAD_BYTES <= len(received):
        upper, lower, kind, flags, _ = http2.read_head(received, position)
        if kind > http2.CONTINUATION:
            raise ViolationError(f"bytes that are not a frame: {received[position : position + 20]!r}")
        if kind == http2.GOAWAY:
            return "goaway"
        if kind == http2.RST_STREAM:
            return "reset"
        if kind == http2.HEADERS and flags & 1:
            return "trailers"
        position += http2.HEAD_BYTES + (upper << 8 | lower)
    return ""


async def check(ports: Ports) -> None:
    """Sends a valid request over each protocol; raises ViolationError if the answer is wrong."""
    inputs = [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for name in ("INPUT0", "INPUT1")]
    body = json.dumps({"inputs": inputs}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", ports.http)
    writer.write(b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    status, _, answer = await asyncio.wait_for(_read_answer(reader), _TIMEOUT_S)
    writer.close()
    if status != 200 or json.loads(answer)["outputs"][0]["data"] != list(range(0, 32, 2)):
        raise ViolationError(f"a valid request got HTTP {status}: {answer[:300]!r}")
    ready = await _call(Call("ServerReady", (b"",)), ports)
    if ready != "gRPC OK":
        raise ViolationError(f"a valid call got {ready}")


TRIALS: tuple[Callable[[random.Random, Ports], Any], ...] = (try_http, try_http, try_http, try_call, try_call, try_frames)


class Fuzzing:
    """Concurrent trials, their outcomes, and the server's memory."""

    def __init__(self, ports: Ports, seed: int, process: psutil.Process) -> None:
        self.ports, self.process = ports, process
        self.seeds = itertools.count(seed)
        self.counts: collections.Counter[str] = collections.Counter()
        self.failures: list[str] = []
        self.memory_bytes: list[int] = []

    async def run(self, continues: Callable[[], bool]) -> None:
        """Runs trials while `continues()` holds and few have failed."""
        await check(self.ports)
        await asyncio.gather(*(self._work(continues) for _ in range(_WORKERS)))
        try:
            await check(self.ports)
        except ViolationError as error:
            self.failures.append(f"at the end: {error}")

    async def _work(self, continues: Callable[[], bool]) -> None:
        while continues() and len(self.failures) < fuzzing.MAX_FAILURES:
            await self.trial(next(self.seeds))

    async def trial(self, seed: int) -> None:
        """Runs the trial of a seed and records its outcome or its failure."""
        rng = random.Random(seed)
        trial = rng.choice(TRIALS)
        try:
            self.counts[await asyncio.wait_for(trial(rng, self.ports), _TIMEOUT_S)] += 1
            if seed % _CHECK_EVERY == 0:
                await check(self.ports)
        except Exception as error:  # noqa: BLE001 - an unexpected error of any type is what the fuzzer looks for
            print(f"{trial.__name__}, seed {seed}: {error!r}", file=sys.stderr, flush=True)
            self.failures.append(f"{trial.__name__}, seed {seed}: {type(error).__name__}: {error}")

    def sample(self) -> None:
        """Records the server's resident memory."""
        self.memory_bytes.append(self.process.memory_info().rss)


def growth_bytes(memory_bytes: list[int]) -> int:
    """Growth from the end of the warm-up to the end, between the least of the first and of the last third of the samples.

    A leak raises what is least, too; single samples are higher by 31 MiB while a large message is held, or has just been.
    """
    steady = memory_bytes[int(len(memory_bytes) * _WARM_UP_SHARE) :]
    width = max(1, len(steady) // 3)
    return min(steady[-width:]) - min(steady[:width])


async def _fuzz(options: argparse.Namespace, ports: Ports, process: psutil.Process) -> Fuzzing:
    fuzz, end_s = Fuzzing(ports, options.seed, process), time.monotonic() + options.minutes * 60

    async def sample_memory() -> None:
        while True:
            fuzz.sample()
            await asyncio.sleep(1)

    sampling = asyncio.ensure_future(sample_memory())
    await fuzz.run(lambda: time.monotonic() < end_s)
    sampling.cancel()
    return fuzz


def main() -> int:
    """Runs the trials; the exit code is 1 at a violation."""
    options = fuzzing.parse_options(__doc__)
    failures: list[str] = []
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        limits = ("--max-body=8388608", "--head-timeout=5", "--body-timeout=5", "--allow-client-shm", "--log-format=json")
        with running_server("--model", *MODELS, *limits, stderr=log) as server:
            ports = Ports(server.ready["http_port"], server.ready["grpc_port"])
            fuzz = asyncio.run(_fuzz(options, ports, psutil.Process(server.process.pid)))
        failures = fuzz.failures + server_failures(server, log)
    growth = growth_bytes(fuzz.memory_bytes)
    if growth > _GROWTH_BYTES:
        failures.append(f"the server's memory grew by {growth / 2**20:.1f} MiB after the warm-up")
    sampled = fuzz.memory_bytes[:: max(1, len(fuzz.memory_bytes) // 10)]
    lines = [
        f"{options.minutes:g} minutes, {fuzz.counts.total():,} trials from seed {options.seed}, Python {platform.python_version()}.",
        "Every answer is a result or a v2 error, and none reports a fault of the server itself; the process survives, and valid",
        f"requests in between ({fuzz.counts.total() // _CHECK_EVERY:,} over each protocol) get correct answers.",
        "",
        *table_head("outcome", ">count"),
        *(table_row(outcome, f"{count:,}") for outcome, count in fuzz.counts.most_common()),
        "",
        f"Resident memory at every tenth of the time: {', '.join(f'{size / 2**20:.0f}' for size in sampled)} MiB.",
        f"Growth from the end of the warm-up (30 %) to the end: {growth / 2**20:.1f} MiB.",
    ]
    return fuzzing.finish("Fuzzing the bundled server with broken requests", lines, failures, options)


if __name__ == "__main__":
    sys.exit(main())
