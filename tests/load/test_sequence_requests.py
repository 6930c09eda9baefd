"""Steps of sequences as bytes, read with `json` and protobuf's own parser."""

import asyncio
import json
import zlib

import numpy as np
import pytest

from perfkit.api_v2.client import make_client
from perfkit.clock import ManualClock
from perfkit.load.sequence_requests import SequenceRequests, StreamRequests, with_sequence
from perfkit.load.sequences import LiveSequence
from perfkit.protocol import v2_pb2
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.options import TransportOptions

IDS: dict[str, list[int] | list[str]] = {
    "wide": [10**18 + 7, 8 * 10**18 + 12345, 2**62 + 1], "narrow": [1, 2, 9, 10, 127, 128, 300, 99_999, 2**31],
    "string": ["perfkit-ab-000000000000", "perfkit-ab-000000000001", "perfkit-ab-000000000010"],
}  # fmt: skip


def over(protocol, engine, test, compression="none"):
    """Calls `test` with a transport that is not connected."""

    async def main():
        transport = make_client(
            Address(protocol, "h", 1), TransportOptions(timeout_ns=10**9, engine=engine, compression=compression), ManualClock()
        )
        try:
            return test(transport)
        finally:
            await transport.aclose()

    return asyncio.run(main())


def requests(elements=4, *, plain=False, count=3):
    # the values look like ids, and hold the very bytes of one
    values = np.full(elements, 10**18 + 7, np.int64)
    return [
        InferRequest(
            "m", (tensor_from_array("INPUT", Datatype.INT64, values + number),), id=f"{10**18 + 7}-{number}", parameters={"priority": 3},
            plain_inputs=frozenset(["INPUT"] if plain else []),
        )
        for number in range(count)
    ]  # fmt: skip


def read(protocol, prepared):
    """The parameters."""
    body = b"".join(prepared.buffers)
    if protocol == "http":
        document = json.JSONDecoder().raw_decode(body[body.index(b"{") :].decode("latin-1"))[0]
        return document["parameters"]
    start = body.index(b"\x0a\x01m")  # the message begins with the model's name
    message = v2_pb2.ModelInferRequest.FromString(body[start:])
    return {name: getattr(value, value.WhichOneof("parameter_choice")) for name, value in message.parameters.items()}


@pytest.mark.parametrize(("kind", "size"), [*((kind, 4) for kind in IDS), (next(iter(IDS)), 20_000)])
@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("plain", [False, True], ids=["binary", "plain"])
def test_a_step_has_the_bytes_of_a_request_prepared_for_it_alone(protocol, engine, size, kind, plain):
    given = requests(size, plain=plain)

    def test(transport):
        prepared = []

        def prepare(request):
            prepared.append(request)
            return transport.prepare(request)

        steps = SequenceRequests(prepare, given)
        for key in IDS[kind]:
            steps.warm_up(LiveSequence(key, 5))
        prepared.clear()
        for key in IDS[kind]:
            sequence = LiveSequence(key, 5)
            for number in range(5):
                assert steps.variant(sequence) == number % 3
                expected = with_sequence(given[number % 3], key, starts=number == 0, ends=number == 4)
                assert steps.next_step(sequence) == transport.prepare(expected)
            assert sequence.is_over
            ended = steps.end(LiveSequence(key, 5, sent=2))
            assert ended == transport.prepare(with_sequence(given[2], key, starts=False, ends=True))
            flags = {"sequence_id": key, "sequence_start": False, "sequence_end": True, "priority": 3}
            assert {name: value for name, value in read(protocol, ended).items() if name != "binary_data_output"} == flags
        assert prepared == []  # every step was made from bytes that were there

    over(protocol, engine, test)


@pytest.mark.parametrize(("protocol", "engine"), [("http", "wire"), ("http", "reference"), ("grpc", "wire")])
def test_steps_that_are_compressed_are_prepared_one_by_one(protocol, engine):
    given = requests(1000, count=1)

    def test(transport):
        steps = SequenceRequests(transport.prepare, given)
        for key in (10**18, 10**18 + 1):
            sequence = LiveSequence(key, 2)
            expected = transport.prepare(with_sequence(given[0], key, starts=True, ends=False))
            assert steps.next_step(sequence) == expected
        if protocol == "http":
            compressed = expected.buffers[-1] if engine == "reference" else b"".join(expected.buffers).partition(b"\r\n\r\n")[2]
            assert str(10**18 + 1).encode() in zlib.decompress(compressed)

    over(protocol, engine, test, "deflate")


def test_large_tensors_are_not_copied_over_http():
    given = requests(20_000, count=1)

    def test(transport):
        steps = SequenceRequests(transport.prepare, given)
        sequence = LiveSequence(10**18, 9)
        _, first, second = (steps.next_step(sequence) for _ in range(3))
        assert len(first.buffers) == 2
        assert first.buffers[1] is second.buffers[1]

    over("http", "wire", test)


@pytest.mark.parametrize(
    ("stream", "length", "steps"),
    [(0, 2, [0, 1]), (1, 3, [2, 3, 4]), (0, 5, [0, 1, 0, 1, 0]), (1, 2, [2, 3]), (1, 5, [2, 3, 4, 2, 3])],
)
def test_step_k_of_a_sequence_is_step_k_of_its_stream(stream, length, steps):
    """As perf_analyzer sends streams of 2 and 3 steps: whole, and with --sequence-length 5."""
    given = requests(count=5)

    def test(transport):
        prepared = []

        def prepare(request):
            prepared.append(request)
            return transport.prepare(request)

        requests_of_streams, sequence = StreamRequests(prepare, given, (2, 3)), LiveSequence(7, length, stream=stream)
        requests_of_streams.warm_up(sequence)
        prepared.clear()
        for number, variant in enumerate(steps):
            assert requests_of_streams.variant(sequence) == variant
            expected = with_sequence(given[variant], 7, starts=number == 0, ends=number == length - 1)
            assert requests_of_streams.next_step(sequence) == transport.prepare(expected)
        assert sequence.is_over
        ended = requests_of_streams.end(LiveSequence(7, 9, sent=1, stream=stream))
        assert ended == transport.prepare(with_sequence(given[steps[1]], 7, starts=False, ends=True))
        assert prepared == []

    over("http", "wire", test)
