"""CPU time that the bundled server takes for a request, compared with a bare socket that reads and sends the same bytes.

    python -m benchmarks.server_request_cost [--rounds 3] [--seconds 3] [--out reports/server-request-cost.md]

perfkit sends closed loops at concurrency 8; the server's user and system time in a run is divided by the requests of the run.
The bare socket (`benchmarks.bare_socket_server`, HTTP only) answers with the bundled server's own bytes and does nothing else.
The scheduler's part is the queue time of the server's statistics at concurrency 1: from the decoded and checked request to the
call of the executor. There are no targets: the report shows what is left to gain.
"""

import contextlib
import functools
import json
import os
import statistics
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import psutil

from benchmarks.processes import ROOT, RunningServer, on_cpus, run_perfkit, running_server
from benchmarks.report import describe_machine, option_parser, publish, table_head, table_row

ELEMENTS = {"128 B": None, "602 kB": 75_264}
MODELS = {"128 B": "simple", "602 kB": "identity_int64"}


class Target(NamedTuple):
    """A server: where it is, and its process."""

    url: str
    process: psutil.Process


class Cost(NamedTuple):
    """User and system time per request, in microseconds."""

    user_us: float
    system_us: float

    @property
    def total_us(self) -> float:
        """Both."""
        return self.user_us + self.system_us


@contextlib.contextmanager
def bare_socket(server: RunningServer) -> Iterator[Target]:
    """The bare socket in front of a server."""
    command = [sys.executable, "-m", "benchmarks.bare_socket_server", f"--upstream-port={server.http_port}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Target(f"http://127.0.0.1:{process.stdout.readline().strip()}", psutil.Process(process.pid))
        process.communicate()


def scenario(url: str, size: str, concurrency: int, seconds: float) -> dict[str, Any]:
    """A closed loop with requests of one size."""
    elements = ELEMENTS[size]
    inputs = {} if elements is None else {"inputs": {"INPUT0": {"generate": "random", "shape": [elements]}}}
    return {
        "target": {"url": url, "model": MODELS[size]},
        "workload": {"variants": 2, **inputs},
        "load": {"closed": {"concurrency": concurrency}},
        "measure": {"warmup": "0s", "duration": f"{seconds}s", "repetitions": 1, "workers": 1},
        "check": {"share": "0%"},
    }


def measure_cost(target: Target, size: str, seconds: float) -> Cost:
    """The cost of a request at concurrency 8."""
    before = target.process.cpu_times()
    point = run_perfkit(scenario(target.url, size, 8, seconds)).point
    after = target.process.cpu_times()
    sent = point["requests"]["sent"]
    assert point["requests"]["ok"] == sent, point["requests"]
    return Cost(1e6 * (after.user - before.user) / sent, 1e6 * (after.system - before.system) / sent)


def queue_us(server: RunningServer, protocol: str, size: str, seconds: float) -> float:
    """The mean queue time at concurrency 1, from the server's statistics."""

    def queue() -> tuple[int, int]:
        with urllib.request.urlopen(f"{server.url()}/v2/models/{MODELS[size]}/stats", timeout=10) as answer:  # noqa: S310 - always http
            (stats,) = json.load(answer)["model_stats"]
        return stats["inference_stats"]["queue"]["ns"], stats["inference_stats"]["queue"]["count"]

    before = queue()
    run_perfkit(scenario(server.url(protocol), size, 1, seconds))
    after = queue()
    return (after[0] - before[0]) / (after[1] - before[1]) / 1e3


def main() -> int:
    """Prints the table."""
    parser = option_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="length of a run (default %(default)s)")
    options = parser.parse_args()
    machine = describe_machine()
    cpus = sorted(os.sched_getaffinity(0))
    lines = [
        "# CPU time of a request in the bundled server",
        "",
        "At concurrency 8, server and client on separate CPUs. *Bare socket*: a Python process that reads the same bytes and sends the",
        "same answer over HTTP. *Queue*: from the checked request to the call of the executor, at concurrency 1, for a model that",
        "runs on the event loop.",
        "",
        f"{machine} {options.rounds} rounds of {options.seconds:g} s; medians, and the lowest and highest round.",
        "",
        *table_head("request", "server", ">user", ">system", ">both", ">rounds", ">queue"),
    ]
    with on_cpus(cpus[:1]):
        stack = contextlib.ExitStack()
        server = stack.enter_context(running_server("--threads=1", "--device=cpu", "--model", *MODELS.values()))
    with stack, on_cpus(cpus[1:] or cpus):
        process = psutil.Process(server.process.pid)
        for size in ELEMENTS:
            with on_cpus(cpus[:1]):
                bare = stack.enter_context(bare_socket(server))
            targets = {"bare socket": bare, **{name: Target(server.url(name.lower()), process) for name in ("HTTP", "gRPC")}}
            measures: dict[str, Callable[[], Cost]] = {
                name: functools.partial(measure_cost, target, size, options.seconds) for name, target in targets.items()
            }
            rounds = [{name: measure() for name, measure in measures.items()} for _ in range(options.rounds)]
            for name in targets:
                costs = [figures[name] for figures in rounds]
                totals = [cost.total_us for cost in costs]
                user, system = (statistics.median(values) for values in zip(*costs, strict=True))
                queue = "–" if name == "bare socket" else f"{queue_us(server, name.lower(), size, options.seconds):.1f} µs"
                figures = (f"{user:.0f} µs", f"{system:.0f} µs", f"{statistics.median(totals):.0f} µs")
                lines.append(table_row(size, name, *figures, f"{min(totals):.0f} to {max(totals):.0f} µs", queue))
                print(lines[-1], file=sys.stderr, flush=True)
    return publish(options.out, lines)


if __name__ == "__main__":
    sys.exit(main())
