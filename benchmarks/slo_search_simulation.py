"""The capacity search in virtual time: the coverage of its interval over a grid of queues and probe lengths, also where it fails.

    python -m benchmarks.slo_search_simulation [--searches 500] [--first 0] [--processes 2] [--out reports/slo-search-simulation.md] [--data FOLDER]

500 searches in each of 44 cells. A cell is a queue (variation of service times and of arrivals, number of servers) and the number of
requests in a probe of the usual length, 300 to 30,000. The capacity is declared to be 500 requests per second and the budget is one
hour, so a search has 1.8 million requests; first rates lie between 1/16 of the capacity and all of it. The SLO is the p99, or
where the cell says so the p50 or p90, that the queue has at the capacity: by a closed form where there is one, otherwise from 256 million requests. Queues are simulated request by
request, and start empty; a probe's warm-up is 10 % of its window. perfkit's own code counts, judges overload, fits and decides.

It is resumable: searches are appended in chunks to `searches.jsonl` in the data folder, and a further call goes on from there. If the
code of the search or of the simulation has changed since, the file is started anew.

Target: where a search ends with exit code 0, at least 85 % of its 90 % intervals contain the capacity, in each cell in which at least 20
searches end so; the other cells are judged together. It takes about an hour on two cores. The exit code is 1 if a target is missed.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import json
import math
import pathlib
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks import simulated_queues, simulated_search
from benchmarks.report import describe_machine, option_parser, percent, publish, share, table_head, table_row, yes_no
from benchmarks.simulated_search import BUDGET_S, CAPACITY_PER_S, Queue, SearchResult, longest_times, pooled_p99, search
from perfkit.search import crossing, decision, drift, probes, share_curve
from perfkit.stats import autocorrelation, batch_means, overload, percentiles, probability
from perfkit.stats.probability import binomial_limits

CHUNK, TARGET = 20, 0.85
LONG_RUN_PARTS, PART_REQUESTS = 128, 2_000_000
EXIT_0 = ("precision", "cliff", "never_missed")
_OTHER_ENDS = ("too_short", "budget", "max_probes", "drifted", "non_monotone", "not_confirmed")
_SEARCH = (crossing, decision, drift, probes, share_curve)
_CODE = (simulated_queues, simulated_search, *_SEARCH, autocorrelation, batch_means, overload, percentiles, probability)
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


def find_truths(queues: Iterable[Queue], file: pathlib.Path, pool: concurrent.futures.Executor) -> dict[Queue, Truth]:
    """The true percentile of each queue; those from long runs are kept in the file."""
    digest = _digest(simulated_queues)
    stored = json.loads(file.read_text()) if file.exists() else {}
    known = stored["truths"] if stored.get("digest") == digest else {}
    truths: dict[Queue, Truth] = {}
    for queue in dict.fromkeys(queues):
        if (exact := queue.exact_time()) is not None:
            truths[queue] = Truth(exact, None)
            continue
        if queue.key not in known:
            part = functools.partial(longest_times, queue, PART_REQUESTS)
            known[queue.key] = pooled_p99(list(pool.map(part, range(LONG_RUN_PARTS))))
            file.write_text(json.dumps({"digest": digest, "truths": known}, indent=1))
        truths[queue] = Truth(*known[queue.key])
    return truths


def _digest(*modules: object) -> str:
    """A digest of the modules' source."""
    files = (pathlib.Path(str(getattr(module, "__file__", None))) for module in modules)
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


@dataclasses.dataclass
class Chunk:
    """Consecutive searches of one cell, and the processor time that they took."""

    cell: Cell
    first: int
    results: list[SearchResult]
    cpu_s: float

    @property
    def key(self) -> tuple[str, int, int]:
        """What tells it from other chunks."""
        return self.cell.queue.key, self.cell.requests, self.first


def run_chunk(cell: Cell, p99: float, first: int) -> Chunk:
    """The searches of one chunk."""
    started_s = time.process_time()
    results = [search(cell.queue, p99, cell.requests, seed) for seed in range(first, first + CHUNK)]
    return Chunk(cell, first, results, time.process_time() - started_s)


