"""A pair of a gate: a run of either arm in an order drawn by a coin, and what a gate keeps of each."""

import random
import statistics
from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning
from perfkit.result.model import Part, Result

_T = TypeVar("_T")

ArmName = Literal["baseline", "candidate"]
PairKind = Literal["pair", "control"]
PERCENTILES = ("p50", "p95", "p99", "p99_9")
_INVALIDATING = {"generator_bound", "throttled", "behind_schedule", "late_starts", "worker_lost"}
_DECISIVE = {*_INVALIDATING, "not_steady", "overloaded", "failed_requests"}
FIGURES = ("throughput", *PERCENTILES)


class PointFigures(Part):
    """What a gate keeps of one load point."""

    load_point: str
    """Protocol and load in words; the same in both arms."""
    kind: Literal["closed", "open"]
    valid: bool
    warnings: tuple[MeasurementWarning, ...] = ()
    scheduled: int
    failed: int
    figures: dict[str, float | None]
    """`throughput` a second and percentiles in nanoseconds; None for those that too few samples carry."""


class ArmRun(Part):
    """One arm's run in one pair: its load points, one after the other on the same server process."""

    points: tuple[PointFigures, ...]

    @property
    def invalid(self) -> MeasurementWarning | None:
        """What made the load generator the bottleneck of one of its points; None where nothing did."""
        faulty = next((point for point in self.points if not point.valid), None)
        if faulty is None:
            return None
        cause = next((warning for warning in faulty.warnings if warning.code in _INVALIDATING), None)
        if cause is None:
            return MeasurementWarning(code="invalid", message=f"{faulty.load_point}: nothing was sent.")
        return MeasurementWarning(code=cause.code, message=f"{faulty.load_point}: {cause.message}")


class Pair(Part):
    """Two runs; `number` counts all that were measured, also those that are not used."""

    number: int
    kind: PairKind
    seed: int
    first: ArmName
    baseline: ArmRun
    candidate: ArmRun
    """Of a control pair the baseline once more."""

    @property
    def runs(self) -> dict[ArmName, ArmRun]:
        """By arm."""
        return {"baseline": self.baseline, "candidate": self.candidate}

    @property
    def invalid(self) -> MeasurementWarning | None:
        """Why the pair is not used; None where it is. The rule knows no arms, so that it favours none."""
        return self.baseline.invalid or self.candidate.invalid


def draw_order(seed: int, number: int) -> tuple[ArmName, ArmName]:
    """Who is measured first in a pair, by a coin: independent of every other pair."""
    return ("baseline", "candidate") if random.Random(f"order {seed} {number}").random() < 0.5 else ("candidate", "baseline")


def draw_seed(seed: int, number: int) -> int:
    """The seed of a pair's requests and arrivals: the same in both arms, another in every pair."""
    return random.Random(f"arrivals {seed} {number}").randrange(2**31)


def arm_run(results: tuple[Result, ...]) -> ArmRun:
    """What a gate keeps of the results of one arm's run, each of one repetition."""
    points = []
    for result in results:
        for point in result.points:
            times = {name: getattr(point.times, name) for name in PERCENTILES}
            decisive = [warning for warning in point.warnings if warning.code in _DECISIVE]
            points.append(
                PointFigures(
                    load_point=f"{point.protocol}, {point.load.title}",
                    kind=point.load.kind,
                    valid=point.valid,
                    warnings=tuple(decisive),
                    scheduled=point.requests.scheduled,
                    failed=point.requests.scheduled - point.requests.ok,
                    figures={"throughput": point.throughput_per_s, **times},
                )
            )
    return ArmRun(points=tuple(points))


class Measure(Protocol):
    """Runs one arm."""

    async def __call__(self, arm: ArmName, *, run: str, seed: int) -> ArmRun:
        """Starts the arm's server where perfkit does, and measures its load points; `run` names the run's files.

        Raises TargetError where the target is lost, CancelledError where it is interrupted.
        """
        ...


class PairObserver(Protocol):
    """Who is told how the pairs go on."""

    def pair_started(self, kind: PairKind, usable: int, order: tuple[ArmName, ArmName], seconds_a_pair: float | None) -> None:
        """A pair starts, after so many that are used; how long one takes, None while that is not known."""

    def pair_finished(self, pair: Pair) -> None:
        """Both arms were measured."""


async def run_pairs(
    kind: PairKind,
    *,
    seed: int,
    done: Sequence[Pair],
    measure: Measure,
    keep: Callable[[Pair], None],
    decide: Callable[[Sequence[Pair]], _T | None],
    observer: PairObserver,
    clock: Clock,
) -> _T:
    """Measures pairs of one kind behind those that are done, until `decide` makes something of all of that kind.

    `done` are those of an interrupted gate, of every kind. A control pair measures the baseline as both arms.
    """
    pairs, others = [pair for pair in done if pair.kind == kind], sum(pair.kind != kind for pair in done)
    lengths_s = list[float]()
    while (settled := decide(pairs)) is None:
        number = others + len(pairs)
        order, arrivals = draw_order(seed, number), draw_seed(seed, number)
        usable = sum(pair.invalid is None for pair in pairs)
        observer.pair_started(kind, usable, order, statistics.mean(lengths_s) if lengths_s else None)
        start_ns = clock.now_ns()
        runs = {}
        for arm in order:
            measured: ArmName = "baseline" if kind == "control" else arm
            runs[arm] = await measure(measured, run=f"{number:03}-{arm}", seed=arrivals)
        pair = Pair(number=number, kind=kind, seed=arrivals, first=order[0], baseline=runs["baseline"], candidate=runs["candidate"])
        keep(pair)
        pairs.append(pair)
        lengths_s.append((clock.now_ns() - start_ns) / 1e9)
        observer.pair_finished(pair)
    return settled
