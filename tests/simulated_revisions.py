"""The revisions of a bisection with known speeds, measured with the noise of the gate's simulation."""

import asyncio
import dataclasses
import pathlib
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.gate_simulation import METRICS, Case, Noise, simulate_pairs
from perfkit.bisection.folder import Bisection, BisectionFolder, BisectionInputs, Progress
from perfkit.bisection.revisions import Revision, RevisionError
from perfkit.clock import ManualClock
from perfkit.gate.bisect.bisection import BisectionPlan, run_bisection
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import decide_pairs
from perfkit.gate.pairs import ArmRun, Pair, RunPoint
from perfkit.gate.verdict import Verdict
from tests.simulated_pairs import LOAD_POINTS

CHOICE, RULE = MetricChoice(is_standard=True), dataclasses.replace(rule_for(len(METRICS)), early=())
_MOST_PAIRS = 62
_OF_GOOD = {"throughput": 100.0, "p50": 10e6, "p95": 15e6, "p99": 20e6}


def revisions(count):
    """The good revision and `count` after it."""
    return tuple(
        Revision(sha=f"{number:040x}", subject=f"Change {number}", author_date="2026-01-02T03:04:05+00:00") for number in range(count + 1)
    )


def slower_from(position: int, count: int, **slower: float) -> list[dict[str, float]]:
    """The slowdowns of all revisions, each by metric: from a position on the given ones, before it none."""
    return [slower if number >= position else {} for number in range(count + 1)]


class SimulatedRevisions:
    """Measures revisions whose times are known; a `perfkit.gate.bisect.bisection.PairSource`.

    `slowdowns` are the factors of each revision's times by metric, `faults` what is wrong with one: `broken`, `failing`, or `invalid`
    in as many attempts as the list says.
    """

    def __init__(
        self,
        slowdowns: Sequence[Mapping[str, float]],
        *,
        seed: int = 0,
        noise: Noise | None = None,
        faults: Mapping[int, Any] | None = None,
    ) -> None:
        self.slowdowns, self._rng, self._noise = slowdowns, np.random.default_rng(seed), noise
        self.faults, self.measured, self.finished = dict(faults or {}), list[int](), False
        self.before: Callable[[int, int], None] | None = None

    def _pairs(self, position, failed=0, *, valid=True):
        slower = tuple(self.slowdowns[position].get(name, 1.0) for name in METRICS)
        case = Case("", slower) if self._noise is None else Case("", slower, self._noise)
        differences = simulate_pairs(self._rng, 1, _MOST_PAIRS, case)[0]
        return [_pair(number, differences[:, number], failed, valid) for number in range(_MOST_PAIRS)]

    async def gate_of_bad(self):
        bad = len(self.slowdowns) - 1
        pairs = self._pairs(bad, valid=self.faults.get(bad) != "invalid")
        self.measured.append(bad)
        decision = next(one for count in range(1, _MOST_PAIRS) if (one := decide_pairs(RULE, pairs[:count], CHOICE)) is not None)
        return Verdict(
            kind=decision.kind, reasons=decision.reasons, mode="paired", scenario="s", baseline="", candidate="", false_alarm_rate=0.01,
            pairs=RULE.looks[-1], looks=RULE.looks, comparisons=decision.comparisons, started_at="",
        )  # fmt: skip

    async def measure(self, position, number, decide):
        if self.before is not None:
            self.before(position, number)
        fault = self.faults.get(position)
        if fault == "broken":
            raise RevisionError("could not be built: `make` ended with exit code 2; it said: no rule")
        is_invalid = isinstance(fault, list) and bool(fault) and fault.pop()
        pairs = self._pairs(position, failed=30 if fault == "failing" else 0, valid=not is_invalid)
        self.measured.append(position)
        return next(answer for count in range(1, _MOST_PAIRS) if (answer := decide(pairs[:count])) is not None)

    async def finish(self):
        self.finished = True


def _pair(number, differences, failed, valid):
    times = {
        name: figure * np.exp(-worse if name == "throughput" else worse)
        for (name, figure), worse in zip(_OF_GOOD.items(), differences, strict=True)
    }
    return Pair(
        number=number,
        kind="pair",
        seed=number,
        first=random.Random(number).choice(("baseline", "candidate")),
        baseline=_run(_OF_GOOD, 0, True),
        candidate=_run(times, failed, valid),
    )


def _run(figures, failed, valid):
    return ArmRun(
        points=tuple(
            RunPoint(load_point=load_point, kind=kind, valid=valid, scheduled=1000, failed=failed, figures=dict(figures))
            for load_point, kind in LOAD_POINTS
        )
    )


def bisect(source: "SimulatedRevisions", place: pathlib.Path, messages: list[str] | None = None) -> Bisection:
    """The outcome of a bisection of simulated revisions in a folder; it continues there."""
    path = revisions(len(source.slowdowns) - 1)
    inputs = BisectionInputs(scenario={}, repository="/r", good=path[0].sha, bad=path[-1].sha, build="make", serve="serve", perfkit="1")
    folder = BisectionFolder(place, Progress(inputs=inputs, seed=1, started_at="2026-01-02T03:04:05.678+00:00"))
    message = (lambda _: None) if messages is None else messages.append
    plan = BisectionPlan(path, "s", CHOICE)
    return asyncio.run(run_bisection(plan, folder, source, message, ManualClock()))
