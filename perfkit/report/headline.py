"""What a page says at its top: one large figure with its interval, a word for how far to trust it, and a few figures beside it. Pure."""

from collections.abc import Iterator

from perfkit.report.answer import MOST_FAILURES, chosen_point, load_in_words
from perfkit.report.page import Fact, Headline, Trust
from perfkit.report.table import format_error_rate
from perfkit.report.warning_texts import warning_texts
from perfkit.result.load import ClosedLoad
from perfkit.result.model import Point, Result
from perfkit.result.search import Search
from perfkit.units import format_duration_ns, format_rate_per_s

_STATUSES = {"unsuccessful": "most requests failed", "interrupted": "interrupted", "incomplete": "incomplete", "invalid": "not valid"}
_VERDICTS: dict[str, tuple[str, Trust]] = {
    "satisfied": ("SLO met", "good"), "violated": ("SLO missed", "bad"), "inconclusive": ("SLO unclear", "open"),
}  # fmt: skip
_CONFIRMED: tuple[str, Trust] = ("confirmed", "good")
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
    whole = [point for point in result.summary if point.workload is None]
    if any(point.cold_start or point.idle for point in whole):
        return None
    of_protocols = {
        protocol: point
        for protocol in dict.fromkeys(point.protocol for point in whole)
        if (point := chosen_point([one for one in whole if one.protocol == protocol])) is not None
    }
    if not of_protocols:
        return None
    best = max(
        of_protocols.values(), key=lambda point: (point.slo is not None and point.slo.verdict == "satisfied", point.throughput_per_s)
    )
    over = f" over {best.protocol}" if len(of_protocols) > 1 else ""
    at = f"at {load_in_words(best)}" if isinstance(best.load, ClosedLoad) else f"answered of {load_in_words(best)}"
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


def _of_search(search: Search) -> Headline | None:
    if search.capacity_per_s is None:
        return None
    low, high = (None if rate is None else format_rate_per_s(rate) for rate in (search.low_per_s, search.high_per_s))
    interval = f"{low} to {high}" if low and high else f"{low} or more" if low else f"{high} or less" if high else ""
    slo = " and ".join(f"{name.replace('_', '.')} {limit}" for name, limit in search.slo.items())
    is_answer = search.stopped_because in ("precision", "cliff", "never_missed")
    facts = (Fact("SLO", slo), Fact("probes", str(len(search.probes))))
    figure = f"{'≥ ' * (search.stopped_because == 'never_missed')}{format_rate_per_s(search.capacity_per_s)}"
    word, trust = _CONFIRMED if is_answer else _UNDECIDED
    return Headline(figure, "capacity within the SLO", interval, word, trust, facts, confidence=search.confidence)


def _facts(point: Point) -> Iterator[Fact]:
    for name in ("p50", "p99"):
        if point.times.count and (value_ns := getattr(point.times, name)) is not None:
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
    if point.slo is None:
        return (doubt, "open") if doubt else ("valid", "good")
    word, trust = _VERDICTS[point.slo.verdict]
    return (f"{word}, {doubt}", "open") if doubt and trust == "good" else (word, trust)


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
