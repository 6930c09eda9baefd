"""How often a cold target is told, and how often a warm one is taken for cold, over simulated loads.

    python -m benchmarks.cold_targets [--runs 4] [--false-runs 400] [--seed 1] [--out reports/cold-targets.md]

A server is slow by a factor for the first share of a window, from the start of the load on: 10, 25, 50, 75 and 90 % of windows of 3 and 10 s. It serves a closed loop of
1, 4 or 16 requests in flight: all of them at once, one after the other, or as one batch. An execution takes 0.1, 0.5 or 2.5 s while it is cold. Execution times vary
normally, or exponentially. Each cell joins the three servers and the five shares.

A cell of the first tables reads `told, unknown, silent`, in per cent of the windows that still hold a part of the cold time after the cut of
`warmup: auto`: the warning `cold` or `not_steady`; `warmth_unknown`; neither. Windows in which no request of the warm server was
answered are left out: they are cold throughout. A cell is missed if more than 5 % are silent.

The further tables have times that fall little by little, warm servers that are taken for cold, and repetitions of which the first is cold throughout. The exit code is 1 if a cell is missed.
"""

import collections
import dataclasses
import heapq
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks.correlated_times import SERIES
from benchmarks.interval_coverage import windows
from benchmarks.report import Report, program_options
from benchmarks.simulated_queues import Floats
from perfkit.points.behaviour import cold_repetition_warning, target_warnings, warm_up_ns
from perfkit.points.measured import PointMeasurement
from perfkit.recorder.series import SeriesRecorder
from perfkit.recorder.window import Window
from perfkit.result.counts import Connections
from perfkit.result.generator import Generator
from perfkit.result.load import ClosedLoad, Load, OpenLoad
from perfkit.units import NS_PER_S

SERVERS, IN_FLIGHT, COLD_S, FACTORS, SHARES = (
    ("parallel", "serial", "batch"),
    (1, 4, 16),
    (0.1, 0.5, 2.5),
    (2, 5, 40),
    (0.1, 0.25, 0.5, 0.75, 0.9),
)
WARM_S = (0.013, 0.1, 0.5, 0.85, 2.5)
WINDOWS_S, WARM_UPS_S = (3.0, 10.0), (1.0, 0.0)
NOISES = {"normal, 10 %": 0.1, "normal, 30 %": 0.3, "exponential": math.inf}
OPEN_LOADS = ((100.0, 3.0), (1000.0, 1.0), (1000.0, 3.0), (100.0, 10.0), (1000.0, 10.0))
MOST_SILENT, MOST_FALSE = 0.05, 0.01
SEEN = (
    "A single window that is cold throughout cannot be told from that of a slow server: only later repetitions, or further attempts with `warmup: auto`, show it. "
    "Without a warm-up, a stall or a slow phase at the very start of a window that sees no other is cold by this rule. Neither GPUs nor the server's statistics are used."
)
_ONSET_S = 3600.0  # of the warm time, in a server that stays cold

Random = np.random.Generator
Requests = tuple[Floats, Floats]
"""The starts and the ends of requests, in seconds from the start of the load."""


def _lengths(random: Random, noise: float, count: int) -> Floats:
    """Execution times whose mean is 1."""
    return random.exponential(1, count) if math.isinf(noise) else np.maximum(random.normal(1, noise, count), 0.05)


def executions(random: Random, cold_s: float, warm_s: float, until_s: float, end_s: float, noise: float) -> Requests:
    """Executions of one server without a pause; each is slow if it starts before `until_s`."""
    starts, at_s = list[Floats](), 0.0
    for mean_s, last_s in ((cold_s, min(until_s, end_s)), (warm_s, end_s)):
        while at_s < last_s:
            size = int((last_s - at_s) / mean_s) + 20
            ends = at_s + np.cumsum(_lengths(random, noise, size) * mean_s)
            count = int(np.searchsorted(ends, last_s)) + 1
            starts.append(np.concatenate(([at_s], ends[: count - 1])))
            at_s = float(ends[min(count, size) - 1])
    joined = np.concatenate(starts)
    return joined, np.append(joined[1:], at_s)


def falling(random: Random, cold_s: float, warm_s: float, until_s: float, end_s: float, noise: float) -> Requests:
    """Executions whose times fall little by little, by the same share in equal times, until `until_s`."""
    starts, at_s = list[float](), 0.0
    while at_s < min(until_s, end_s):
        starts.append(at_s)
        at_s += float(_lengths(random, noise, 1)[0]) * cold_s * (warm_s / cold_s) ** (at_s / until_s)
    warm_starts, warm_ends = (
        executions(random, warm_s, warm_s, 0.0, max(end_s - at_s, 0.0), noise) if at_s < end_s else (np.zeros(0), np.zeros(0))
    )
    return np.concatenate((starts, warm_starts + at_s)), np.concatenate((starts[1:], [at_s], warm_ends + at_s))


