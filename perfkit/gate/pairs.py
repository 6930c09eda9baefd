"""The pairs of a paired gate: the records that a gate stores, and the loop that measures pair after pair.

A pair is one run of each arm, in random order.
"""

import random
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning
from perfkit.result.model import Result
from perfkit.result.part import Part
from perfkit.spans.breakdown import BANDS, Breakdown, PartMeans
from perfkit.stats.validity import INVALIDATING
from perfkit.units import NS_PER_S

_T = TypeVar("_T")
ArmName = Literal["baseline", "candidate"]
PairKind = Literal["pair", "control"]
ArmRunner: TypeAlias = Callable[[ArmName, str, int], Awaitable["ArmRun"]]
"""Measures one run of an arm, from its name, the name of the run's result folders, and the seed."""
ARMS: tuple[ArmName, ...] = ("baseline", "candidate")
PERCENTILES = ("p50", "p95", "p99", "p99_9")
FIGURES = ("throughput", *PERCENTILES)

_STORED_WARNINGS = {*INVALIDATING, "not_steady", "overloaded", "failed_requests"}


class RunPoint(Part):
    """What a gate stores of one load point of a run."""

    load_point: str
    """Protocol and load in words; the same in both arms."""
    kind: Literal["closed", "open"]
    valid: bool
    warnings: tuple[MeasurementWarning, ...] = ()
    scheduled: int
    failed: int
    figures: dict[str, float | None]
    """`throughput` per second and percentiles in nanoseconds; None if there are too few samples for one."""
    parts_ns: dict[str, dict[str, int]] | None = None
    """The mean parts of traced requests by percentile, those with enough samples; None without `traces`."""


class ArmRun(Part):
    """One run of an arm: its load points, measured one after the other on the same server process."""

    points: tuple[RunPoint, ...]

    @property
    def invalid(self) -> MeasurementWarning | None:
        """Why the load generator was the bottleneck at one of the points; None if it was not."""
        if (faulty := next((point for point in self.points if not point.valid), None)) is None:
            return None
        unsent = MeasurementWarning(code="invalid", message="nothing was sent.")
        cause = next((warning for warning in faulty.warnings if warning.code in INVALIDATING), unsent)
        return MeasurementWarning(code=cause.code, message=f"{faulty.load_point}: {cause.message}")


class Pair(Part):
    """One run of each arm."""

    number: int
    """Counts all pairs of the gate from 0: discarded ones and control pairs as well."""
    kind: PairKind
    seed: int
    """The seed of the requests and arrivals, the same in both runs."""
    first: ArmName
    baseline: ArmRun
    candidate: ArmRun
    """In a control pair, a second baseline run."""

    @property
    def runs(self) -> dict[ArmName, ArmRun]:
        """The runs by arm."""
        return {"baseline": self.baseline, "candidate": self.candidate}

    @property
    def invalid(self) -> MeasurementWarning | None:
        """Why the pair is discarded; None if it is usable. The rule treats both arms alike, so it favours neither."""
        return self.baseline.invalid or self.candidate.invalid


class GateObserver(Protocol):
    """Receives the progress of a gate."""

    def message(self, text: str) -> None:
        """A line of progress during the trial."""

    def gate_started(self, looks: tuple[int, ...], control_pairs: int, done: int) -> None:
        """The pairs begin; `done` of them were measured before an interruption."""

    def pair_started(self, kind: PairKind, usable: int, order: tuple[ArmName, ArmName], seconds_per_pair: float | None) -> None:
        """A pair starts after `usable` ones; `seconds_per_pair` is None until one has been measured."""

    def pair_finished(self, pair: Pair) -> None:
        """Both arms of a pair were measured."""


def random_order(seed: int, number: int) -> tuple[ArmName, ArmName]:
    """The order of the arms in a pair: a fair coin, independent of every other pair."""
    return ("baseline", "candidate") if random.Random(f"order {seed} {number}").random() < 0.5 else ("candidate", "baseline")


def pair_seed(seed: int, number: int) -> int:
    """The seed of a pair's requests and arrivals: the same for both arms, different for every pair."""
    return random.Random(f"arrivals {seed} {number}").randrange(2**31)


def error_rate(runs: Sequence[ArmRun]) -> float:
    """The share of failed requests among all that were scheduled in the runs."""
    points = [point for run in runs for point in run.points]
    scheduled = sum(point.scheduled for point in points)
    return sum(point.failed for point in points) / scheduled if scheduled else 0.0


def arm_run(results: Sequence[Result]) -> ArmRun:
    """What a gate stores of one run, from the run's results; each result holds one repetition."""
    return ArmRun(
        points=tuple(
            RunPoint(
                load_point=point.title,
                kind="closed" if point.load.kind == "closed" else "open",
                valid=point.valid,
                warnings=tuple(warning for warning in point.warnings if warning.code in _STORED_WARNINGS),
                scheduled=point.requests.scheduled,
                failed=point.requests.scheduled - point.requests.ok,
                figures={"throughput": point.throughput_per_s, **{name: getattr(point.times, name) for name in PERCENTILES}},
                parts_ns=None if point.breakdown is None else _parts_ns(point.breakdown),
            )
            for result in results
            for point in result.points
        )
    )


def _parts_ns(breakdown: Breakdown) -> dict[str, dict[str, int]]:
    means: dict[str, PartMeans | None] = {name: getattr(breakdown, name) for name in BANDS}
    return {
        name: {part: value for part, value in one.parts_ns.items() if part not in breakdown.unknown}
        for name, one in means.items()
        if one is not None
    }


async def run_pairs(
    kind: PairKind,
    *,
    seed: int,
    earlier: Sequence[Pair],
    run_arm: ArmRunner,
    store: Callable[[Pair], None],
    decide: Callable[[Sequence[Pair]], _T | None],
    observer: GateObserver,
    clock: Clock,
) -> _T:
    """Measure pairs of one kind until `decide` returns a decision on all pairs of that kind.

    `earlier` are the pairs, of every kind, that an interrupted gate has stored. A control pair measures the baseline as both arms.
    """
    pairs, other_kinds = [pair for pair in earlier if pair.kind == kind], sum(pair.kind != kind for pair in earlier)
    lengths_s = list[float]()
    while (decision := decide(pairs)) is None:
        number = other_kinds + len(pairs)
        order, arrivals = random_order(seed, number), pair_seed(seed, number)
        usable = sum(pair.invalid is None for pair in pairs)
        observer.pair_started(kind, usable, order, statistics.mean(lengths_s) if lengths_s else None)
        start_ns = clock.now_ns()
        runs = {arm: await run_arm("baseline" if kind == "control" else arm, f"{number:03}-{arm}", arrivals) for arm in order}
        pair = Pair(number=number, kind=kind, seed=arrivals, first=order[0], baseline=runs["baseline"], candidate=runs["candidate"])
        store(pair)
        pairs.append(pair)
        lengths_s.append((clock.now_ns() - start_ns) / NS_PER_S)
        observer.pair_finished(pair)
    return decision
