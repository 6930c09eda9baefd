"""The bisection of a regression: gates of the good revision against others, to the first one that is slower. It prints nothing.

The first gate is an ordinary paired gate of the bad revision: it shows that there is a regression, and in which metric. The later
ones ask of one revision each on which side of a threshold in that metric it is (`revision_decision`, `perfkit.bisection.search`).
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import perfkit
from perfkit.bisection.folder import Bisection, BisectionFolder, BisectionKind, Progress, RevisionGate
from perfkit.bisection.revisions import Revision, RevisionError
from perfkit.bisection.search import GATE_ERROR_RATE, LOOKS, Search
from perfkit.clock import Clock
from perfkit.gate.bisect.revision_decision import Answer, Threshold, change_in_words, decide_revision, find_threshold
from perfkit.gate.metrics import Metric, MetricChoice
from perfkit.gate.pairs import Pair
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import Verdict
from perfkit.units import NS_PER_S

_OTHER_PART = 0.25  # of the whole change: from here on, other revisions are said to have a part in it


@dataclasses.dataclass(frozen=True, slots=True)
class BisectionPlan:
    """The input of a bisection: its revisions and the metrics of its gates."""

    path: tuple[Revision, ...]
    """The good revision, and the revisions after it up to the bad one."""
    scenario: str
    """The scenario's name."""
    choice: MetricChoice
    """The metrics of the gates."""
    most_pairs: int = LOOKS[-1]
    """The most pairs of each gate after the first."""

    @property
    def good(self) -> Revision:
        """The good revision."""
        return self.path[0]

    @property
    def bad(self) -> Revision:
        """The bad revision."""
        return self.path[-1]


def search_of(plan: BisectionPlan, progress: Progress, threshold: Threshold | None = None) -> Search:
    """The state of the search; before the first gate there is no threshold."""
    outcomes = {gate.position: gate.outcome for gate in progress.gates}
    return Search(len(plan.path) - 1, outcomes, threshold is None or threshold.is_shown)


def describe(revision: Revision) -> str:
    """A revision in words: `3f2a1bc0de (Wait for the lock)`."""
    return f"{revision.short} ({revision.subject})"


def without_threshold(plan: BisectionPlan, progress: Progress, verdict: Verdict) -> Bisection:
    """The outcome if the first gate shows no regression."""
    good, bad = describe(plan.good), describe(plan.bad)
    first = verdict.reasons[0] if verdict.reasons else ""
    if verdict.kind in ("invalid", "incomparable"):
        kind: BisectionKind = "invalid" if verdict.kind == "invalid" else "incomparable"
        return _bisection(plan, progress, kind, (f"{bad} could not be compared with {good}. {first}", *verdict.reasons[1:]), verdict)
    reasons = [f"There is no regression to search for: {bad} is not shown to be slower than {good}. {first}"]
    faster = [one for one in verdict.gated if one.improved]
    if faster:
        changes = "; ".join(f"{one.title}: {format_change(one)}" for one in faster)
        reasons.append(
            f"{bad} is faster ({changes}). A bisection searches for what became slower: --good is the older and faster revision, --bad the "
            "later and slower one."
        )
    elif verdict.kind == "inconclusive":
        reasons.append("Longer windows (measure.duration) or a quieter machine show smaller changes.")
    return _bisection(plan, progress, "inconclusive", tuple(reasons), verdict)


