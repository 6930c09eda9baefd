"""The pairs of a paired gate: the records that a gate stores, and the loop that measures pair after pair.

A pair is one run of each arm, in random order.
"""

import dataclasses
import random
import statistics
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Annotated, Literal, Protocol, Self, TypeAlias, TypeVar

from pydantic import Field, model_validator

from perfkit.clock import Clock, utc_now
from perfkit.errors import MeasurementWarning
from perfkit.gate.verdict import MOST, GeneratorLoad, Seconds, Value
from perfkit.result.distribution import QUANTILES
from perfkit.result.file import SERVER_LOG
from perfkit.result.model import Point, Result
from perfkit.result.part import Part
from perfkit.spans.breakdown import BANDS, Breakdown, PartMeans
from perfkit.stats.slo import FailedShare
from perfkit.stats.validity import COLD, INVALIDATING
from perfkit.units import NS_PER_S

_T = TypeVar("_T")
ArmName = Literal["baseline", "candidate"]
PairKind = Literal["pair", "control"]
ArmRunner: TypeAlias = Callable[["Stage", int], Awaitable["ArmRun"]]
"""Measures one run of an arm, from its place in the gate and the seed."""
ARMS: tuple[ArmName, ...] = ("baseline", "candidate")
PERCENTILES = ("p50", "p95", "p99", "p99_9")
FIGURES = ("throughput", *PERCENTILES)
CPU_FIGURES = ("cpu_time", "instructions")
"""What a request costs the server; absent from runs of a server that perfkit did not start."""
PART_FIGURES = ("first_response_p50", "first_response_p99", "first_token_p50", "first_token_p99", "per_token_p50", "per_token_p99")
"""Percentiles of the times of parts of streamed answers."""

_STORED_WARNINGS = {*INVALIDATING, "not_steady", "overloaded", "failed_requests"}
_DISTURBANCES = {"generator_stopped", "late_starts"}
_NEXT_PERCENTILE = {"p50": "p90", "p95": "p99", "p99": "p99_9", "p99_9": "max"}


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """The place of a run in its gate."""

    arm: ArmName
    phase: str
    """`trial`, `pair 3` or `control pair 1`."""
    run: str
    """Begins the names of the run's result folders and of its server's log."""

    @property
    def log_name(self) -> str:
        """The name of the server's log."""
        return f"{self.run}.{SERVER_LOG}"


class RunPoint(Part):
    """What a gate stores of one load point of a run."""

    load_point: str
    """Protocol and load in words; the same in both arms."""
    kind: Literal["closed", "open"]
    valid: bool
    warnings: tuple[MeasurementWarning, ...] = ()
    duration_s: float = 0.0
    scheduled: Annotated[int, Field(le=MOST)]
    failed: Annotated[int, Field(ge=0)]
    checked: Annotated[int, Field(ge=0)] = 0
    """How many answers were checked at random; `wrong` of them were wrong, which are among the failed."""
    wrong: Annotated[int, Field(ge=0)] = 0
    figures: dict[str, Value | None]
    """`throughput` per second, percentiles and `cpu_time` in nanoseconds, `instructions`; None if there are too few samples for one, or if it
    was not measured."""
    parts_ns: dict[str, dict[str, int]] | None = None
    """The mean parts of traced requests by percentile, those with enough samples; None without `traces`."""
    generator: GeneratorLoad | None = None
    generator_shares: dict[str, float] = Field(default_factory=dict)
    """If other processes disturbed the load generator: for each figure, the highest share of it that may be the generator's."""

    @model_validator(mode="after")
    def _check_failed(self) -> Self:
        if self.failed > self.scheduled:
            raise ValueError(f"{self.failed} failed of {self.scheduled} scheduled requests")
        if self.wrong > self.checked:
            raise ValueError(f"{self.wrong} wrong of {self.checked} checked answers")
        return self


class ArmRun(Part):
    """One run of an arm: its load points, measured one after the other on the same server process."""

    points: tuple[RunPoint, ...]

    @property
    def invalid(self) -> MeasurementWarning | None:
        """Why the figures of one of the points cannot be used; None if those of all can.

        Those of a cold target can: a candidate that starts slowly would lose just the pairs that show it.
        """
        for point in self.points:
            if (cause := blocking_warning(point, {*_DISTURBANCES, COLD})) is not None:
                return MeasurementWarning(code=cause.code, message=f"{point.load_point}: {cause.message}")
        return None

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes disturbed the load generator, so that a part of its figures may be the generator's."""
        return any(point.generator_shares for point in self.points)


