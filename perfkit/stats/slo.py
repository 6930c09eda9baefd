"""Whether a load point meets its SLO."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, Self

from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentiles import PercentileInterval, is_withheld, minimum_samples
from perfkit.stats.probability import binomial_limits
from perfkit.units import format_duration_ns, format_exact_duration

Verdict = Literal["satisfied", "violated", "inconclusive"]


@dataclasses.dataclass(frozen=True, slots=True)
class SloLimits:
    """The limits of an SLO, by quantile."""

    percentiles_ns: Mapping[float, int]
    """Quantile in (0, 1) → the longest allowed time."""
    error_rate: float | None = None
    """The largest allowed share of failed requests; None without such a limit."""
    wrong_answers: float | None = None
    """The largest allowed share of wrong answers; None without such a limit."""
    first_response_ns: Mapping[float, int] = dataclasses.field(default_factory=dict)
    """Of streams: quantile in (0, 1) → the longest allowed time to the first response."""


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedAnswers:
    """How many answers there were, how many of them were checked at random, and how many of those were wrong."""

    answers: int = 0
    checked: int = 0
    wrong: int = 0

    @property
    def rate(self) -> float | None:
        """The wrong share of those checked; None if there are none."""
        return self.wrong / self.checked if self.checked else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the wrong share of all answers (Clopper and Pearson); a point if all were checked, None if none was."""
        if not self.checked:
            return None
        if self.checked >= self.answers:
            return self.wrong / self.checked, self.wrong / self.checked
        return binomial_limits(self.wrong, self.checked)


@dataclasses.dataclass(frozen=True, slots=True)
class FailedShare:
    """The share of requests that failed; `low` and `high` are the ends of its 95 % interval."""

    estimate: float
    low: float
    high: float

    @classmethod
    def of(cls, error_rate: float, answers: CheckedAnswers) -> Self:
        """That of requests with a counted error rate, if those answers that count as ok unchecked are as often wrong as the checked ones.

        Where no checked answer was wrong, none is taken to be, and the share is the error rate.
        """
        ok, interval = answers.answers - answers.wrong, answers.interval
        if not (answers.wrong and ok and interval):
            return cls(error_rate, error_rate, error_rate)
        wrong = (max(answers.answers * share - answers.wrong, 0.0) for share in (answers.wrong / answers.checked, *interval))
        return cls(*(error_rate + (1 - error_rate) * number / ok for number in wrong))


@dataclasses.dataclass(frozen=True, slots=True)
class FirstResponses:
    """The times to the first response of streams, and the intervals of their percentiles."""

    times: BucketCounts = EMPTY
    intervals: Mapping[float, PercentileInterval] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class SloVerdict:
    """The verdict: `limits` has a verdict and a sentence for each limit, in order; `reason` is one sentence for all."""

    verdict: Verdict
    limits: tuple[tuple[Verdict, str], ...]
    reason: str


def judge_slo(
    slo: SloLimits,
    times: BucketCounts,
    intervals: Mapping[float, PercentileInterval],
    error_rate: float,
    *,
    answers: CheckedAnswers = CheckedAnswers(),
    first_response: FirstResponses = FirstResponses(),
    is_overloaded: bool = False,
    is_not_steady: bool = False,
) -> SloVerdict:
    """The verdict on a load point with its repetitions pooled; `error_rate` is a share of the scheduled requests.

    A percentile is judged by its point estimate; its interval may include the limit. It is inconclusive if it has fewer samples
    than the minimum times the autocorrelation time (just the minimum if it is not in `intervals`). Wrong answers are judged by the
    interval of their share, since only some answers are checked: they are inconclusive if it includes the limit. The SLO is violated if one
    limit is, otherwise inconclusive if one limit is. An overloaded or drifting point violates any SLO with limits, since its
    figures depend on the length of the window. An SLO without limits is satisfied.
    """
    limits = [_judge_percentile(quantile, limit_ns, times, intervals.get(quantile)) for quantile, limit_ns in slo.percentiles_ns.items()]
    for quantile, limit_ns in slo.first_response_ns.items():
        interval = first_response.intervals.get(quantile)
        verdict, sentence = _judge_percentile(quantile, limit_ns, first_response.times, interval)
        limits.append((verdict, f"the first response's {sentence}"))
    if slo.error_rate is not None:
        limits.append(_judge_errors(slo.error_rate, FailedShare.of(error_rate, answers)))
    if slo.wrong_answers is not None:
        limits.append(_judge_answers(slo.wrong_answers, answers))
    verdicts = {verdict for verdict, _ in limits}
    if limits and (is_overloaded or is_not_steady):
        cause = "overloaded" if is_overloaded else "not steady"
        return SloVerdict(
            "violated", tuple(limits), f"The SLO is violated: the target was {cause}, so its figures depend on the length of the window."
        )
    for verdict in ("violated", "inconclusive"):
        if verdict in verdicts:
            sentences = "; ".join(sentence for each, sentence in limits if each == verdict)
            return SloVerdict(verdict, tuple(limits), f"The SLO is {verdict}: {sentences}.")
    sentences = "; ".join(sentence for _, sentence in limits)
    return SloVerdict("satisfied", tuple(limits), f"The SLO is satisfied{f': {sentences}' if sentences else ''}.")