def conclude(plan: BisectionPlan, progress: Progress, verdict: Verdict, threshold: Threshold, stopped: str) -> Bisection:
    """The outcome after the last gate; `stopped` says why the search ended early, if it did."""
    search = search_of(plan, progress, threshold)
    gates = {gate.position: gate for gate in progress.gates}
    measured = 1 + max(Search(search.bad).most_gates_left, sum(gate.pairs > 0 for gate in progress.gates))
    suspects = tuple(plan.path[position] for position in search.suspects)
    facts: dict[str, Any] = {"regression": threshold.document, "suspects": suspects, "error_rate": measured * GATE_ERROR_RATE}
    if stopped:
        reasons: tuple[str, ...] = (stopped, _remaining(suspects))
        return _bisection(plan, progress, "invalid", reasons, verdict, **facts)
    if (first := search.found) is None:
        return _bisection(plan, progress, "inconclusive", _why_not_found(plan, suspects, gates, search), verdict, **facts)
    before = search.last_good
    metric = threshold.metric
    slower = _difference(metric, gates[first]) if first in gates else threshold.whole
    earlier = 0.0 if before == 0 else _difference(metric, gates[before])
    shown = gates.get(first, threshold.comparison)
    since = "which is the revision before it"
    if before:
        since = f"and {change_in_words(metric, slower - earlier)} against the revision before it, {describe(plan.path[before])}"
    step = f"{metric.name}, {metric.load_point}: {change_in_words(metric, slower, shown.interval)} against {describe(plan.good)}, {since}."
    parts = _other_parts(plan, threshold, slower, earlier, first, before)
    reasons = (f"{describe(plan.path[first])} is the first revision that is slower.", step, *parts)
    if plan.path[first].is_merge:
        reasons += ("It is a merge: its changes are those of the branch that it merged.",)
    return _bisection(
        plan,
        progress,
        "found",
        reasons,
        verdict,
        **facts,
        first_slower=plan.path[first],
        change=shown.estimate,
        interval=shown.interval,
        step=metric.scaled(slower - earlier),
    )


def _difference(metric: Metric, gate: RevisionGate) -> float:
    assert gate.estimate is not None
    return gate.estimate if metric.is_share else metric.difference(1.0, gate.estimate)


def _other_parts(plan: BisectionPlan, threshold: Threshold, slower: float, earlier: float, first: int, before: int) -> tuple[str, ...]:
    """Sentences about the further revisions that contain the rest of the change; none if this revision explains all of it."""
    sentences, whole = [], threshold.whole
    good, bad = plan.good.short, plan.bad.short
    if earlier > _OTHER_PART * whole:
        part = change_in_words(threshold.metric, earlier)
        sentences.append(f"A part of the change ({part}) came in before it: --good {good} --bad {plan.path[before].short} searches there.")
    if whole - slower > _OTHER_PART * whole:
        part = change_in_words(threshold.metric, whole - slower)
        sentences.append(f"A part of the change ({part}) came in after it: --good {plan.path[first].short} --bad {bad} searches there.")
    return tuple(sentences)


def _why_not_found(plan: BisectionPlan, suspects: Sequence[Revision], gates: dict[int, RevisionGate], search: Search) -> tuple[str, ...]:
    open_gates = [
        gates[position] for position in search.suspects if position in gates and gates[position].outcome in ("skipped", "undecided")
    ]
    if not suspects:
        return (f"{describe(plan.bad)} was measured again, and is not slower: the first gate overestimated its change.",)
    sentences = [_remaining(suspects)]
    if skipped := [gate.revision.short for gate in open_gates if gate.outcome == "skipped"]:
        sentences.append(f"Not measured: {', '.join(skipped)}. A build command that works for them lets the search go on.")
    if undecided := [gate.revision.short for gate in open_gates if gate.outcome == "undecided"]:
        sentences.append(f"Undecided: {', '.join(undecided)}. Longer windows (measure.duration) or a quieter machine decide more.")
    return tuple(sentences)


def _remaining(suspects: Sequence[Revision]) -> str:
    if len(suspects) == 1:
        return f"The first slower revision should be {describe(suspects[0])}, but it is not shown to be slower."
    return f"The first slower revision is one of {len(suspects)}: {', '.join(describe(one) for one in suspects)}."


def _bisection(
    plan: BisectionPlan, progress: Progress, kind: BisectionKind, reasons: tuple[str, ...], verdict: Verdict, **facts: Any
) -> Bisection:
    return Bisection(
        kind=kind,
        reasons=reasons,
        scenario=plan.scenario,
        build=progress.inputs.build,
        serve=progress.inputs.serve,
        good=plan.good,
        bad=plan.bad,
        revisions=len(plan.path) - 1,
        gates=progress.gates,
        started_at=progress.started_at,
        perfkit_version=perfkit.__version__,
        environment=verdict.environment,
        **facts,
    )


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
        """Remove the files that only the gates needed."""


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
