"""The runs behind the plots of docs/concepts: perfkit against the bundled server's model `synthetic`, whose service times are declared."""

import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import perfkit
from benchmarks.processes import run_gate, run_perfkit, server_arm
from benchmarks.synthetic import INPUT, closed_loop, open_loop
from perfkit.api.result import Result
from perfkit.gate.folder import VERDICT_FILE, read_verdict
from perfkit.gate.verdict import Verdict

SEED = 1
_ATTEMPTS = 4
_AT_ONCE = "servers=1000"
"""So many requests are served at a time that none waits for another."""


class Run(NamedTuple):
    """One `perfkit run`: its name, the declared service model, and the load."""

    name: str
    synthetic: str
    load: Mapping[str, Any]
    duration_s: float = 8
    warmup: str = "1s"
    seed: int = SEED

    def scenario(self) -> dict[str, Any]:
        """The scenario, as a mapping."""
        window = {} if "cold_start" in self.load else {"duration": f"{self.duration_s:g}s", "warmup": self.warmup}
        return {
            "name": self.name,
            "target": {"model": "synthetic"},
            "server": {"synthetic": f"{self.synthetic},seed={self.seed}"},
            "workload": {"seed": self.seed, "inputs": INPUT},
            "load": dict(self.load),
            "measure": {**window, "repetitions": 1},
        }


STALLING = "service=constant:20ms,servers=4,stall=2s/8s,drain=at-pace"
OMITTING = f"service=constant:1ms,{_AT_ONCE},stall=1s/10s,drain=at-once"
COLD = "service=constant:5ms,slow_start=6x/250ms"
BUSY = "service=exponential:10ms,servers=4"
CAPACITY_PER_S = 400
"""The capacity of `BUSY`: four at a time, 10 ms each."""
INDEPENDENT = f"service=lognormal:10ms:cv=0.5,{_AT_ONCE}"
QUEUED_MEAN_MS = 1.5
QUEUED = f"service=exponential:{QUEUED_MEAN_MS}ms"
INTERVAL_RATE_PER_S = 400
WINDOWS_S = (0.5, 1, 2, 4, 8, 16, 32)
CONCURRENCY = (1, 2, 3, 4, 6, 8, 12, 16, 32)
RATES_PER_S = (40, 120, 200, 280, 320, 360, 380)

RUNS = {
    run.name: run
    for run in (
        Run("loops-closed", STALLING, closed_loop(2), 14, "0s"),
        Run("loops-open", STALLING, open_loop(100, arrivals="constant"), 14, "0s"),
        Run("omission-closed", OMITTING, closed_loop(1), 20, "0s"),
        Run("omission-open", OMITTING, open_loop(200, arrivals="constant"), 20, "0s"),
        Run("cold", COLD, {"cold_start": {"by": "reload", "requests": 400}}),
        Run("warmup-none", COLD, closed_loop(1), 10, "0s"),
        Run("warmup-auto", COLD, closed_loop(1), 10, "auto"),
        *(Run(f"independent-{s:g}s", INDEPENDENT, open_loop(INTERVAL_RATE_PER_S), s, "2s", SEED + n) for n, s in enumerate(WINDOWS_S)),
        *(Run(f"queued-{s:g}s", QUEUED, open_loop(INTERVAL_RATE_PER_S), s, "2s", SEED + n) for n, s in enumerate(WINDOWS_S)),
        Run("saturation-closed", BUSY, closed_loop(*CONCURRENCY), 5),
        Run("saturation-open", BUSY, open_loop(*RATES_PER_S), 12),
    )
}
GATE_MODEL = "service=lognormal:10ms:cv=0.3,servers=4"
GATE_OPTIONS = ("--pairs", "20", "--set", "measure.duration=2s")


def measure(run: Run, results: pathlib.Path, prefix: Sequence[str]) -> Result:
    """The run's result, from the folder of an earlier call if there is one; raises RuntimeError if `_ATTEMPTS` runs were not valid."""
    folder = results / run.name
    for attempt in range(_ATTEMPTS):
        if attempt or not folder.is_dir():
            shutil.rmtree(folder, ignore_errors=True)
            ended = run_perfkit(run.scenario(), prefix=prefix, out=folder)
            if not folder.is_dir():
                raise RuntimeError(f"{run.name} ended with exit code {ended.exit_code}: {ended.stderr[-1000:]}")
        result = perfkit.load_result(folder)
        if all(point.valid for point in result.points):
            return result
    raise RuntimeError(f"{run.name} was not valid {_ATTEMPTS} times: end other processes, or use --realtime")


def measure_gate(results: pathlib.Path) -> Verdict:
    """The verdict of a gate of one server against itself, from the folder of an earlier call if there is one."""
    if (results / "gate" / VERDICT_FILE).exists():
        return read_verdict(results / "gate")
    scenario = Run("unchanged", GATE_MODEL, {"closed": {"concurrency": 4}}).scenario()
    del scenario["server"]
    server = server_arm("--model", "synthetic", "--synthetic", GATE_MODEL)
    return run_gate(results, scenario, server, server, *GATE_OPTIONS)
