"""Demands in output tokens: the fewest tokens of a request that the measurement leaves open, with which they become requests."""

import dataclasses
from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.plan.evidence import KEPT_UP, Evidence
from perfkit.plan.inputs import PlanInputs
from perfkit.stats.ratio_interval import Estimate, geometric_mean

_TOLERANCE = 1.1
"""The ratio up to which configurations make about equal numbers of tokens a request, so that the demand in requests of the one with the fewest serves all."""


def tokens_per_request(evidence: Evidence) -> Estimate:
    """The output tokens of a request with their 95 % interval, over the repetitions at which the target kept up; open for a single one.

    Raises UsageError if they are withheld, with the reason.
    """
    measured = [point.measured for point in evidence.open_points if point.state == KEPT_UP]
    name = ", ".join(evidence.sources)
    if not measured or any(point.tokens is None for point in measured):
        raise UsageError(f"{name}: a demand in tokens needs the output tokens of a request, which only results of language models have")
    tokens = [point.tokens for point in measured if point.tokens is not None]
    if any(one.reported < point.requests.ok for one, point in zip(tokens, measured, strict=True)):
        reported, answers = sum(one.reported for one in tokens), sum(point.requests.ok for point in measured)
        raise UsageError(
            f"{name}: the output tokens of a request are withheld, since only {reported:,} of {answers:,} answers report their tokens; let the "
            "server report the usage of all, or give the demand in requests, such as 100/s"
        )
    if any(not one.output for one in tokens):
        raise UsageError(f"{name}: at some rates no output tokens were made; give the demand in requests, such as 100/s")
    spread = geometric_mean([one.output / one.reported for one in tokens])
    mean = sum(one.output for one in tokens) / sum(one.reported for one in tokens)
    low, high = (None if end is None else mean * end / spread.value for end in (spread.low, spread.high))
    return Estimate(mean, low, high)


def in_requests(inputs: PlanInputs, evidence: Sequence[Evidence]) -> PlanInputs:
    """The inputs with demands in requests, if they are in tokens; raises UsageError if the tokens of a request are withheld or differ."""
    if not inputs.is_in_tokens:
        return inputs
    found = [tokens_per_request(one) for one in evidence]
    lowest, highest = min(one.value for one in found), max(one.value for one in found)
    if highest > _TOLERANCE * lowest:
        raise UsageError(
            f"--demand in tokens: the configurations make {lowest:.4g} to {highest:.4g} output tokens a request, so that a number of tokens is another "
            "number of requests for each; plan them separately, or give the demand in requests, such as 100/s"
        )
    tokens, average_per_s = min(found, key=fewest), inputs.average_demand_per_s
    return dataclasses.replace(
        inputs,
        tokens_per_request=tokens,
        demands_per_s=tuple(demand / fewest(tokens) for demand in inputs.demands_per_s),
        average_demand_per_s=None if average_per_s is None else average_per_s / fewest(tokens),
    )


def fewest(tokens: Estimate) -> float:
    """The lower end of the interval of the tokens a request, since fewer tokens are more requests; the estimate where it has no interval."""
    return tokens.value if tokens.low is None else tokens.low
