"""Requests that the client gives up, on Triton and on the bundled server: counts, wasted work, and what the other requests cost.

    python -m benchmarks.abandonment [--requests 200] [--rounds 3] [--out reports/abandonment.md]

The work is declared: 100 ms a request on 8 instances of a Python model at about half of their capacity, or a stream of 10 responses, 50 ms apart, on 16. A fifth of the clients gives up
after half of it, or while the request waits. Beside perfkit's figures stands the increase of the server's own counter, read by this program. The exit code is 1 if the requests offered are not
those answered and given up, if `executed` is not what the server counted beyond the answers, if the wasted share or the wasted time is off by more than 2 % of what was declared, if
the bundled server, which cancels, wasted anything, or if the other requests cost more CPU than without `abandon`.
"""

import contextlib
import json
import pathlib
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import TRAFFIC_MODELS, running_triton
from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import RATIO_COLUMNS, Ratio, Report, describe_machine, program_options
from benchmarks.synthetic import INPUT, closed_loop, open_loop, scenario
from benchmarks.tune_live import MODELS

_WORK_MS, _INSTANCES, _RATE_PER_S, _SHARE = 100, 8, 40, 0.2
_MOST_ERROR, _MOST_COST = 0.02, 1.05
_IN_FLIGHT = 4
_GAP_MS, _LEFT_RESPONSES, _STREAM_INSTANCES = 50, 5, 16
_CONFIG = """backend: "python"
max_batch_size: 1
dynamic_batching {{ }}
input [ {{ name: "INPUT0", data_type: TYPE_FP32, dims: [ 4 ] }} ]
output [ {{ name: "OUTPUT0", data_type: TYPE_FP32, dims: [ 4 ] }} ]
instance_group [ {{ kind: KIND_CPU, count: {instances} }} ]
parameters {{ key: "item_ms", value: {{ string_value: "{work_ms}" }} }}
"""
_STREAM_CONFIG = """backend: "python"
model_transaction_policy {{ decoupled: true }}
input [ {{ name: "INPUT0", data_type: TYPE_FP32, dims: [ 4 ] }} ]
output [ {{ name: "OUTPUT0", data_type: TYPE_FP32, dims: [ 4 ] }} ]
instance_group [ {{ kind: KIND_CPU, count: {instances} }} ]
parameters {{ key: "gap_ms", value: {{ string_value: "{gap_ms}" }} }}
"""
_STREAM_INPUT = {"IN": {"value": [*range(10)]}, "DELAY": {"value": [20] * 10}, "WAIT": {"value": [0]}}
_HALF, _IN_QUEUE = f"{_WORK_MS // 2}ms", f"{_WORK_MS * 3 // 2}ms"
_FIVE = {"events": 5}

_OPEN, _STREAMS, _QUEUED = open_loop(_RATE_PER_S), open_loop(15), closed_loop(_IN_FLIGHT)


class Case(NamedTuple):
    """A way to send requests to a model, and when they are given up."""

    name: str
    protocol: str
    model: str
    inputs: dict[str, Any]
    after: object
    stream: bool = False
    work_ms: float | None = None
    """The declared computing time of a request that is wasted, where the server counts it as such."""
    load: Mapping[str, Any] = _OPEN


TRITON = (
    Case("HTTP", "http", "declared_work", INPUT, _HALF, work_ms=_WORK_MS),
    Case("gRPC", "grpc", "declared_work", INPUT, _HALF, work_ms=_WORK_MS),
    Case("HTTP, in the queue", "http", "queued_work", INPUT, _IN_QUEUE, work_ms=_WORK_MS, load=_QUEUED),
    Case("gRPC, in the queue", "grpc", "queued_work", INPUT, _IN_QUEUE, work_ms=_WORK_MS, load=_QUEUED),
    *(
        Case(
            f"stream over {name}",
            name.lower(),
            "declared_stream",
            INPUT,
            _FIVE,
            stream=True,
            work_ms=_GAP_MS * _LEFT_RESPONSES,
            load=_STREAMS,
        )
        for name in ("HTTP", "gRPC")
    ),
    Case("stream sent by a thread, HTTP", "http", "repeat_int32", _STREAM_INPUT, _FIVE, stream=True),
    Case("stream sent by a thread, gRPC", "grpc", "repeat_int32", _STREAM_INPUT, _FIVE, stream=True),
)
_SYNTHETIC = ("--model=synthetic", f"--synthetic=service=constant:{_WORK_MS}ms,servers=1000")
BUNDLED = (
    (_SYNTHETIC, Case("HTTP", "http", "synthetic", INPUT, _HALF)),
    (_SYNTHETIC, Case("gRPC", "grpc", "synthetic", INPUT, _HALF)),
    (("--model=repeat_int32",), Case("stream over HTTP", "http", "repeat_int32", _STREAM_INPUT, _FIVE, stream=True)),
    (("--model=repeat_int32",), Case("stream over gRPC", "grpc", "repeat_int32", _STREAM_INPUT, _FIVE, stream=True)),
)


