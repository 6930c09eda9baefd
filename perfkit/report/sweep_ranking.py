"""The ranking of a sweep's cases: its headline, its sentences, its table, and the plot of throughput against p99."""

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence

from perfkit.comparison.sweep_ranking import HIGHER_IS_BETTER, MOST_RANKED, CasePoint, RankedCase, SweepRanking, separating_precision
from perfkit.report.chart import Axis, Chart, ChartGroup, Colour, Level, Line, Style, times_scale
from perfkit.report.chart_rules import many_colour
from perfkit.report.page import Fact, Headline, Trust
from perfkit.report.table import MISSING, Column, Kind, Table, interval_columns
from perfkit.result.distribution import QUANTILES
from perfkit.result.sweep import shown_value
from perfkit.stats.percentiles import minimum_samples
from perfkit.stats.ranking import PERCENTILE_NAMES, Judgement, judgements_text
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import NS_PER_MS, format_confidence, format_signed_change, format_signed_interval

TITLE = "Ranking"
CAPTION = (
    "Every load point of the cases, with 95 % intervals. Better is further to the right and further down. Large: the load point that a case is ranked by. "
    "Cross: it violates a constraint. Hollow: it is not known whether it does."
)
_MARKS: dict[Judgement, tuple[Style, Style]] = {
    "holds": ("dots", "large"), "cannot be told": ("hollow", "large hollow"), "violated": ("cross", "large cross"),
}  # fmt: skip
_STATES: dict[Judgement, str] = {"cannot be told": "not known whether it satisfies the constraints", "violated": "violates a constraint"}
_MOST_COLOURS, _MOST_SHOWN, _MOST_LISTED = 10, 30, 3
_FIGURES: dict[str, tuple[str, str, Kind]] = {
    "throughput": ("inferences_per_s", "inferences", "rate_per_s"),
    "capacity": ("capacity_inferences_per_s", "capacity in inferences", "rate_per_s"),
    "goodput": ("good_inferences_per_s", "good inferences", "rate_per_s"),
    **{name: (f"{name}_ns", name.replace("_", "."), "duration_ns") for name in PERCENTILE_NAMES},
    "error_rate": ("error_rate", "errors", "error_rate"),
    "gpu_memory": ("gpu_memory_bytes", "memory of a GPU", "bytes"),
    "energy": ("energy_j", "energy per inference", "energy_j"),
}
_SHOWN_ALWAYS = ("throughput", "capacity", "p99", "error_rate", "gpu_memory", "energy")


def case_title(one: RankedCase, *, has_protocols: bool = False) -> str:
    """The swept values of a case, and its protocol if asked for: `batch_size=4, threads=2, grpc`."""
    values = [f"{key.rpartition('.')[2]}={shown_value(value)}" for key, value in one.values.items()]
    return ", ".join([*values, *([one.protocol] if has_protocols else [])])


def has_protocols(ranking: SweepRanking) -> bool:
    """Whether the cases have load points over more than one protocol."""
    return len({one.protocol for one in ranking.rows}) > 1


