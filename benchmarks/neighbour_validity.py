"""How many load points are not valid on a machine with a busy neighbour.

    python -m benchmarks.neighbour_validity [--neighbour 30] [--windows 50] [--seconds 2] [--out reports/neighbour-validity.md]

The neighbour is the process of `benchmarks.live_gates`, which takes 30 % of one CPU in bursts of 5 to 50 ms. The target is the bundled server's model
`synthetic`, with 5 ms a request and eight servers, so that the machine's CPUs are not its limit. Each window is a repetition of one `perfkit run` with its usual
settings. A load point is not valid if a figure with enough samples moved beyond its interval by what happened to the load generator, so some may be rightly so: the
share of all is the most that are wrong. Targets: at most 2 % not valid beside the neighbour, as 95 % confidence allows.
"""

import collections
import sys

from benchmarks.live_gates import neighbour
from benchmarks.processes import run_perfkit, running_server
from benchmarks.report import Report, describe_machine, percent, program_options
from benchmarks.synthetic import closed_loop, open_loop, scenario
from perfkit.stats.probability import binomial_limits
from perfkit.stats.validity import INVALIDATING

LOADS = {"1 and 8 in flight": closed_loop(1, 8), "200/s and 1,000/s": open_loop(200, 1000)}
MOST = 0.02


def main() -> int:
    """Measures and prints the table."""
    options = program_options(
        __doc__, out="neighbour-validity", neighbour=(30.0, "per cent of one CPU"), windows=(50, "windows of each load"), seconds=(2.0, "length of each"),
    )  # fmt: skip
    page = Report(options.out, "Valid load points beside a busy neighbour")
    page.add(describe_machine(), f"Windows of {options.seconds:g} s, {options.windows} of each load.", "")
    page.table("neighbour", "load", ">windows", ">not valid", ">95 % limits", "why", "pooled")
    busy = options.neighbour / 100
    for name, load in LOADS.items():
        with neighbour(busy), running_server("--model=synthetic", "--synthetic=service=constant:5ms,servers=8") as server:
            run = run_perfkit(scenario(server.url(), load, options.seconds, measure={"repetitions": options.windows}))
        invalid = [point for point in run.points if not point["valid"]]
        codes = collections.Counter(one["code"] for point in invalid for one in point["warnings"] if one["code"] in INVALIDATING)
        low, high = binomial_limits(len(invalid), len(run.points))
        assert run.result is not None
        page.row(
            f"{busy:.0%}", name, len(run.points), percent(len(invalid) / len(run.points)), f"{low:.0%} to {high:.0%}",
            ", ".join(f"{code} {count}" for code, count in codes.items()) or "–",
            ", ".join("valid" if point["valid"] else "not valid" for point in run.result["summary"]),
        )  # fmt: skip
        page.is_met &= low <= MOST
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
