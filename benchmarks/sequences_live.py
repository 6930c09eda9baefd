"""Sequences on a live server whose model keeps a state: no two are mixed, their steps come in order, and all are ended.

    python -m benchmarks.sequences_live [--peers FOLDER] [--seconds 3] [--out reports/sequences-live.md]

Triton serves a Python model that answers with the running sum of the sequence, the number of the step, the id as it saw it, and the number of
open sequences. Every answer is compared with what was sent, for both kinds of ids, over HTTP, gRPC and gRPC streams with both
engines, in closed and open loops. Then two `perfkit run` with two workers each send to the same model at once, and every answer of theirs is checked; one
run is interrupted and one is killed, and the model says how many sequences are left. The exit code is 1 if anything differs.
"""

import asyncio
import collections
import dataclasses
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import TRAFFIC_MODELS, Triton, running_triton
from benchmarks.processes import ROOT, write_scenario
from benchmarks.report import option_parser, table_head, table_row, write_report, yes_no
from perfkit.clock import MonotonicClock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.load.sequences import LengthLaw, SequencePlan, random_first_id
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array, tensor_to_array
from perfkit.recorder.window import Window, cut
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply, Transport
from perfkit.transport.factory import make_transport
from perfkit.transport.options import Engine, StreamOptions, TransportOptions
from perfkit.units import NS_PER_S
from perfkit.workers.loops import prepare_requests
from tests.points import point_spec, run_point

_MODEL = "sequence_sum"
_IDS: tuple[Literal["integer"], Literal["string"]] = ("integer", "string")
_REQUESTS, _LIVE, _LENGTH = 7, 8, LengthLaw(1, 12)
_IDLE_S = 2.0
"""The model's idle time-out, by its configuration."""


@dataclasses.dataclass
class Verified:
    """What the answers of one load show."""

    answers: int = 0
    sequences: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)
    left: int = -1
    """Sequences that the model holds after the load; -1 if it was not asked."""


class VerifyingTransport:
    """A transport that compares each answer of the model with the steps that were answered before."""

    def __init__(self, transport: Transport, values: Sequence[int]) -> None:
        self._transport, self._values = transport, values
        self._sums: collections.defaultdict[str, tuple[int, int]] = collections.defaultdict(lambda: (0, 0))
        self._prepared: dict[bytes, tuple[int, str]] = {}
        self.verified = Verified()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        """Sends, and verifies the answer before the loop sees it."""
        return self._send(prepared)

    async def _send(self, prepared: Prepared) -> Reply:
        reply = await self._transport.send(prepared)
        if reply.outcome is not Outcome.OK:
            self.verified.wrong.append(f"{reply.outcome.value}: {reply.error}")
            return reply
        outputs = {tensor.name: tensor_to_array(tensor).item() for tensor in self._transport.decode(reply).outputs}
        key = outputs["ID"].decode() if isinstance(outputs["ID"], bytes) else str(outputs["ID"])
        body = b"".join(prepared.buffers)
        if not _carries(body, key):
            self.verified.wrong.append(f"an answer for {key} to a request without that id")
        total, steps = self._sums[key]
        self.verified.sequences += not steps
        total, steps = total + self._values[steps % len(self._values)], steps + 1
        self._sums[key] = total, steps
        if (outputs["SUM"], outputs["STEP"]) != (total, steps):
            self.verified.wrong.append(f"{key}: sum {outputs['SUM']} at step {outputs['STEP']}, expected {total} at step {steps}")
        self.verified.answers += 1
        return reply


def _carries(body: bytes, key: str) -> bool:
    """Whether a request holds the id, as text or as a varint."""
    if key.encode() in body:
        return True
    value, encoded = int(key) if key.isdecimal() else 0, bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bool(encoded) and bytes([*encoded, value]) in body


def requests_of(values: Sequence[int]) -> list[InferRequest]:
    """A request for each value."""
    return [InferRequest(_MODEL, (tensor_from_array("INPUT", Datatype.INT64, np.array([[value]], np.int64)),)) for value in values]


def loads(ids: Literal["integer", "string"]) -> Iterator[tuple[str, LoadPlan]]:
    """The loads by name."""

    def plan(**options: Any) -> SequencePlan:
        return SequencePlan(_LENGTH, random_first_id(), (random.randrange(2**32),), ids=ids, **options)

    def arrivals(rate_per_s: float) -> Schedule:
        return Schedule("poisson", constant_rate(rate_per_s), (5,))

    yield f"closed, {_LIVE} live", ClosedPlan(_LIVE, 0, plan())
    yield f"open 200/s, {_LIVE} live", OpenPlan(200.0, "poisson", arrivals(200.0), None, None, plan(live=_LIVE))
    yield "open, 30/s sequences", OpenPlan(30.0, "poisson", arrivals(30.0), None, None, plan(think_time_ns=1_000_000))


