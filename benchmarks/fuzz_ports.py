"""Fuzzes what the ports of `perfkit record` and of a fleet read: broken requests, and broken messages of those who know the token or do not.

    python -m benchmarks.fuzz_ports [--minutes 10] [--seed 0] [--out reports/fuzz-ports.md]

Guarantees that it checks: whatever a client sends, the observer of its connection finds requests or raises `ProtocolError`, and at the end
holds nothing; the process that records answers with its counts, and requests that are not broken are all in them, unless bytes of their
connection were left out; only who knows the token is taken into a fleet, and a changed frame ends the connection; a message is one of
the declared types or is refused.
"""

import asyncio
import contextlib
import io
import pathlib
import random
import struct
import sys
import tempfile
from typing import Any

import uvloop

from benchmarks import fuzzing
from benchmarks.fuzz_server_requests import any_frames, any_http
from benchmarks.fuzzing import TrialKind, add_fault, split_randomly
from perfkit.clock import MonotonicClock
from perfkit.errors import ProtocolError, TargetError
from perfkit.fleet.connection import JoinError, UnknownMessageError, accept, join
from perfkit.fleet.messages import OF_MACHINE, FromWorkers, Hello, Pong, TargetChecked
from perfkit.fleet.token import LENGTH_BYTES, MAC_BYTES, MAGIC, NONCE_BYTES
from perfkit.load.loop import Ending
from perfkit.machine.readings import BusyShares
from perfkit.process.encoding import MalformedError
from perfkit.process.messages import framed, load_frame
from perfkit.proxy.description import describe
from perfkit.proxy.grpc_observer import GrpcObserver
from perfkit.proxy.http_observer import HttpObserver
from perfkit.proxy.messages import FROM_OBSERVER, TO_OBSERVER, Closed, End, Opened, Received, Recorded, Recording, Skipped
from perfkit.proxy.observer import Observer
from perfkit.proxy.observer_process import serve
from perfkit.proxy.open_requests import BodyMemory, OpenRequest
from perfkit.recorder.recorder import Recorder
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.workers.messages import Crashed, Piece, Progress, Ready
from perfkit.workers.point_recording import PointRecording, WorkloadRecording

_S = 10**9
_TOKEN = "the-token-of-the-fuzzer-5d0c"  # noqa: S105
_ENDS_WITHIN_S = 60  # far longer than a trial takes on a busy machine
_BODY = b'{"inputs":[{"name":"X","datatype":"INT32","shape":[2],"data":[1,2]}]}'
_UNBROKEN = b"POST /v2/models/unbroken/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)


def try_http(rng: random.Random) -> str:
    """A connection of a client that speaks HTTP/1.1, more or less."""
    sent = bytearray().join(any_http(rng) for _ in range(rng.randrange(1, 4)))
    for _ in range(rng.choice([0, 0, 1, 3])):
        add_fault(sent, rng)
    return _observe(HttpObserver, bytes(sent), rng)


def try_grpc(rng: random.Random) -> str:
    """A connection of a client that speaks gRPC, more or less."""
    return _observe(GrpcObserver, any_frames(rng), rng)


def _observe(kind: type[HttpObserver | GrpcObserver], sent: bytes, rng: random.Random) -> str:
    requests, memory = list[OpenRequest](), BodyMemory()
    observer: Observer = kind(requests.append, memory)
    outcome = "read"
    try:
        for number, piece in enumerate(split_randomly(sent, rng)):
            if rng.random() < 0.01:
                observer.skip(len(piece))
            else:
                observer.receive(piece, number, is_first=not number or rng.random() < 0.1)
    except ProtocolError:
        outcome = "refused"
    observer.close()
    for request in requests:
        describe(request, with_payload=True)
        memory.release(request)
    assert memory.used_bytes == 0, f"{memory.used_bytes} bytes are held at the end"
    return f"{outcome}, {'some' if requests else 'no'} requests found"


def try_recording(rng: random.Random) -> str:
    """The process that records, from its first message to its last: broken connections beside one whose requests are not."""
    kinds = {0: False, **{number: rng.random() < 0.5 for number in range(1, rng.randrange(2, 5))}}
    unbroken = rng.randrange(1, 6)
    left = {
        number: [b"", *split_randomly(any_frames(rng) if is_grpc else any_http(rng) if number else _UNBROKEN * unbroken, rng)]
        for number, is_grpc in kinds.items()
    }
    has_skipped = rng.random() < 0.2
    messages: list[object] = [Opened(number, is_grpc, "http://127.0.0.1:1") for number, is_grpc in kinds.items()]
    while left:
        number = rng.choice(list(left))
        data = left[number].pop(0)
        is_skipped = rng.random() < (0.05 if number else 0.3 * has_skipped)
        messages.append(Skipped(number, len(data)) if is_skipped else Received(number, len(messages), rng.random() < 0.3, data))
        if not left[number]:
            del left[number]
            messages.append(Closed(number))
    skipped = any(isinstance(message, Skipped) and not message.connection for message in messages)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "trace.jsonl"
        told = [Recording(str(file), rng.choice(["none", "hash", "full"]), 0), *messages, *([End()] if rng.random() < 0.8 else [])]
        answers = io.BytesIO()
        serve(io.BytesIO(b"".join(framed(TO_OBSERVER.encoded(message)) for message in told)), answers, MonotonicClock())
        answers.seek(0)
        *_, last = _frames(answers)
        assert isinstance(last, Recorded), f"the last message is {last}"
        assert not last.failure, last.failure
        written = sum(last.calls.values())
        assert written == len(file.read_bytes().splitlines()), "the trace has other rows than are counted"
    found = last.calls.get(("unbroken", "infer"), 0)
    assert found <= unbroken
    assert skipped or found == unbroken, f"{found} of {unbroken} requests that were not broken are recorded"
    return "with bytes left out" if skipped else "whole"


