"""Whether a load point meets its SLO."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal, Self

from perfkit.stats.batch_means import Precision
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentiles import PercentileInterval, is_withheld, precision_above
from perfkit.stats.probability import binomial_cdf, binomial_limits
from perfkit.units import format_duration_ns, format_exact_duration

FURTHER = {
    "first_response_time": "the first response's",
    "first_token_time": "the first token's",
    "time_per_output_token": "the time per output token's",
}
"""The times besides that of the whole answer that may have limits, by the names under which they are recorded, in words."""
Verdict = Literal["satisfied", "violated", "inconclusive"]
_ERROR = 0.025
"""The chance of a wrong verdict either way, in a run."""


@dataclasses.dataclass(frozen=True, slots=True)
class SloLimits:
    """The limits of an SLO, by quantile."""

    percentiles_ns: Mapping[float, int]
    """Quantile in (0, 1) → the longest allowed time."""
    error_rate: float | None = None
    """The largest allowed share of failed requests; None without such a limit."""
    wrong_answers: float | None = None
    """The largest allowed share of wrong answers; None without such a limit."""
    further_ns: Mapping[str, Mapping[float, int]] = dataclasses.field(default_factory=dict)
    """For each of `FURTHER`, quantile in (0, 1) → the longest allowed time."""


@dataclasses.dataclass(frozen=True, slots=True)
class CheckedAnswers:
    """How many answers there were, how many of them were checked at random, and how many of those were wrong."""

    answers: int = 0
    checked: int = 0
    wrong: int = 0
    refused: int = 0
    """Further answers, in which an error, another model's name or a broken message was found without a check."""

    @property
    def rate(self) -> float | None:
        """The wrong share of those checked; None if there are none."""
        return self.wrong / self.checked if self.checked else None

    def share_of_all(self, wrong: float) -> float:
        """The wrong share of all answers, from that of the answers that are checked at random."""
        return (self.refused + wrong * self.answers) / max(self.refused + self.answers, 1)

    def interval(self, error: float = _ERROR) -> tuple[float, float] | None:
        """The interval of the wrong share of the answers (Clopper and Pearson), wrong with probability `error` on either side.

        A point if all were checked, None if none was.
        """
        if not self.checked:
            return None
        if self.checked >= self.answers:
            return self.wrong / self.checked, self.wrong / self.checked
        return binomial_limits(self.wrong, self.checked, 1 - 2 * error)


@dataclasses.dataclass(frozen=True, slots=True)
class FailedShare:
    """The share of requests that failed; `low` and `high` are the ends of its 95 % interval."""

    estimate: float
    low: float
    high: float
    dispersion: float = 1.0
    """The variance of the number of failed requests ÷ its mean: 1 if all were counted, more where wrong answers are extrapolated from a sample."""

    @classmethod
    def of(cls, error_rate: float, answers: CheckedAnswers, error: float = _ERROR) -> Self:
        """The share of failed requests with a counted error rate, if those answers that count as ok unchecked are as often wrong as the checked ones.

        Where no checked answer was wrong, none is taken to be, and the share is the error rate.
        """
        ok, interval = answers.answers - answers.wrong, answers.interval(error)
        if not (answers.wrong and ok and interval):
            return cls(error_rate, error_rate, error_rate)
        wrong = (max(answers.answers * share - answers.wrong, 0.0) for share in (answers.wrong / answers.checked, *interval))
        estimate, low, high = (error_rate + (1 - error_rate) * number / ok for number in wrong)
        stands_for = answers.answers / answers.checked
        sampled, counted = stands_for * answers.wrong, max(error_rate / (1 - error_rate) * ok - answers.wrong, 0.0)
        return cls(estimate, low, high, (counted + stands_for * sampled) / (counted + sampled))

    @classmethod
    def of_counts(cls, scheduled: int, failed: int, checked: int, wrong: int) -> Self:
        """The share of failed requests by their counts; of the checked answers, the wrong ones are failed."""
        return cls.of(failed / scheduled if scheduled else 0.0, CheckedAnswers(scheduled - failed + wrong, checked, wrong))

    @classmethod
    def over(cls, parts: Sequence[tuple[int, Self]]) -> Self:
        """The share over several groups of scheduled requests together, each with a sample of its own; the interval is no narrower than 95 %."""
        scheduled = sum(number for number, _ in parts)
        if not scheduled:
            return cls(0.0, 0.0, 0.0)
        failed, low, high, variance = (
            sum(number * value for number, value in zip((number for number, _ in parts), values, strict=True))
            for values in zip(*((one.estimate, one.low, one.high, one.estimate * one.dispersion) for _, one in parts), strict=True)
        )
        return cls(failed / scheduled, low / scheduled, high / scheduled, variance / failed if failed else 1.0)

    def in_words(self, decimals: int) -> str:
        """The share as per cent, with its interval if there is one."""
        if self.low == self.high:
            return f"{self.estimate:.{decimals}%}"
        bounds = f"{self.low:.{decimals}%} to {self.high:.{decimals}%}"
        return f"{self.estimate:.{decimals}%} ({bounds}, by the wrong ones among the checked answers)"

    def independent(self, scheduled: int) -> tuple[float, float]:
        """The failed and all of as many independent requests as tell what these do; not whole numbers."""
        return self.estimate * scheduled / self.dispersion, scheduled / self.dispersion


