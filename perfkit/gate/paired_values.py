"""The values of a paired gate's metrics in each pair, and which metrics count. Pure."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfkit.gate.accepted import lasting_load_point, with_acceptance
from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, MARGINS, SECONDARY_MARGINS, Metric, margin_of, unit_of
from perfkit.gate.pairs import ARMS, CPU_FIGURES, FIGURES, PERCENTILES, Pair, error_rate
from perfkit.history.accepted import NOTHING_ACCEPTED, AcceptedChanges
from perfkit.stats.signed_rank import hodges_lehmann, limits

_ALL_POINTS = "all load points"
_MOST_HIDDEN = 0.5  # of a figure
_FEW = 0.29  # of the pairs


@dataclasses.dataclass(frozen=True, slots=True)
class MetricChoice:
    """Which metrics count for the verdict: those in `names`, or for None all but the secondary ones."""

    is_standard: bool = False
    """The standard profile takes throughput only from its closed loop, and percentiles only from its open loop."""
    names: tuple[str, ...] | None = None
    accepted: AcceptedChanges = NOTHING_ACCEPTED
    """The accepted changes of the scenario."""

    def gated(self, kind: Literal["closed", "open"]) -> tuple[str, ...]:
        """The metrics that count at a load point of this kind; the throughput of an open loop is given by its schedule and never counts."""
        percentiles = tuple(name for name in MARGINS if name != "throughput")
        names = percentiles if kind == "open" else ("throughput",) if self.is_standard else ("throughput", *percentiles)
        return tuple(name for name in (*names, *SECONDARY_MARGINS) if name in (names if self.names is None else self.names))

    def gated_metrics(self, load_point: str, kind: Literal["closed", "open"]) -> tuple[Metric, ...]:
        """The metrics that count at a load point."""
        return tuple(Metric(name, load_point, unit_of(name), margin_of(name)) for name in self.gated(kind))


@dataclasses.dataclass(frozen=True, slots=True)
class PairedValues:
    """One metric's values, one per arm and pair, in the order of measurement."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    generator_shares: tuple[float, ...] = ()
    """In each pair, the share of one of the values that may be the load generator's, the larger one; empty without disturbances."""

    @property
    def differences(self) -> list[float]:
        """How much worse the candidate was in each pair."""
        return [self.metric.difference(*values) for values in zip(self.baseline, self.candidate, strict=True)]

    @property
    def estimate(self) -> float:
        """The Hodges-Lehmann estimate of the difference."""
        return float(hodges_lehmann(np.array(self.differences)))

    @property
    def servers_differences(self) -> list[float]:
        """How much worse the candidate's server may have been in each pair: the share of the generator hides as large a share of a slowdown.

        Pairs of which more than half may be the generator's are left out: they say little about the server. Neither depends on which arm
        was disturbed, so the signs of the differences minus a margin are positive with a probability of at least ½ at that margin.
        """
        if not self.generator_shares:
            return self.differences
        return [
            one if one <= 0 or self.metric.is_share else math.log1p(math.expm1(one) / (1 - share))
            for one, share in zip(self.differences, self.generator_shares, strict=True)
            if share <= _MOST_HIDDEN
        ]

    def limits(self, alpha: float) -> tuple[float, float]:
        """The limits of the difference, each at the level 1 - `alpha`: the upper one is that of the servers' own, and infinite for too few pairs."""
        low, high = limits(np.array(self.differences), alpha)[0], limits(np.array(self.servers_differences), alpha)[1]
        return float(low), max(float(high), self.estimate)


def paired_values(pairs: Sequence[Pair], choice: MetricChoice) -> list[PairedValues]:
    """All metrics that every run of the pairs has, and the error rate."""
    values = []
    for index, point in enumerate(pairs[0].baseline.points):
        gated = choice.gated(point.kind)
        for name in (*(FIGURES if point.kind == "closed" else PERCENTILES), *CPU_FIGURES):
            columns = [tuple(value for pair in pairs if (value := pair.runs[arm].points[index].figures.get(name))) for arm in ARMS]
            if all(len(column) == len(pairs) for column in columns):  # only metrics that are not gated can be missing here
                margin = margin_of(name) if name in gated else None
                shares = _generator_shares(pairs, index, name)
                metric = Metric(name, point.load_point, unit_of(name), margin, generator_share=_usual_share(shares))
                if choice.is_standard:
                    metric = dataclasses.replace(metric, lasting_load_point=lasting_load_point(point.load_point, point.kind))
                values.append(PairedValues(with_acceptance(metric, choice.accepted), columns[0], columns[1], shares))
    rates = [tuple(error_rate([pair.runs[arm]]) for pair in pairs) for arm in ARMS]
    errors = with_acceptance(Metric(ERROR_RATE, _ALL_POINTS, "share", ERROR_RATE_BAND), choice.accepted)
    return [*values, PairedValues(errors, *rates)]


def _generator_shares(pairs: Sequence[Pair], index: int, name: str) -> tuple[float, ...]:
    """See `PairedValues.generator_shares`."""
    shares = tuple(max(run.points[index].generator_shares.get(name, 0.0) for run in pair.runs.values()) for pair in pairs)
    return shares if any(shares) else ()


def _usual_share(shares: Sequence[float]) -> float:
    """The share that no more than 29 % of the pairs exceed: so many disturbed ones leave most of the evidence."""
    return sorted(shares)[math.ceil((1 - _FEW) * len(shares)) - 1] if shares else 0.0
