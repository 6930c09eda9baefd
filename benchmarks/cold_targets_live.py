"""Five cold servers and five warm ones: what a run says of them with a fixed warm-up, and what `warmup: auto` measures.

    python -m benchmarks.cold_targets_live [--seconds 3] [--realtime] [--out reports/cold-targets-live.md]

The bundled server's model `synthetic` has declared service times; `first=8x/20` makes the first 20 executions of each batch size 8 times as long, and `slow_start` lets
all fall to their time. Each server is started anew for each run, a closed loop with one repetition. The true throughput is that of the server without what makes it cold. The exit
code is 1 if a cold server is not told with the warm-up of 0 s, a warm one is taken for cold, or `warmup: auto` measures a throughput that is off by more than a tenth in a
load point without the warning `cold`.
"""

import sys
from typing import Any, NamedTuple

from benchmarks.report import Report, describe_machine, program_options
from benchmarks.synthetic import closed_loop, measure
from perfkit.stats.validity import INVALIDATING


class Server(NamedTuple):
    """A server when it is warm, what makes it cold at first, if anything does, and its load."""

    warm: str
    cold: str
    in_flight: int

    @property
    def declaration(self) -> str:
        """For the model `synthetic`."""
        return f"{self.warm},{self.cold}" if self.cold else self.warm


SERVERS = (
    Server("service=constant:13ms", "first=8x/20", 1),
    Server("service=constant:20ms,servers=4", "first=25x/16", 4),
    Server("service=linear:10ms+1ms/row,batch=upto:8", "first=40x/4", 8),
    Server("service=constant:5ms", "slow_start=40x/1s", 1),
    Server("service=constant:2ms", "first=400x/4", 16),
    Server("service=constant:13ms", "", 1),
    Server("service=exponential:20ms,servers=4", "", 4),
    Server("service=linear:10ms+1ms/row,batch=upto:8", "", 8),
    Server("service=lognormal:50ms:cv=0.5", "", 1),
    Server("service=constant:13ms,servers=4,stall=200ms/2s", "", 4),
)
_MOST_ERROR = 0.1
_TOLD = {*INVALIDATING, "not_steady", "warmth_unknown"}


def _verdict(point: dict[str, Any]) -> str:
    codes = [warning["code"] for warning in point["warnings"] if warning["code"] in _TOLD]
    return ", ".join(codes) or "–"


def main() -> int:
    """Prints the table."""
    options = program_options(__doc__, out="cold-targets-live", seconds=(3.0, "window of each run"), realtime=False)
    page = Report(options.out, "Cold and warm servers, live")
    page.add(describe_machine(), f"Windows of {options.seconds:g} s.", "")
    page.table("server", ">in flight", ">true", ">`warmup: 0s`", "verdict", ">`warmup: auto`", "verdict", ">warm-up", "as it must be")
    told = list[str]()
    for server in SERVERS:

        def run(declaration: str, warmup: str, server: Server = server) -> dict[str, Any]:
            load = closed_loop(server.in_flight)
            return measure(declaration, load, options.seconds, realtime=options.realtime, measure={"warmup": warmup})

        true_per_s = run(server.warm, "2s")["throughput_per_s"]
        fixed, automatic = run(server.declaration, "0s"), run(server.declaration, "auto")
        is_off = abs(automatic["throughput_per_s"] / true_per_s - 1) > _MOST_ERROR
        is_right = ("cold" in _verdict(fixed)) is bool(server.cold) and ("cold" in _verdict(automatic)) <= bool(server.cold)
        page.judged_row(
            is_right and not (is_off and "cold" not in _verdict(automatic)), f"`{server.declaration}`", server.in_flight, f"{true_per_s:.1f}/s",
            f"{fixed['throughput_per_s']:.1f}/s", _verdict(fixed), f"{automatic['throughput_per_s']:.1f}/s", _verdict(automatic), f"{automatic['warmup_s']:.1f} s",
        )  # fmt: skip
        told += [f"- `{server.declaration}`: {warning['message']}" for warning in fixed["warnings"] if warning["code"] == "cold"]
    page.section("What the runs without a warm-up said", *told)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