class ChunkFile:
    """The finished chunks, one JSON object a line, after a line with the digest of the code that made them."""

    def __init__(self, file: pathlib.Path) -> None:
        self._file, self._header = file, json.dumps({"code": _digest(*_CODE)})

    def read(self) -> dict[tuple[str, int, int], Chunk]:
        """The finished chunks by key; an unfinished last line is left out. Starts the file anew if other code made it."""
        lines = self._file.read_text().split("\n") if self._file.exists() else []
        if not lines or lines[0] != self._header:
            if lines:
                print(f"{self._file}: the code has changed since; starting anew", flush=True)
            lines = [self._header, ""]
        self._file.write_text("\n".join([*lines[:-1], ""]))
        cells = {(cell.queue.key, cell.requests): cell for cell in CELLS}
        chunks = dict[tuple[str, int, int], Chunk]()
        for line in map(json.loads, lines[1:-1]):
            if cell := cells.get((line["queue"], line["requests"])):
                chunk = Chunk(cell, line["seeds"][0], [SearchResult(*result) for result in line["results"]], line["cpu_s"])
                chunks[chunk.key] = chunk
        return chunks

    def append(self, chunk: Chunk) -> None:
        """Adds a finished chunk."""
        line = {"queue": chunk.cell.queue.key, "requests": chunk.cell.requests, "seeds": [chunk.first, chunk.first + CHUNK - 1],
                "cpu_s": round(chunk.cpu_s, 3), "results": chunk.results}  # fmt: skip
        with self._file.open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def run_searches(
    cells: Sequence[Cell], truths: Mapping[Queue, Truth], seeds: range, store: ChunkFile, pool: concurrent.futures.Executor
) -> dict[Cell, list[Chunk]]:
    """The chunks of each cell, from the file or run now; prints a line for each cell that is complete."""
    chunks, firsts = store.read(), seeds[::CHUNK]
    missing = [(cell, first) for cell in cells for first in firsts if (cell.queue.key, cell.requests, first) not in chunks]
    print(f"{len(cells) * len(firsts) - len(missing)} of {len(cells) * len(firsts)} chunks of {CHUNK} searches are in the file", flush=True)
    futures = [pool.submit(run_chunk, cell, truths[cell.queue].p99, first) for cell, first in missing]
    for number, future in enumerate(concurrent.futures.as_completed(futures), 1):
        chunk = future.result()
        store.append(chunk)
        chunks[chunk.key] = chunk
        print(f"\r{number} of {len(futures)} chunks", end="", file=sys.stderr, flush=True)
    return {cell: [chunks[cell.queue.key, cell.requests, first] for first in firsts] for cell in cells}


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
    parser.add_argument("--data", type=pathlib.Path, metavar="FOLDER", help="where finished searches are kept (default: beside --out)")
    parser.add_argument(
        "--cells", default="", metavar="TEXT", help="only the cells whose 'name requests' contains one of these, separated by commas"
    )
    options = parser.parse_args(arguments)
    if options.searches < 1 or options.searches % CHUNK:
        parser.error(f"--searches must be a multiple of {CHUNK}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs what is missing and writes the report."""
    options = parse_options(arguments)
    machine, data = describe_machine(), options.data or options.out.with_suffix("")
    data.mkdir(parents=True, exist_ok=True)
    cells = [cell for cell in CELLS if any(part in f"{cell.name} {cell.requests}" for part in options.cells.split(","))]
    with concurrent.futures.ProcessPoolExecutor(options.processes) as pool:
        truths = find_truths((cell.queue for cell in cells), data / "truths.json", pool)
        seeds = range(options.first, options.first + options.searches)
        chunks = run_searches(cells, truths, seeds, ChunkFile(data / "searches.jsonl"), pool)
    figures = {
        cell: Figures([result for chunk in some for result in chunk.results], sum(chunk.cpu_s for chunk in some))
        for cell, some in chunks.items()
    }
    lines = [*report(cells, truths, figures, options.searches), "", machine]
    judged = [*(one for one in figures.values() if one.is_judged), rarely_successful(figures)]
    return publish(options.out, lines, is_met=all(one.is_met for one in judged if one is not None))


if __name__ == "__main__":
    sys.exit(main())
