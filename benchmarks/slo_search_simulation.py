"""The capacity search in virtual time: the coverage of its interval over a grid of queues and probe lengths, also where it fails.

    python -m benchmarks.slo_search_simulation [--searches 500] [--first 0] [--processes 2] [--out reports/slo-search-simulation.md]

500 searches in each of 44 cells. A cell is a queue (variation of service times and of arrivals, number of servers) and the number of
requests in a probe of the usual length, 300 to 30,000. The capacity is declared to be 500 requests per second and the budget is one
hour, so a search has 1.8 million requests; first rates lie between 1/16 of the capacity and all of it. The SLO is the p99, or
where the cell says so the p50 or p90, that the queue has at the capacity: by a closed form where there is one, otherwise from 256 million requests. Queues are simulated request by
request, and start empty; a probe's warm-up is 10 % of its window. perfkit's own code counts, judges overload, fits and decides.

Target: where a search ends with exit code 0, at least 85 % of its 90 % intervals contain the capacity, in each cell in which at least 20
searches end so; the other cells are judged together. It takes about an hour on two cores. The exit code is 1 if a target is missed.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import math
import pathlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.report import describe_machine, option_parser, percent, publish, share, table_head, table_row, yes_no
from benchmarks.simulated_search import BUDGET_S, CAPACITY_PER_S, Queue, SearchResult, longest_times, pooled_p99, search
from perfkit.stats.probability import binomial_limits

CHUNK, TARGET = 20, 0.85
LONG_RUN_PARTS, PART_REQUESTS = 128, 2_000_000
EXIT_0 = ("precision", "cliff", "never_missed")
_OTHER_ENDS = ("too_short", "budget", "max_probes", "drifted", "non_monotone", "not_confirmed")
_FEWEST_JUDGED = 20
_LENGTHS = (300, 1_000, 5_000, 30_000)

QUEUES: Mapping[str, tuple[Queue, tuple[int, ...]]] = {
    "M/M/1": (Queue(1, 1, 1, 0.8), _LENGTHS),
    "M/M/1, p50": (Queue(1, 1, 1, 0.8, quantile=0.5), (1_000,)),
    "M/M/1, p90": (Queue(1, 1, 1, 0.8, quantile=0.9), (1_000,)),
    "M/M/4, p50": (Queue(1, 1, 4, 0.8, quantile=0.5), (1_000,)),
    "M/M/4, p90": (Queue(1, 1, 4, 0.8, quantile=0.9), (1_000,)),
    "M/D/1": (Queue(0, 1, 1, 0.8), (300, 5_000)),
    "batches up to 8": (Queue(0, 1, 1, 0.75, is_batching=True), (1_000, 30_000)),
    "M/M/8": (Queue(1, 1, 8, 0.85), _LENGTHS),
    "middle": (Queue(2, 2, 4, 0.7), _LENGTHS),
    "lognormal, 1 server": (Queue(2, 1, 1, 0.7), _LENGTHS),
    "bursty, 1 server": (Queue(1, 3, 1, 0.6), _LENGTHS),
    "corner 0.3-1-1": (Queue(0.3, 1, 1, 0.8), (300, 30_000)),
    "corner 0.3-1-8": (Queue(0.3, 1, 8, 0.85), (300, 30_000)),
    "corner 0.3-3-1": (Queue(0.3, 3, 1, 0.6), (300, 30_000)),
    "corner 0.3-3-8": (Queue(0.3, 3, 8, 0.7), (300, 30_000)),
    "corner 3-1-1": (Queue(3, 1, 1, 0.6), (300, 30_000)),
    "corner 3-1-8": (Queue(3, 1, 8, 0.8), (300, 30_000)),
    "corner 3-3-1": (Queue(3, 3, 1, 0.5), (300, 30_000)),
    "corner 3-3-8": (Queue(3, 3, 8, 0.7), (300, 30_000)),
}
"""The queues by name, with the numbers of requests in a usual probe: 44 cells. A corner's name gives its service cv, arrivals cv and servers."""


class Cell(NamedTuple):
    """A queue and the number of requests in a probe of the usual length."""

    name: str
    queue: Queue
    requests: int


CELLS = tuple(Cell(name, queue, requests) for name, (queue, lengths) in QUEUES.items() for requests in lengths)


