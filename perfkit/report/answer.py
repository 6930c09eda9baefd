"""What a run says in sentences: its answer. Pure."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

from perfkit.report.first_requests import cold_start_sentence, idle_sentence
from perfkit.report.mix import neighbour_sentences
from perfkit.report.scan import scan_sentence
from perfkit.report.surge import surge_sentence
from perfkit.report.table import format_error_rate
from perfkit.result.distribution import QUANTILES
from perfkit.result.load import ClosedLoad, OpenLoad, RampLoad
from perfkit.result.model import Point, Result
from perfkit.stats.percentiles import minimum_samples
from perfkit.stats.validity import COLD, INVALIDATING
from perfkit.units import format_duration_ns, format_rate_per_s

_MOST_NAMED = 3
MOST_FAILURES = 0.01
"""A target that fails more of its requests does not keep up."""
_VERDICTS = {"satisfied": "the SLO is met", "violated": "the SLO is missed", "inconclusive": "too few samples to judge the SLO"}
_LARGE_SCATTER = 0.15  # between the slowest and the fastest repetition, as a share of the throughput
LEAST_GAIN = 0.05
"""The smallest relative gain in throughput for which a higher concurrency counts as better."""


def answer(result: Result, *, is_beside_figures: bool = False) -> tuple[str, ...]:
    """The findings of a run, a sentence per protocol, then the number of invalid load points, whose figures are left out.

    Beside a headline, which has the figures of one protocol's load point, they are not told again.
    """
    if not result.summary:
        return ("No load point was measured.",)
    if result.search is not None:
        reason = result.search.reason
        is_told = is_beside_figures and result.search.stopped_because == "precision"  # by its first sentence: capacity and interval
        return ((is_told and reason.partition(". ")[2]) or reason,)
    by_protocol: dict[str, list[Point]] = {}
    answered = [point for point in result.summary if point.workload is None] if result.is_mix else result.summary
    for point in answered:
        by_protocol.setdefault(point.protocol, []).append(point)
    has_figures = not is_beside_figures or len(by_protocol) > 1
    found = [(protocol, list(_found(points, has_figures=has_figures))) for protocol, points in by_protocol.items()]
    told = [(f"{protocol}: " if len(found) > 1 else "", "; ".join(parts)) for protocol, parts in found if parts]
    sentences = [f"{protocol}{text if protocol else text[0].upper() + text[1:]}." for protocol, text in told]
    sentences += [*_workload_verdicts(result), *neighbour_sentences(result)]
    if result.status == "unsuccessful":
        sentences.insert(0, f"{result.status_reason[0].upper()}{result.status_reason[1:]}.")
    invalid = [point for point in result.summary if not point.valid]
    if len(invalid) == len(result.summary):
        return (f"No load point is valid{_because(invalid)}: the figures are not those of {_whose(invalid)}, and the warnings say why.",)
    if invalid:
        sentences.append(
            f"Not valid and left out of this answer: {len(invalid)} of {len(result.summary)} load points ({_named(invalid)}){_because(invalid)}."
        )
    if idle := [point for point in answered if point.valid and "gpu_idle" in {warning.code for warning in point.warnings}]:
        sentences.append(f"The GPU was idle while requests waited: {_named(idle)}; the warning gpu_idle says what the server needs.")
    if unsteady := [point for point in answered if point.valid and "not_steady" in {warning.code for warning in point.warnings}]:
        sentences.append(
            f"Not steady: {_named(unsteady)}; the times or the throughput still changed, so a longer warm-up or measurement may give other figures."
        )
    if scattered := [text for point in answered if point.valid and (text := _scatter(point, result.points))]:
        sentences.append(
            f"Throughput differs between repetitions: {'; '.join(scattered[:_MOST_NAMED])}{'; …' * (len(scattered) > _MOST_NAMED)}."
        )
    return tuple(sentences)


def _scatter(pooled: Point, points: Sequence[Point]) -> str:
    """The lowest and highest throughput of a closed loop's repetitions, if they are far apart; otherwise empty."""
    of_each = [
        point.throughput_per_s
        for point in points
        if point.valid and (point.protocol, point.workload, point.load) == (pooled.protocol, pooled.workload, pooled.load)
    ]
    if (
        not isinstance(pooled.load, ClosedLoad)
        or len(of_each) < 2
        or max(of_each) - min(of_each) <= _LARGE_SCATTER * pooled.throughput_per_s
    ):
        return ""
    return f"{pooled.title}: {format_rate_per_s(min(of_each))} to {format_rate_per_s(max(of_each))}"