async def verify(address: Address, engine: Engine, stream: StreamOptions | None, load: LoadPlan, seconds: float) -> tuple[Verified, Window]:
    """Sends a load, and compares every answer; also what was recorded."""
    clock = MonotonicClock()
    transport = make_transport(address, TransportOptions(timeout_ns=10 * NS_PER_S, engine=engine, max_connections=64, stream=stream), clock)
    values = [random.randrange(10**6) for _ in range(_REQUESTS)]
    verifying = VerifyingTransport(transport, values)
    spec = point_spec(load, 0, round(seconds * NS_PER_S), None, 10 * NS_PER_S, _LIVE)
    try:
        own = dataclasses.replace(spec.workloads[0], requests=tuple(requests_of(values)))
        requests = prepare_requests(own, transport, worker=0, workers=1)
        recorded = await run_point(
            spec, verifying, requests, clock=clock, address=address, on_loop=lambda _: None, on_interval=lambda *_: None
        )
        window = cut(recorded.recording, 0, is_open=isinstance(load, OpenPlan))
        return verifying.verified, window
    finally:
        await transport.aclose()


def ask(triton: Triton, key: int | str, *, starts: bool) -> dict[str, Any] | None:
    """The model's answer to a step, as plain JSON; None if the server refuses it, as it does for a sequence that it does not know."""
    document = {
        "inputs": [{"name": "INPUT", "datatype": "INT64", "shape": [1, 1], "data": [0]}],
        "parameters": {"sequence_id": key, "sequence_start": starts, "sequence_end": True},
    }
    try:
        outputs: Any = triton.request(f"v2/models/{_MODEL}/infer", document)["outputs"]
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
        return None
    return {output["name"]: output["data"][0] for output in outputs}


def held(triton: Triton) -> int:
    """The number of sequences that the model holds."""
    answer = ask(triton, random.randrange(1, 2**40), starts=True)
    assert answer is not None
    return int(answer["LIVE"]) - 1


@dataclasses.dataclass
class Row:
    """A line of the table of verified loads."""

    protocol: str
    engine: str
    ids: str
    load: str
    verified: Verified
    counted: str

    @property
    def is_right(self) -> bool:
        """Whether every answer was right, and no sequence was left."""
        return not self.verified.wrong and not self.verified.left and self.verified.answers > 0


def verified_rows(triton: Triton, seconds: float) -> Iterator[Row]:
    """Verifies every load over both protocols and streams, with both engines and both kinds of ids."""
    over_http, over_grpc = Address("http", "127.0.0.1", triton.http_port), Address("grpc", "127.0.0.1", triton.grpc_port)
    ways: dict[str, tuple[Address, StreamOptions | None]] = {
        "HTTP": (over_http, None),
        "gRPC": (over_grpc, None),
        "gRPC, a stream each": (over_grpc, StreamOptions()),
        "gRPC, streams of 1,000": (over_grpc, StreamOptions(1000)),
    }
    engines: tuple[Engine, ...] = ("wire", "reference")
    for way, (address, stream) in ways.items():
        for engine in engines:
            for ids in _IDS:
                for name, load in loads(ids):
                    verified, window = asyncio.run(verify(address, engine, stream, load, seconds))
                    verified.left = held(triton)
                    counted = f"{window.sequences_started:,}, {window.sequences_ended:,}, {window.sequences_failed:,}"
                    yield Row(way, engine, ids, name, verified, counted)


def scenario(triton: Triton, folder: pathlib.Path, protocol: str, ids: str, seconds: float) -> dict[str, Any]:
    """A scenario of which every answer is checked: step k carries the value k, and the sum must be that of all values so far."""
    values = np.arange(1, 21, dtype=np.int64)
    files = {"value": values, "sum": values.cumsum(), "step": values}
    names: dict[str, list[str]] = {name: [] for name in files}
    for name, of_all in files.items():
        for number, value in enumerate(of_all):
            names[name].append(f"{name}-{number:02d}.npy")
            np.save(folder / names[name][-1], np.array([value], np.int64))
    return {
        "target": {"url": triton.url(protocol), "model": _MODEL},
        "workload": {"inputs": {"INPUT": {"file": names["value"]}}},
        "sequences": {"length": {"uniform": [5, 20]}, "ids": ids},
        "load": {"closed": {"concurrency": 4}},
        "check": {"share": "100%", "at_most": "1000000/s", "outputs": {"SUM": {"file": names["sum"]}, "STEP": {"file": names["step"]}}},
        "measure": {"warmup": "0s", "duration": f"{seconds}s", "repetitions": 1, "workers": 2},
    }  # fmt: skip


def start_perfkit(folder: pathlib.Path, document: dict[str, Any], out: str) -> "subprocess.Popen[bytes]":
    """Starts `perfkit run`; it may be stopped."""
    command = [
        sys.executable,
        "-m",
        "perfkit",
        "run",
        str(write_scenario(folder, document)),
        "--quiet",
        "--no-report",
        "--out",
        str(folder / out),
    ]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)


