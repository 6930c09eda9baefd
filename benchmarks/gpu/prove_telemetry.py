"""The part `telemetry`: perfkit's NVML sampler beside `nvidia-smi` under served load, the server's metrics, and energy two ways."""

import bisect
import contextlib
import dataclasses
import datetime
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.gpu.proof import Proof, UnavailableError
from benchmarks.gpu.prove_server import Extent, measure_served, serve
from benchmarks.gpu_energy import NotMeasuredError
from benchmarks.gpu_energy import measure as measure_product
from benchmarks.report import table_head, table_row, yes_no
from perfkit.clock import MonotonicClock
from perfkit.figures.resources import GpuFigures
from perfkit.telemetry.gpu.sampler import GpuSampler
from perfkit.telemetry.series import SamplerThread, Series, take_notes

FIELDS = ("timestamp", "utilization.gpu", "power.draw.instant", "clocks.sm", "memory.used")
SERIES = {"gpu_utilization": 0.01, "gpu_power": 1.0, "gpu_sm_clock": 1.0, "gpu_memory_used": 2**20}
"""The sampler's series for each of nvidia-smi's fields after the timestamp, and nvidia-smi's unit in those of the series."""
ALLOWED_ENERGY_SHARE, ALLOWED_POWER_SHARE = 0.02, 0.05
_RATE_PER_S, _START_WITHIN_S, _PAGE_INTERVAL_S = 20.0, 30.0, 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class SmiReading:
    """A line of nvidia-smi with its instant on the monotonic clock; None for a field that the GPU does not report."""

    time_ns: int
    values: tuple[float | None, ...]


def prove(proof: Proof) -> None:
    """Measure the part."""
    seconds = 1.0 if proof.is_dry_run else 20.0
    proof.attempt("curves under served load", 4 if proof.is_dry_run else 50, lambda: _curves(proof, seconds))
    proof.attempt("energy of a matrix product", 4 if proof.is_dry_run else 27, lambda: _product(proof))


def parse_smi(line: str, now_ns: int, wall_ns: int) -> SmiReading:
    """A line of `nvidia-smi --query-gpu=timestamp,… --format=csv,noheader,nounits`, with `[N/A]` for what is not reported.

    `now_ns` and `wall_ns` are the present instant by both clocks. Lines through a pipe may come late, many at a time, so that
    the timestamp counts, which is local time; without one, a line is as old as its arrival.
    """
    stamp, *cells = (cell.strip() for cell in line.split(","))
    numbers = [float(cell) if re.fullmatch(r"-?\d+(\.\d+)?", cell) else None for cell in cells]
    try:
        stamp_s = datetime.datetime.strptime(stamp, "%Y/%m/%d %H:%M:%S.%f").astimezone().timestamp()
    except ValueError:
        return SmiReading(now_ns, tuple(numbers))
    return SmiReading(now_ns - wall_ns + round(stamp_s * 1e9), tuple(numbers))


