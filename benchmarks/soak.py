"""Saturates the bundled server over HTTP, gRPC and a gRPC stream at once, and monitors its memory, files and threads.

    python -m benchmarks.soak [--minutes 10] [--out reports/soak.md]

Every request must get the correct answer, and after the warm-up neither memory nor open files nor threads may grow; otherwise
the exit code is 1. The rates only show how busy the server was on this machine.
"""

import asyncio
import collections
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import grpc
import grpc.aio
import numpy as np
import psutil

from benchmarks.fuzz_server import growth_bytes, server_failures
from benchmarks.processes import RunningServer, running_server
from benchmarks.report import Report, describe_machine, program_options
from perfkit.api_v2.client import Client, make_client
from perfkit.clock import MonotonicClock
from perfkit.protocol import v2_pb2
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array, tensor_to_array
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.options import TransportOptions

_CONCURRENCY = 8  # over each protocol, and as many requests in flight on the stream
_GROWTH_BYTES = 8 << 20
_STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


class Sample(NamedTuple):
    """The server's resources at one instant."""

    memory_bytes: int
    files: int
    threads: int


class Soak:
    """Closed loops over all protocols until `end_s`, their outcomes, and samples of the server's resources."""

    def __init__(self, server: RunningServer, end_s: float) -> None:
        self._server, self._end_s = server, end_s
        self.correct: collections.Counter[str] = collections.Counter()
        self.failures: collections.Counter[str] = collections.Counter()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Sends load, and waits for the last answers."""
        options = TransportOptions(max_connections=_CONCURRENCY, timeout_ns=60 * 10**9)
        clients = {name: make_client(Address.parse(self._server.url(name.lower())), options, MonotonicClock()) for name in ("HTTP", "gRPC")}
        sampling = asyncio.ensure_future(self._sample())
        loops = (self._loop(name, client) for name, client in clients.items() for _ in range(_CONCURRENCY))
        await asyncio.gather(self._stream(), *loops)
        sampling.cancel()
        for client in clients.values():
            await client.aclose()

    async def _loop(self, name: str, client: Client) -> None:
        requests = [(request, client.prepare(request)) for request in _requests()]
        index = 0
        while time.monotonic() < self._end_s:
            request, prepared = requests[index % len(requests)]
            reply = await client.transport.send(prepared)
            index += 1
            if reply.outcome is not Outcome.OK:
                self.failures[f"{name}: {reply.outcome.value}: {reply.error}"] += 1
            elif not _is_correct(request, client.decode(reply)):
                self.failures[f"{name}: a wrong answer from {request.model}"] += 1
            else:
                self.correct[name] += 1

    async def _stream(self) -> None:
        """One stream with several requests in flight; each answer releases the next request."""
        slots, sent = asyncio.Semaphore(_CONCURRENCY), 0

        async def messages() -> AsyncIterator[bytes]:
            nonlocal sent
            while time.monotonic() < self._end_s:
                await slots.acquire()
                sent += 1
                message = v2_pb2.ModelInferRequest(model_name="simple", raw_input_contents=[bytes(64), bytes(64)])
                for name in ("INPUT0", "INPUT1"):
                    message.inputs.add(name=name, datatype="INT32", shape=[1, 16])
                yield message.SerializeToString()

        channel: Any
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self._server.ready['grpc_port']}") as channel:
            async for encoded in channel.stream_stream(_STREAM)(messages()):
                answer = v2_pb2.ModelStreamInferResponse.FromString(encoded)
                slots.release()
                if answer.error_message or list(answer.infer_response.raw_output_contents) != [bytes(64), bytes(64)]:
                    self.failures[f"stream: {answer.error_message or 'a wrong answer'}"] += 1
                else:
                    self.correct["stream"] += 1
        if sent != self.correct["stream"]:
            self.failures[f"stream: {sent:,} requests, {self.correct['stream']:,} correct answers"] += 1

    async def _sample(self) -> None:
        process = psutil.Process(self._server.process.pid)
        while True:
            with process.oneshot():
                self.samples.append(Sample(process.memory_info().rss, process.num_fds(), process.num_threads()))
            await asyncio.sleep(1)

    @property
    def memory_growth_bytes(self) -> int:
        """From the end of the warm-up to the end."""
        return growth_bytes([sample.memory_bytes for sample in self.samples])

    def growth(self) -> list[str]:
        """What grew from the end of the warm-up to the end of the run."""
        grown = [f"memory grew by {self.memory_growth_bytes / 2**20:.1f} MiB"] if self.memory_growth_bytes > _GROWTH_BYTES else []
        half = self.samples[len(self.samples) // 2 :]
        for name in ("files", "threads"):
            parts = half[: len(half) // 2 + 1], half[len(half) // 2 :]
            first, last = (statistics.median(getattr(sample, name) for sample in part) for part in parts)
            grown += [f"the number of {name} grew from {first:g} to {last:g}"] if last > first else []
        return grown


def _requests() -> list[InferRequest]:
    """Small and large requests to models that run in the event loop, in threads, and in batches."""
    rng = np.random.Generator(np.random.Philox(5))
    vectors = [tensor_from_array(name, Datatype.INT32, rng.integers(0, 99, (1, 16), np.int32)) for name in ("INPUT0", "INPUT1")]
    long = tensor_from_array("INPUT0", Datatype.FP32, rng.random((1, 50_000), np.float32))
    texts = tensor_from_array("INPUT0", Datatype.BYTES, np.array([[b"a", b"", b"ccc"]], object))
    return [
        *[InferRequest("simple", tuple(vectors), binary_output=True)] * 20,
        InferRequest("identity_fp32", (long,), binary_output=True),
        InferRequest("simple_identity", (texts,), binary_output=True),
    ]


def _is_correct(request: InferRequest, answer: InferResponse) -> bool:
    if request.model != "simple":
        return bytes(answer.outputs[0].raw) == bytes(request.inputs[0].raw)
    first, second = (tensor_to_array(tensor) for tensor in request.inputs)
    outputs = {tensor.name: tensor_to_array(tensor) for tensor in answer.outputs}
    return np.array_equal(outputs["OUTPUT0"], first + second) and np.array_equal(outputs["OUTPUT1"], first - second)


def main() -> int:
    """Prints the report; the exit code is 1 if a request failed or a resource grew."""
    options, machine = program_options(__doc__, minutes=(10.0, "how long")), describe_machine()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        with running_server("--model", "simple", "identity_fp32", "simple_identity", stderr=log) as server:
            soak = Soak(server, time.monotonic() + options.minutes * 60)
            asyncio.run(soak.run())
        failures = server_failures(server, log)
    failures += [f"{failure}, {count:,} times" for failure, count in soak.failures.items()] + soak.growth()
    page = Report(options.out, "The bundled server under saturation")
    page.is_met = not failures
    page.add(
        f"{options.minutes:g} minutes, {_CONCURRENCY} requests in flight over HTTP, over gRPC and on a gRPC stream, all at once.",
        machine,
        "",
    )
    page.table("protocol", ">correct answers", ">per second")
    for name, count in sorted(soak.correct.items()):
        page.row(name, f"{count:,}", f"{count / options.minutes / 60:,.0f}")
    page.add("")
    page.table(">after s", ">resident memory, MiB", ">open files", ">threads")
    for at_s, sample in list(enumerate(soak.samples))[:: max(1, len(soak.samples) // 10)]:
        page.row(at_s, f"{sample.memory_bytes / 2**20:.1f}", sample.files, sample.threads)
    page.add(
        "",
        f"Memory growth from the end of the warm-up (30 %) to the end: {soak.memory_growth_bytes / 2**20:.1f} MiB.",
        "",
        *([f"- failure: {failure}" for failure in failures] or ["Every request got the correct answer, and nothing grew."]),
    )
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
