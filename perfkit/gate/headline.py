"""A verdict in one line: what regressed or improved, what was ruled out, and what was not. Pure."""

import math
import re
from collections.abc import Callable, Iterable, Sequence

from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, Verdict, format_change

OUTCOMES = {
    "pass": "no metric is worse than its margin allows",
    "regressed": "the candidate is worse",
    "inconclusive": "neither a regression nor its absence is shown",
    "incomparable": "baseline and candidate were measured under different conditions",
    "invalid": "this measurement cannot be relied on",
    "error": "the gate ended without a verdict",
}
"""What each verdict means."""
DECIDED = ("pass", "regressed", "inconclusive")
"""The verdicts that rest on figures."""
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


def _bound(one: Comparison) -> float:
    return math.inf if one.ruled_out_slowdown is None else one.ruled_out_slowdown


def _worst(comparisons: Iterable[Comparison], size: Callable[[Comparison], float]) -> list[Comparison]:
    """Of each metric name the comparison of the largest size."""
    worst: dict[str, Comparison] = {}
    for one in comparisons:
        if one.metric not in worst or size(one) > size(worst[one.metric]):
            worst[one.metric] = one
    return list(worst.values())


def _parted(comparisons: Sequence[Comparison]) -> tuple[list[Comparison], list[Comparison]]:
    """The comparisons of speed, and the others."""
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