class Truth(NamedTuple):
    """The SLO's percentile at the capacity."""

    p99: float
    error: float | None
    """The standard error of the share above it, as a share of 1 %; None for a closed form."""


def find_truths(queues: Iterable[Queue], pool: concurrent.futures.Executor) -> dict[Queue, Truth]:
    """The true percentile of each queue."""
    truths: dict[Queue, Truth] = {}
    for queue in dict.fromkeys(queues):
        if (exact := queue.exact_time()) is not None:
            truths[queue] = Truth(exact, None)
        else:
            parts = pool.map(functools.partial(longest_times, queue, PART_REQUESTS), range(LONG_RUN_PARTS))
            truths[queue] = Truth(*pooled_p99(list(parts)))
    return truths


def run_chunk(cell: Cell, p99: float, first: int) -> tuple[list[SearchResult], float]:
    """Consecutive searches of a cell, and the processor time that they took."""
    started_s = time.process_time()
    results = [search(cell.queue, p99, cell.requests, seed) for seed in range(first, first + CHUNK)]
    return results, time.process_time() - started_s


def run_searches(
    cells: Sequence[Cell], truths: Mapping[Queue, Truth], seeds: range, pool: concurrent.futures.Executor
) -> "dict[Cell, Figures]":
    """The figures of each cell, over one search for each seed."""
    chunks = [(cell, pool.submit(run_chunk, cell, truths[cell.queue].p99, first)) for cell in cells for first in seeds[::CHUNK]]
    for number, _ in enumerate(concurrent.futures.as_completed([future for _, future in chunks]), 1):
        print(f"\r{number} of {len(chunks)} chunks", end="", file=sys.stderr, flush=True)
    figures = {}
    for cell in cells:
        found = [future.result() for of, future in chunks if of == cell]
        figures[cell] = Figures([result for results, _ in found for result in results], sum(cpu_s for _, cpu_s in found))
    return figures


@dataclasses.dataclass(frozen=True)
class Figures:
    """Figures over the searches of one cell."""

    results: Sequence[SearchResult]
    cpu_s: float = 0.0

    @property
    def successes(self) -> list[SearchResult]:
        """The searches that ended with exit code 0."""
        return [result for result in self.results if result.reason in EXIT_0]

    @property
    def coverage(self) -> float | None:
        """The share of the intervals that contain the capacity, where the exit code is 0; None where it never is."""
        return share([_holds(result) for result in self.successes])

    @property
    def is_judged(self) -> bool:
        """Whether enough searches ended with exit code 0 to tell a coverage."""
        return len(self.successes) >= _FEWEST_JUDGED

    @property
    def is_met(self) -> bool:
        """Whether the coverage reaches the target."""
        return self.coverage is not None and self.coverage >= TARGET

    def cells(self) -> tuple[str, ...]:
        """The cells of the table."""
        good, number = self.successes, len(self.results)
        reasons = collections.Counter(result.reason for result in self.results)
        held = sum(map(_holds, good))
        limits = "–" if not good else "{:.0%} to {:.0%}".format(*binomial_limits(held, len(good)))
        bounded = [result for result in self.results if result.low > 0 or math.isfinite(result.high)]
        others = number - len(good) - sum(reasons[name] for name in _OTHER_ENDS)
        return (
            percent(len(good) / number), " / ".join(f"{reasons[name]}" for name in EXIT_0), percent(self.coverage), limits,
            percent(share([_holds(result) for result in bounded])), percent(share([result.low > 1 for result in good])),
            f"{_mean([result.capacity - 1 for result in good]):+.1%}" if good else "–",
            *(percent(reasons[name] / number) for name in _OTHER_ENDS),
            percent(others / number), f"{_mean([result.probes for result in self.results]):.1f}",
            f"{_mean([result.took_s for result in self.results]) / 60:.0f}", f"{self.cpu_s / number:.2f}",
            yes_no(self.is_met) if self.is_judged else "too few",
        )  # fmt: skip


_COLUMNS = (">exit code 0", ">precision / cliff / never_missed", ">coverage at exit 0", ">95 % limits", ">coverage of all with an interval",
            ">lower end above the capacity", ">bias", *(f">{name}" for name in _OTHER_ENDS), ">other end",
            ">probes", ">minutes", ">CPU s", "target met")  # fmt: skip