def ranking_sentences(ranking: SweepRanking, *, has_figure: bool = True) -> Iterator[str]:
    """The best case, with its figure or without, and those that the data cannot tell apart from it."""
    first, *others = ranking.rows
    name = functools.partial(case_title, has_protocols=has_protocols(ranking))
    figure = f": {_text_of(ranking.by, first.figures[ranking.by])}" if has_figure else ""
    at = f" at {first.load}" if first.load else ""
    most = f"{'the highest' if ranking.by in HIGHER_IS_BETTER else 'the lowest'} {_words(ranking.by)}"
    limits = ", ".join(text for text, _ in first.judgements)
    tied = [one for one in others if one.rank == 1]
    if first.verdict == "holds":
        under = f" of the cases that satisfy {limits}" if limits else ""
        yield f"{name(first)}{at} has {most}{' or is tied with it' if tied else ''}{under}{figure}."
    elif first.verdict == "cannot be told":
        unknown = [text for text, judgement in first.judgements if judgement == "cannot be told"]
        reasons = "; ".join(f"whether it satisfies {text} is not known: {_why_unknown(first, text)}" for text in unknown)
        yield f"No case is shown to satisfy {limits}. Of those that are not shown to violate it, {name(first)}{at} has {most}{figure}. {reasons[0].upper()}{reasons[1:]}."
    else:
        violated = ", ".join(text for text, judgement in first.judgements if judgement == "violated")
        yield f"No case satisfies {limits}. {name(first)}{at} has {most}{figure}. It violates {violated}."
    for one in tied[:_MOST_LISTED]:
        yield f"{name(one)} ({_text_of(ranking.by, one.figures[ranking.by])}) is indistinguishable from it. {_remedy(ranking, one)}"
    if more := tied[_MOST_LISTED:]:
        yield f"Also indistinguishable from it: {'; '.join(map(name, more[:_MOST_SHOWN]))}{' and more' if len(more) > _MOST_SHOWN else ''}."


def _why_unknown(one: RankedCase, constraint: str) -> str:
    """Why a constraint can neither be shown to hold nor to be violated, and what would tell."""
    metric = constraint.partition(" ")[0].replace(".", "_")
    needed = minimum_samples(QUANTILES[metric]) if metric in QUANTILES else 0
    if 0 < one.requests < needed:
        return f"{one.requests:,} requests are too few for an upper end of its interval, which needs {needed:,}; measure about {_rounded_up(needed / one.requests)} times as long"
    figure = one.figures.get(metric)
    if figure is None or None in (figure.low, figure.high):
        return "its interval is open, for want of samples; measure longer"
    return "its interval contains the limit; measure longer, four times as long for half the width"


def _rounded_up(factor: float) -> str:
    return f"{math.ceil(10 * factor) / 10:g}"


def ranking_next_steps(ranking: SweepRanking) -> tuple[tuple[str, str], ...]:
    """What to do after a sweep: measure what is not known yet, or gate the best case against what runs now."""
    first, second = ranking.rows[:2]
    if first.verdict == "violated":
        return (("Next: sweep other values, or relax the constraint and rank again.", "perfkit report SWEEP --where CONSTRAINT"),)
    if first.verdict == "cannot be told":
        return (("Next: measure longer.", "perfkit run SCENARIO --set measure.duration=TIME"),)
    if second.rank == 1:
        return (("Next: measure more to tell the best cases apart.", "perfkit run SCENARIO --set measure.repetitions=N"),)
    text = "Next: before it replaces what runs now, measure both in pairs."
    return ((text, "perfkit gate SCENARIO --baseline TARGET --candidate TARGET"),)


def ranking_headline(ranking: SweepRanking, incomplete: str = "") -> Headline:
    """The best case with its figure, and by how much it is better than the next; `incomplete` says in a few words what is missing of the sweep."""
    first, second = ranking.rows[:2]
    name = functools.partial(case_title, has_protocols=has_protocols(ranking))
    figure, _, interval = _text_of(ranking.by, first.figures[ranking.by]).partition(" (")
    at = f" at {first.load}" if first.load else ""
    caption, has_answer = f"{_words(ranking.by)}: {name(first)}{at}", first.verdict == "holds"
    facts = [] if has_answer else [Fact(f"{caption}, the best guess", figure, interval.rstrip(")"))]
    if ranking.lead is not None and second.rank is not None and has_answer:
        change = format_signed_change("ratio", ranking.lead.value)
        bounds = format_signed_interval("ratio", (ranking.lead.low, ranking.lead.high))
        facts.append(Fact(f"{_words(ranking.by)} against {name(second)}", change, f"{bounds} ({format_confidence(ranking.confidence)})"))
    facts += [
        Fact(_FIGURES[other][1], _text_of(other, first.figures[other]).partition(" (")[0])
        for other in ("throughput", "p99", "error_rate")
        if other != ranking.by and other in first.figures
    ]
    word, trust = _trust(ranking, incomplete)
    return Headline(*((figure, caption, interval.rstrip(")")) if has_answer else ("", "", "")), word, trust, tuple(facts))


