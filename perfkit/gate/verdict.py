"""The verdict of a gate, `perfkit.verdict/1`, as frozen values: the same for a paired and a stored gate.

The JSON keys are the field names: `Verdict.document` writes a verdict, `Verdict.model_validate` reads one. `estimate` and `interval`
are candidate ÷ baseline where `scale` is "ratio", and candidate − baseline where it is "difference".
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from perfkit.result.part import Part
from perfkit.spans.change import PartChange

SCHEMA = "perfkit.verdict/1"
MAXIMUM_EFFECT = 10.0
"""The largest minimum detectable effect that is reported: eleven times as slow. Larger ones are cut to it."""

VerdictKind = Literal["pass", "regressed", "inconclusive", "incomparable", "invalid"]
MetricVerdict = Literal["pass", "regressed", "inconclusive"]


class Comparison(Part):
    """One metric at one load point, baseline against candidate."""

    metric: str
    """`throughput`, `p50`, `p95`, `p99`, `error_rate`, ..."""
    load_point: str
    """Protocol and load in words, such as `grpc, concurrency 16`; the same in both arms."""
    unit: Literal["per_s", "ns", "share"]
    better: Literal["lower", "higher"]
    scale: Literal["ratio", "difference"] = "ratio"
    gated: bool = True
    """Whether the metric counts for the verdict; otherwise it is for information."""
    baseline: float | None
    """The median over the pairs, in the unit; None if nothing was measured."""
    candidate: float | None
    estimate: float | None
    """The Hodges-Lehmann estimate over the pairs (stored gate: the ratio of geometric means), on the scale."""
    interval: tuple[float | None, float | None] | None
    """Two-sided, at `confidence`; an end is None if there are too few pairs to bound it."""
    confidence: float
    pairs: int
    adjusted_p: float | None = None
    """P-value of the test for a regression, adjusted for metrics and looks; below the verdict's `false_alarm_rate` it is a regression."""
    noise_band: float
    """Changes for the worse up to this size count as no change; on the scale: 0.01 is 1 %, or one percentage point."""
    margin: float
    """A pass must rule out a change for the worse of this size; on the scale."""
    minimum_detectable_effect: float | None = None
    """The slowdown that 9 of 10 gates with this noise would detect, on the scale, at most `MAXIMUM_EFFECT` for a ratio; None if unknown."""
    verdict: MetricVerdict
    reason: str
    """A sentence."""
    baseline_values: tuple[float | None, ...] = ()
    """One value per pair, in the order of measurement."""
    candidate_values: tuple[float | None, ...] = ()

    @property
    def title(self) -> str:
        """Metric and load point, which identify the comparison within a verdict."""
        return f"{self.metric}, {self.load_point}"

    @property
    def slowdown(self) -> float | None:
        """How much worse the candidate is: 0.05 for 5 %, or for 5 percentage points of a difference; negative if it is better."""
        if self.estimate is None:
            return None
        if self.scale == "difference":
            return self.estimate if self.better == "lower" else -self.estimate
        return self.estimate - 1 if self.better == "lower" else 1 / self.estimate - 1


class Verdict(Part):
    """The outcome of a gate."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    kind: VerdictKind
    reasons: tuple[str, ...]
    """Sentences; the first one is the summary."""
    notes: tuple[str, ...] = ()
    """Limits of the verdict that a reader must know before the figures, such as that the servers were not restarted."""
    mode: Literal["paired", "stored"]
    scenario: str
    """The scenario's name."""
    baseline: str
    """The target or the result, without secrets."""
    candidate: str
    false_alarm_rate: float
    """Upper bound on the probability that any gated metric is called regressed although none is worse than its noise band."""
    pairs: int
    looks: tuple[int, ...] = ()
    """The numbers of pairs after which the gate may decide."""
    discarded_pairs: int = 0
    """Pairs measured again because the load generator was the bottleneck in one of their runs."""
    control_pairs: int = 0
    comparisons: tuple[Comparison, ...] = ()
    control: tuple[Comparison, ...] = ()
    """Baseline against baseline, if control pairs were requested."""
    parts: tuple[PartChange, ...] = ()
    """Which parts of the time the candidate changed, if the scenario has `traces`; they do not decide the verdict."""
    started_at: str
    perfkit_version: str = ""
    environment: dict[str, Any] = Field(default_factory=dict)

    @property
    def gated(self) -> tuple[Comparison, ...]:
        """The comparisons that count for the verdict."""
        return tuple(comparison for comparison in self.comparisons if comparison.gated)

    @property
    def minimum_detectable_effect(self) -> float | None:
        """The largest value of the gated ratios, which holds for the gate as a whole; None if one is unknown."""
        effects = [comparison.minimum_detectable_effect for comparison in self.gated if comparison.scale == "ratio"]
        known = [effect for effect in effects if effect is not None]
        return max(known) if known and len(known) == len(effects) else None


def format_change(comparison: Comparison) -> str:
    """The estimate and its interval as text: `+12.3 % [+7.9, +16.8]`, for a share `+0.50 [+0.10, +0.90] points`."""
    if comparison.estimate is None:
        return "not measured"
    is_difference = comparison.scale == "difference"

    def percent(value: float | None) -> str:
        if value is None:
            return "?"
        return f"{100 * value:+.2f}" if is_difference else f"{100 * (value - 1):+.1f}"

    low, high = comparison.interval or (None, None)
    interval = f"[{percent(low)}, {percent(high)}]"
    return f"{percent(comparison.estimate)} {interval} points" if is_difference else f"{percent(comparison.estimate)} % {interval}"
