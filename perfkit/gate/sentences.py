"""The sentences of a gate: its verdict in one line, why it ended without one, and how it was continued. Pure."""

import asyncio
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfkit.clock import Instant, parse_instant
from perfkit.errors import MeasurementError, PerfkitError, ServerFailedError, TargetError
from perfkit.gate.pairs import ARMS, ArmName, Stage
from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, FailureCause, GateFailure, GateResumption, GeneratorLoad, Verdict
from perfkit.process.child import signal_name
from perfkit.result.fingerprint import environment_differences
from perfkit.result.model import Result
from perfkit.text import one_line, sentence
from perfkit.units import format_minutes, format_signed_change

OUTCOMES = {
    "pass": "no metric is worse than its margin allows",
    "regressed": "the candidate is worse",
    "inconclusive": "neither a regression nor its absence is shown",
    "incomparable": "baseline and candidate were measured under different conditions",
    "invalid": "this measurement cannot be relied on",
    "error": "the gate ended without a verdict",
}
"""The meaning of each verdict."""
DECIDED = ("pass", "regressed", "inconclusive")
"""The verdicts that rest on figures."""
_DISTURBING_CPUS = 0.1
_PERCENTILE = re.compile(r"p\d")


def headline(verdict: Verdict) -> str:
    """The verdict and its finding: `pass: no slowdown above 2.2 % of throughput, 4.1 % of p99`."""
    return f"{verdict.kind}: {finding(verdict)}"


def finding(verdict: Verdict) -> str:
    """What was found and what was ruled out; of each metric name the worst load point. Without figures, what the verdict means."""
    gated = verdict.gated
    if not gated or verdict.kind not in DECIDED:
        return OUTCOMES[verdict.kind]
    by_outcome = {
        outcome: [one for one in gated if one.outcome == outcome] for outcome in ("regressed", "improved", "inconclusive", "pass")
    }
    undecided = _worst(by_outcome["inconclusive"], _bound)
    faster, better = _parted(_worst(by_outcome["improved"], lambda one: -(one.slowdown or 0.0)))
    parts = [
        ", ".join(map(_change, _worst(by_outcome["regressed"], lambda one: one.slowdown or 0.0))),
        f"faster: {', '.join(map(_change, faster))}" if faster else "",
        f"better: {', '.join(map(_change, better))}" if better else "",
    ]
    if verdict.kind != "regressed":
        open_metrics = {one.metric for one in undecided}
        parts.append(_ruled_out([one for one in by_outcome["pass"] if one.metric not in open_metrics]))
        parts.append(f"not ruled out: {', '.join(map(_possible, undecided))}" if undecided else "")
    accepted = [
        one for one in _worst(gated, lambda one: 0.0 if one.accepted is None else one.accepted.slowdown) if one.accepted is not None
    ]
    parts.append(f"accepted: {', '.join(map(_accepted, accepted))}" if accepted else "")
    return "; ".join(part for part in parts if part) or OUTCOMES[verdict.kind]


def metric_title(metric: str) -> str:
    """A metric's name in text: `p99.9`, `error rate`."""
    return metric.replace("_", "." if _PERCENTILE.match(metric) else " ")


def format_size(one: Comparison, size: float) -> str:
    """The size of a change for the worse: `4.1 %`, or `0.02 points` of a share; a change for the better counts as none."""
    if one.scale == "difference":
        return f"{100 * max(size, 0.0):.2f} points"
    return f"{100 * max(size, 0.0):.1f} %"


def worst_of(verdict: Verdict) -> Comparison | None:
    """The gated metric that the verdict is told by: of those with its outcome the largest regression, or the largest slowdown that is not ruled out."""
    told = [one for one in verdict.gated if one.outcome == verdict.kind] or list(verdict.gated)
    ratios = [one for one in told if one.scale == "ratio"] or told
    return max(ratios, key=(lambda one: one.slowdown or 0.0) if verdict.kind == "regressed" else _bound, default=None)


def _bound(one: Comparison) -> float:
    return math.inf if one.ruled_out_slowdown is None else one.ruled_out_slowdown


def _worst(comparisons: Iterable[Comparison], size: Callable[[Comparison], float]) -> list[Comparison]:
    """The comparison of the largest size for each metric name."""
    worst: dict[str, Comparison] = {}
    for one in comparisons:
        if one.metric not in worst or size(one) > size(worst[one.metric]):
            worst[one.metric] = one
    return list(worst.values())


