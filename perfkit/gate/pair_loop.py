"""Measures pair after pair until what they say is settled: the order by a coin, a new seed each, every pair kept as it ends."""

import statistics
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from perfkit.clock import Clock
from perfkit.gate.pair import ArmName, ArmRun, Pair, PairKind, draw_order, draw_seed

_T = TypeVar("_T")


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
    settle: Callable[[Sequence[Pair]], _T | None],
    observer: PairObserver,
    clock: Clock,
) -> _T:
    """Measures pairs of one kind behind those that are done, until `settle` makes something of all of that kind.

    `done` are those of an interrupted gate, of every kind. A control pair measures the baseline as both arms.
    """
    pairs, others = [pair for pair in done if pair.kind == kind], sum(pair.kind != kind for pair in done)
    lengths_s = list[float]()
    while (settled := settle(pairs)) is None:
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