@contextlib.contextmanager
def models_folder() -> Iterator[pathlib.Path]:
    """The models of declared work and the decoupled one, in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="perfkit-abandonment-") as name:
        for model, instances in (("declared_work", _INSTANCES), ("queued_work", 1)):
            own = pathlib.Path(name, model)
            (own / "1").mkdir(parents=True)
            (own / "config.pbtxt").write_text(_CONFIG.format(instances=instances, work_ms=_WORK_MS))
            shutil.copy(MODELS / "law.py", own / "1" / "model.py")
        own = pathlib.Path(name, "declared_stream")
        (own / "1").mkdir(parents=True)
        (own / "config.pbtxt").write_text(_STREAM_CONFIG.format(instances=_STREAM_INSTANCES, gap_ms=_GAP_MS))
        shutil.copy(MODELS / "stream.py", own / "1" / "model.py")
        shutil.copytree(TRAFFIC_MODELS / "repeat_int32", pathlib.Path(name, "repeat_int32"))
        yield pathlib.Path(name)


def succeeded(port: int, model: str) -> int:
    """The requests that the server says it has executed, once the count has stood still for a second."""
    counts = list[int]()
    while len(counts) < 5 or len({*counts[-5:]}) > 1:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/{model}/stats", timeout=10) as answer:
            counts.append(int(json.load(answer)["model_stats"][0]["inference_stats"]["success"]["count"]))
        time.sleep(0.25)
    return counts[-1]


def measured(url: str, port: int, case: Case, requests: int) -> tuple[dict[str, Any], int]:
    """The load point, and what the server counted meanwhile, without the request with which perfkit asks the model before the load."""
    document: dict[str, Any] = {
        "target": {"url": url, "model": case.model},
        "workload": {"inputs": case.inputs},
        "load": {**case.load, "abandon": {"share": _SHARE, "after": case.after}},
        "measure": {"warmup": "0s", "requests": requests, "repetitions": 1},
        **({"stream": {}} if case.stream else {}),
    }
    before = succeeded(port, case.model)
    point = run_perfkit(document).point
    return point, succeeded(port, case.model) - before - 1


def warm_up(url: str, model: str, *, is_streamed: bool = False) -> None:
    """Lets each instance of a model execute."""
    document = scenario(url, closed_loop(_INSTANCES), 0, target={"model": model})
    document["measure"] = {"warmup": "0s", "requests": 4 * _INSTANCES, "repetitions": 1}
    run_perfkit(document | ({"stream": {}} if is_streamed else {}))


def add_case(page: Report, case: Case, point: dict[str, Any], counted: int, *, is_cancelled: bool) -> None:
    """A row of the table, judged."""
    requests, found = point["requests"], point["abandonment"] or {}
    offered, ok, given_up, executed = requests["scheduled"], requests["ok"], requests["abandoned"], found.get("executed")
    share, wasted_ms = found.get("wasted_share"), (found.get("wasted_ns") or 0) / 1e6
    is_right = offered == ok + given_up and given_up > 0
    beyond = given_up if case.stream else counted - ok  # streams are counted however much of them was sent
    work_ms = beyond * case.work_ms if case.work_ms else None
    if case.stream:
        is_right &= executed is None and (share is not None) == bool(work_ms or is_cancelled)
    else:
        declared = beyond / counted
        is_right &= executed == beyond and share is not None and abs(share - declared) <= _MOST_ERROR * declared
    if work_ms:
        is_right &= abs(wasted_ms / work_ms - 1) <= _MOST_ERROR
    if is_cancelled:
        is_right &= share == 0
    page.judged_row(
        is_right, case.name, offered, ok, given_up, counted, "not known" if executed is None else executed,
        "–" if share is None else f"{share:.2%}", f"{wasted_ms:,.0f} ms of {work_ms:,.0f} ms" if work_ms else "–",
        "–" if found.get("held_ns") is None else f"{found['held_ns'] / 1e6:.1f} ms",
    )  # fmt: skip


def cpu_us(url: str, **beside: Any) -> float:
    """What a request costs the worker, in microseconds of CPU; `beside` has keys of `load` besides `open`."""
    point = run_perfkit(scenario(url, {**open_loop(1000), **beside}, 6, measure={"workers": 1})).point
    return float(point["generator"]["cpu_share"] * point["duration_s"] / point["requests"]["sent"] * 1e6)


def add_costs(page: Report, rounds: int) -> None:
    """What the requests that nobody gives up cost the worker, beside a load without `abandon`, in turn on one server."""
    never, given_up = {"share": 0.001, "after": "10s"}, {"share": _SHARE, "after": "5ms"}
    with running_server("--model=synthetic", "--synthetic=service=constant:10ms,servers=1000") as server:
        loads: Sequence[dict[str, Any]] = ({}, {"abandon": never}, {"abandon": given_up})
        costs_us = [[cpu_us(server.url(), **beside) for beside in loads] for _ in range(rounds)]
    page.section(
        "CPU of the generator", "1,000 requests a second, one worker; CPU of a request ÷ that without `abandon`, of the same round.", ""
    )
    page.table("load", *RATIO_COLUMNS)
    others = Ratio("others", tuple(one / plain for plain, one, _ in costs_us), high=_MOST_COST)
    all_of_them = Ratio("all", tuple(one / plain for plain, _, one in costs_us))
    page.row("every request is answered before its client would leave", *others.cells)
    page.row(f"{_SHARE:.0%} given up after half of the work, those included", *all_of_them.cells)
    page.is_met &= others.is_met


def main() -> int:
    """Prints the tables."""
    options = program_options(__doc__, out="abandonment", requests=(200, "requests of each case"), rounds=3, peers=peers_folder())
    page = Report(options.out, "Requests that clients give up")
    page.add(
        describe_machine(),
        f"{options.requests} requests of each case, {_RATE_PER_S} a second; {_SHARE:.0%} of the clients leave.",
    )
    columns = (
        "case",
        ">offered",
        ">ok",
        ">given up",
        ">server's count",
        ">executed",
        ">wasted",
        ">wasted time of declared",
        ">held after",
        "as it must be",
    )
    with models_folder() as models, running_triton(options.peers, models=models) as triton:
        page.section(
            f"Triton {triton.version}",
            f"{_WORK_MS} ms of work on {_INSTANCES} instances, given up after {_HALF}; in the queue: one instance, {_IN_FLIGHT} in flight, "
            f"given up after {_IN_QUEUE}. Streams of 10 responses, {_GAP_MS} ms apart, sent while the request executes, on {_STREAM_INSTANCES} instances, given up with the fifth; or sent by a "
            "thread of the model, whose time Triton does not count.",
            "",
        )
        for model in ("declared_work", "queued_work"):
            warm_up(triton.url(), model)
        warm_up(triton.url(), "declared_stream", is_streamed=True)
        page.table(*columns)
        for case in TRITON:
            add_case(page, case, *measured(triton.url(case.protocol), triton.http_port, case, options.requests), is_cancelled=False)
    page.section("The bundled server", "It cancels what its clients have left.", "")
    page.table(*columns)
    for server_options, case in BUNDLED:
        with running_server(*server_options) as server:
            add_case(page, case, *measured(server.url(case.protocol), server.http_port, case, options.requests), is_cancelled=True)
    add_costs(page, options.rounds)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
