"""`perfkit.verdict/1` as frozen values: what a gate says of a candidate against a baseline, whichever way it was measured.

The JSON keys are the field names, so a verdict is written by `verdict_document` and read by `Verdict.model_validate`. Where
`scale` is "ratio", `estimate` and `interval` are candidate ÷ baseline; where it is "difference", candidate − baseline.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from perfkit.result.model import Part

SCHEMA = "perfkit.verdict/1"
MAXIMUM_EFFECT = 10.0
"""As a slowdown, eleven times as slow: what takes more than that to be found stands as this."""

VerdictKind = Literal["pass", "regressed", "inconclusive", "incomparable", "invalid"]
MetricVerdict = Literal["pass", "regressed", "inconclusive"]


class Comparison(Part):
    """One metric at one load point."""

    metric: str
    """`throughput`, `p50`, `p95`, `p99`, `error_rate`, ..."""
    load_point: str
    """Protocol and load in words, such as `grpc, concurrency 16`; the same in both arms."""
    unit: Literal["per_s", "ns", "share"]
    better: Literal["lower", "higher"]
    scale: Literal["ratio", "difference"] = "ratio"
    gated: bool = True
    """Whether it has a say in the verdict; otherwise it is for information."""
    baseline: float | None
    """The median over the pairs, in the unit; None where nothing was measured."""
    candidate: float | None
    estimate: float | None
    """The Hodges-Lehmann estimate over the pairs, on the scale."""
    interval: tuple[float | None, float | None] | None
    """Two-sided, at `confidence`; None at an end that so few pairs do not bound."""
    confidence: float
    pairs: int
    adjusted_p: float | None = None
    """Of the test for a regression, corrected for metrics and looks: below the verdict's `false_alarm_rate` it is one."""
    noise_band: float
    """So much worse counts as no change, on the scale: 0.01 is 1 %, or one percentage point."""
    margin: float
    """So much worse must be ruled out for a pass, on the scale."""
    minimum_detectable_effect: float | None = None
    """So much worse is found in 9 of 10 gates as noisy as this one, on the scale, of a ratio `MAXIMUM_EFFECT` at most; None where it cannot be told."""
    verdict: MetricVerdict
    reason: str
    """A sentence."""
    baseline_values: tuple[float | None, ...] = ()
    """One a pair, in the order of measurement."""
    candidate_values: tuple[float | None, ...] = ()

    @property
    def title(self) -> str:
        """Metric and load point, which together tell it from the others."""
        return f"{self.metric}, {self.load_point}"

    @property
    def slowdown(self) -> float | None:
        """How much worse the candidate is, 0.05 for 5 % (or 5 percentage points of a difference); negative where it is better."""
        if self.estimate is None:
            return None
        if self.scale == "difference":
            return self.estimate if self.better == "lower" else -self.estimate
        return self.estimate - 1 if self.better == "lower" else 1 / self.estimate - 1


class Verdict(Part):
    """What a gate came to. `reasons` are sentences, of which the first says most; `notes` are to be read before the figures."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    kind: VerdictKind
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the verdict covers and what it does not, such as that servers were not restarted."""
    mode: Literal["paired", "stored"]
    scenario: str
    """Its name."""
    baseline: str
    """The target or the result, without secrets."""
    candidate: str
    false_alarm_rate: float
    """The chance that any gated metric is called regressed though none is worse than its noise band, as the rule bounds it."""
    pairs: int
    looks: tuple[int, ...] = ()
    """The numbers of pairs at which the rule was, or would have been, asked."""
    discarded_pairs: int = 0
    """Measured again, since the load generator was the bottleneck in one of their runs."""
    control_pairs: int = 0
    comparisons: tuple[Comparison, ...] = ()
    control: tuple[Comparison, ...] = ()
    """Baseline against baseline, where that was asked for."""
    started_at: str
    perfkit_version: str = ""
    environment: dict[str, Any] = Field(default_factory=dict)

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    @property
    def gated(self) -> tuple[Comparison, ...]:
        """The comparisons that decided."""
        return tuple(one for one in self.comparisons if one.gated)

    @property
    def minimum_detectable_effect(self) -> float | None:
        """The largest among the gated ratios: the gate as a whole finds that."""
        effects = [one.minimum_detectable_effect for one in self.gated if one.scale == "ratio"]
        known = [effect for effect in effects if effect is not None]
        return max(known) if known and len(known) == len(effects) else None


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """The verdict as plain values, in the order of the schema."""
    return verdict.model_dump(mode="json", by_alias=True)


def format_change(made: Comparison) -> str:
    """The estimate and its interval as people read them: `+12.3 % [+7.9, +16.8]`, of a share `+0.50 [+0.10, +0.90] points`."""
    if made.estimate is None:
        return "not measured"
    estimate, low, high = (_in_per_cent(made, value) for value in (made.estimate, *(made.interval or (None, None))))
    return f"{estimate} [{low}, {high}] points" if made.scale == "difference" else f"{estimate} % [{low}, {high}]"


def _in_per_cent(made: Comparison, value: float | None) -> str:
    if value is None:
        return "?"
    return f"{100 * value:+.2f}" if made.scale == "difference" else f"{100 * (value - 1):+.1f}"