def _parted(comparisons: Sequence[Comparison]) -> tuple[list[Comparison], list[Comparison]]:
    """The comparisons of speed, and those of the error rate and the like."""
    speeds = [one for one in comparisons if one.metric == "throughput" or _PERCENTILE.match(one.metric)]
    return speeds, [one for one in comparisons if one not in speeds]


def _change(one: Comparison) -> str:
    return f"{metric_title(one.metric)} {format_change(one)}"


def _ruled_out(passed: Sequence[Comparison]) -> str:
    """`no slowdown above 2.2 % of throughput, 4.1 % of p99; no rise of the error rate above 0.02 points`."""
    speeds, others = _parted(_worst(passed, _bound))
    listed = ", ".join(f"{format_size(one, _bound(one))} of {metric_title(one.metric)}" for one in speeds)
    rises = [f"no rise of the {metric_title(one.metric)} above {format_size(one, _bound(one))}" for one in others]
    return "; ".join([*([f"no slowdown above {listed}"] if listed else []), *rises])


def _accepted(one: Comparison) -> str:
    """`p99 worse by up to 12.4 % until 2027-01-31`."""
    assert one.accepted is not None
    return f"{metric_title(one.metric)} worse by up to {one.accepted.amount} until {one.accepted.expires}"


def _possible(one: Comparison) -> str:
    """What is possible of an undecided metric: `p99 worse by up to 14.0 % (margin 10 %)`."""
    margin = f"{100 * one.margin:g} {'points' if one.scale == 'difference' else '%'}"
    size = "any amount" if _bound(one) >= MAXIMUM_EFFECT else f"up to {format_size(one, _bound(one))}"
    return f"{metric_title(one.metric)} worse by {size} (margin {margin})"


def format_change(comparison: Comparison) -> str:
    """The estimate and its interval as text: `+12.3 % [+7.9, +16.8]`, for a share `+0.50 points [+0.10, +0.90]`."""
    if comparison.estimate is None:
        return "not measured"
    return format_signed_change(comparison.scale, comparison.estimate, comparison.interval or (None, None))


def describe_others(load: GeneratorLoad) -> str:
    """A sentence, with a space after it, about the processes that used the machine besides the load generator; empty if none did."""
    if load.others is None or load.others.cpus < _DISTURBING_CPUS:
        return ""
    named = ", ".join(f"{one.name} (pid {one.pid}) {one.cpus:.0%} of a CPU" for one in load.others.busiest)
    busy = "" if load.machine_cpu_share is None else f", the machine's CPUs {load.machine_cpu_share:.0%}"
    target = ", among them perhaps the target" if load.others.may_include_target else ""
    return (
        f"Processes besides perfkit and the target used {load.others.cpus:.1f} CPUs{target}{f': {named}' if named else ''}; the load generator "
        f"itself kept {load.cpu_share:.0%} of a core busy{busy}. "
    )


def failure_of(error: BaseException, stage: Stage | None, log: str | None = None) -> GateFailure:
    """Why an error ended a gate in the run `stage`, None before the first; `log` is the file with what the run's server wrote."""
    if not isinstance(error, PerfkitError):
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        is_end = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
        return _failure("interrupted", "perfkit was interrupted", stage, log) if is_end else _failure("internal", what, stage, log)
    if not isinstance(error, TargetError):
        return _failure("measurement" if isinstance(error, MeasurementError) else "usage", str(error), stage, log)
    if not isinstance(error, ServerFailedError):
        return _failure("server", str(error), stage, log)
    ended = {} if error.status is None else {"exit_code": error.status} if error.status >= 0 else {"signal": signal_name(error.status)}
    lines = tuple(one_line(line) for line in error.last_lines)
    return _failure("server", error.what, stage, log).model_copy(update={**ended, "last_lines": lines})


def interruption(signal: str, exit_code: int, stage: Stage | None, log: str | None) -> GateFailure:
    """The sentence that a signal, such as SIGTERM, ended perfkit with an exit code."""
    failure = _failure("interrupted", f"perfkit was interrupted by {signal}", stage, log)
    return failure.model_copy(update={"signal": signal, "exit_code": exit_code})