@contextlib.contextmanager
def reading_smi(readings: list[SmiReading]) -> Iterator[None]:
    """Append nvidia-smi's readings of GPU 0, ten a second, during the block. Raises UnavailableError without the program."""
    command = ["nvidia-smi", "--id=0", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", "-lms", "100"]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        raise UnavailableError(f"nvidia-smi cannot be started: {error}") from None
    assert process.stdout is not None
    stream = process.stdout

    def read() -> None:
        readings.extend(parse_smi(line, time.monotonic_ns(), time.time_ns()) for line in stream)  # each as soon as it comes

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        process.terminate()
        process.wait()
        thread.join()
        stream.close()


class Sampled(NamedTuple):
    """What was read during a load: the load's point, the first GPU's figures and series, and the other readers' values."""

    point: dict[str, Any]
    figures: GpuFigures
    series: list[Series]
    readings: list[SmiReading]
    pages: list[dict[str, float]]
    span: tuple[int, int]


def _curves(proof: Proof, seconds: float) -> None:
    if proof.is_short:
        raise UnavailableError("there is no GPU to sample")
    if proof.without_onnx:
        proof.skip("DenseNet-121", f"{proof.without_onnx}; {proof.model.name} takes its place")
    extent = dataclasses.replace(Extent.of(proof), seconds=seconds)
    batch_size, concurrency = (1, 2) if proof.is_dry_run else (proof.model.batch_sizes[-1] // 4, 8)
    with serve(proof, proof.settings, model=proof.model.name) as server:
        if proof.is_dry_run:
            (point,) = measure_served(proof, server, "grpc", batch_size, (concurrency,), extent)
            proof.raw["point"] = point
            raise UnavailableError(f"there is no GPU to sample; the load gave {point['inferences_per_s']} images/s")
        metrics_url = f"http://127.0.0.1:{server.ready['metrics_port']}/metrics"
        sampled = sample_during(lambda: measure_served(proof, server, "grpc", batch_size, (concurrency,), extent)[0], metrics_url)
    report(proof, sampled)


def sample_during(load: Callable[[], dict[str, Any]], metrics_url: str) -> Sampled:
    """Read the GPUs by all readers while the load runs. Raises UnavailableError if one of them does not work here."""
    clock = MonotonicClock()
    thread = SamplerThread("gpus", GpuSampler(_RATE_PER_S, clock), clock)
    readings: list[SmiReading] = []
    pages: list[dict[str, float]] = []
    try:
        if not thread.submit(lambda sampler: sampler.latest()).result(_START_WITHIN_S):
            raise UnavailableError(" ".join(thread.submit(take_notes).result(_START_WITHIN_S)))
        with reading_smi(readings), _reading_pages(metrics_url, pages):
            start_ns = clock.now_ns()
            point = load()
            end_ns = clock.now_ns()
        sampled = thread.submit(lambda sampler: sampler.window(start_ns, end_ns)).result(_START_WITHIN_S)
    finally:
        thread.close(_START_WITHIN_S)
    first = sampled.series[0].labels
    series = [one for one in sampled.series if one.labels == first]
    return Sampled(point, (sampled.summary or ())[0], series, readings, pages, (start_ns, end_ns))


def report(proof: Proof, sampled: Sampled) -> None:
    """The curves, the energy and the server's metrics."""
    proof.raw |= {"point": sampled.point, "gpu": dataclasses.asdict(sampled.figures), "metrics_pages": sampled.pages}
    compare_curves(proof, sampled.series, sampled.readings, sampled.span)
    check_energy(proof, sampled.figures, sampled.readings, sampled.span)
    energy_j = sampled.point["energy_per_inference_j"]
    proof.add(f"Energy per image, from `perfkit run`: {'not reported' if energy_j is None else f'{energy_j * 1000:.2f} mJ'}.")
    utilization = max((page.get("nv_gpu_utilization", 0.0) for page in sampled.pages), default=0.0)
    proof.check("the server's metric nv_gpu_utilization", f"up to {utilization:.0%}", "above 0 % under load", is_met=utilization > 0)


@contextlib.contextmanager
def _reading_pages(url: str, pages: list[dict[str, float]]) -> Iterator[None]:
    """Append the `nv_gpu_*` metrics of the server, once a second."""
    ended = threading.Event()

    def read() -> None:
        while not ended.wait(_PAGE_INTERVAL_S):
            with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - the server started above
                pages.append(parse_gpu_metrics(response.read().decode()))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def parse_gpu_metrics(page: str) -> dict[str, float]:
    """The `nv_gpu_*` values of the first GPU on a page of Prometheus."""
    values: dict[str, float] = {}
    for name, value in re.findall(r"^(nv_gpu_\w+)\{[^}]*\} (\S+)$", page, re.MULTILINE):
        values.setdefault(name, float(value))
    return values


def time_mean(times_ns: Sequence[int], values: Sequence[float], span: tuple[int, int]) -> float | None:
    """The mean over a span of values that each hold until the next; None if none is in effect at its start."""
    first = bisect.bisect_right(times_ns, span[0]) - 1
    if first < 0:
        return None
    edges = [span[0], *(time_ns for time_ns in times_ns[first + 1 :] if time_ns < span[1]), span[1]]
    held = values[first : first + len(edges) - 1]
    total = sum(value * (end - start) for value, start, end in zip(held, edges[:-1], edges[1:], strict=True))
    return total / (span[1] - span[0])


def compare_curves(proof: Proof, sampled: Sequence[Series], readings: Sequence[SmiReading], span: tuple[int, int]) -> None:
    """A plot and the means of each quantity by both readers, over the span that both cover."""
    by_name = {series.name: series for series in sampled}
    rows, start_ns = list(table_head("quantity", ">NVML sampler", ">nvidia-smi", ">difference", ">samples")), span[0]
    for column, (name, unit) in enumerate(SERIES.items()):
        read = [(reading.time_ns, reading.values[column]) for reading in readings if column < len(reading.values)]
        kept = [(time_ns, value * unit) for time_ns, value in read if value is not None]
        series = by_name.get(name)
        if series is None or len(kept) < 2 or not series.times_ns:
            rows.append(table_row(name, "–" if series is None else "reported", "–" if len(kept) < 2 else "reported", "–", "–"))
            continue
        both = (max(span[0], kept[0][0], series.times_ns[0]), min(span[1], kept[-1][0]))
        means = time_mean(series.times_ns, series.values, both), time_mean([at for at, _ in kept], [value for _, value in kept], both)
        assert means[0] is not None, "the span begins with the first sample"
        assert means[1] is not None, "the span begins with the first reading"
        difference = means[0] / means[1] - 1 if means[1] else 0.0
        rows.append(table_row(name, f"{means[0]:.4g}", f"{means[1]:.4g}", f"{difference:+.1%}", f"{len(series.values)} and {len(kept)}"))
        if name == "gpu_power":
            required = f"within {ALLOWED_POWER_SHARE:.0%}"
            proof.check(
                "mean power: NVML sampler and nvidia-smi", f"{difference:+.1%}", required, is_met=abs(difference) <= ALLOWED_POWER_SHARE
            )
        curves = {
            "perfkit's NVML sampler": [((at - start_ns) / 1e9, value) for at, value in zip(series.times_ns, series.values, strict=True)],
            "nvidia-smi": [((at - start_ns) / 1e9, value) for at, value in kept],
        }
        if name in ("gpu_utilization", "gpu_power"):
            proof.plot(name.removeprefix("gpu_"), f"{name} under served load", ("seconds", f"{name}, {series.unit}"), curves, log=False)
    proof.add("## The same quantities by two readers", "", *rows)


def check_energy(proof: Proof, figures: GpuFigures, readings: Sequence[SmiReading], span: tuple[int, int]) -> None:
    """The counter's energy beside the integral of the power, by perfkit's sampler and by nvidia-smi."""
    length_s = (span[1] - span[0]) / 1e9
    if figures.energy_source != "counter" or figures.energy_j is None or figures.power_mean_w is None:
        proof.check("energy: counter and integrated power", "the GPU reports only one of them", "within 2%", is_met=False)
        return
    integrated_j = figures.power_mean_w * length_s
    error = integrated_j / figures.energy_j - 1
    measured = f"{figures.energy_j:,.0f} J counted, {integrated_j:,.0f} J integrated ({figures.power_source}): {error:+.1%}"
    proof.check(
        "energy: counter and integrated power", measured, f"within {ALLOWED_ENERGY_SHARE:.0%}", is_met=abs(error) <= ALLOWED_ENERGY_SHARE
    )
    power = [(reading.time_ns, reading.values[1]) for reading in readings if len(reading.values) > 1]
    kept = [(time_ns, value) for time_ns, value in power if value is not None]
    if kept:
        mean_w = time_mean([at for at, _ in kept], [value for _, value in kept], (max(span[0], kept[0][0]), span[1]))
        proof.add(f"nvidia-smi's power over the same {length_s:.1f} s: {mean_w or 0:.1f} W; the sampler's: {figures.power_mean_w:.1f} W.")


def _product(proof: Proof) -> None:
    """The checks of `benchmarks.gpu_energy`, with the tolerance that is required here."""
    if proof.is_dry_run:
        raise UnavailableError("it needs a GPU")
    try:
        gpu, checks, work, notes = measure_product(15.0, 8192, ALLOWED_ENERGY_SHARE)
    except NotMeasuredError as error:
        raise UnavailableError(str(error)) from None
    proof.raw["product"] = {"gpu": dataclasses.asdict(gpu), "work": work._asdict(), "notes": notes}
    proof.add(
        f"## A matrix product: {work.operations / work.length_s / 1e12:.1f} TFLOP/s by {work.library} for {work.length_s:.1f} s",
        "",
        *table_head("figure", "measured", "required", "met"),
        *(table_row(*check[:3], yes_no(check.is_met)) for check in checks),
    )
    proof.check(
        "the matrix product's figures",
        f"{sum(check.is_met for check in checks)} of {len(checks)}",
        "all",
        is_met=all(check.is_met for check in checks),
    )
