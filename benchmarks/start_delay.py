"""How closely an open loop follows its schedule: 10,000 Poisson arrivals per second to a server that does no work.

    python -m benchmarks.start_delay [--rounds 3] [--seconds 10] [--realtime] [--out reports/start-delay.md]

The start delay is started − intended, as `perfkit run` reports it; `benchmarks.peers.lateness` measures by the kernel's stamps. Required: a
p99 below 200 us in the median round, and over all rounds a rate within 0.5 % of the scheduled one. --realtime gives server and client
real-time priority, each on a CPU of its own. The exit code is 1 if a requirement is missed.
"""

import os
import signal
import statistics
import sys

from benchmarks.peers.canned import scenario, serving
from benchmarks.peers.server_process import PeerError
from benchmarks.processes import REALTIME, on_cpus, run_perfkit
from benchmarks.report import Report, describe_machine, program_options, rounds_text, yes_no
from benchmarks.synthetic import open_loop

RATE = 10_000
ALLOWED_P99_US, ALLOWED_RATE_SHARE = 200, 0.005
_PERCENTILES = ("p50", "p99", "p99_9", "max")


def add_delays(page: Report, port: int, rounds: int, seconds: float, *, realtime: bool) -> None:
    """A line for each round, and whether perfkit meets the requirements."""
    page.table(">round", *(f">{name.replace('_', '.')}" for name in _PERCENTILES), ">sent", ">scheduled")
    p99s_us, rates_per_s = list[float](), list[float]()
    for number in range(rounds):
        document = scenario(port, open_loop(RATE), {"warmup": "1s", "duration": f"{seconds}s", "workers": "auto"}, seed=number)
        point = run_perfkit(document, realtime=realtime).point
        times_us = [point["start_delay_ns"][name] / 1e3 for name in _PERCENTILES]
        p99s_us.append(times_us[1])
        rates_per_s.append(point["requests"]["sent"] / point["duration_s"])
        page.row(number + 1, *(f"{value:,.0f} us" for value in times_us), f"{rates_per_s[-1]:,.0f}/s", f"{RATE:,}/s")
    p99_us, deviation = statistics.median(p99s_us), statistics.fmean(rates_per_s) / RATE - 1
    is_on_time, is_on_rate = p99_us < ALLOWED_P99_US, abs(deviation) <= ALLOWED_RATE_SHARE
    page.is_met &= is_on_time and is_on_rate
    page.add(
        "",
        f"The p99 is below {ALLOWED_P99_US} us (median round): {yes_no(is_on_time)}, {p99_us:.0f} us. "
        f"The rate is within {ALLOWED_RATE_SHARE:.1%} over all rounds: {yes_no(is_on_rate)}, {deviation:+.2%}.",
    )


def main() -> int:
    """Prints the table; the exit code is 1 if a requirement is missed."""
    options = program_options(__doc__, rounds=3, seconds=10.0, realtime=False)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM stops the server too, as Ctrl-C does
    page, cpus = Report(options.out, "Adherence of an open loop to its schedule"), sorted(os.sched_getaffinity(0))
    page.add(
        f"{RATE:,} Poisson arrivals per second, 128 B each, to nginx answering from a file; {rounds_text(options.rounds)} of {options.seconds:g} s. "
        f"Server and client have a CPU each{', and real-time priority (SCHED_FIFO)' * options.realtime}. "
        f"Start delay: started − intended. {describe_machine()}",
        "",
    )
    try:
        with serving(cpus=cpus[:1], prefix=REALTIME if options.realtime else ()) as ports, on_cpus(cpus[-1:]):
            assert ports.http is not None
            add_delays(page, ports.http, options.rounds, options.seconds, realtime=options.realtime)
    except PeerError as error:
        sys.exit(f"start_delay: {error}")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
