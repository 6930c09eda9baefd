"""A fleet of 1,000 workers in virtual time: exact merging, the driver's traffic and work, and what errors of the clocks do.

    python -m benchmarks.fleet_simulation [--short] [--out reports/fleet-simulation.md]

1. Merging: one schedule is divided among 1,000 workers; what their recorders make of it, merged by machine and then together, must equal
   what one recorder makes of all requests. Then 1,000 recordings of a minute are merged: CPU time and memory of the driver.
2. Control messages: the real frames of such workers once a second, and their recordings at the end of the point.
3. Clocks: the arrivals at the server if each machine's clock is wrong by an error of its own.

It takes a few minutes on one core. `--short` does the same with less, in a few seconds. The exit code is 1 if merging is
not exact.
"""

import copy
import dataclasses
import functools
import itertools
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from benchmarks.report import describe_machine, program_options, publish, table_head, table_row, yes_no
from benchmarks.simulated_clocks import (
    DIVISIONS,
    Division,
    dispersion,
    gap_variation,
    mean_wait,
    superposed_arrivals,
)
from benchmarks.simulated_fleet import (
    WorkerOutput,
    check_frames,
    compare_with_one_worker,
    merge_one_by_one,
    merge_outputs,
    merge_pieces,
    messages_of_second,
    packed,
    poisson_arrivals,
    record,
    simulated_replies,
    unpacked,
)
from perfkit.load.arrivals import Law
from perfkit.result.interval_log import interval_lines
from perfkit.workers.messages import Piece
from perfkit.workers.point_recording import merge_points

_T = TypeVar("_T")

