"""The capacity search on live servers whose capacity is known.

    python -m benchmarks.live_capacity [--queues exponential ...] [--at-once 4] [--realtime] [--out reports/live-capacity.md]

The bundled server's model `synthetic` over HTTP with Poisson arrivals. The limit is the p99 at a load of 70 %, from theory or, for batches, from a
simulation of 4 million requests; so the rate of that load is the capacity. The time that the server's front end and the kernel add is measured
first, and the declared `lead` compensates for it. Each search goes from a quarter of the capacity to twice the capacity.

It takes about half an hour. The exit code is 1 if a search that ended with exit code 0 is wrong: the true capacity is outside its interval by
more than 5 %.
"""

import argparse
import concurrent.futures
import math
import sys
import time

from benchmarks.known_queues import QUEUES, known_queue
from benchmarks.processes import PerfkitRun, run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, yes_no
from benchmarks.synthetic import measure_lead_us, scenario

PRECISION, TOLERANCE = "8%", 0.05


def search_known(options: argparse.Namespace, name: str, lead_us: int) -> tuple[str, PerfkitRun, float]:
    """One search on a queue with a server of its own: the queue's name, how `perfkit run` ended, and the seconds that it took."""
    queue = known_queue(name, options.mean_ms)
    rates = {"min_rate": queue.capacity_per_s / 4, "max_rate": 2 * queue.capacity_per_s}
    search = {"search": {"slo": {"p99": f"{queue.p99_ms:.5g}ms"}, **rates, "precision": PRECISION, "budget": options.budget}}
    with running_server(
        "--model=synthetic", f"--synthetic={queue.declaration},lead={lead_us}us,seed=100", realtime=options.realtime
    ) as server:
        document, started_s = scenario(server.url(), search, options.seconds), time.monotonic()
        document["measure"] = {"duration": f"{options.seconds:g}s"}
        return name, run_perfkit(document, realtime=options.realtime), time.monotonic() - started_s


def add_row(page: Report, name: str, true_per_s: float, run: PerfkitRun, took_s: float) -> None:
    """A line for a search; other exit codes than 0 promise no capacity."""
    if run.result is None or not run.result.get("search"):
        page.row(
            name,
            f"{true_per_s:.4g}/s",
            *"–––",
            "–",
            run.exit_code,
            f"{took_s:.0f} s",
            (run.stderr.strip().splitlines() or ["no result"])[-1],
        )
        return
    search = run.result["search"]
    capacity, low, high = (search[f"{one}_per_s"] for one in ("capacity", "low", "high"))
    found = ("–", "–") if capacity is None else (f"{capacity:.4g}/s", f"{capacity / true_per_s - 1:+.1%}")
    invalid = sum(not probe["valid"] for probe in search["probes"])
    note = (
        f"{search['stopped_because']}, {len(search['probes'])} probes ({invalid} invalid), confirmation {search['confirmation'] or 'none'}"
    )
    note += f", would take {search['needed_s']:.0f} s" if search.get("needed_s") else ""
    ends = " to ".join(f"{rate:.4g}" if rate else "?" for rate in (low, high)) if low or high else "–"
    contains = yes_no((low or 0) <= true_per_s <= (high or math.inf)) if low or high else "–"
    page.row(name, f"{true_per_s:.4g}/s", *found, ends, contains, run.exit_code, f"{took_s:.0f} s", note)
    is_near = (low or 0) * (1 - TOLERANCE) <= true_per_s <= (high or math.inf) * (1 + TOLERANCE)
    page.is_met &= is_near or run.exit_code != 0


def main() -> int:
    """Prints the table."""
    options = program_options(
        __doc__, queues=(list(QUEUES), "queues of known capacity"), mean_ms=(4.0, "mean service time of the queues"),
        seconds=(20.0, "length of the first probes"), at_once=4, realtime=False, budget=("15m", "time for a search"),
    )  # fmt: skip
    page = Report(options.out, "The capacity search on live servers")
    page.add(describe_machine())
    lead_us = measure_lead_us(3, realtime=options.realtime)
    page.add(
        "",
        (f"Mean service time {options.mean_ms:g} ms, probes of {options.seconds:g} s at first, at most {options.budget} a search, precision {PRECISION}, lead {lead_us} us, "
         f"{options.at_once} searches at once{', at real-time priority' * options.realtime}; the SLO is the p99 at the true capacity, and the search goes from a "
         "quarter of that to twice it."),
        "",
    )  # fmt: skip
    page.table("server", ">true capacity", ">reported", ">error", "90 % interval", "contains it", ">exit", ">took", "")
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        for name, run, took_s in pool.map(lambda name: search_known(options, name, lead_us), options.queues):
            add_row(page, name, known_queue(name, options.mean_ms).capacity_per_s, run, took_s)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
