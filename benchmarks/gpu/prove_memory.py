"""The part `memory`: inputs in the request, in system shared memory and in CUDA shared memory, over both protocols."""

import contextlib
import functools
import statistics
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.gpu.proof import Proof, UnavailableError
from benchmarks.gpu.prove_server import serve
from benchmarks.gpu.shared_memory_client import CALLERS, Caller, registered
from benchmarks.processes import RunningServer
from benchmarks.report import table_head, table_row
from perfkit.errors import UsageError
from perfkit.machine.shared_memory import CudaDriver, CudaMemory, RegionMemory, SystemMemory

ALLOWED_DIFFERENCE = 0.01
"""The allowed difference as a share of the largest output: executions of several requests together may choose other algorithms."""
WAYS = ("in the request", "system shared memory", "CUDA shared memory")


def prove(proof: Proof) -> None:
    """Measure the part."""
    start_s = 3 if proof.is_dry_run else 35
    proof.attempt("three ways to hand over images", start_s, lambda: _compare(proof))


def _compare(proof: Proof) -> None:
    batch_sizes, threads, seconds = (
        ((1,), 1, 0.1) if proof.is_short else ((1, 2), 2, 0.5) if proof.is_dry_run else (proof.model.batch_sizes, 4, 1.0)
    )
    rows: list[dict[str, Any]] = []
    model = proof.model
    if proof.without_onnx:
        proof.skip("DenseNet-121", f"{proof.without_onnx}; {model.name} takes its place")
    with serve(proof, proof.settings, "--allow-client-shm", model=model.name) as server:
        for batch_size in reversed(batch_sizes):  # the largest first: they differ most
            array = np.random.default_rng(0).random((batch_size, *model.row_shape), dtype=np.float32)
            for way in WAYS:
                measure = functools.partial(_measure, proof, server, way, array, threads, seconds)
                measured = proof.attempt(f"batch {batch_size}, {way}", 4 * seconds, measure)
                rows += [{"batch": batch_size, "way": way, **row} for row in measured or ()]
    proof.raw["memory"] = [{key: value for key, value in row.items() if key != "outputs"} for row in rows]
    report(proof, rows, threads)


def _measure(
    proof: Proof, server: RunningServer, way: str, array: npt.NDArray[np.float32], threads: int, seconds: float
) -> list[dict[str, Any]]:
    """Both protocols in one way, first one request at a time, then on several connections."""
    with contextlib.ExitStack() as opened:
        region: RegionMemory | None = None
        if way == WAYS[1]:
            region = opened.enter_context(registered(server.http_port, array, SystemMemory(array.nbytes)))
        elif way == WAYS[2]:
            if proof.is_dry_run:
                raise UnavailableError("it needs a GPU")
            region = opened.enter_context(registered(server.http_port, array, _gpu_memory(array.nbytes)))
        rows = []
        for protocol, caller in CALLERS.items():
            port = int(server.ready[f"{protocol}_port"])
            callers = [
                opened.enter_context(contextlib.closing(caller(port, proof.model.name, proof.model.input, array, region)))
                for _ in range(threads)
            ]
            outputs = callers[0].call()
            alone_ns, _ = call_for(callers[:1], seconds)
            together_ns, calls = call_for(callers, seconds)
            rows.append(
                {
                    "protocol": protocol,
                    "p50_ms": statistics.median(alone_ns) / 1e6,
                    "images_per_s": calls * array.shape[0] / (together_ns[0] / 1e9),
                    "outputs": outputs,
                }
            )
        return rows


def _gpu_memory(byte_size: int) -> CudaMemory:
    try:
        return CudaMemory(byte_size, CudaDriver(0))
    except UsageError as error:
        raise UnavailableError(str(error)) from None


def call_for(callers: "list[Caller]", seconds: float) -> tuple[list[int], int]:
    """With one caller, the time of each call and their number; with several, the time of all of them and the number of calls."""
    taken_ns: list[list[int]] = [[] for _ in callers]
    errors: list[BaseException] = []
    start_ns = time.monotonic_ns()
    end_ns = start_ns + round(seconds * 1e9)

    def repeat(caller: Caller, times: list[int]) -> None:
        try:
            while not times or time.monotonic_ns() < end_ns:
                before_ns = time.monotonic_ns()
                caller.call()
                times.append(time.monotonic_ns() - before_ns)
        except BaseException as error:  # noqa: BLE001 - raised again below
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=pair) for pair in zip(callers, taken_ns, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    calls = sum(map(len, taken_ns))
    return (taken_ns[0] if len(callers) == 1 else [time.monotonic_ns() - start_ns]), calls


def report(proof: Proof, rows: list[dict[str, Any]], threads: int) -> None:
    """The table, and what CUDA shared memory must show: the same outputs, and less time for large batches."""
    columns = ("batch", "protocol", "input", ">p50, one at a time", f">images/s, {threads} connections")
    cells = [
        table_row(row["batch"], row["protocol"], row["way"], f"{row['p50_ms']:.2f} ms", f"{row['images_per_s']:,.0f}")
        for row in sorted(rows, key=lambda row: (row["batch"], row["protocol"]))
    ]
    proof.add(f"## {proof.model.name}: one small client, three places for the input", "", *table_head(*columns), *cells)
    by_key = {(row["batch"], row["protocol"], row["way"]): row for row in rows}
    largest = max((row["batch"] for row in rows), default=0)
    for protocol in CALLERS:
        inline, shared = (by_key.get((largest, protocol, way)) for way in (WAYS[0], WAYS[2]))
        if inline is None or shared is None:
            continue
        figure = f"p50 with CUDA shared memory over {protocol}, batch {largest}"
        measured = f"{shared['p50_ms']:.2f} ms against {inline['p50_ms']:.2f} ms in the request"
        proof.check(figure, measured, "less", is_met=shared["p50_ms"] < inline["p50_ms"])
    for batch_size in sorted({row["batch"] for row in rows}):
        first, *others = [row["outputs"] for row in rows if row["batch"] == batch_size]
        difference = max((float(np.abs(other - first).max()) for other in others), default=0.0)
        size = float(np.abs(first).max())
        is_met = difference <= ALLOWED_DIFFERENCE * size and size > 0
        proof.check(
            f"outputs in all ways, batch {batch_size}",
            f"largest difference {difference:.2g}, largest output {size:.3g}",
            f"within {ALLOWED_DIFFERENCE:.0%}",
            is_met=is_met,
        )
