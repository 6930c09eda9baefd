"""A verdict in words: what its views share."""

from perfkit.report.markdown import WITHHELD
from perfkit.result.verdict import Comparison, Verdict
from perfkit.units import format_duration_ns, format_rate_per_s

OUTCOMES = {
    "pass": "pass: no metric is worse than its margin allows",
    "regressed": "regressed: the candidate is slower",
    "inconclusive": "inconclusive: neither a regression nor its absence is shown",
    "incomparable": "incomparable: the two sides were not measured alike",
    "invalid": "invalid: this measurement cannot be relied on",
}


def finding(one: Comparison) -> str:
    """A line: `p99 +12.3 % [+7.9,+16.8], n=15, MDE 6 %`; of a share in percentage points."""
    is_share, effect = one.scale == "difference", one.minimum_detectable_effect
    unit, digits, origin = ("points", 3, 0.0) if is_share else ("%", 1, 1.0)
    mde = "" if effect is None else f", MDE {100 * effect:.2g} {unit}"
    if one.estimate is None:
        return f"{one.metric} not measured"
    ends = ["?" if end is None else f"{100 * (end - origin):+.{digits}f}" for end in one.interval or (None, None)]
    return f"{one.metric} {100 * (one.estimate - origin):+.{digits}f} {unit} [{ends[0]},{ends[1]}], n={one.pairs}{mde}"


def amount(one: Comparison, value: float | None) -> str:
    """A figure of the metric as people read it."""
    if value is None:
        return WITHHELD
    if one.unit == "share":
        return f"{value:.3%}" if value else "0"
    return format_rate_per_s(value) if one.unit == "per_s" else format_duration_ns(value)


def headline_of(verdict: Verdict) -> str:
    """One line: the outcome, and how small a change would have been found."""
    effect = verdict.minimum_detectable_effect
    found = "" if effect is None else f"; a slowdown of {100 * effect:.2g} % would have been found in 9 of 10 such gates"
    return f"{OUTCOMES[verdict.kind]}{found}"