def closed_loop(
    random: Random, server: str, in_flight: int, cold_s: float, warm_s: float, until_s: float, end_s: float, noise: float
) -> Requests:
    """The requests of a closed loop; a serial server answers those that wait for it in turn."""
    if server in ("falling", "parallel"):
        make = falling if server == "falling" else executions
        slots = [make(random, cold_s, warm_s, until_s, end_s, noise) for _ in range(in_flight)]
        return np.concatenate([starts for starts, _ in slots]), np.concatenate([ends for _, ends in slots])
    if server == "sharing":
        return _sharing(random, in_flight, warm_s, end_s, noise)
    starts, ends = executions(random, cold_s, warm_s, until_s, end_s + (in_flight * cold_s if server == "serial" else 0.0), noise)
    if server == "batch":
        return np.repeat(starts, in_flight), np.repeat(ends, in_flight)
    sent = np.concatenate((np.zeros(in_flight), ends))[: ends.size]
    return sent[sent < end_s], ends[sent < end_s]


def _sharing(random: Random, in_flight: int, mean_s: float, end_s: float, noise: float) -> Requests:
    """A warm server that shares its capacity among the requests in flight, so that the last ones, of which there are fewer, take less time."""
    works_s = _lengths(random, noise, 1000) * mean_s / in_flight
    running, requests = [(float(random.choice(works_s)), 0.0) for _ in range(in_flight)], list[tuple[float, float]]()
    heapq.heapify(running)
    work_s = at_s = 0.0
    while running:
        done_s, start_s = heapq.heappop(running)
        at_s, work_s = at_s + (done_s - work_s) * (len(running) + 1), done_s
        requests.append((start_s, at_s))
        if at_s < end_s:
            heapq.heappush(running, (work_s + float(random.choice(works_s)), at_s))
    starts, ends = np.array(sorted(requests)).T
    return starts, ends


