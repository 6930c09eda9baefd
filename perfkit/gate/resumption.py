"""How a gate reports its continuations: why it had ended, how long it paused, and what has changed since. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfkit.clock import Instant, parse_instant
from perfkit.gate.pairs import ARMS, ArmName
from perfkit.gate.verdict import GateFailure, GateResumption
from perfkit.result.fingerprint import environment_differences
from perfkit.result.model import Result
from perfkit.units import format_minutes

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
    """What differs between the environment that a gate's trial stored and that of a later run of an arm, a sentence each.

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
    """Not below zero, even if the clock was set back; 0 if the begin is unknown."""
    try:
        return max((end - parse_instant(begin)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return 0.0