def _named(points: Sequence[Point]) -> str:
    return "; ".join(point.title for point in points[:_MOST_NAMED]) + "; …" * (len(points) > _MOST_NAMED)


def _whose(invalid: Sequence[Point]) -> str:
    """Whose figures are missing: those of the target or, if it was measured but cold, those that it has when warm."""
    is_cold = all(COLD in {warning.code for warning in point.warnings} for point in invalid)
    return "the target when warm" if is_cold else "the target"


def _because(invalid: Sequence[Point]) -> str:
    """The codes of the warnings that make these points invalid: most warnings leave a point valid, and stand beside them."""
    codes = dict.fromkeys(warning.code for point in invalid for warning in point.warnings if warning.code in INVALIDATING)
    return f", because of {', '.join(codes)}" if codes else ""


def _workload_verdicts(result: Result) -> Iterator[str]:
    """The workloads of a mix that miss their own SLO, with the lowest load at which they do."""
    missed: dict[str, Point] = {}
    for point in sorted(result.summary, key=lambda point: point.load.level):
        if point.workload is not None and point.valid and point.slo is not None and point.slo.verdict == "violated":
            missed.setdefault(point.workload, point)
    for name, point in missed.items():
        yield f"{name} misses its SLO at {load_in_words(point)} ({_times(point)})."


def load_in_words(point: Point) -> str:
    """A point's load without its arrival process: `concurrency 8`, `400/s`."""
    return point.load.amount if isinstance(point.load, OpenLoad) else point.load.title


def chosen_point(points: Sequence[Point]) -> Point | None:
    """The load point of one protocol that the answer is about; None if none is valid, or no request succeeded.

    With an SLO, that is the highest load up to which it is met; of closed loops otherwise the lowest concurrency that is enough, and of open loops
    the highest rate that the target keeps up with; the lowest load if none is.
    """
    valid = _by_level(points)
    if not any(point.requests.ok for point in valid):
        return None
    if any(point.slo is not None for point in valid):
        return _highest(valid, _meets_slo) or valid[0]
    return _enough(valid) if isinstance(valid[0].load, ClosedLoad) else _highest(valid, lambda point: not _beyond(point)) or valid[0]


_MARKS = {"satisfied": "SLO met up to here", "violated": "SLO missed", "inconclusive": "SLO unclear"}


def answer_loads(points: Sequence[Point]) -> tuple[tuple[Point, str], ...]:
    """For each protocol with several load points the one that the answer is about, and what it is.

    None where the highest concurrency is the best, or the target keeps up with no rate.
    """
    found = []
    for protocol in dict.fromkeys(point.protocol for point in points):
        own = [point for point in points if point.protocol == protocol]
        point = chosen_point(own)
        if point is None or len(own) == 1:
            continue
        if point.slo is not None:
            found.append((point, _MARKS[point.slo.verdict]))
        elif isinstance(point.load, ClosedLoad) and point is not _by_level(own)[-1]:
            found.append((point, "enough"))
        elif not isinstance(point.load, ClosedLoad) and not _beyond(point):
            found.append((point, "kept up"))
    return tuple(found)


def _by_level(points: Sequence[Point]) -> list[Point]:
    """The valid ones, the lowest load first."""
    return sorted((point for point in points if point.valid), key=lambda point: point.load.level)


def _highest(points: Sequence[Point], is_good: Callable[[Point], bool]) -> Point | None:
    """The last one before the first that is not good; None if the first is not."""
    return next(iter([*itertools.takewhile(is_good, points)][-1:]), None)


def _meets_slo(point: Point) -> bool:
    return point.slo is not None and point.slo.verdict == "satisfied"


def _enough(points: Sequence[Point]) -> Point:
    """The lowest concurrency over which no other is shown to add much throughput."""
    best = max(points, key=lambda point: point.throughput_per_s)
    return next((point for point in points if _gain(point, best)[1] <= LEAST_GAIN), best)