def two_runs(triton: Triton, protocol: str, ids: str, seconds: float) -> tuple[str, bool]:
    """Two runs with two workers each at once: their checked and wrong answers."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        document = scenario(triton, folder, protocol, ids, seconds)
        running = [start_perfkit(folder, document, out) for out in ("one", "two")]
        codes = [process.wait() for process in running]
        points = [json.loads((folder / out / "result.json").read_text())["points"][0] for out in ("one", "two")]
    counts = [(point["checked"], point["requests"]["scheduled"], point["requests"]["ok"], point["sequences"]["failed"]) for point in points]
    is_right = all(checked >= 0.99 * sent and sent == ok and not failed and checked for checked, sent, ok, failed in counts)
    texts = [f"{checked:,} of {sent:,} checked, {sent - ok} wrong or failed" for checked, sent, ok, _ in counts]
    return f"{'; '.join(texts)}; exit codes {codes}", is_right


def until(condition: Callable[[], bool], within_s: float) -> float | None:
    """The seconds until a condition holds; None if it does not within the time."""
    started_s = time.monotonic()
    while time.monotonic() - started_s < within_s:
        if condition():
            return time.monotonic() - started_s
        time.sleep(0.02)
    return None


def interrupted_run(triton: Triton, protocol: str, ids: str) -> tuple[int, int]:
    """The exit code of a run with eight open sequences that was interrupted, and how many of them the model holds when it has ended."""
    with tempfile.TemporaryDirectory() as name:
        before = held(triton)
        process = _start_long(triton, pathlib.Path(name), protocol, {"ids": ids})
        process.send_signal(signal.SIGINT)
        return process.wait(), held(triton) - before


def killed_run(triton: Triton, protocol: str) -> tuple[int, int]:
    """How many of eight open sequences Triton knows right after their run was killed, of four, and of the others a second after its idle time-out."""
    first_id = random.randrange(1, 2**31)
    with tempfile.TemporaryDirectory() as name:
        process = _start_long(triton, pathlib.Path(name), protocol, {"first_id": first_id})
        process.kill()
        process.wait()
    at_once = sum(ask(triton, first_id + number, starts=False) is not None for number in range(4))
    time.sleep(_IDLE_S + 1)
    return at_once, sum(ask(triton, first_id + number, starts=False) is not None for number in range(4, 8))


def _start_long(triton: Triton, folder: pathlib.Path, protocol: str, ids: dict[str, Any]) -> "subprocess.Popen[bytes]":
    """Starts a run with eight sequences that do not end, and waits until the model holds them."""
    document = scenario(triton, folder, protocol, "integer", 60)
    document |= {"sequences": {"length": 1_000_000, **ids}, "load": {"closed": {"concurrency": 8, "think_time": "50ms"}}}
    del document["check"]
    before = held(triton)
    process = start_perfkit(folder, document, "out")
    if until(lambda: held(triton) == before + 8, 60) is None:
        process.kill()
        process.wait()
        raise RuntimeError("the run did not open its sequences")
    return process


def main() -> int:
    """Prints the tables."""
    parser = option_parser(__doc__)
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    parser.add_argument("--seconds", type=float, default=3, help="length of each load (default %(default)s)")
    options = parser.parse_args()
    lines, is_right = ["# Sequences on a live Triton with a stateful model", ""], True

    def show(*new: str) -> None:
        lines.extend(new)
        print("\n".join(new), flush=True)

    with running_triton(peers_folder(options.peers), models=TRAFFIC_MODELS) as triton:
        show(
            f"Triton {triton.version}, a Python model that keeps a running sum for each sequence; every answer is compared with what was sent.",
            "",
            *table_head(
                "protocol", "engine", "ids", "load", ">answers", ">sequences", "started, ended, failed", ">wrong answers", ">left open"
            ),
        )
        for row in verified_rows(triton, options.seconds):
            is_right &= row.is_right
            verified = row.verified
            counts = (f"{verified.answers:,}", f"{verified.sequences:,}", row.counted, len(verified.wrong), verified.left)
            show(table_row(row.protocol, row.engine, row.ids, row.load, *counts), *(f"wrong: {text}" for text in verified.wrong[:3]))
        show("", "## Two runs with two workers each, at once", "")
        show(*table_head("protocol", "ids", "answers of each run", "right"))
        for protocol in ("http", "grpc"):
            for ids in _IDS:
                text, is_fine = two_runs(triton, protocol, ids, options.seconds)
                is_right &= is_fine
                show(table_row(protocol, ids, text, yes_no(is_fine)))
        show("", "## Runs that are stopped, with eight open sequences", "")
        for protocol in ("http", "grpc"):
            for ids in _IDS:
                code, left = interrupted_run(triton, protocol, ids)
                is_right &= (code, left) == (130, 0)
                show(f"- Ctrl-C, {protocol}, {ids} ids: exit code {code}, {left} left at its end")
        for protocol in ("http", "grpc"):
            at_once, later = killed_run(triton, protocol)
            is_right &= not later
            show(
                f"- SIGKILL, {protocol}: Triton knows {at_once} of 4 at once, and {later} of the other 4 a second after its idle time-out of {_IDLE_S:g} s"
            )
    show("", "Everything is as it should be." if is_right else "SOMETHING IS WRONG.")
    write_report(options.out, lines)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
