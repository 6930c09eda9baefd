"""The document of a bisection, `perfkit.bisection/1`, as frozen values.

The JSON keys are the field names: `Bisection.document` writes one, `Bisection.model_validate` reads one. `estimate` and `interval` are
revision ÷ good revision where `scale` is "ratio", and revision − good revision where it is "difference".
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from perfkit.bisection.revisions import Revision
from perfkit.bisection.search import Outcome
from perfkit.result.part import Part

SCHEMA = "perfkit.bisection/1"

BisectionKind = Literal["found", "inconclusive", "incomparable", "invalid"]
Interval = tuple[float | None, float | None]
Scale = Literal["ratio", "difference"]


class Regression(Part):
    """How much slower the bad revision is than the good one, in the metric that decides every later gate."""

    metric: str
    """`throughput`, `p50`, `p95`, `p99`, `error_rate`."""
    load_point: str
    """Protocol and load in words."""
    unit: Literal["per_s", "ns", "share", "count"]
    scale: Scale
    """Whether changes are ratios or differences."""
    pairs: int
    """Those of the first gate."""
    estimate: float
    """The bad revision's change, the Hodges-Lehmann estimate over the pairs."""
    interval: Interval
    """Of the estimate."""
    confidence: float
    """Of the interval, and of those of the gates."""
    threshold: float
    """A revision that is worse than this is slower, any other is not; on the scale."""
    regressed: tuple[str, ...]
    """All metrics in which the bad revision has regressed, as `metric, load point`."""


class RevisionGate(Part):
    """What a gate says of one revision between the good and the bad one, measured against the good one."""

    position: int
    """Counts the revisions after the good one from 1."""
    revision: Revision
    """The commit."""
    outcome: Outcome
    """On which side of the threshold it is, or why that is unknown."""
    reason: str
    """A sentence."""
    pairs: int = 0
    estimate: float | None = None
    """The revision's change, the Hodges-Lehmann estimate over the pairs; None if it was skipped."""
    interval: Interval | None = None
    """Of the estimate."""


class Bisection(Part):
    """The outcome of a bisection."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    kind: BisectionKind
    reasons: tuple[str, ...]
    """Sentences; the first one is the summary."""
    scenario: str
    """The scenario's name."""
    build: str | None
    """The command that builds a revision."""
    serve: str
    """The command that serves it."""
    good: Revision
    """The older one, against which all others are measured."""
    bad: Revision
    """The last one, which should be slower."""
    revisions: int
    """The number of revisions after the good one, up to the bad one."""
    regression: Regression | None = None
    """None if none was shown."""
    gates: tuple[RevisionGate, ...] = ()
    """In the order of measurement, without the first gate, which compares the good revision with the bad one."""
    first_slower: Revision | None = None
    """The first slower revision, if it was found."""
    change: float | None = None
    """That of the first slower revision against the good one."""
    interval: Interval | None = None
    """Of the change."""
    step: float | None = None
    """The change of the first slower revision against the one before it, from the estimates of both."""
    suspects: tuple[Revision, ...] = ()
    """The revisions among which the first slower one is."""
    error_rate: float | None = None
    """Upper bound on the probability that the answer is wrong; None without a regression."""
    started_at: str
    perfkit_version: str = ""
    """The version of perfkit."""
    environment: dict[str, Any] = Field(default_factory=dict)
    """The load generator's environment in the first gate, and what each server reports about itself."""


def format_change(scale: Scale, estimate: float, interval: Interval | None = None) -> str:
    """A change as text: `+12.3 %`, or for a share `+0.50 points`, with an interval `+12.3 % [+7.9, +16.8]`."""

    def percent(value: float | None) -> str:
        return "?" if value is None else f"{100 * (value - 1):+.1f}" if scale == "ratio" else f"{100 * value:+.2f}"

    ends = "" if interval is None else f" [{percent(interval[0])}, {percent(interval[1])}]"
    return f"{percent(estimate)} {'%' if scale == 'ratio' else 'points'}{ends}"