ERRORS_US, WINDOWS_MS = (0, 10, 100, 1000, 10_000), (0.1, 1.0, 10.0)
FLEETS = ((1_000_000.0, 63, 16), (10_000.0, 4, 4))
"""Rates, machines and workers of a machine, of which the arrivals are superposed."""
LAWS: tuple[Law, ...] = ("constant", "poisson")


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """How much is simulated."""

    workers: int = 1000
    workers_per_machine: int = 16
    exact_per_s: float = 100_000
    exact_s: int = 5
    worker_per_s: float = 1000
    fast_workers: int = 80
    """As many as the rate needs if each is as busy as it may be."""
    point_s: int = 60
    arrivals: int = 400_000
    repetitions: int = 10

    @property
    def machines(self) -> int:
        """The machines that the workers need."""
        return -(-self.workers // self.workers_per_machine)


SHORT = Size(20, 4, exact_per_s=2000, exact_s=2, worker_per_s=300, fast_workers=4, point_s=6, arrivals=20_000, repetitions=1)


def simulate_merging(size: Size) -> tuple[list[str], bool]:
    """The part of the report on exactness, and whether merging is exact."""
    exact = compare_with_one_worker(size.workers, size.machines, size.exact_per_s, size.exact_s, 25)
    is_exact = exact.is_recording_equal and exact.are_intervals_equal
    lines = [
        "## Merging",
        "",
        (
            f"{exact.requests:,} requests of one Poisson schedule, divided among {size.workers:,} workers on {size.machines:,} machines, recorded by each, and "
            "merged by machine and then together, beside one worker's recording of all of them: every count, every bucket of every histogram, every "
            f"series. Recordings equal: {yes_no(exact.is_recording_equal)}. Intervals of a second equal: {yes_no(exact.are_intervals_equal)}."
        ),
        "",
    ]
    return lines, is_exact


@dataclasses.dataclass(frozen=True, slots=True)
class Senders:
    """What comes to the driver: recordings and messages of so many senders on so many machines."""

    title: str
    number: int
    machines: int
    of_machine: Sequence[WorkerOutput]
    """The output of each sender of one machine; the others' are taken to be the same."""

    def everyone(self, of_one: Sequence[_T]) -> list[_T]:
        """One thing of each sender, from those of one machine's senders."""
        return [one for one, _ in zip(itertools.cycle(of_one), range(self.number), strict=False)]


def measure_driver(size: Size) -> list[str]:
    """The part of the report on what the driver receives, and the CPU time and the memory that it takes."""
    per_machine, rate_per_s = size.workers_per_machine, size.workers * size.worker_per_s
    slow, fast = (
        _record_workers(rate_per_s / workers, size, seeds) for workers, seeds in ((size.workers, per_machine), (size.fast_workers, 2))
    )
    # copies: pickle would send the same object only once
    fast = [copy.deepcopy(fast[number % len(fast)]) for number in range(per_machine)]
    seconds = size.point_s - 2
    (slow_merged, on_slow_s), (fast_merged, on_fast_s) = (_timed(functools.partial(merge_outputs, outputs)) for outputs in (slow, fast))
    packed_s = [_timed(functools.partial(_add_up, outputs))[1] for outputs in (slow, fast)]
    fast_machines = -(-size.fast_workers // per_machine)
    everything = (
        Senders(f"{size.fast_workers:,} workers", fast_machines, fast_machines, [fast_merged]),
        Senders(f"{size.workers:,} workers", size.machines, size.machines, [slow_merged]),
        Senders(f"{size.workers:,} that are not merged", size.workers, size.machines, slow),
    )
    columns = [f">{senders.title}" for senders in everything]
    return [
        (
            f"{rate_per_s:,.0f} Poisson arrivals a second for {size.point_s} s, log-normal service times around 5 ms and one failure in a thousand: from "
            f"{size.fast_workers:,} workers on {fast_machines:,} machines, and from {size.workers:,} workers on {size.machines:,}. A machine merges what its "
            f"{per_machine} workers send, which takes it {_ms(max(on_slow_s, on_fast_s))} for the whole point, and adds up their pieces each second in "
            f"{_ms(max(packed_s) / seconds)}. The last column is for comparison: there the machines pass on what each worker sends. A few "
            "different workers are repeated as often as needed. Times are CPU times of one core of the driver."
        ),
        "",
        *table_head("at the end of the point", *columns),
        *_rows([_measure_recordings(senders, size.point_s) for senders in everything]),
        "",
        "## Control messages",
        "",
        (
            "Once a second, each machine sends what came from its workers in one frame: the sum of their recordings of a second, live figures "
            "with up to 1,024 times, and a sign of life. The driver logs each machine's pieces as they come."
        ),
        "",
        *table_head("during the point", *columns),
        *_rows([_measure_messages(senders, size.point_s) for senders in everything]),
        "",
    ]


def _add_up(outputs: Sequence[WorkerOutput]) -> None:
    """Lets a machine add up the pieces of its workers."""
    for _ in merge_pieces(outputs):
        pass


def _record_workers(rate_per_s: float, size: Size, seeds: int) -> list[WorkerOutput]:
    return [record(simulated_replies(poisson_arrivals(rate_per_s, size.point_s, seed), seed), size.point_s, seed) for seed in range(seeds)]


def _measure_recordings(senders: Senders, seconds: int) -> dict[str, str]:
    bodies = senders.everyone([packed(output.whole) for output in senders.of_machine])
    series_bytes = (
        sum(
            len(packed(output.whole)) - len(packed(Piece(0, dataclasses.replace(output.point, series=())))) for output in senders.of_machine
        )
        / len(senders.of_machine)
        * senders.number
    )
    _, check_s = _timed(lambda: check_frames(bodies))
    points, receive_s = _timed(lambda: [unpacked(body)[0].point for body in bodies])
    _, merge_s = _timed(lambda: merge_points(points))
    points.clear()
    _, one_by_one_s = _timed(lambda: merge_one_by_one(bodies))
    return {
        "recordings": f"{senders.number:,}",
        "size of a recording": _mb(len(bodies[0])),
        "size of all recordings": _mb(sum(map(len, bodies))),
        "of which series of event loops": _mb(series_bytes),
        "the same for a point of an hour": _mb(series_bytes * 3600 / seconds),
        "time to receive all": _ms(check_s / 2 + receive_s),
        "time to merge them": _ms(merge_s),
        "memory": _mb(_peak_bytes(lambda: merge_points([unpacked(body)[0].point for body in bodies]))),
        "time to receive and merge one by one": _ms(check_s / 2 + one_by_one_s),
        "memory, one by one": _mb(_peak_bytes(lambda: merge_one_by_one(bodies))),
    }


def _measure_messages(senders: Senders, length_s: int) -> dict[str, str]:
    seconds = range(length_s - 2)
    messages = [messages_of_second(senders.of_machine, second) for second in seconds]
    bodies = [packed(*one) for one in messages]
    live_bytes = sum(len(packed(*(output.live[second] for output in senders.of_machine))) for second in seconds)
    share = senders.number / len(senders.of_machine) / len(seconds)
    sent_bytes, check_s = _timed(lambda: check_frames(bodies))
    _, receive_s = _timed(lambda: [unpacked(body) for body in bodies])
    pieces = [output.pieces[second].point.recording for output in senders.of_machine for second in seconds]
    logged = [times for piece in pieces for _, times in piece.times_by_second()]
    lines, lines_s = _timed(lambda: [interval_lines("p0.r0", 0.0, times) for times in logged])
    log_bytes = sum(map(len, lines)) / len(lines) * senders.number
    second_bytes = (_peak_bytes(lambda: unpacked(bodies[0])) - live_bytes / len(seconds)) * share * len(seconds)
    return {
        "frames a second": f"{senders.machines:,}",
        "traffic a second": _mb(sent_bytes * share),
        "of which live figures": _mb(live_bytes * share),
        "time to receive a second's frames": _ms((check_s / 2 + receive_s) * share),
        "memory of a second's intervals": _mb(second_bytes),
        "time to log a second's intervals": _ms(lines_s / len(lines) * senders.number),
        "log of an hour": _mb(log_bytes * 3600),
    }


def simulate_arrivals(size: Size) -> list[str]:
    """The part of the report on the arrivals at the server."""
    lines = [
        "## Arrivals of a fleet whose clocks are wrong",
        "",
        (
            "Each machine's clock is wrong by an error of its own, uniform up to the one in the table. Variation: standard deviation of the gaps, divided by "
            "their mean. Dispersion: variance of the number of arrivals in windows of a length, divided by its mean. Constant arrivals have 0, Poisson arrivals 1 "
            "everywhere. Wait: the mean wait at a server that processes one request at a time and is busy for 80 % of the time, beside that of Poisson arrivals "
            f"(M/D/1). Means of {size.repetitions} draws of the errors."
        ),
        "",
        "An arrival's number says which worker sends it: arrival i belongs to worker i mod n. The table compares three ways to divide the workers' numbers:",
        "",
        *(f"- **{name}**: {meaning}" for name, meaning in DIVISIONS.items()),
        "",
    ]
    for (rate_per_s, machines, workers), law in itertools.product(FLEETS, LAWS):
        lines += [
            f"### {law.capitalize()} arrivals, {rate_per_s:,.0f}/s from {machines} machines of {workers} workers",
            "",
            *table_head(
                "division", ">error", ">variation of gaps", *(f">dispersion, {window:g} ms" for window in WINDOWS_MS), ">wait, of M/D/1"
            ),
        ]
        for division, error_us in itertools.product(DIVISIONS, ERRORS_US):
            figures = np.mean(
                [
                    _arrival_figures(law, rate_per_s, machines, workers, error_us, division, size.arrivals, seed)
                    for seed in range(size.repetitions)
                ],
                axis=0,
            )
            lines.append(table_row(division, f"{error_us:,} µs", *(f"{figure:.2f}" for figure in figures)))
        lines.append("")
    return lines


def _arrival_figures(
    law: Law, rate_per_s: float, machines: int, workers: int, error_us: int, division: Division, count: int, seed: int
) -> list[float]:
    arrivals = superposed_arrivals(law, rate_per_s, count, machines, workers, error_us * 1000, division, seed)
    return [gap_variation(arrivals), *(dispersion(arrivals, round(window * 1e6)) for window in WINDOWS_MS), mean_wait(arrivals, rate_per_s)]


def _timed(work: Callable[[], _T]) -> tuple[_T, float]:
    """What the work returns, and the seconds of CPU time that it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def _peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that the work holds at once, beside what was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _rows(columns: Sequence[dict[str, str]]) -> list[str]:
    return [table_row(name, *(column[name] for column in columns)) for name in columns[0]]


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2g} ms"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:.2g} MB"


def main() -> int:
    """Runs the simulation; returns the exit code."""
    options = program_options(__doc__, out="fleet-simulation", short=(False, "simulate less, in a few seconds"))
    size, machine = SHORT if options.short else Size(), describe_machine()
    merging, is_exact = simulate_merging(size)
    lines = [
        f"# A fleet of {size.workers:,} workers, simulated",
        "",
        f"`python -m benchmarks.fleet_simulation{' --short' if options.short else ''}`; {machine}",
        "",
        *merging,
        *measure_driver(size),
        *simulate_arrivals(size),
    ]
    return publish(options.out, lines, is_met=is_exact)


if __name__ == "__main__":
    sys.exit(main())
