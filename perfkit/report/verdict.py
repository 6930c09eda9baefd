"""A verdict in words: what its views share."""

from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, Verdict, format_change

OUTCOMES = {
    "pass": "pass: no metric is worse than its margin allows",
    "regressed": "regressed: the candidate is slower",
    "inconclusive": "inconclusive: neither a regression nor its absence is shown",
    "incomparable": "incomparable: the two sides were not measured alike",
    "invalid": "invalid: this measurement cannot be relied on",
}


def finding(one: Comparison) -> str:
    """A line: `p99 +12.3 % [+7.9,+16.8], n=15, MDE 6 %`; of a share in percentage points."""
    effect = one.minimum_detectable_effect
    mde = "" if effect is None else f", MDE {f'{100 * effect:.2g} points' if one.scale == 'difference' else _per_cent(effect)}"
    return f"{one.metric} {format_change(one).replace(', ', ',')}, n={one.pairs}{mde}"


def counts(verdict: Verdict) -> str:
    """How much was measured."""
    if verdict.mode == "stored":
        sides = [verdict.environment.get(name) for name in ("baseline", "candidate")]
        runs = [str(side.get("runs", "?")) if isinstance(side, dict) else "?" for side in sides]
        return f"stored results, {runs[0]} against {runs[1]} runs"
    discarded = f", {verdict.discarded_pairs} measured again" if verdict.discarded_pairs else ""
    return f"{verdict.pairs} pairs{discarded}"


def headline_of(verdict: Verdict) -> str:
    """One line: the outcome, and how small a change would have been found."""
    effect = verdict.minimum_detectable_effect
    found = "" if effect is None else f"; a slowdown of {_per_cent(effect)} would have been found in 9 of 10 such gates"
    return f"{OUTCOMES[verdict.kind]}{found}"


def _per_cent(effect: float) -> str:
    return f"more than {100 * MAXIMUM_EFFECT:.0f} %" if effect >= MAXIMUM_EFFECT else f"{100 * effect:.2g} %"