def _found(points: Sequence[Point], *, has_figures: bool) -> Iterator[str]:
    """The parts of the sentence about one protocol's load points, with the figures of its answer or without."""
    valid = _by_level(points)
    if not valid:
        return
    if not any(point.requests.ok for point in valid):
        yield "no request succeeded"
    elif any(point.cold_start for point in valid):
        yield from (cold_start_sentence(point) for point in valid if point.cold_start)
    elif any(point.surge for point in valid):
        yield from (surge_sentence(point) for point in valid if point.surge)
    elif any(point.scan for point in valid):
        yield from (scan_sentence(point) for point in valid if point.scan)
    elif any(point.idle for point in valid):
        yield idle_sentence(valid)
    elif len(valid) == 1:
        if has_figures:
            yield _figures(valid[0])
        if (slo := valid[0].slo) is not None:
            yield _VERDICTS[slo.verdict]
    elif any(point.slo is not None for point in valid):
        yield from _by_slo(valid, has_figures=has_figures)
    elif isinstance(valid[0].load, ClosedLoad):
        yield from _by_throughput(valid, has_figures=has_figures)
    else:
        yield from _by_overload(valid, has_figures=has_figures)


def _figures(point: Point) -> str:
    """The figures of one load point: `812/s at concurrency 8: p50 9.80 ms, p99 14.2 ms`."""
    is_closed = isinstance(point.load, ClosedLoad | RampLoad)
    at = f"at {load_in_words(point)}" if is_closed else f"answered at an arrival rate of {load_in_words(point)}"
    return f"{format_rate_per_s(point.throughput_per_s)} {at}: {_times(point)}"


def _times(point: Point) -> str:
    """The percentiles that the window tells, and for the first that it does not its requests and those that are needed; then what failed."""
    values_ns = {name: getattr(point.times, name) for name in ("p50", "p99")} if point.times.count else {}
    parts = [f"{name} {format_duration_ns(value_ns)}" for name, value_ns in values_ns.items() if value_ns is not None]
    if untold := next((name for name, value_ns in values_ns.items() if value_ns is None), ""):
        parts.append(f"too few requests for {untold} ({point.times.count:,} of {minimum_samples(QUANTILES[untold]):,})")
    told = ", ".join(parts) or "no request succeeded"
    failed = point.failed_share
    bounds = "" if failed.low == failed.high else f" ({failed.low:.1%} to {failed.high:.1%}, by {point.checked:,} checked answers)"
    return f"{told}, {format_error_rate(failed.estimate)} of the requests failed{bounds}" if failed.estimate else told


def _limit(point: Point) -> str:
    """The figures in brackets after the highest acceptable load."""
    return _times(point) if not isinstance(point.load, ClosedLoad) else f"{format_rate_per_s(point.throughput_per_s)}, {_times(point)}"


def _by_slo(points: Sequence[Point], *, has_figures: bool) -> Iterator[str]:
    """The highest load up to which every load point meets the SLO, and the first load beyond it."""
    met = _highest(points, _meets_slo)
    figures = f" ({_limit(met)})" if met and has_figures else ""
    if met is points[-1]:
        yield f"meets the SLO up to {load_in_words(met)}, the highest load measured{figures}"
        return
    first = points[0 if met is None else points.index(met) + 1]
    missed = next((one for one in points if one.slo is not None and one.slo.verdict == "violated"), None)
    if met is not None:
        yield f"meets the SLO up to {load_in_words(met)}{figures}"
    if first is not missed:
        yield f"too few samples to judge {'it' if met else 'the SLO'} at {load_in_words(first)}"
    if missed is not None:
        yield f"misses {'it' if met or first is not missed else 'the SLO'} at {load_in_words(missed)}"


