"""The bisection of a regression: gates of the good revision against others, to the first one that is slower. It prints nothing.

The first gate is an ordinary paired gate of the bad revision: it shows that there is a regression, and in which metric. The later
ones ask of one revision each on which side of a threshold in that metric it is (`revision_decision`, `perfkit.bisection.threshold`).
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from perfkit.bisection.folder import BisectionFolder
from perfkit.bisection.model import Bisection, RevisionGate
from perfkit.bisection.revisions import Revision
from perfkit.bisection.worktree import RevisionError
from perfkit.clock import Clock
from perfkit.gate.bisect.outcome import BisectionPlan, conclude, describe, search_of, without_threshold
from perfkit.gate.bisect.revision_decision import Answer, Threshold, decide_revision, find_threshold
from perfkit.gate.pairs import Pair
from perfkit.gate.verdict import Verdict, format_change
from perfkit.units import NS_PER_S

_T = TypeVar("_T")
ATTEMPTS = 2
"""How often a gate is measured as long as it is invalid."""


class PairSource(Protocol):
    """Measures the good revision against others (`revision_pairs`); positions count from 0, the good revision."""

    async def gate_of_bad(self) -> Verdict:
        """The verdict of the ordinary gate of the bad revision; an invalid one is measured again once."""

    async def measure(self, position: int, number: int, decide: Callable[[Sequence[Pair]], _T | None]) -> _T:
        """Measure pairs of a revision until `decide` returns a decision; `number` counts the gates. Raises RevisionError if it cannot be measured."""

    async def finish(self) -> None:
        """Remove what only the gates needed."""


async def run_bisection(
    plan: BisectionPlan, folder: BisectionFolder, source: PairSource, message: Callable[[str], None], clock: Clock
) -> Bisection:
    """Measure until the first slower revision is found, or nothing more can be measured; the outcome is stored in the folder.

    `message` gets lines of progress. Raises what a gate raises: TargetError if the good revision's server fails, and CancelledError if it
    is interrupted. The same call with the same folder then continues it.
    """
    search, began_ns = search_of(plan, folder.progress), clock.now_ns()
    message(f"{search.bad} revisions after {plan.good.short}, up to {plan.bad.short}: about {1 + search.most_gates_left} gates")
    message(f"gate 1: {describe(plan.bad)}, which should be slower than {describe(plan.good)}")
    verdict = await source.gate_of_bad()
    threshold, stopped, done = find_threshold(verdict), "", 1
    if threshold is not None:
        one = threshold.comparison
        message(f"  slower, {one.title}: {format_change(one)}; from here on, slower is beyond {threshold.limit}")
    while threshold is not None and (position := (search := search_of(plan, folder.progress, threshold)).next_position) is not None:
        revision, number, left = plan.path[position], len(folder.progress.gates) + 2, search.most_gates_left
        minutes = (clock.now_ns() - began_ns) / NS_PER_S / 60 / done * left
        ends = f", about {minutes:.0f} min left" if minutes >= 1 else ""
        message(f"gate {number} of at most {number + left - 1}{ends}: revision {position} of {search.bad}, {describe(revision)}")
        answer = await _answer(source, position, number, plan, threshold)
        if answer.outcome == "invalid":
            stopped = f"The gate of {describe(revision)} was invalid in {ATTEMPTS} attempts. {answer.reason}."
            break
        folder.add(_gate(position, revision, answer))
        message(f"  {revision.short} {answer.outcome.replace('_', ' ')}: {answer.reason}")
        done += 1
    if threshold is None:
        outcome = without_threshold(plan, folder.progress, verdict)
    else:
        outcome = conclude(plan, folder.progress, verdict, threshold, stopped)
    folder.commit(outcome)
    await source.finish()
    return outcome


async def _answer(source: PairSource, position: int, number: int, plan: BisectionPlan, threshold: Threshold) -> Answer:
    for _ in range(ATTEMPTS):
        try:
            answer = await source.measure(position, number, lambda pairs: decide_revision(pairs, threshold, plan.choice, plan.most_pairs))
        except RevisionError as error:
            return Answer("skipped", f"it {error}")
        if answer.outcome != "invalid":
            break
    return answer


def _gate(position: int, revision: Revision, answer: Answer) -> RevisionGate:
    assert answer.outcome != "invalid"
    one = answer.comparison
    return RevisionGate(
        position=position,
        revision=revision,
        outcome=answer.outcome,
        reason=f"{answer.reason}.",
        pairs=answer.pairs,
        estimate=None if one is None else one.estimate,
        interval=None if one is None else one.interval,
    )