def _holds(result: SearchResult) -> bool:
    return result.low <= 1 <= result.high


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def report(cells: Sequence[Cell], truths: Mapping[Queue, Truth], figures: Mapping[Cell, Figures], searches: int) -> list[str]:
    """The lines of the report."""
    judged = {cell: one for cell, one in figures.items() if one.is_judged}
    met = sum(one.is_met for one in judged.values())
    lines = ["# The capacity search in virtual time", "",
             f"{searches} searches a cell, at a nominal coverage of 90 %; made by `python -m benchmarks.slo_search_simulation`, whose docstring says how.", ""]  # fmt: skip
    if judged:
        worst = min(judged, key=lambda cell: judged[cell].coverage or 0.0)
        good = [result for one in figures.values() for result in one.successes]
        lines.append(
            f"Where the search ends with exit code 0, the interval contains the capacity in at least {TARGET:.0%} of the searches in {met} of "
            f"{len(judged)} cells, and in {percent(share([*map(_holds, good)]))} of all {len(good):,} such searches. The worst of these cells: {worst.name} with "
            f"{worst.requests:,} requests, {judged[worst].coverage:.0%} of {len(judged[worst].successes)}."
        )
    if rare := rarely_successful(figures):
        held = sum(map(_holds, rare.successes))
        lines.append(
            f"In the other {len(cells) - len(judged)} cells, fewer than {_FEWEST_JUDGED} of the {searches} searches end so, too few to judge a cell; "
            f"of all {len(rare.successes)} together, {held} contain it."
        )
    explanation = (
        f"Capacity {CAPACITY_PER_S:.0f}/s, budget {BUDGET_S / 3600:g} h ({BUDGET_S * CAPACITY_PER_S / 1e6:g} million requests); the load is the "
        "utilisation at the capacity. Minutes: at that rate, warm-ups included. Bias, lower end: where the exit code is 0."
    )
    lines += ["", explanation, "", *table_head("queue", ">service cv", ">arrivals cv", ">servers", ">load", ">requests", *_COLUMNS)]
    lines += [
        table_row(cell.name, f"{cell.queue.service_cv:g}", f"{cell.queue.arrivals_cv:g}", cell.queue.servers, cell.queue.load,
                  f"{cell.requests:,}", *figures[cell].cells())
        for cell in cells
    ]  # fmt: skip
    lines += ["", "The limit of the SLO, in mean service times:", "", *table_head("queue", ">limit", "source")]
    for name, queue in {cell.name: cell.queue for cell in cells}.items():
        p99, error = truths[queue]
        long_run = (
            f"{LONG_RUN_PARTS * PART_REQUESTS / 1e6:g} million requests; standard error of the share above it {error or 0:.2%} of 1 %"
        )
        lines.append(table_row(name, f"{p99:.3f}", "closed form" if error is None else long_run))
    return lines


def rarely_successful(figures: Mapping[Cell, Figures]) -> Figures | None:
    """The searches of all cells in which too few end with exit code 0 to judge the cell; None if none ends so."""
    rare = Figures([result for one in figures.values() if not one.is_judged for result in one.results])
    return rare if rare.successes else None


def parse_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = option_parser(__doc__, out=pathlib.Path("reports/slo-search-simulation.md"))
    parser.add_argument("--searches", type=int, default=500, help=f"searches a cell, a multiple of {CHUNK} (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default %(default)s)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--cells", default="", metavar="TEXT", help="only the cells whose 'name requests' contains one of these, separated by commas"
    )
    options = parser.parse_args(arguments)
    if options.searches < 1 or options.searches % CHUNK:
        parser.error(f"--searches must be a multiple of {CHUNK}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the searches and writes the report; the exit code is 1 if a requirement is missed."""
    options = parse_options(arguments)
    machine = describe_machine()
    cells = [cell for cell in CELLS if any(part in f"{cell.name} {cell.requests}" for part in options.cells.split(","))]
    with concurrent.futures.ProcessPoolExecutor(options.processes) as pool:
        truths = find_truths((cell.queue for cell in cells), pool)
        figures = run_searches(cells, truths, range(options.first, options.first + options.searches), pool)
    lines = [*report(cells, truths, figures, options.searches), "", machine]
    judged = [*(one for one in figures.values() if one.is_judged), rarely_successful(figures)]
    return publish(options.out, lines, is_met=all(one.is_met for one in judged if one is not None))


if __name__ == "__main__":
    sys.exit(main())