@dataclasses.dataclass(frozen=True, slots=True)
class JudgedTimes:
    """Times that a limit is set for, in all and in the equal parts of each window, and the intervals of their percentiles."""

    times: BucketCounts = EMPTY
    windows: Sequence[Sequence[BucketCounts]] = ()
    intervals: Mapping[float, PercentileInterval] = dataclasses.field(default_factory=dict)
    unknown: int = 0
    """Further requests whose time is not known."""

    def half(self, number: int) -> BucketCounts:
        """The times of the first halves of the windows (0) or of the second (1)."""
        return BucketCounts.merged(
            part for parts in self.windows for index, part in enumerate(parts) if (2 * index >= len(parts)) == bool(number)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class SloVerdict:
    """The verdict: `limits` has a verdict and a sentence for each limit, in order; `reason` is one sentence for all."""

    verdict: Verdict
    limits: tuple[tuple[Verdict, str], ...]
    reason: str
    is_beyond: bool = False
    """Whether a measured figure is beyond its limit, clearly or not."""


def judge_slo(
    slo: SloLimits,
    waited: JudgedTimes,
    error_rate: float,
    *,
    answers: CheckedAnswers = CheckedAnswers(),
    further: Mapping[str, JudgedTimes] | None = None,
    load_points: int = 1,
    is_overloaded: bool = False,
    is_not_steady: bool = False,
) -> SloVerdict:
    """The verdict on a load point with its repetitions pooled; `error_rate` is a share of the scheduled requests.

    A percentile is judged by the share of times beyond its limit: the limit is violated if that is clearly above what the percentile allows, met
    if it is clearly below, and otherwise inconclusive. Clearly: a binomial test of as many independent times as these are worth at the limit
    (`precision_above`), with an error of 2.5 % either way for all `load_points` of a run together. Times count one by one if all are beyond the limit, or
    if it is far beyond all of them and an exponential tail leaves no doubt (`_is_far`).

    Unknown times are taken to be all within the limit, and then all beyond it: a verdict stands if it is the same both ways.
    Wrong answers are judged by the interval of their share, since only some answers are checked. The SLO is violated if one limit is,
    otherwise inconclusive if one limit is. Where the target was not steady, a verdict on a percentile stands if it is that of both halves of the windows. An
    overloaded point violates any SLO with limits, since its times grow with the window. An SLO without limits is satisfied.
    """
    error = _ERROR / load_points
    limits = [_judge_percentile(quantile, limit_ns, waited, error, is_not_steady) for quantile, limit_ns in slo.percentiles_ns.items()]
    others = [((further or {}).get(name, JudgedTimes()), FURTHER[name], of_times) for name, of_times in slo.further_ns.items()]
    for judged, words, of_times in others:
        for quantile, limit_ns in of_times.items():
            verdict, sentence = _judge_percentile(quantile, limit_ns, judged, error, is_not_steady)
            limits.append((verdict, f"{words} {sentence}"))
    is_beyond = any(
        judged.times.count_above(limit_ns) > (1 - quantile) * judged.times.count
        for judged, of_times in ((waited, slo.percentiles_ns), *((judged, of_times) for judged, _, of_times in others))
        for quantile, limit_ns in of_times.items()
    )
    if slo.error_rate is not None:
        failed = FailedShare.of(error_rate, answers, error)
        limits.append(_judge_errors(slo.error_rate, failed))
        is_beyond |= failed.estimate > slo.error_rate
    if slo.wrong_answers is not None:
        limits.append(_judge_answers(slo.wrong_answers, answers, error))
        is_beyond |= answers.share_of_all(answers.rate or 0.0) > slo.wrong_answers
    verdicts = {verdict for verdict, _ in limits}
    if limits and is_overloaded:
        reason = "The SLO is violated: the target was overloaded, so its times depend on the length of the window."
        return SloVerdict("violated", tuple(limits), reason, is_beyond=True)
    for verdict in ("violated", "inconclusive"):
        if verdict in verdicts:
            sentences = "; ".join(sentence for each, sentence in limits if each == verdict)
            return SloVerdict(verdict, tuple(limits), f"The SLO is {verdict}: {sentences}.", is_beyond=is_beyond or verdict == "violated")
    sentences = "; ".join(sentence for _, sentence in limits)
    return SloVerdict("satisfied", tuple(limits), f"The SLO is satisfied{f': {sentences}' if sentences else ''}.")


_FAR = 3
_CORRELATED = 0.4  # of the error, for tests of correlated times: the rest is for the uncertainty of their correlation
_LONGER = (1.5, 2, 3, 5, 10, 20, 50, 100)


def _judge_percentile(quantile: float, limit_ns: int, judged: JudgedTimes, error: float, is_not_steady: bool) -> tuple[Verdict, str]:
    name, times, limit = f"p{round(quantile * 100, 6):g}", judged.times, format_exact_duration(limit_ns)
    count, above, unknown = times.count, times.count_above(limit_ns), judged.unknown
    if not count:
        return "inconclusive", f"{name} has no samples" + (f", and {unknown:,} unknown times" if unknown else "")
    precision = precision_above([part for parts in judged.windows for part in parts], limit_ns, quantile)
    time = time_of_one(quantile, limit_ns, times, precision, error)
    if precision.is_correlated:
        error *= _CORRELATED
    verdict = _judge_share(quantile, (count + unknown) / time, above / time, error)
    is_open = verdict != _judge_share(quantile, (count + unknown) / time, (above + unknown) / time, error)
    if is_open:
        verdict = "inconclusive"
    found = f"{above:,} of {count:,} are above {limit}"
    if not is_withheld(quantile, count):
        interval = judged.intervals.get(quantile)
        bounds = f" ({_bounds(interval.low_ns, interval.high_ns)})" if interval is not None and interval.low_ns is not None else ""
        value = f"{name} is {format_duration_ns(min(times.values_at([quantile])[0], times.max_ns))}{bounds}"
        found = (
            f"{value}, and {found}" if verdict == "inconclusive" else f"{value}, {'above' if verdict == 'violated' else 'within'} {limit}"
        )
    else:
        found = (
            f"{name}: {found}" + {"violated": ", more than it allows", "satisfied": ", fewer than it allows", "inconclusive": ""}[verdict]
        )
    if is_open:
        return verdict, f"{found}, but the times of {unknown:,} further requests are not known, and they decide"
    if unknown:
        found += f", whatever the unknown times of {unknown:,} further requests are"
    if verdict == "inconclusive":
        reason = ", because slow requests come in groups" if precision.is_correlated else ""
        longer = next(
            (each for each in _LONGER if _judge_share(quantile, each * count / time, each * above / time, error) != "inconclusive"), None
        )
        advice = f" (measure about {longer:g} times as long)" if longer else " (it is close to the limit)"
        return verdict, f"{found}, too few to tell whether more than {100 * (1 - quantile):.6g} % of all are{reason}{advice}"
    if is_not_steady:
        halves = [half for half in (judged.half(0), judged.half(1)) if half.count]
        if any((half.count_above(limit_ns) > (1 - quantile) * half.count) != (verdict == "violated") for half in halves):
            return "inconclusive", f"{found}, but the target was not steady, and this is so in one half of the window only"
    return verdict, found


def time_of_one(quantile: float, limit_ns: int, times: BucketCounts, precision: Precision, error: float) -> float:
    """How many of the times count as one independent time in a test of their share above a limit that may err with the probability `error`."""
    is_far = _is_far(quantile, limit_ns, times, times.count / precision.time, error)
    return 1.0 if is_far or times.count_above(limit_ns) == times.count else precision.time_with_its_error


def _is_far(quantile: float, limit_ns: int, times: BucketCounts, effective: float, error: float) -> bool:
    """Whether a limit is so far beyond the longest time that times which reach it would hardly be without any in between.

    Far: from the median at least three times as far as the longest one is. Where the share 1 - q is above the limit and the tail beyond the
    median is exponential, (2 - 2q)^(1/distance) / 2 of the times are above the longest one: with so many independent ones, that none was seen has
    at most the chance `error`.
    """
    median_ns = times.values_at([0.5])[0]
    distance = (limit_ns - median_ns) / max(times.max_ns - median_ns, 1)
    return distance >= _FAR and (1 - (2 - 2 * quantile) ** (1 / distance) / 2) ** effective <= error


def _judge_share(quantile: float, count: float, above: float, error: float) -> Verdict:
    """Whether so many of independent times above a limit show that more of all are than the quantile allows, or fewer."""
    if binomial_cdf(math.ceil(above), math.floor(count), 1 - quantile) <= error:
        return "satisfied"
    if above >= 1 and 1 - binomial_cdf(math.floor(above) - 1, math.ceil(count), 1 - quantile) <= error:
        return "violated"
    return "inconclusive"


def _judge_errors(limit: float, failed: FailedShare) -> tuple[Verdict, str]:
    found = f"the error rate is {failed.in_words(3)}"
    if failed.low > limit:
        return "violated", f"{found}, above {limit:.3%}"
    return (
        ("satisfied", f"{found}, within {limit:.3%}")
        if failed.high <= limit
        else ("inconclusive", f"{found}, on both sides of {limit:.3%}")
    )


def _judge_answers(limit: float, answers: CheckedAnswers, error: float) -> tuple[Verdict, str]:
    found = (
        f"{answers.wrong:,} of {answers.checked:,} checked answers are wrong"
        if answers.checked
        else "no answer was checked for wrong outputs"
    )
    found += f", besides {answers.refused:,} of {answers.refused + answers.answers:,} with an error in them" if answers.refused else ""
    low, high = map(answers.share_of_all, answers.interval(error) or (0.0, 1.0))
    if not answers.checked and low <= limit:
        return "inconclusive", found
    if low > limit:
        return "violated", f"{found}, which shows more than {limit:.3%}"
    if high <= limit:
        return "satisfied", f"{found}, which shows at most {high:.3%}, within {limit:.3%}"
    return "inconclusive", f"{found}, which shows {low:.3%} to {high:.3%}, on both sides of {limit:.3%}"


def _bounds(low_ns: int, high_ns: int | None) -> str:
    low = format_duration_ns(low_ns)
    return f"{low} or more" if high_ns is None else f"{low} to {format_duration_ns(high_ns)}"
