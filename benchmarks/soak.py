"""Soaks the bundled server: saturated over HTTP, gRPC and a gRPC stream at once, while its memory and its files are watched.

    python -m benchmarks.soak [--minutes 10] [--out reports/soak.md]

Every request has to be answered rightly, and after the warm-up neither memory nor open files nor threads may grow. The rates
say how hard the server worked on this machine; they compare with nothing.
"""

import argparse
import asyncio
import collections
import contextlib
import pathlib
import platform
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import grpc
import grpc.aio
import numpy as np
import psutil

from benchmarks.fuzz_server import BrokenPromiseError, Ports, growth_bytes, running_server
from perfkit.protocol import v2_pb2
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array, tensor_to_array
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Transport
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions

_CONCURRENCY = 8  # over each protocol, and as many requests in flight on the stream
_TIMEOUT_NS = 60_000_000_000
_GROWTH_BYTES = 8 << 20
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


class Sample(NamedTuple):
    """What the server has at an instant."""

    memory_bytes: int
    files: int
    threads: int


class Soak:
    """Closed loops until a time, and what came of them."""

    def __init__(self, ports: Ports, process: psutil.Process, goes_on: Callable[[], bool]) -> None:
        self.ports, self.process, self.goes_on = ports, process, goes_on
        self.answered: collections.Counter[str] = collections.Counter()
        self.failures: collections.Counter[str] = collections.Counter()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Until `goes_on` says no; what has begun is answered."""
        http = WireHttpTransport(
            Address("http", "127.0.0.1", self.ports.http),
            TransportOptions(max_connections=_CONCURRENCY, timeout_ns=_TIMEOUT_NS),
            time.monotonic_ns,
        )
        rpc = WireGrpcTransport(
            Address("grpc", "127.0.0.1", self.ports.grpc),
            TransportOptions(max_connections=_CONCURRENCY, timeout_ns=_TIMEOUT_NS),
            time.monotonic_ns,
        )
        watching = asyncio.ensure_future(self._watch())
        await asyncio.gather(
            self._stream(), *(self._loop(name, one) for name, one in (("HTTP", http), ("gRPC", rpc)) for _ in range(_CONCURRENCY))
        )
        watching.cancel()
        await http.aclose()
        await rpc.aclose()

    async def _loop(self, name: str, transport: Transport) -> None:
        requests = [(asked, transport.prepare(asked)) for asked in _requests()]
        index = 0
        while self.goes_on():
            asked, prepared = requests[index % len(requests)]
            reply = await transport.send(prepared)
            index += 1
            if reply.outcome is not Outcome.OK:
                self.failures[f"{name}: {reply.outcome.value}: {reply.error}"] += 1
            elif not _is_right(asked, transport.decode(reply)):
                self.failures[f"{name}: a wrong answer from {asked.model}"] += 1
            else:
                self.answered[name] += 1

    async def _stream(self) -> None:
        """One stream with several requests in flight; each answer lets the next request go."""
        room, sent = asyncio.Semaphore(_CONCURRENCY), 0

        async def messages() -> AsyncIterator[bytes]:
            nonlocal sent
            while self.goes_on():
                await room.acquire()
                sent += 1
                message = v2_pb2.ModelInferRequest(model_name="simple", raw_input_contents=[bytes(64), bytes(64)])
                for name in ("INPUT0", "INPUT1"):
                    message.inputs.add(name=name, datatype="INT32", shape=[1, 16])
                yield message.SerializeToString()

        channel: Any
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.ports.grpc}") as channel:
            async for encoded in channel.stream_stream(_STREAM)(messages()):
                answer = v2_pb2.ModelStreamInferResponse.FromString(encoded)
                room.release()
                if answer.error_message or list(answer.infer_response.raw_output_contents) != [bytes(64), bytes(64)]:
                    self.failures[f"stream: {answer.error_message or 'a wrong answer'}"] += 1
                else:
                    self.answered["stream"] += 1
        if sent != self.answered["stream"]:
            self.failures[f"stream: {sent:,} requests, {self.answered['stream']:,} right answers"] += 1

    async def _watch(self) -> None:
        while True:
            with self.process.oneshot():
                self.samples.append(Sample(self.process.memory_info().rss, self.process.num_fds(), self.process.num_threads()))
            await asyncio.sleep(1)


def _requests() -> list[InferRequest]:
    """Small and large, of models that are executed in the event loop, in threads, and in batches."""
    chance = np.random.Generator(np.random.Philox(5))
    vectors = [tensor_from_array(name, Datatype.INT32, chance.integers(0, 99, (1, 16), np.int32)) for name in ("INPUT0", "INPUT1")]
    long = tensor_from_array("INPUT0", Datatype.FP32, chance.random((1, 50_000), np.float32))
    texts = tensor_from_array("INPUT0", Datatype.BYTES, np.array([[b"a", b"", b"ccc"]], object))
    small = [InferRequest("simple", tuple(vectors), binary_output=True)] * 20
    return [
        *small,
        InferRequest("identity_fp32", (long,), binary_output=True),
        InferRequest("simple_identity", (texts,), binary_output=True),
    ]


def _is_right(asked: InferRequest, answer: InferResponse) -> bool:
    if asked.model != "simple":
        return bytes(answer.outputs[0].raw) == bytes(asked.inputs[0].raw)
    first, second = (tensor_to_array(tensor) for tensor in asked.inputs)
    outputs = {tensor.name: tensor_to_array(tensor) for tensor in answer.outputs}
    return np.array_equal(outputs["OUTPUT0"], first + second) and np.array_equal(outputs["OUTPUT1"], first - second)


def judge(samples: list[Sample]) -> list[str]:
    """What has grown from the end of the warm-up to the end."""
    found = []
    grown = growth_bytes([one.memory_bytes for one in samples])
    if grown > _GROWTH_BYTES:
        found.append(f"memory grew by {grown / 2**20:.1f} MiB")
    half = samples[len(samples) // 2 :]
    for name in ("files", "threads"):
        first, last = (
            statistics.median(getattr(one, name) for one in part) for part in (half[: len(half) // 2 + 1], half[len(half) // 2 :])
        )
        if last > first:
            found.append(f"the number of {name} grew from {first:g} to {last:g}")
    return found


def main() -> int:
    """Prints what came of it; the exit code is 1 where a request failed or something grew."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    log: list[str] = []
    failures: list[str] = []
    soak = None
    with contextlib.ExitStack() as stack:
        try:
            process, ports = stack.enter_context(running_server(log, "--model", "simple", "identity_fp32", "simple_identity"))
            ends = time.monotonic() + options.minutes * 60
            soak = Soak(ports, psutil.Process(process.pid), lambda: time.monotonic() < ends)
            asyncio.run(soak.run())
            stack.close()
        except BrokenPromiseError as error:
            failures.append(str(error))
    assert soak is not None, failures
    failures += [f"{what}, {count:,} times" for what, count in soak.failures.items()] + judge(soak.samples)
    _tell(options, soak, failures)
    return 1 if failures else 0


