"""What a page says at its top: one large figure with its interval, a word for how far to trust it, and a few figures beside it. Pure."""

import re
from collections.abc import Iterator, Mapping

from perfkit.report.answer import MOST_FAILURES, chosen_point, load_in_words
from perfkit.report.page import Fact, Headline, Trust
from perfkit.report.table import MISSING, format_error_rate
from perfkit.report.warning_texts import warning_texts
from perfkit.result.distribution import QUANTILES
from perfkit.result.load import ClosedLoad, RampLoad
from perfkit.result.model import Point, Result
from perfkit.result.search import Search, limit_in_words
from perfkit.stats.percentiles import minimum_samples
from perfkit.units import format_duration_ns, format_rate_per_s

_STATUSES = {"unsuccessful": "most requests failed", "interrupted": "interrupted", "incomplete": "incomplete", "invalid": "not valid"}
_VERDICTS: dict[str, tuple[str, Trust]] = {
    "satisfied": ("SLO met", "good"), "violated": ("SLO missed", "bad"), "inconclusive": ("SLO unclear", "open"),
}  # fmt: skip
_LIMIT = re.compile(r"([\d.]+)([^\d.]+)")
_CONFIRMED: tuple[str, Trust] = ("confirmed", "good")
_VALID: tuple[str, Trust] = ("valid", "good")
_UNDECIDED: tuple[str, Trust] = ("not decided yet", "open")
_DOUBTS = {
    "gpu_idle": "GPU idle",
    "overloaded": "overloaded",
    "not_steady": "not steady",
    "stall": "stalls",
    "error_burst": "bursts of errors",
}


def run_headline(result: Result) -> Headline | None:
    """The headline of a run; None for cold starts and idle gaps, whose answers are no rates, and without a valid load point."""
    if result.search is not None:
        return _of_search(result.search)
    of_protocols, best = answer_points(result), answer_point(result)
    if best is None:
        return None
    over = f" over {best.protocol}" if len(of_protocols) > 1 else ""
    at = f"at {load_in_words(best)}" if isinstance(best.load, ClosedLoad | RampLoad) else f"answered of {load_in_words(best)}"
    low, high = best.throughput_interval_per_s or (None, None)
    interval = "" if low is None or high is None else f"{format_rate_per_s(low)} to {format_rate_per_s(high)}"
    others = [
        Fact(
            f"throughput over {protocol}",
            format_rate_per_s(point.throughput_per_s),
            "" if point.slo is None else _VERDICTS[point.slo.verdict][0],
        )
        for protocol, point in of_protocols.items()
        if point is not best
    ]
    word, trust = _trust(result, best)
    return Headline(format_rate_per_s(best.throughput_per_s), f"throughput {at}{over}", interval, word, trust, (*_facts(best), *others))


def answer_point(result: Result) -> Point | None:
    """The load point of the headline; None without one, and for a search."""
    chosen = () if result.search is not None else answer_points(result).values()
    return max(chosen, key=lambda point: (point.slo is not None and point.slo.verdict == "satisfied", point.throughput_per_s), default=None)


def answer_points(result: Result) -> dict[str, Point]:
    """The load point of each protocol that the answer is about; empty for cold starts, surges, scans and idle gaps, and without a valid load point."""
    whole = [point for point in result.summary if point.workload is None]
    if any(point.cold_start or point.surge or point.scan or point.idle for point in whole):
        return {}
    found = {
        name: chosen_point([one for one in whole if one.protocol == name]) for name in dict.fromkeys(point.protocol for point in whole)
    }
    return {name: point for name, point in found.items() if point is not None}


def _of_search(search: Search) -> Headline | None:
    if search.capacity_per_s is None:
        return None
    low, high = (None if rate is None else format_rate_per_s(rate) for rate in (search.low_per_s, search.high_per_s))
    interval = f"{low} to {high}" if low and high else f"{low} or more" if low else f"{high} or less" if high else ""
    is_answer = search.stopped_because in ("precision", "cliff", "never_missed")
    facts = (Fact("probes", str(len(search.probes))),)
    figure = f"{'≥ ' * (search.stopped_because == 'never_missed')}{format_rate_per_s(search.capacity_per_s)}"
    word, trust = _CONFIRMED if is_answer else _UNDECIDED
    if is_answer and low and search.stopped_because != "never_missed":
        word = f"confirmed at {low}"
    return Headline(figure, f"capacity within {slo_in_words(search.slo)}", interval, word, trust, facts, confidence=search.confidence)


def slo_in_words(slo: Mapping[str, str]) -> str:
    """The limits of an SLO: `p99 < 50 ms and errors < 1 %`."""
    names = {name: "errors" if name == "error_rate" else limit_in_words(name) for name in slo}
    limits = {name: _LIMIT.sub(r"\1 \2", limit) for name, limit in slo.items()}
    return " and ".join(f"{names[name]} < {limits[name]}" for name in slo)


def _facts(point: Point) -> Iterator[Fact]:
    for name in ("p50", "p99"):
        if point.times.count and getattr(point.times, name) is None:
            yield Fact(name, MISSING, f"too few requests: {point.times.count:,} of {minimum_samples(QUANTILES[name]):,}")
        elif point.times.count:
            value_ns = getattr(point.times, name)
            low_ns, high_ns = point.intervals.get(name) or (None, None)
            bounds = (
                ""
                if low_ns is None
                else f"{format_duration_ns(low_ns)} {'or more' if high_ns is None else f'to {format_duration_ns(high_ns)}'}"
            )
            yield Fact(name, format_duration_ns(value_ns), bounds)
    yield Fact("failed", format_error_rate(point.failed_share.estimate) if point.failed_share.estimate else "0")
    if shares := [gpu.utilization_mean for gpu in point.server_gpus if gpu.utilization_mean is not None]:
        yield Fact("GPU busy", f"{min(shares):.0%}" if len(shares) == 1 else f"{min(shares):.0%} to {max(shares):.0%}")


def _trust(result: Result, point: Point) -> tuple[str, Trust]:
    """The state in a word or two: the first problem among the run's status, the SLO's verdict, the failed share and the warnings."""
    invalid = sum(not one.valid for one in result.summary)
    if result.status == "invalid" and invalid < len(result.summary):
        return f"{invalid} of {len(result.summary)} load points not valid", "open"
    if result.status != "complete":
        return _STATUSES[result.status], "open" if result.status in ("interrupted", "incomplete") else "bad"
    doubt = _doubt(point)
    word, trust = _VALID if point.slo is None else _VERDICTS[point.slo.verdict]
    if doubt and trust == "good":
        return doubt if point.slo is None else f"{word}, {doubt}", "open"
    busy = ", on a busy machine" if "busy_machine" in {warning.code for warning in point.warnings} else ""
    return f"{word}{busy}", trust


def _doubt(point: Point) -> str:
    """What else a reader must know of a load point, in a word or two; empty if nothing but notes."""
    texts = warning_texts()
    codes = {warning.code for warning in point.warnings if not (warning.code in texts and texts[warning.code].is_note)}
    if known := next((word for code, word in _DOUBTS.items() if code in codes), ""):
        return known
    failed = point.failed_share.estimate
    if failed > MOST_FAILURES:
        return f"{format_error_rate(failed)} failed"
    return f"{len(codes)} warning{'s' * (len(codes) > 1)}" if codes else ""