def _by_throughput(points: Sequence[Point], *, has_figures: bool) -> Iterator[str]:
    """The highest throughput, or the lowest concurrency whose throughput is nearly as high, and what more requests in flight do.

    All of it is said only as far as the intervals of the throughputs show it.
    """
    best, last, enough = max(points, key=lambda point: point.throughput_per_s), points[-1], _enough(points)
    fewer = next(point for point in points if point.throughput_per_s * (1 + LEAST_GAIN) >= best.throughput_per_s)
    if enough is best:
        yield f"best {_figures(best)}" if has_figures else f"{load_in_words(best)} gives the most throughput"
        if fewer is not best:
            yield f"{_UNTOLD} whether {load_in_words(fewer)} ({_limit(fewer)}) is enough"
    else:
        figures = f": {format_rate_per_s(enough.throughput_per_s)}, {_times(enough)}" if has_figures else ""
        yield f"{load_in_words(enough)} is enough for the most throughput{figures}"
        yield _more_load(enough, best)
    if last is best:
        if fewer is best:
            rises = all(_gain(point, best)[0] > 0 for point in points[:-1])
            yield (
                "throughput still rises at the highest concurrency measured" if rises else f"{_UNTOLD} whether throughput still rises there"
            )
    elif last.throughput_per_s * (1 + LEAST_GAIN) < best.throughput_per_s:
        where = "beyond it" if enough is best and fewer is best else f"at {load_in_words(last)}"
        rate, is_shown = format_rate_per_s(last.throughput_per_s), _gain(best, last)[1] < 0
        yield f"{where} throughput falls to {rate}" if is_shown else f"{where} throughput is {rate}, and {_UNTOLD} whether it falls"
    elif enough is best and fewer is best and _gain(best, last)[1] <= LEAST_GAIN:
        yield "beyond it requests only wait"


_UNTOLD = "these windows are too short to tell"


def _gain(fewer: Point, more: Point) -> tuple[float, float]:
    """The 95 % interval of the gain of throughput from one load point to another; without an end that is known, from -1 to infinity.

    Their relative errors are independent, so that their squares add up.
    """
    if fewer is more:
        return 0.0, 0.0
    ends = fewer.throughput_interval_per_s, more.throughput_interval_per_s
    if ends[0] is None or ends[1] is None or not fewer.throughput_per_s:
        return -1.0, math.inf
    ratio = more.throughput_per_s / fewer.throughput_per_s
    error = math.hypot(*((high - low) / 2 / max(point.throughput_per_s, low) for point, (low, high) in ((fewer, ends[0]), (more, ends[1]))))
    return ratio * (1 - error) - 1, ratio * (1 + error) - 1


def _more_load(enough: Point, best: Point) -> str:
    """The gain of the best concurrency over a lower one that is enough: `concurrency 4 adds 0.6 % (32.1/s), and its p50 is 3.9 times as long`."""
    low, high = _gain(enough, best)
    gain, rate = best.throughput_per_s / enough.throughput_per_s - 1, format_rate_per_s(best.throughput_per_s)
    added = f"adds {100 * gain:.1f} %" if low > 0 else f"adds nothing that is shown, at most {100 * high:.1f} %"
    text = f"{load_in_words(best)} {added} ({rate})"
    before_ns, after_ns = enough.times.p50, best.times.p50
    if before_ns and after_ns and after_ns > before_ns * (1 + LEAST_GAIN):
        text += f", and its p50 is {after_ns / before_ns:.1f} times as long"
    return text


def _beyond(point: Point) -> str:
    """Words that say that the target does not keep up with this rate, or fails too many of its requests; empty if neither."""
    if "overloaded" in {warning.code for warning in point.warnings}:
        return f"overloaded at {load_in_words(point)}, where it answers {format_rate_per_s(point.throughput_per_s)}"
    failed = point.failed_share.estimate
    return f"{format_error_rate(failed)} of the requests failed at {load_in_words(point)}" if failed > MOST_FAILURES else ""


def _by_overload(points: Sequence[Point], *, has_figures: bool) -> Iterator[str]:
    """The highest rate up to which the target is not overloaded and answers nearly all requests, and the first beyond it."""
    kept = _highest(points, lambda point: not _beyond(point))
    figures = f" ({_limit(kept)})" if kept and has_figures else ""
    if kept is None:
        yield f"{_beyond(points[0])}, the lowest rate measured"
    elif kept is points[-1]:
        yield f"keeps up with {load_in_words(kept)}, the highest rate measured{figures}"
    else:
        yield f"keeps up with {load_in_words(kept)}{figures}"
        yield _beyond(points[points.index(kept) + 1])