def _tell(options: argparse.Namespace, soak: Soak, failures: list[str]) -> None:
    every = max(1, len(soak.samples) // 10)
    lines = [
        "# The bundled server, saturated",
        "",
        f"{options.minutes:g} minutes, {_CONCURRENCY} requests in flight over HTTP, over gRPC and on a gRPC stream, all at once.",
        f"Client and server shared this machine with whatever else ran on it. Python {platform.python_version()}.",
        "",
        "| protocol | right answers | a second |",
        "|---|---:|---:|",
        *(f"| {name} | {count:,} | {count / options.minutes / 60:,.0f} |" for name, count in sorted(soak.answered.items())),
        "",
        "| after s | resident memory, MiB | open files | threads |",
        "|---:|---:|---:|---:|",
        *(
            f"| {index} | {soak.samples[index].memory_bytes / 2**20:.1f} | {soak.samples[index].files} | {soak.samples[index].threads} |"
            for index in range(0, len(soak.samples), every)
        ),
        "",
        f"From the end of the warm-up (30 %) to the end memory grew by {growth_bytes([one.memory_bytes for one in soak.samples]) / 2**20:.1f} MiB.",
        "",
        *(f"- broken: {failure}" for failure in failures),
        "" if failures else "Every request was answered rightly, and nothing grew.",
    ]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join([*lines, ""]), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
