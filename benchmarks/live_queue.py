"""Coverage of perfkit's confidence intervals on live queues: M/M/1, or M/M/c with `--servers c`, at ρ = 0.5.

    python -m benchmarks.live_queue [--runs 20] [--seconds 120] [--servers 1] [--at-once 4] [--realtime] [--out reports/live-queue.md]

The bundled server's model `synthetic` serves with exponential times of 10 ms, under Poisson arrivals at 50/s for each of its
servers. With one server, response times are exponential with mean 20 ms; with several, Erlang's C gives the share that waits.
Every run has its own seeds for arrivals and services. Of 20 intervals of 95 %, at least 17 must contain the true value; fewer
have a probability of 1.6 %. The time that the server's front end and the kernel add is measured first; the declared `lead`
compensates for it. The exit code is 1 if too few intervals contain the true value.
"""

import collections
import concurrent.futures
import math
import sys

from benchmarks.report import Report, program_options, yes_no
from benchmarks.simulated_queues import mmc_quantile
from benchmarks.synthetic import measure, measure_lead_us, open_loop

SERVICE_MS, RATE_PER_SERVER, REQUIRED_OF_20 = 10.0, 50, 17
QUANTILES = {"p50": 0.5, "p99": 0.99}


def main() -> int:
    """Prints the table."""
    options = program_options(
        __doc__, runs=(20, "how many runs"), seconds=(120, "window of each run"), servers=(1, "c of M/M/c"), at_once=4, realtime=False
    )
    lead_us = measure_lead_us(5, realtime=options.realtime)
    declaration, rate = f"service=exponential:10ms,servers={options.servers},lead={lead_us}us", RATE_PER_SERVER * options.servers
    truth_ms = {name: SERVICE_MS * mmc_quantile(quantile, options.servers, 0.5) for name, quantile in QUANTILES.items()}
    page = Report(options.out, f"Coverage of perfkit's intervals on a live M/M/{options.servers} queue")
    page.add(
        (f"True values: {', '.join(f'{name} {true_ms:.2f} ms' for name, true_ms in truth_ms.items())}. `{declaration}`, {rate}/s, {options.seconds} s per run, "
         f"{options.at_once} runs at once{', at real-time priority' * options.realtime}."),
        "",
    )  # fmt: skip
    page.table(">run", ">requests", "effective samples of p50, p99",
               *(column for name in QUANTILES for column in (f">{name}, ms", "95 % interval", "contains the true value")), "valid")  # fmt: skip
    covered = collections.Counter[str]()
    with concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        points = pool.map(
            lambda number: measure(f"{declaration},seed={1000 + number}", open_loop(rate), options.seconds, seed=number, realtime=options.realtime,
                                   measure={"warmup": "2s"}),
            range(options.runs),
        )  # fmt: skip
        for number, point in enumerate(points):
            cells = list[str]()
            for name, true_ms in truth_ms.items():
                if name not in point["intervals"]:
                    sys.exit(f"live_queue: {point['requests']['ok']} requests are too few for an interval of {name}; give more --seconds")
                low_ms, high_ms = ((end_ns or math.inf) / 1e6 for end_ns in point["intervals"][name])
                covered[name] += low_ms <= true_ms <= high_ms
                shown = "open" if math.isinf(high_ms) else f"{high_ms:.1f}"
                cells += [f"{point['response_time_ns'][name] / 1e6:.1f}", f"{low_ms:.1f} to {shown}", yes_no(low_ms <= true_ms <= high_ms)]
            effective = ", ".join(f"{point['effective_samples'][name]:.0f}" for name in QUANTILES)
            page.row(number, point["requests"]["ok"], effective, *cells, yes_no(point["valid"]))
    required = math.floor(REQUIRED_OF_20 / 20 * options.runs)
    counts = ", ".join(f"{name} {covered[name]} of {options.runs}" for name in QUANTILES)
    page.add("", f"Intervals that contain the true value: {counts}; at least {required} each are required.")
    page.is_met = min(covered[name] for name in QUANTILES) >= required
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