def measured(
    requests: Requests, warm_up_s: float, window_s: float, load: Load, *, origin_s: float = 0.0, cuts: bool = True
) -> PointMeasurement:
    """The requests as perfkit records them. With `cuts` the warm-up is cut off as `warmup: auto` does it, otherwise it has the given length."""
    starts_ns, ends_ns = (np.rint((times + origin_s) * NS_PER_S).astype(np.int64) for times in requests)
    origin_ns, end_ns = round(origin_s * NS_PER_S), round((origin_s + warm_up_s + window_s) * NS_PER_S)
    recorder = SeriesRecorder(origin_ns, end_ns)
    recorder.add_scheduled(starts_ns)
    recorder.add_answered(ends_ns)
    recorder.add_times(starts_ns, ends_ns - starts_ns)
    series = recorder.finish()
    start_ns = origin_ns + round(warm_up_s * NS_PER_S)
    if cuts:
        start_ns += max(-(-(origin_ns + warm_up_ns(series, is_open=isinstance(load, OpenLoad)) - start_ns) // NS_PER_S), 0) * NS_PER_S
    window = Window(start_ns, end_ns, {}, {}, {}, (), series.between(start_ns, end_ns), (), load_series=series)
    return PointMeasurement(
        protocol="http", load=load, batch_size=1, repetition=0, window=window, warmup_ns=start_ns - origin_ns, connections=Connections(opened=1, reconnects=0),
        generator=Generator(cpu_share=0.1, steal_share=0.0), warnings=(),
    )  # fmt: skip


def verdict(one: PointMeasurement) -> str:
    """The code of the warning about the target; empty without one."""
    return next((warning.code for warning in target_warnings(one)), "")


def cold_windows(
    random: Random,
    in_flight: int,
    cold_s: float,
    factor: float,
    noise: float,
    warm_up_s: float,
    window_s: float,
    runs: int,
    servers: Sequence[str] = SERVERS,
) -> collections.Counter[str]:
    """The verdicts on windows that hold a part of the cold time, over servers and shares."""
    counted, load, end_s = collections.Counter[str](), ClosedLoad(concurrency=in_flight), warm_up_s + window_s
    for server, share in itertools.product(servers, SHARES):
        until_s = warm_up_s + share * window_s
        for _ in range(runs):
            requests = closed_loop(random, server, in_flight, cold_s, cold_s / factor, until_s, end_s, noise)
            if not ((requests[0] >= until_s) & (requests[1] < end_s)).any():
                continue
            counted["all"] += 1
            one = measured(requests, warm_up_s, window_s, load, cuts=bool(warm_up_s))
            counted[verdict(one) if one.window.start_ns < round(until_s * NS_PER_S) else "cut"] += 1
    return counted


def cold_cell(counted: collections.Counter[str]) -> tuple[str, bool]:
    """The text of a cell, and whether it is missed."""
    left = counted["all"] - counted["cut"]
    if not counted["all"]:
        return "–", False
    if not left:
        return "all cut", False
    told, unknown, silent = counted["cold"] + counted["not_steady"], counted["warmth_unknown"], counted[""]
    is_missed = silent > MOST_SILENT * left
    text = f"{told / left:.0%}, {unknown / left:.0%}, {silent / left:.1%}".replace("%", "")
    return (f"**{text}**" if is_missed else text), is_missed


def warm_servers() -> Iterator[tuple[str, Callable[[Random, float], Requests], Load]]:
    """Closed loops of steady servers, by name."""
    for (noise_name, noise), server, in_flight in itertools.product(NOISES.items(), (*SERVERS, "sharing"), (*IN_FLIGHT, 64)):

        def make(random: Random, end_s: float, server: str = server, in_flight: int = in_flight, noise: float = noise) -> Requests:
            mean_s = float(random.choice(WARM_S))
            return closed_loop(random, server, in_flight, mean_s, mean_s, _ONSET_S, end_s, noise)

        yield f"{server}, {in_flight} in flight, {noise_name}", make, ClosedLoad(concurrency=in_flight)


def false_share(
    make: Callable[[Random, float], Requests], load: Load, warm_up_s: float, window_s: float, runs: int, random: Random
) -> float:
    """The share of a steady server's windows that count as cold."""
    return (
        sum(
            verdict(measured(make(random, warm_up_s + window_s), warm_up_s, window_s, load, cuts=bool(warm_up_s))) == "cold"
            for _ in range(runs)
        )
        / runs
    )


def repetitions(random: Random, in_flight: int, mean_s: float, factor: float, noise: float, runs: int) -> float:
    """The share of runs of three repetitions whose first is slow throughout by a factor, or by none, in which that is told."""
    told, load = 0, ClosedLoad(concurrency=in_flight)
    for number in range(runs):
        server = SERVERS[number % len(SERVERS)]
        lengths_s = (mean_s, mean_s / factor, mean_s / factor)
        parts = [
            measured(closed_loop(random, server, in_flight, each_s, each_s, _ONSET_S, 11.0, noise), 1.0, 10.0, load, origin_s=20.0 * place)
            for place, each_s in enumerate(lengths_s)
        ]
        told += cold_repetition_warning([dataclasses.replace(part, repetition=place) for place, part in enumerate(parts)]) is not None
    return told / runs


def add_cold_tables(page: Report, runs: int, seed: int) -> bool:
    """Adds the tables of cold windows; returns whether a cell is missed."""
    missed = cells = 0
    for warm_up_s in WARM_UPS_S:
        page.section(f"Cold for a share of the window, {'`warmup: auto`' if warm_up_s else '`warmup: 0s`'}")
        page.table("execution times", ">window", ">in flight", ">execution while cold", *(f"factor {factor}" for factor in FACTORS))
        total = collections.Counter[str]()
        for (name, noise), window_s, in_flight, cold_s in itertools.product(NOISES.items(), WINDOWS_S, IN_FLIGHT, COLD_S):
            row = list[str]()
            for factor in FACTORS:
                random = np.random.default_rng(
                    [seed, round(10 * warm_up_s), round(window_s), in_flight, round(10 * cold_s), factor, len(name)]
                )
                counted = cold_windows(random, in_flight, cold_s, factor, noise, warm_up_s, window_s, runs)
                text, is_missed = cold_cell(counted)
                missed, cells, total = missed + is_missed, cells + bool(counted["all"]), total + counted
                row.append(text)
            page.row(name, f"{window_s:g} s", in_flight, f"{cold_s:g} s", *row)
        page.add("", f"All cells together: {cold_cell(total)[0]}.")
    page.add("", f"{missed} of {cells} cells are missed, in bold.")
    return bool(missed)


def add_falling_table(page: Report, runs: int, seed: int) -> None:
    """Adds the table of times that fall little by little."""
    page.section(
        "Cold and falling little by little, for a share of the window",
        "The time begins with the factor and falls by the same share in equal times, so that the cold part takes 1.4, 2.5 or 10.6 times as long on average: below 1.5 it counts as steady.",
        "",
    )
    page.table("execution times", ">window", "warm-up", *(f"from a factor of {factor}" for factor in FACTORS))
    for (name, noise), window_s, warm_up_s in itertools.product(NOISES.items(), WINDOWS_S, WARM_UPS_S):
        row = list[str]()
        for factor in FACTORS:
            counted = collections.Counter[str]()
            for in_flight in IN_FLIGHT:
                random = np.random.default_rng([seed, in_flight, factor, len(name)])
                counted += cold_windows(random, in_flight, 0.1, factor, noise, warm_up_s, window_s, runs, ("falling",))
            row.append(cold_cell(counted)[0].replace("*", ""))
        page.row(name, f"{window_s:g} s", "auto" if warm_up_s else "0 s", *row)


def _false_cell(share: float) -> str:
    return f"**{share:.1%}**" if share > MOST_FALSE else f"{share:.1%}"


def add_false_tables(page: Report, runs: int, seed: int) -> bool:
    """Adds the tables of warm servers; returns whether a cell has too many false alarms."""
    page.section(
        "Warm closed loops taken for cold, in per cent",
        "Executions of 13 ms, 0.1, 0.5, 0.85 or 2.5 s at random. Sharing: the capacity is divided among the requests in flight.",
        "",
    )
    columns = [f">{window_s:g} s, {'auto' if warm_up_s else '0 s'}" for warm_up_s, window_s in itertools.product(WARM_UPS_S, WINDOWS_S)]
    page.table("server", *columns)
    false = 0
    for name, make, closed in warm_servers():
        random = np.random.default_rng([seed, len(name), 7])
        shares = [false_share(make, closed, *cell, runs, random) for cell in itertools.product(WARM_UPS_S, WINDOWS_S)]
        false += sum(share > MOST_FALSE for share in shares)
        page.row(name, *map(_false_cell, shares))
    page.section("Warm open loops taken for cold: `warmup: auto`, then without a warm-up")
    page.table("series", *(f">{rate:g}/s, {window_s:g} s" for rate, window_s in OPEN_LOADS))
    for series in SERIES:
        row = list[str]()
        for rate, window_s in OPEN_LOADS:
            shares, load = list[float](), OpenLoad(rate_per_s=rate, arrivals="poisson")
            for warm_up_s in WARM_UPS_S:
                random = np.random.default_rng([seed, round(rate), round(window_s), len(series.name)])
                simulated = windows(series, round(rate * (warm_up_s + window_s)), rate, runs, random)
                found = [measured((at, at + times), warm_up_s, window_s, load, cuts=bool(warm_up_s)) for at, times in simulated]
                shares.append(sum(verdict(one) == "cold" for one in found) / runs)
            false += sum(share > MOST_FALSE for share in shares)
            row.append(", ".join(map(_false_cell, shares)))
        page.row(series.name, *row)
    page.add("", f"{false} cells are above {MOST_FALSE:.0%}, in bold.")
    return bool(false)


def main() -> int:
    """Prints the tables."""
    options = program_options(
        __doc__,
        out="cold-targets",
        runs=(4, "windows of each server and share"),
        false_runs=(400, "windows of each warm server"),
        seed=1,
    )
    page = Report(options.out, "Cold targets: told, unknown and silent")
    page.add(
        f"{options.runs} windows for each server and share, {options.false_runs} for each warm server, seed {options.seed}; made by `python -m benchmarks.cold_targets`, whose docstring says how."
    )
    is_missed = add_cold_tables(page, options.runs, options.seed)
    add_falling_table(page, options.runs, options.seed)
    has_false_alarms = add_false_tables(page, options.false_runs, options.seed)
    page.section("Three repetitions of 10 s, the first cold throughout: told, in per cent of the runs; factor 1 is a false alarm")
    page.table("execution times", ">in flight", ">execution while cold", ">factor 1", *(f">factor {factor}" for factor in FACTORS))
    for (name, noise), in_flight, cold_s in itertools.product(NOISES.items(), IN_FLIGHT, COLD_S):
        random = np.random.default_rng([options.seed, in_flight, round(10 * cold_s), len(name)])
        shares = [repetitions(random, in_flight, cold_s, factor, noise, 10 * options.runs) for factor in (1, *FACTORS)]
        page.row(name, in_flight, f"{cold_s:g} s", *(f"{share:.0%}" for share in shares))
    page.add("", SEEN)
    page.is_met = not is_missed and not has_false_alarms
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