def unfinished(stage: Stage | None, pairs: int, log: str | None) -> GateFailure:
    """The sentence that is written while a gate runs, and remains if the gate is killed."""
    done = f"{pairs} pair{'s' * (pairs != 1)} so far" if stage is not None else "nothing is measured yet"
    what = f"the gate has not finished: {done}; if no perfkit is running here, it was killed"
    return _failure("unfinished", what, stage, log)


def _failure(cause: FailureCause, what: str, stage: Stage | None, log: str | None) -> GateFailure:
    if stage is None:
        return GateFailure(cause=cause, reason=_as_sentence(what))
    place = f"in {'the ' * (stage.phase == 'trial')}{stage.phase}"
    begin = f"The {stage.arm} failed {place}" if cause == "server" else f"{place[0].upper()}{place[1:]}, {stage.arm}"
    return GateFailure(cause=cause, reason=_as_sentence(f"{begin}: {what}"), arm=stage.arm, phase=stage.phase, log=log)


def _as_sentence(text: str) -> str:
    text = sentence(text)
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '…')) else '.'}"


_KILLED = "perfkit was killed, or its machine was gone"
_MOST_TOLD = 5
_OF_EACH_RUN = {"telemetry", "fleet"}
"""Parts of an environment that describe a run."""


def resumption_of(failure: GateFailure | None, now: Instant, after_pairs: int, last_ended_at: str, set_aside: str) -> GateResumption:
    """The resumption of a gate that this failure had ended; None for one that was killed between verdict and end.

    `last_ended_at` is the end of what counts, empty if unknown; `set_aside` is the folder of a pair that was not whole, empty without one.
    """
    is_killed = failure is None or failure.cause == "unfinished"
    phase = "" if failure is None else failure.phase
    where = f"in {phase}, " if set_aside and phase else ""
    return GateResumption(
        at=now.isoformat(timespec="milliseconds"),
        after_pairs=after_pairs,
        paused_s=_seconds_between(last_ended_at, now),
        cause="unfinished" if failure is None else failure.cause,
        reason=f"{where}{_KILLED}." if failure is None or is_killed else failure.quoted_reason,
        measured_again=(phase or "the pair under way") if set_aside else "",
        set_aside=set_aside,
    )


def resumption_notes(resumptions: Sequence[GateResumption]) -> Iterator[str]:
    """Sentences that a reader of the verdict must know before its figures."""
    for one in resumptions[:_MOST_TOLD]:
        yield describe_resumption(one)
    if len(resumptions) > _MOST_TOLD:
        yield f"The gate was continued {len(resumptions)} times in all; verdict.json lists each (resumptions)."
    if any(one.cause == "server" for one in resumptions):
        yield "A server failed before a continuation: the figures are those of the whole pairs, without that failure."


def describe_resumption(one: GateResumption) -> str:
    """A continuation in sentences."""
    pairs = f"{one.after_pairs} pair{'s' * (one.after_pairs != 1)}"
    again = ""
    if one.measured_again:
        what = f"{one.measured_again[0].upper()}{one.measured_again[1:]}"
        again = f" {what} was not whole, and is measured again: what it had measured ({one.set_aside}) does not count."
    changes = ""
    if one.changes:
        more = f"; and {len(one.changes) - _MOST_TOLD} more" if len(one.changes) > _MOST_TOLD else ""
        changes = f" Since the trial, there are other conditions: {'; '.join(one.changes[:_MOST_TOLD])}{more}."
    return f"The gate was continued after {pairs} and a pause of {format_minutes(one.paused_s)}. It had ended early: {one.reason}{again}{changes}"


def changes_since(environment: Mapping[str, Any], arm: ArmName, result: Result) -> tuple[str, ...]:
    """The differences between the environment that a gate's trial stored and that of a later run of an arm, a sentence each.

    Digests of requests are left out: each pair has its own seed.
    """
    before = {**{name: value for name, value in environment.items() if name not in (*ARMS, "model")}, "target": environment.get(arm)}
    both = [
        result.model_copy(update={"environment": {name: value for name, value in one.items() if name not in _OF_EACH_RUN}})
        for one in (before, result.environment)
    ]
    return tuple(
        f"{arm}: {one.sentence}" if one.key.startswith("target.") else one.sentence
        for one in environment_differences(*both)
        if not one.key.endswith(".payload_sha256")
    )


def _seconds_between(begin: str, end: Instant) -> float:
    """The length in seconds, not below zero even if the clock was set back; 0 if the begin is unknown."""
    try:
        return max((end - parse_instant(begin)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return 0.0