def _trust(ranking: SweepRanking, incomplete: str) -> tuple[str, Trust]:
    """In a few words, how far the first case is shown to be the best."""
    first, second = ranking.rows[:2]
    if first.verdict == "violated":
        return "no case satisfies the constraints", "bad"
    if first.verdict != "holds":
        return "no case is shown to satisfy the constraints", "open"
    if second.rank is None:
        return "the only case known to satisfy the constraints", "good" if second.verdict == "violated" and not incomplete else "open"
    if second.rank == 1:
        return "no case is shown to be better", "open"
    return (f"best so far, {incomplete}", "open") if incomplete else ("best case", "good")


def _words(figure: str) -> str:
    words = {
        "capacity": "capacity",
        "gpu_memory": "memory of a GPU",
        "energy": "energy per inference",
        "error_rate": "error rate",
    }
    return words.get(figure, figure.replace("_", "."))


def _text_of(figure: str, estimate: Estimate) -> str:
    column = interval_columns(*_FIGURES[figure], lambda one: one)[0]
    return column.cell(column.value_of(estimate)).text or ""


def _remedy(ranking: SweepRanking, other: RankedCase) -> str:
    """A sentence on the measurement that would tell two tied cases apart."""
    first, times = ranking.rows[0], other.times_as_much or math.inf
    if not first.load:  # a search: its precision decides how wide its interval is
        precision = separating_precision(ranking, other)
        if precision is None:
            return "They are too close for a search to tell them apart: choose by other figures."
        return f"A search with a precision of {precision:.0%} would tell them apart."
    if any(None in (one.figures[ranking.by].low, one.figures[ranking.by].high) for one in (first, other)):
        return "An interval is open, for want of samples: measure longer, with three repetitions or more."
    if math.isinf(times):
        return "They are too close for any reasonable measurement: choose by other figures."
    needed = math.ceil(times * max(first.repetitions, other.repetitions))
    return f"About {needed} repetitions of each (now {first.repetitions}) would tell them apart, or windows {times:.2g} times as long."


def ranking_table(ranking: SweepRanking) -> Table:
    """Every case with its rank, its best load point and that point's figures, and the constraints that it violates."""
    keys = list(dict.fromkeys(key for one in ranking.rows for key in one.values))
    shown = list(dict.fromkeys((ranking.by, *_SHOWN_ALWAYS)))
    columns = (
        Column("rank", "rank", "count"),
        *(Column(key, key, value=functools.partial(_swept_value, key)) for key in keys),
        Column("protocol", "protocol"),
        Column("load", "best load", value=lambda one: one.load or None),
        *(column for name in shown for column in interval_columns(*_FIGURES[name], functools.partial(_figure, name))),
        Column("constraints", "constraints", "prose", lambda one: judgements_text(one.judgements)),
    )
    table = Table.of("ranking", TITLE, columns, ranking.rows, _note(ranking)).without_empty_columns("rank")
    return table if len(ranking.rows) <= _MOST_SHOWN else dataclasses.replace(table, shown_rows=(0, _MOST_SHOWN))


def columns_that_give_way(ranking: SweepRanking) -> tuple[str, ...]:
    """The keys of the columns that a narrow terminal leaves out, in that order."""
    figures = [_FIGURES[name][0] for name in ("gpu_memory", "energy", "error_rate", "capacity", "throughput", "p99") if name != ranking.by]
    return (*(() if has_protocols(ranking) else ("protocol",)), *figures)


def _compared_by(ranking: SweepRanking) -> str:
    if ranking.by == "error_rate":
        return "the difference of both error rates excludes 0"
    if ranking.by in ("throughput", "goodput", "energy") and all(one.repetitions > 1 for one in ranking.rows):
        return f"the ratio excludes 1 (from the scatter of the repetitions, {_pairing(ranking)})"
    return "the ratio excludes 1 (from the intervals of both figures)"