_GROUPED = 1.5  # an autocorrelation time above this is told as the reason why a percentile needs more samples
_MORE_SAMPLES = 1.2  # the autocorrelation time of the next measurement may be larger


def _judge_percentile(quantile: float, limit_ns: int, times: BucketCounts, interval: PercentileInterval | None) -> tuple[Verdict, str]:
    name, count = f"p{round(quantile * 100, 6):g}", times.count
    needed = interval.needed_samples if interval else minimum_samples(quantile)
    reason = ", because slow requests come in groups," if interval and interval.autocorrelation_time > _GROUPED else ""
    lacking = f"{name} needs {needed:,} samples{reason} and has {count:,}"
    longer = f" (measure {math.ceil(10 * _MORE_SAMPLES * needed / count) / 10:,.1f} times as long)" if count else ""
    if is_withheld(quantile, count):
        return "inconclusive", f"{lacking}{longer}"
    value_ns = min(times.values_at([quantile])[0], times.max_ns)
    if count < needed:
        beyond = times.count_above(limit_ns)
        found = f"in which it is {format_duration_ns(value_ns)} and {f'{beyond:,} are' if beyond else 'none is'} above {format_exact_duration(limit_ns)}"
        return "inconclusive", f"{lacking}, {found}{longer}"
    bounds = f" ({_bounds(interval)})" if interval else ""
    if value_ns > limit_ns:
        return "violated", f"{name} is {format_duration_ns(value_ns)}{bounds}, above {format_exact_duration(limit_ns)}"
    return "satisfied", f"{name} is {format_duration_ns(value_ns)}{bounds}, within {format_exact_duration(limit_ns)}"


def _judge_errors(limit: float, failed: FailedShare) -> tuple[Verdict, str]:
    bounds = "" if failed.low == failed.high else f" ({failed.low:.3%} to {failed.high:.3%}, by the wrong ones among the checked answers)"
    found = f"the error rate is {failed.estimate:.3%}{bounds}"
    if failed.low > limit:
        return "violated", f"{found}, above {limit:.3%}"
    return (
        ("satisfied", f"{found}, within {limit:.3%}")
        if failed.high <= limit
        else ("inconclusive", f"{found}, on both sides of {limit:.3%}")
    )


def _judge_answers(limit: float, answers: CheckedAnswers) -> tuple[Verdict, str]:
    interval = answers.interval
    if interval is None:
        return "inconclusive", "no answer was checked for wrong outputs"
    found = f"{answers.wrong:,} of {answers.checked:,} checked answers are wrong"
    low, high = interval
    if low > limit:
        return "violated", f"{found}, which shows more than {limit:.3%}"
    if high <= limit:
        return "satisfied", f"{found}, which shows at most {high:.3%}, within {limit:.3%}"
    return "inconclusive", f"{found}, which shows {low:.3%} to {high:.3%}, on both sides of {limit:.3%}"


def _bounds(interval: PercentileInterval) -> str:
    low = format_duration_ns(interval.low_ns)
    return f"{low} or more" if interval.high_ns is None else f"{low} to {format_duration_ns(interval.high_ns)}"