class Pair(Part):
    """One run of each arm."""

    number: int
    """Counts all pairs of the gate from 0: discarded ones and control pairs as well."""
    kind: PairKind
    """Whether it compares the candidate, or the baseline with itself."""
    seed: int
    """The seed of the requests and arrivals, the same in both runs."""
    first: ArmName
    baseline: ArmRun
    candidate: ArmRun
    """In a control pair, a second baseline run."""
    took_s: Seconds = 0.0
    """The time from the start of its first run to the end of its second one."""
    ended_at: str = ""
    """The wall-clock time of its end."""

    @property
    def runs(self) -> dict[ArmName, ArmRun]:
        """The runs by arm."""
        return {"baseline": self.baseline, "candidate": self.candidate}

    @property
    def invalid(self) -> MeasurementWarning | None:
        """Why the pair is discarded; None if it is usable. The rule treats both arms alike, so it favours neither."""
        return self.baseline.invalid or self.candidate.invalid

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes disturbed the load generator in one of the runs."""
        return self.baseline.is_disturbed or self.candidate.is_disturbed


class GateObserver(Protocol):
    """Receives the progress of a gate."""

    def message(self, text: str) -> None:
        """A line of progress during the trial."""

    def run_started(self, stage: Stage) -> None:
        """A run of an arm starts."""

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


def mean_length_s(pairs: Sequence[Pair]) -> float | None:
    """The mean length of pairs; None if there are none, or if none says how long it took."""
    return statistics.mean(lengths_s) if (lengths_s := [pair.took_s for pair in pairs if pair.took_s]) else None


def failed_share(runs: Sequence[ArmRun]) -> FailedShare:
    """The share of failed requests among all that were scheduled in the runs; the answers of each load point are a sample of their own."""
    counts = dict[str, list[tuple[int, int, int, int]]]()
    for run in runs:
        for point in run.points:
            counts.setdefault(point.load_point, []).append((point.scheduled, point.failed, point.checked, point.wrong))
    sums = [tuple(map(sum, zip(*ones, strict=True))) for ones in counts.values()]
    return FailedShare.over([(scheduled, FailedShare.of_counts(scheduled, *others)) for scheduled, *others in sums])


def blocking_warning(point: RunPoint | Point, allowed: Collection[str] = _DISTURBANCES) -> MeasurementWarning | None:
    """Why the figures of a load point cannot be used; None if they can, or if only `allowed` codes speak against them.

    Disturbances by other processes do not block: they hit both arms alike, so they call no unchanged candidate slower. They may
    hide a slowdown, which `generator_shares` bounds.
    """
    causes = [warning for warning in point.warnings if warning.code in INVALIDATING]
    if point.valid or (causes and all(warning.code in allowed for warning in causes)):
        return None
    unsent = MeasurementWarning(code="invalid", message="nothing was sent.")
    return next((warning for warning in causes if warning.code not in allowed), unsent)


def arm_run(results: Sequence[Result]) -> ArmRun:
    """What a gate stores of one run, from the run's results; each result holds one repetition."""
    return ArmRun(points=tuple(run_point(point) for result in results for point in result.points))


def run_point(point: Point) -> RunPoint:
    """What a gate stores of one window."""
    return RunPoint(
        load_point=point.title,
        kind="closed" if point.load.kind == "closed" else "open",
        valid=point.valid,
        warnings=tuple(warning for warning in point.warnings if warning.code in _STORED_WARNINGS),
        duration_s=point.duration_s,
        scheduled=point.requests.judged,
        failed=point.requests.failed,
        checked=point.checked_answers.checked,
        wrong=point.checked_answers.wrong,
        figures={name: value for name, (_, value) in point.compared(PERCENTILES).items()},
        parts_ns=None if point.breakdown is None else _parts_ns(point.breakdown),
        generator=GeneratorLoad(
            cpu_share=point.generator.cpu_share, machine_cpu_share=point.generator.machine_cpu_share, others=point.generator.others
        ),
        generator_shares=_generator_shares(point) if _DISTURBANCES & {warning.code for warning in point.warnings} else {},
    )


def _generator_shares(point: Point) -> dict[str, float]:
    """For each figure, the highest share of it that may be the generator's.

    Throughput: the share of the window in which the generator stood still. Percentiles of an open loop: twice the delay of starts at
    the next higher percentile, since an answer may be read as late as its request was sent. Percentiles of a closed loop: all, if the
    stops touched half as many requests as lie above the percentile.
    """
    stops, times, delays = point.generator.stops, point.times, point.start_delay_ns
    shares = {"throughput": 0.0 if stops is None else min(1.0, stops.total_ns / NS_PER_S / max(point.duration_s, 1e-9))}
    for name in PERCENTILES:
        if delays is not None:
            delay, value = getattr(delays, _NEXT_PERCENTILE[name]) or delays.max, getattr(times, name)
            shares[name] = min(1.0, 2 * delay / value) if value else 1.0
        else:
            touched = 0 if stops is None else stops.touched_requests
            shares[name] = 1.0 if touched >= (1 - QUANTILES[name]) / 2 * times.count else 0.0
    return shares


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

    `earlier` are the pairs, of every kind, that an interrupted gate has stored. A pair that was not whole is measured again with the same
    order and seed, since both follow from its number. A control pair measures the baseline as both arms.
    """
    pairs, other_kinds = [pair for pair in earlier if pair.kind == kind], sum(pair.kind != kind for pair in earlier)
    while (decision := decide(pairs)) is None:
        number = other_kinds + len(pairs)
        order, arrivals = random_order(seed, number), pair_seed(seed, number)
        usable = sum(pair.invalid is None for pair in pairs)
        observer.pair_started(kind, usable, order, mean_length_s(pairs))
        start_ns = clock.now_ns()
        phase = f"{'control ' * (kind == 'control')}pair {usable + 1}"
        stages = {arm: Stage("baseline" if kind == "control" else arm, phase, f"{number:03}-{arm}") for arm in order}
        runs = {arm: await run_arm(stage, arrivals) for arm, stage in stages.items()}
        pair = Pair(
            number=number,
            kind=kind,
            seed=arrivals,
            first=order[0],
            baseline=runs["baseline"],
            candidate=runs["candidate"],
            took_s=(clock.now_ns() - start_ns) / NS_PER_S,
            ended_at=utc_now().isoformat(timespec="milliseconds"),
        )
        store(pair)
        pairs.append(pair)
        observer.pair_finished(pair)
    return decision