def _frames(file: io.BytesIO) -> list[Any]:
    found = []
    with contextlib.suppress(EOFError):
        while True:
            found.append(FROM_OBSERVER.decoded(load_frame(file)))
    return found


def _messages() -> tuple[Any, ...]:
    """Messages of a machine, one or more of each kind."""
    recorder = Recorder(window_start_ns=0, window_end_ns=60 * _S)
    for number in range(300):
        outcome = Outcome.OK if number % 7 else Outcome.REJECTED
        recorder.add(Reply(outcome, number * 10**7, number * 10**7 + 10**6 * (1 + number % 13), None, "" if number % 7 else "busy"))
    own = WorkloadRecording(recorder.take_before(2 * _S), ConnectionCounts(opened=3))
    piece = Piece(2 * _S, PointRecording((own,), _S, Ending(2 * _S), BusyShares(0.25)))
    return (
        Hello("machine", "1", (0, 1), 1024, 28_000, None), Pong(3, 5 * _S), TargetChecked(7), TargetChecked(fault="refused"),
        FromWorkers(1, (Ready(), Progress(), piece)), FromWorkers(2, (TargetError("gone"), Crashed("Traceback"))), Progress(),
    )  # fmt: skip


_KINDS_OF_MESSAGES = Hello | Pong | TargetChecked | FromWorkers | Progress
_ENCODED = tuple(map(OF_MACHINE.encoded, _messages()))


def _broken_message(rng: random.Random) -> bytes:
    message = bytearray(rng.choice(_ENCODED))
    for _ in range(rng.choice([1, 1, 2, 5])):
        if rng.random() < 0.5 and len(message) > LENGTH_BYTES:
            place = rng.randrange(len(message) - 4)
            message[place : place + 4] = struct.pack("<I", rng.choice([0, 1, 2**16, 2**31 - 1, 2**32 - 1]))
        else:
            add_fault(message, rng)
    return bytes(message)


def try_message(rng: random.Random) -> str:
    """A broken message of a machine that knows the token."""
    try:
        message = OF_MACHINE.decoded(_broken_message(rng))
    except MalformedError:
        return "refused"
    assert isinstance(message, _KINDS_OF_MESSAGES)
    return "read"


def try_caller(rng: random.Random) -> str:
    """A caller of the fleet's port: one without the token, or a machine that sends broken messages or frames."""
    return uvloop.run(asyncio.wait_for(_call(rng), _ENDS_WITHIN_S))


async def _call(rng: random.Random) -> str:
    taken = asyncio.get_running_loop().create_future()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            connection = await accept(reader, writer, _TOKEN)
        except JoinError:
            taken.set_result(None)
            return
        received = 0
        with contextlib.suppress(EOFError, UnknownMessageError):
            while True:
                assert isinstance(await connection.receive(), _KINDS_OF_MESSAGES)
                received += 1
        await connection.close()
        taken.set_result(received)

    async with fuzzing.serving(take) as port:
        if rng.random() < 0.5:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            await reader.readexactly(len(MAGIC) + NONCE_BYTES)
            sent = rng.choice([b"", b"GET / HTTP/1.1\r\n\r\n", rng.randbytes(NONCE_BYTES + MAC_BYTES), rng.randbytes(rng.randrange(200))])
            writer.write(sent)
            writer.write_eof()
            with contextlib.suppress(ConnectionError):
                await reader.read()
            writer.close()
            assert await taken is None, "a caller without the token was taken"
            return "sent away"
        machine = await join("127.0.0.1", port, _TOKEN, None)
        count, is_changed = rng.randrange(1, 4), rng.random() < 0.5
        bodies = [rng.choice(_ENCODED) if is_changed else _broken_message(rng) for _ in range(count)]
        frames = bytearray().join(map(machine._sealer.seal, bodies))  # noqa: SLF001 - as a hostile machine does
        if is_changed:
            before = bytes(frames)
            while frames == before:
                add_fault(frames, rng)
        machine._writer.write(frames)  # noqa: SLF001
        machine._writer.write_eof()  # noqa: SLF001
        received = await taken
        await machine.close()
        assert received is not None, "a machine that knows the token was sent away"
        assert not is_changed or received < count, "a changed frame was taken"
        return f"{'a changed frame' if is_changed else 'broken messages'}, {'none' if not received else 'all' if received == count else 'some'} read"


# a caller and a recording take as long as some hundred of the other trials
KINDS = (
    TrialKind("HTTP", try_http),
    TrialKind("gRPC", try_grpc),
    TrialKind("messages of a machine", try_message),
    TrialKind("whole recordings", try_recording, seeds_per_trial=10),
    TrialKind("callers of a fleet", try_caller, seeds_per_trial=10),
)


def main() -> int:
    """Runs the trials; the exit code is 1 at a violation."""
    guarantee = (
        "Every connection is read or refused, and nothing of it is held; requests that are not broken are recorded beside broken ones; only who "
        "knows the token is taken into a fleet; every message is one of the declared types or is refused."
    )
    return fuzzing.fuzz(KINDS, "Fuzzing the ports of `perfkit record` and of a fleet", guarantee, fuzzing.parse_options(__doc__))


if __name__ == "__main__":
    sys.exit(main())
