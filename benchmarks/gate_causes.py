"""Whether the paired gate names the cause that was built in: a candidate whose requests wait 3 ms longer in the server's queue.

    python -m benchmarks.gate_causes [--protocol http] [--protocol grpc] [--peers FOLDER] [--out reports/gate-causes.md]

Two real Tritons serve a model of the Python backend that sleeps for 5 ms; that of the candidate waits up to 3 ms for a batch of eight, which
never comes at 40 requests a second. `perfkit gate --pairs 10` compares them with `traces`, all requests traced. Required over each protocol: the
verdict is "regressed", and every sentence about the parts of the time names the server's queue first, with an interval that lies within 2 to 4 ms.
The exit code is 1 if a requirement is missed.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import running_triton
from benchmarks.processes import ROOT, write_scenario
from benchmarks.report import describe_machine, option_parser, publish, yes_no
from benchmarks.tail_causes import tracing_options, write_sleeping_model
from perfkit.target.command_server import free_ports

_WAITS = "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 3000 }"
_LEAST_NS, _MOST_NS = 2_000_000, 4_000_000


class Found(NamedTuple):
    """What a gate said."""

    protocol: str
    verdict: str
    reasons: tuple[str, ...]
    parts: tuple[dict[str, Any], ...]

    @property
    def is_met(self) -> bool:
        """Whether the requirements hold."""
        return self.verdict == "regressed" and bool(self.parts) and all(map(_names_the_queue, self.parts))


def _names_the_queue(change: dict[str, Any]) -> bool:
    longest = max(change["parts_ns"], key=lambda part: change["parts_ns"][part], default="")
    low, high = change["intervals_ns"].get("queue", (0, 0))
    return longest == "queue" and _LEAST_NS <= low <= high <= _MOST_NS


def run_gate(protocol: str, peers: pathlib.Path) -> Found:
    """One gate."""
    (port,) = free_ports(1)
    listen = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="perfkit-gate-causes-") as name:
        folder = pathlib.Path(name)
        for arm, settings in (("baseline", ""), ("candidate", _WAITS)):
            write_sleeping_model(folder / arm, "sleeping", instances=4, settings=settings)
        options = tracing_options(listen)
        with (
            running_triton(peers, models=folder / "baseline", options=options) as baseline,
            running_triton(peers, models=folder / "candidate", options=options) as candidate,
        ):
            scenario = {
                "name": "gate-causes", "target": {"model": "sleeping", "url": baseline.url(protocol)},
                "workload": {"inputs": {"MS": {"value": [5.0]}}}, "load": {"open": {"rate": 40, "arrivals": "poisson"}},
                "measure": {"duration": "5s"}, "traces": {"listen": listen, "share": "100%"},
            }  # fmt: skip
            file = write_scenario(folder, scenario)
            arms = ["--baseline", baseline.url(protocol), "--candidate", candidate.url(protocol)]
            command = [sys.executable, "-m", "perfkit", "gate", str(file), *arms, "--pairs", "10", "--quiet", "--out", str(folder / "out")]
            subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        verdict = json.loads((folder / "out" / "verdict.json").read_text(encoding="utf-8"))
    return Found(protocol, verdict["kind"], tuple(verdict["reasons"]), tuple(verdict["parts"]))


def report(found: Sequence[Found], machine: str) -> list[str]:
    """The report's lines."""
    lines = ["# The cause of a regression, named by the gate", "", machine, ""]
    for one in found:
        lines += [
            f"## {one.protocol}: {one.verdict}, requirements met: {yes_no(one.is_met)}",
            "",
            *(f"- {reason}" for reason in one.reasons),
            "",
        ]
    return [*lines, *(__doc__ or "").splitlines()[4:]]


def main(arguments: argparse.Namespace) -> int:
    """Runs the gates, and publishes the report."""
    machine = describe_machine()
    found = [run_gate(protocol, peers_folder(arguments.peers)) for protocol in arguments.protocol or ("http", "grpc")]
    return publish(arguments.out, report(found, machine), is_met=all(one.is_met for one in found))


if __name__ == "__main__":
    parser = option_parser(__doc__)
    parser.add_argument("--protocol", action="append", choices=("http", "grpc"), help="may be repeated (default: both)")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    sys.exit(main(parser.parse_args()))
