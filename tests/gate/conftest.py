"""Gates whose runs are made up, so that their verdicts are known."""

import random
from typing import Literal

import pytest

from perfkit.errors import MeasurementWarning
from perfkit.gate.pairs import ArmRun, Pair, PointFigures, draw_order, draw_seed

CLOSED, OPEN = "http, concurrency 4", "http, 70/s poisson"


def make_run(slower=1.0, *, noise=lambda: 1.0, codes=(), failed=0, valid=True, without=()):
    """A run of the standard profile that takes `slower` times as long."""
    figures = {"p50": 10e6, "p95": 15e6, "p99": 20e6, "p99_9": None}
    warnings = tuple(MeasurementWarning(code=code, message=f"Said of {code}.") for code in codes)
    points = []
    kinds: tuple[tuple[str, Literal["closed", "open"]], ...] = ((CLOSED, "closed"), (OPEN, "open"))
    for load_point, kind in kinds:
        shown = {name: None if value is None or name in without else value * slower * noise() for name, value in figures.items()}
        throughput = None if "throughput" in without else 100 / slower * noise()
        points.append(
            PointFigures(
                load_point=load_point, kind=kind, valid=valid, warnings=warnings, scheduled=1000, failed=failed,
                figures={"throughput": throughput, **shown},
            )
        )  # fmt: skip
    return ArmRun(points=tuple(points))


class Machine:
    """Measures arms as a machine with faults of its own would; see `perfkit.gate.pairs.Measure`."""

    def __init__(self, *, before=None, seed=0, candidate=1.0, second=1.0, drift=1.0, noise=0.01, **candidate_run):
        self._candidate, self._second, self._drift, self._sd = candidate, second, drift, noise
        self._random, self._candidate_run = random.Random(seed), candidate_run
        self._before, self.asked = before, []

    async def __call__(self, arm, *, run, seed):
        if self._before is not None:
            await self._before(len(self.asked))
        is_second = len(self.asked) % 2
        slower = self._drift ** len(self.asked) * (self._second if is_second else 1.0) * (self._candidate if arm == "candidate" else 1.0)
        self.asked.append((arm, run, seed))
        kept = self._candidate_run if arm == "candidate" else {}
        return make_run(slower, noise=lambda: self._random.lognormvariate(0, self._sd), **kept)


class Audience:
    """Remembers what it is told."""

    def __init__(self):
        self.started, self.finished, self.said = [], [], []

    def message(self, text):
        self.said.append(text)

    def pair_started(self, kind, usable, order, seconds_a_pair):
        self.started.append((kind, usable, order, seconds_a_pair))

    def pair_finished(self, pair):
        self.finished.append(pair)


def make_pairs(count, candidate=1.0, *, seed=0, noise=0.002, kind="pair", **candidate_run):
    """Pairs of a steady machine."""
    rng = random.Random(seed)
    return [
        Pair(
            number=number,
            kind=kind,
            seed=draw_seed(seed, number),
            first=draw_order(seed, number)[0],
            baseline=make_run(noise=lambda: rng.lognormvariate(0, noise)),
            candidate=make_run(candidate, noise=lambda: rng.lognormvariate(0, noise), **candidate_run),
        )
        for number in range(count)
    ]


@pytest.fixture
def machine():
    return Machine


@pytest.fixture
def audience():
    return Audience()


@pytest.fixture
def pairs():
    return make_pairs