def _pairing(ranking: SweepRanking) -> str:
    blocks = {one.block for one in ranking.rows if one.rank is not None}
    if blocks <= {None}:
        return "which are not paired"
    among = "" if len(blocks) == 1 else " between cases that were interleaved"
    return f"which are paired{among}: what a repetition changes for all of them alike does not count"


def _note(ranking: SweepRanking) -> str:
    return (
        f"Rank: one plus the number of cases with a better {_words(ranking.by)}. One is better if the {format_confidence(ranking.confidence)} interval of {_compared_by(ranking)}: with so high a "
        "confidence for each pair, at most one of twenty rankings has any difference that is due to chance. Cases of equal rank cannot be told apart. The figures are those of a case's best load point that satisfies the constraints; a constraint holds if the whole 95 % interval "
        f"satisfies it. Each case was measured on one start of the server, so the variation between restarts is not covered.{_omitted(ranking)}"
    )


def _omitted(ranking: SweepRanking) -> str:
    """Sentences on the cases of a large sweep that the table leaves out."""
    ranked = f" Only the best {MOST_RANKED} cases are ranked." if len(ranking.rows) > MOST_RANKED else ""
    return f" ranking.csv holds all {len(ranking.rows):,} cases.{ranked}" if len(ranking.rows) > _MOST_SHOWN else ""


def _swept_value(key: str, one: RankedCase) -> str:
    return shown_value(one.values[key]) if key in one.values else ""


def _figure(name: str, one: RankedCase) -> Estimate | None:
    return one.figures.get(name)


def ranking_group(ranking: SweepRanking) -> ChartGroup | None:
    """Throughput against p99 at every load point of the first ten cases, with 95 % intervals; None for searches and for a single case."""
    shown = [point for point in ranking.points if {"throughput", "p99"} <= point.figures.keys() and point.row < _MOST_COLOURS]
    if len(ranking.rows) < 2 or not shown:
        return None
    several, lines = has_protocols(ranking), []
    for index, row in enumerate(ranking.rows[:_MOST_COLOURS]):
        name = f"{MISSING if row.rank is None else row.rank}: {case_title(row, has_protocols=several)}"
        own = [point for point in shown if point.row == index]
        for verdict, (style, large) in _MARKS.items():
            alike = [point for point in own if point.verdict == verdict]
            parts = (
                (large, [point for point in alike if point.load == row.load]),
                (style, [point for point in alike if point.load != row.load]),
            )
            lines += [_case_line(name, points, many_colour(index), mark) for mark, points in parts if points]
    limits = tuple(Level(limit_ns / NS_PER_MS, "limit on p99") for limit_ns in ranking.p99_limits_ns)
    times_ms = [y for line in lines for y in line.ys if y is not None] + [level.value for level in limits]
    y = Axis("p99", "ms", times_scale(times_ms))
    x = Axis("throughput (inferences per second)", "/s")
    return ChartGroup((Chart("p99 against throughput", x, y, tuple(lines), levels=limits, height_px=320),))


def _case_line(label: str, points: Sequence[CasePoint], colour: Colour, style: Style) -> Line:
    xs, ys, intervals = [], [], []
    for point in points:
        throughput, p99 = point.figures["throughput"], point.figures["p99"]
        xs.append(throughput.value)
        ys.append(p99.value / NS_PER_MS)
        intervals.append((*_ends(throughput), *(end / NS_PER_MS for end in _ends(p99))))
    labels = tuple(point.load if point.verdict == "holds" else f"{point.load}, {_STATES[point.verdict]}" for point in points)
    return Line(label, tuple(xs), tuple(ys), colour, style, tuple((a, b, c, d) for a, b, c, d in intervals), labels=labels)


def _ends(estimate: Estimate) -> tuple[float, float]:
    """The ends of the interval; for an open end, the value itself."""
    return (estimate.value if estimate.low is None else estimate.low), (estimate.value if estimate.high is None else estimate.high)
