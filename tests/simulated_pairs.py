"""Runs and pairs of a gate with known figures, so that the right verdict is known."""

import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

from perfkit.errors import MeasurementWarning
from perfkit.gate.pairs import ARMS, ArmName, ArmRun, Pair, RunPoint, pair_seed, random_order

CLOSED, OPEN = "http, concurrency 4", "http, 70/s poisson"
LOAD_POINTS: tuple[tuple[str, Literal["closed", "open"]], ...] = ((CLOSED, "closed"), (OPEN, "open"))


def make_run(
    factor: float = 1.0,
    *,
    noise: Callable[[], float] = lambda: 1.0,
    codes: Sequence[str] = (),
    failed: int = 0,
    checked: int = 0,
    wrong: int = 0,
    valid: bool = True,
    without: Sequence[str] = (),
    cpu: float | None = None,
) -> ArmRun:
    """A run of the standard profile whose times are `factor` times as long.

    `cpu` is the factor of the server's CPU time, which has a tenth of the noise; None if that is unknown.
    """
    times_ns = {"p50": 10e6, "p95": 15e6, "p99": 20e6, "p99_9": None}
    warnings = tuple(MeasurementWarning(code=code, message=f"Said of {code}.") for code in codes)
    points = []
    for load_point, kind in LOAD_POINTS:
        figures = {name: None if value is None or name in without else value * factor * noise() for name, value in times_ns.items()}
        throughput = None if "throughput" in without else 100 / factor * noise()
        points.append(
            RunPoint(
                load_point=load_point, kind=kind, valid=valid, warnings=warnings, scheduled=1000, failed=failed, checked=checked, wrong=wrong,
                figures={"throughput": throughput, **figures, "cpu_time": None if cpu is None else 1e6 * cpu * noise() ** 0.1},
            )
        )  # fmt: skip
    return ArmRun(points=tuple(points))


def make_pairs(
    count: int, candidate: float = 1.0, *, seed: int = 0, noise: float = 0.002, kind: Any = "pair", **candidate_run: Any
) -> list[Pair]:
    """Pairs of a steady machine; the candidate's times are `candidate` times as long."""
    rng = random.Random(seed)
    return [
        Pair(
            number=number,
            kind=kind,
            seed=pair_seed(seed, number),
            first=random_order(seed, number)[0],
            baseline=make_run(noise=lambda: rng.lognormvariate(0, noise), cpu=candidate_run.get("cpu") and 1.0),
            candidate=make_run(candidate, noise=lambda: rng.lognormvariate(0, noise), **candidate_run),
        )
        for number in range(count)
    ]


def disturbed(pairs: Sequence[Pair], share: float, arms: Sequence[ArmName] = ARMS) -> list[Pair]:
    """The pairs, with runs in which other processes disturbed the load generator, which may be so much of each figure."""
    shares = dict.fromkeys(("throughput", "p50", "p95", "p99"), share)
    points = {"valid": False, "warnings": (MeasurementWarning("late_starts", "Late."),), "generator_shares": shares}
    return [
        pair.model_copy(
            update={
                arm: pair.runs[arm].model_copy(update={"points": tuple(one.model_copy(update=points) for one in pair.runs[arm].points)})
                for arm in arms
            }
        )
        for pair in pairs
    ]


class SimulatedMachine:
    """Runs arms as a machine with known faults would; a `perfkit.gate.pairs.ArmRunner`.

    The times of the second run of a pair are `second` times as long, and those of each run `drift` times those of the run before.
    """

    def __init__(self, *, before=None, seed=0, candidate=1.0, second=1.0, drift=1.0, noise=0.01, **candidate_run):
        self._candidate, self._second, self._drift, self._noise = candidate, second, drift, noise
        self._random, self._candidate_run = random.Random(seed), candidate_run
        self._before, self.calls = before, []

    async def __call__(self, stage, seed):
        number = len(self.calls)
        if self._before is not None:
            await self._before(number)
        factor = self._drift**number * (self._second if number % 2 else 1.0) * (self._candidate if stage.arm == "candidate" else 1.0)
        self.calls.append((stage.arm, stage.run, seed))
        options = self._candidate_run if stage.arm == "candidate" else {}
        return make_run(factor, noise=lambda: self._random.lognormvariate(0, self._noise), **options)


class RecordingObserver:
    """Records the progress of a gate."""

    def __init__(self):
        self.stages, self.messages, self.started, self.finished = [], [], [], []

    def run_started(self, stage):
        self.stages.append(stage)

    def message(self, text):
        self.messages.append(text)

    def gate_started(self, looks, control_pairs, done):
        pass

    def pair_started(self, kind, usable, order, seconds_per_pair):
        self.started.append((kind, usable, order, seconds_per_pair))

    def pair_finished(self, pair):
        self.finished.append(pair)
