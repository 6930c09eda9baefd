"""Accepted changes in a gate: how a metric is judged against one, what the verdict says of it, and accepting a verdict. Pure."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

from perfkit.clock import Date
from perfkit.errors import UsageError
from perfkit.gate.metrics import Metric
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.history.accepted import LARGEST_SLOWDOWN, STANDARD_LOADS, AcceptedChange, AcceptedChanges
from perfkit.result.json_file import as_list, as_mapping

_STEP = 0.001  # an accepted slowdown is rounded up to a tenth of a per cent


def lasting_load_point(load_point: str, kind: Literal["closed", "open"]) -> str:
    """The name of a load point of the standard profile that is the same in every gate: its concurrency and rate follow from the trial."""
    return f"{load_point.partition(',')[0]}, {STANDARD_LOADS[kind]}"


def with_acceptance(metric: Metric, accepted: AcceptedChanges) -> Metric:
    """The metric with the accepted change that it is judged against, if there is one that counts."""
    change = accepted.find(metric.name, metric.lasting_load_point or metric.load_point) if metric.is_gated else None
    return metric if change is None else dataclasses.replace(metric, accepted=change)


def acceptance_notes(comparisons: Sequence[Comparison], accepted: AcceptedChanges) -> Iterator[str]:
    """Sentences about the accepted changes that comparisons were judged against, and about those that have expired."""
    for one in comparisons:
        if one.accepted is not None:
            yield (
                f"{one.title}: a slowdown of up to {one.accepted.amount} is accepted until {one.accepted.expires}: "
                f"{_as_end(one.accepted.reason)}"
            )
        elif one.gated and (expired := accepted.find_expired(one.metric, one.lasting_load_point or one.load_point)):
            yield (
                f"{one.title}: the acceptance of a slowdown of up to {expired.amount} expired on {expired.expires}: the regression counts "
                f"again. It was accepted because: {_as_end(expired.reason)}"
            )


def accept_verdict(verdict: Verdict, metrics: Sequence[str], *, reason: str, accepted: Date, expires: Date) -> list[AcceptedChange]:
    """Accepted changes of a verdict's regressed metrics, or of the named ones at each load point where they are slower.

    Up to the upper end of each interval is accepted, rounded up. Raises UsageError if there is nothing to accept, or no upper end.
    """
    if verdict.kind in ("invalid", "incomparable") or not verdict.gated:
        raise UsageError(f"this verdict is {verdict.kind}: it measures no change that could be accepted; run the gate again")
    if unknown := [name for name in metrics if name not in {one.metric for one in verdict.gated}]:
        known = ", ".join(dict.fromkeys(one.metric for one in verdict.gated))
        raise UsageError(f"--metric {unknown[0]}: the verdict does not gate it; it gates {known}")
    chosen = [one for one in verdict.gated if (one.metric in metrics if metrics else one.verdict == "regressed")]
    if not chosen:
        raise UsageError(
            f"this verdict is {verdict.kind}, and no metric has regressed: there is nothing to accept; --metric chooses others"
        )
    commit = _candidate_commit(verdict)
    changes = []
    for one in chosen:
        slowdown = _largest_slowdown(one)
        if slowdown is None or slowdown > LARGEST_SLOWDOWN:
            raise UsageError(
                f"{one.title}: its slowdown has no upper limit that could be accepted: measure more pairs, or choose with --metric"
            )
        if slowdown > 0:
            changes.append(
                AcceptedChange(
                    scenario=verdict.scenario,
                    metric=one.metric,
                    load_point=one.lasting_load_point or one.load_point,
                    slowdown=round(math.ceil(slowdown / _STEP - 1e-9) * _STEP, 6),
                    reason=reason,
                    accepted=accepted,
                    expires=expires,
                    commit=commit,
                )
            )
    if not changes:
        raise UsageError("none of these metrics is slower than the baseline: there is nothing to accept")
    return changes


def _largest_slowdown(one: Comparison) -> float | None:
    """The upper end of the interval as a slowdown; None without one."""
    low, high = one.interval or (None, None)
    if one.scale == "difference":
        return high
    if one.better == "higher":
        return None if not low else 1 / low - 1
    return None if high is None else high - 1


def _candidate_commit(verdict: Verdict) -> str:
    """The commit that the candidate was built from, as far as the verdict knows it; empty if unknown."""
    commits = as_list(as_mapping(verdict.environment.get("candidate")).get("commits"))
    if verdict.mode == "stored":
        return str(commits[0]) if len(commits) == 1 else ""
    return str(as_mapping(verdict.environment.get("source")).get("commit") or "")


def _as_end(reason: str) -> str:
    """A reason as the end of a sentence."""
    text = reason.strip()
    return text if text.endswith((".", "!", "?")) else f"{text}."
