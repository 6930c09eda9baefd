"""A comparison of results: as text for a terminal, Markdown, HTML and JSON."""

import json
import math
import re
import shlex
from collections.abc import Iterator, Sequence

from perfkit.comparison.result_comparison import NOT_COVERED, ComparedResult, MetricRow, ResultComparison, change_at
from perfkit.report.chart import MUTED, Axis, Chart, ChartGroup, Level, Line
from perfkit.report.chart_rules import many_colour
from perfkit.report.page import Block, Bullets, Fact, Figure, Headline, Item, Page, Paragraph, Trust, next_blocks, sections_of
from perfkit.report.table import MISSING, Cell, Column, Table
from perfkit.result.part import dataclass_document
from perfkit.spans.change import describe_change
from perfkit.stats.ratio_interval import CONFIDENCE, Estimate
from perfkit.text import sentence, to_the_second
from perfkit.units import Change, format_confidence, format_duration_ns, format_rate_per_s, format_signed_change, format_signed_interval

SCHEMA = "perfkit.comparison/1"
CAUTIONS = {
    "invalid": "NOT VALID: the figures of the load points in the notes may be those of the load generator or of a cold target",
    "unsuccessful": "NO SUCCESS: most requests of a load point failed, and the times are those of the others",
}
"""What must be known of a result by its status, before its figures."""
_NO_FIGURES = {"invalid": "not valid", "unsuccessful": "failed most requests"}
"""A few words for each of these statuses."""
_TRUSTS: dict[str, Trust] = {"better": "good", "worse": "bad"}
"""How a page is marked whose changes are all of one kind."""
_NO_DIFFERENCES = "No recorded settings differ."
_LONGEST_VALUE = 60
_APART = 0.12  # between two results at a load point; load points are 1 apart
_CAPTION = (
    "The change of each figure from the first result, with its 95 % interval. An interval that includes zero does not show a change; a mark without "
    "one has too few repetitions for it."
)


def comparison_table(compared: ResultComparison) -> Table:
    """One row per load point and metric: each result's figure, with its change from the first."""
    numbers = range(1, len(compared.sides) + 1)
    columns = (Column("load_point", "load point"), Column("metric", "metric"), *(Column(str(n), f"[{n}]", "figure") for n in numbers))
    rows = tuple((row.load_point, row.metric, *_cells(row)) for row in compared.rows)
    return Table("comparison", "Figures", columns, rows)


def comparison_text(compared: ResultComparison) -> str:
    """The comparison as terminal text: the answer, the differences between the results' setups, then the figures.

    Where the figures of all results are too wide together, each result has a table beside the first.
    """
    from perfkit.report.terminal import fill, fits, fitted_text, terminal_width

    width, table = terminal_width(), comparison_table(compared)
    lines = [f"[{number}] {sentence(_side(side))}" for number, side in enumerate(compared.sides, 1)]
    lines += ["", *map(sentence, comparison_answer(compared))]
    differences = [f"  {sentence(line)}" for line in _differences(compared)]
    lines += ["", *(["Differences from [1]:", *differences] if differences else [_NO_DIFFERENCES])]
    lines += ["", *(f"note: {sentence(note)}" for note in compared.notes)] if compared.notes else []
    others = {str(number) for number in range(2, len(compared.sides) + 1)}
    tables = [table] if fits(table, width) else [table.without_columns(*(others - {number})) for number in sorted(others, key=int)]
    shown = [fitted_text(one, width, ()) for one in tables]
    return "\n".join([*(fill(line, width) for line in lines), "", *shown, fill(compared.not_covered, width), ""])


def comparison_answer(compared: ResultComparison, *, is_beside_figures: bool = False) -> list[str]:
    """A sentence for each result after the first: the figures whose interval shows a change, the largest of each metric first.

    Beside a headline and charts, sizes and load points are not told again.

    Then which parts of the time of traced requests changed; a last sentence names the results that are not valid.
    """
    cautions = []
    for status, caution in CAUTIONS.items():
        if found := [f"[{number}]" for number, side in enumerate(compared.sides, 1) if side.status == status]:
            named = f"{', '.join(found[:-1])} and {found[-1]} are" if len(found) > 1 else f"{found[0]} is"
            cautions.append(f"{named} {caution}.")
    answers = (_answer_about(compared, number, is_beside_figures=is_beside_figures) for number in range(1, len(compared.sides)))
    parts = (f"[{number}] {describe_change(one)}" for number, changes in enumerate(compared.parts, 1) for one in changes)
    return [*answers, *parts, *cautions]


def _answer_about(compared: ResultComparison, number: int, *, is_beside_figures: bool) -> str:
    subject = f"[{number + 1}] {compared.sides[number].label}"
    changes = [(row, change) for row in compared.rows if (change := row.changes[number]) is not None]
    known = [(row, change) for row, change in changes if change.low is not None or change.high is not None]
    shown = [(row, change) for row, change in known if _is_shown(row, change)]
    times, others, load_points = list[str](), list[str](), len({row.load_point for row, _ in changes})
    for metric in dict.fromkeys(row.metric for row, _ in shown):
        found = sorted((pair for pair in shown if pair[0].metric == metric), key=lambda pair: _size(*pair), reverse=True)
        text = _change_in_words(*found[0], changed=len(found), load_points=load_points, is_brief=is_beside_figures)
        (times if found[0][0].is_latency else others).append(text)
    if is_beside_figures:
        words = dict.fromkeys(text.partition(" in ")[0] for text in times)
        times = [f"{word} in {', '.join(text.partition(' in ')[2] for text in times if text.startswith(word))}" for word in words]
    unknown = len(changes) - len(known)
    rest = [f"{unknown} of {len(changes)} figures have no interval, so whether they changed cannot be told"] if unknown else []
    if not known:
        remedy = "measure longer" if compared.not_covered == NOT_COVERED else "measure both with perfkit"
        return f"{subject}: no figure has an interval, so whether it differs cannot be told: {remedy}, with three repetitions or more."
    if not shown:
        return f"{subject}: no figure shows a change from [1] {compared.sides[0].label}{f'; {rest[0]}' if rest else ''}."
    unchanged = [f"{_figures_in_words(len(known) - len(shown))} no change"] if len(shown) < len(known) else []
    parts = [*([f"is {', '.join(times)}"] if times else []), *([f"has {', '.join(others)}"] if others else [])]
    against = f"Against [1] {compared.sides[0].label}, " if number == 1 else ""
    return f"{against}{subject} {'; '.join([*parts, *unchanged, *rest])}."


def _figures_in_words(number: int) -> str:
    return "1 other figure shows" if number == 1 else f"{number} other figures show"


def _is_shown(row: MetricRow, change: Estimate) -> bool:
    """Whether the interval, which may be open at one end, excludes no change."""
    none = _none(row)
    return (change.low is not None and change.low > none) or (change.high is not None and change.high < none)


def _none(row: MetricRow) -> float:
    """The value of no change."""
    return 1.0 if row.is_ratio else 0.0


def _size(row: MetricRow, change: Estimate) -> float:
    return abs(math.log(change.value)) if row.is_ratio and change.value > 0 else abs(change.value)


def _change_in_words(row: MetricRow, change: Estimate, *, changed: int, load_points: int, is_brief: bool) -> str:
    """A change such as `4.1 % slower in p99 (2.0 to 6.3 %) at http, concurrency 4, and changed at 3 of 4 load points`.

    Of an interval with an open end: `(2.0 % or more)`. In brief: `slower in p99`.
    """
    none, digits, unit = _none(row), *((1, "%") if row.is_ratio else (3, "points"))
    is_more = change.value > none
    if is_brief:
        metric = row.metric.replace("_", ".")
        word = ("slower in", "faster in") if row.is_latency else ("more", "less") if row.is_ratio else ("a higher", "a lower")
        return f"{word[not is_more]} {metric}"
    value, *ends = (100 * abs(end - none) for end in (change.value, change.low, change.high) if end is not None)
    low, high = _rounded_outward(min(ends), max(ends), digits)
    amount = f"{value:.{digits}f} {unit}"
    interval = f"({low:.{digits}f} to {high:.{digits}f} {unit})" if len(ends) > 1 else f"({low:.{digits}f} {unit} or more)"
    if row.is_latency:
        text = f"{amount} {'slower' if is_more else 'faster'} in {row.metric.replace('_', '.')} {interval}"
    elif row.is_ratio:
        text = f"{amount} {'more' if is_more else 'less'} {row.metric} {interval}"
    else:
        text = f"a {'higher' if is_more else 'lower'} {row.metric} by {amount} {interval}"
    at = f" at {row.load_point}" if load_points > 1 else ""
    more = f", and changed at {'all' if changed == load_points else f'{changed} of'} {load_points} load points" if changed > 1 else ""
    return f"{text}{at}{more}"


def comparison_markdown(compared: ResultComparison) -> str:
    """The comparison as GitHub Markdown."""
    from perfkit.report.render import render_markdown

    return render_markdown(_page(compared))


def comparison_html(compared: ResultComparison) -> str:
    """The comparison as one self-contained HTML document."""
    from perfkit.report.render import render_html

    return render_html(_page(compared, _figures(compared), comparison_headline(compared), next_blocks(*_next_steps(compared))))


def _next_steps(compared: ResultComparison) -> Iterator[tuple[str, str]]:
    """Where the time goes in a result whose times or throughput are worse, and how to get a verdict."""
    verdict = "Next: measure the servers in pairs for a verdict, which covers restarts too."
    shown = {number: _shown_changes(compared, number) for number in range(1, len(compared.sides))}
    slower = {number: [pair for pair in found if pair[0].is_latency or pair[0].metric == "throughput"] for number, found in shown.items()}
    worse = sorted((number for number, found in slower.items() if "worse" in _kind(found)), key=lambda number: -_size(*slower[number][0]))
    if worse:
        yield (
            "Next: see where the time of the result that is worse goes.",
            shlex.join(["perfkit", "explain", compared.sides[worse[0]].label]),
        )
        verdict = "Then measure the servers in pairs for a verdict, which covers restarts too."
    yield verdict, "perfkit gate SCENARIO --baseline TARGET --candidate TARGET"


def comparison_headline(compared: ResultComparison) -> Headline:
    """The largest change that is shown, with the largest one of each other result beside it.

    As it is the largest of many, its interval has the confidence at which the intervals of all figures hold together with 95 %.
    """
    shown = {number: found for number in range(1, len(compared.sides)) if (found := _shown_changes(compared, number))}
    cautions = dict[str, list[str]]()
    for number, side in enumerate(compared.sides, 1):
        if side.status in CAUTIONS:
            cautions.setdefault(_NO_FIGURES[side.status], []).append(f"[{number}]")
    if cautions:
        return Headline("", "", "", ", ".join(f"{' and '.join(numbers)} {word}" for word, numbers in cautions.items()), "bad")
    if not shown:
        return Headline("", "", "", "no change beyond chance" if _may_be_chance(compared) else "no change is shown", "open")
    by_kind = dict[str, list[str]]()
    for number, found in shown.items():
        by_kind.setdefault(_kind(found), []).append(f"[{number + 1}]")
    several = len(compared.sides) > 2
    word = ", ".join(f"{' and '.join(numbers)} {kind}" if several else kind for kind, numbers in by_kind.items())
    trust = _TRUSTS.get(next(iter(by_kind)), "open") if len(by_kind) == 1 else "open"
    largest = sorted(shown, key=lambda number: _size(*shown[number][0]), reverse=True)
    (figure, interval), *others = (_change_and_interval(*shown[number][0]) for number in largest)
    captions = [f"{_where(shown[number][0][0])}: {_named(compared, number)}" for number in largest]
    facts = tuple(Fact(caption, *texts) for caption, texts in zip(captions[1:], others, strict=True))
    of_many = f", the largest change of {count} figures" if (count := _figures_known(compared)) > 1 else ""
    caption = f"{captions[0]} against [1] {compared.sides[0].label}{of_many}"
    return Headline(figure, caption, interval, word, trust, facts, confidence=_confidence(compared))


def _kind(changes: Sequence[tuple[MetricRow, Estimate]]) -> str:
    """Whether shown changes are for the better or the worse; empty without any."""
    are_better = {(change.value > _none(row)) == (row.better == "higher") for row, change in changes}
    return " and ".join(word for word, is_better in (("better", True), ("worse", False)) if is_better in are_better)


def _shown_changes(compared: ResultComparison, number: int) -> list[tuple[MetricRow, Estimate]]:
    """The changes of a result that their intervals show, all figures together: of times and throughput before those of shares, the largest first."""
    confidence = _confidence(compared)
    changes = [
        (row, change) for row in compared.rows if (change := change_at(row, number, confidence)) is not None and _is_shown(row, change)
    ]
    return sorted(changes, key=lambda pair: (pair[0].is_ratio, _size(*pair)), reverse=True)


def _figures_known(compared: ResultComparison) -> int:
    """How many changes have an interval."""
    return sum(
        change is not None and (change.low is not None or change.high is not None) for row in compared.rows for change in row.changes
    )


def _confidence(compared: ResultComparison) -> float:
    """The confidence of each interval, so that all hold together with 95 %: 1 - 5 % ÷ their number (C. E. Bonferroni)."""
    return 1 - (1 - CONFIDENCE) / max(_figures_known(compared), 1)


def _may_be_chance(compared: ResultComparison) -> str:
    """What the changes are worth that single intervals show; empty without any, and of a single figure."""
    count = _figures_known(compared)
    if count < 2 or not any(change is not None and _is_shown(row, change) for row in compared.rows for change in row.changes):
        return ""
    return (
        f"About one in twenty unchanged figures shows a change by its own 95 % interval; the headline counts one of these {count} only if its "
        f"{format_confidence(_confidence(compared))} interval shows it."
    )


def _named(compared: ResultComparison, number: int) -> str:
    return f"[{number + 1}] {compared.sides[number].label}"


def _where(row: MetricRow) -> str:
    return f"{row.metric.replace('_', '.')}, {row.load_point}"


def _change_and_interval(row: MetricRow, change: Estimate) -> tuple[str, str]:
    scale: Change = "ratio" if row.is_ratio else "difference"
    return format_signed_change(scale, change.value), format_signed_interval(scale, (change.low, change.high))


def _figures(compared: ResultComparison) -> Sequence[Block]:
    """A chart per metric of the changes from the first result, with intervals; shares have no ratio and no chart."""
    charts = []
    for metric in dict.fromkeys(row.metric for row in compared.rows if row.is_ratio):
        rows = [row for row in compared.rows if row.metric == metric]
        if any(change for row in rows for change in row.changes):
            charts.append(_changes_chart(metric, rows, compared))
    if not charts:
        return ()
    return (Figure("Changes from [1]", _CAPTION, ChartGroup(tuple(charts), columns=2)),)


def _changes_chart(metric: str, rows: Sequence[MetricRow], compared: ResultComparison) -> Chart:
    lines = []
    for number in range(1, len(compared.sides)):
        found = [(place, change) for place, row in enumerate(rows) if (change := row.changes[number]) is not None]
        apart = (number - len(compared.sides) / 2) * _APART
        xs = tuple(place + apart for place, _ in found)
        ys = tuple(100 * (one.value - 1) for _, one in found)
        ends = [None if one.low is None or one.high is None else (100 * (one.low - 1), 100 * (one.high - 1)) for _, one in found]
        intervals = tuple(None if pair is None else (x, x, *pair) for x, pair in zip(xs, ends, strict=True))
        label = f"[{number + 1}] {compared.sides[number].label}"
        lines.append(Line(label, xs, ys, many_colour(number - 1), "dots", intervals))
    values = [y for line in lines for y in line.ys if y is not None]
    values += [end for line in lines for interval in line.intervals if interval is not None for end in interval[2:]]
    name, labels = _short_names([row.load_point for row in rows])
    x = Axis(name, scale="linear", low=-0.6, high=len(rows) - 0.4, ticks=tuple((float(n), label) for n, label in enumerate(labels)))
    reach = max(1.0, *map(abs, values)) * 1.1
    below, above = ("worse", "better") if rows[0].better == "higher" else ("better", "worse")
    y = Axis(f"← {below} · change · {above} →", "%", "linear", low=-min(reach, 100.0), high=reach)
    return Chart(metric.replace("_", "."), x, y, tuple(lines), levels=(Level(0.0, "no change", colour=MUTED),), height_px=220)


def _short_names(load_points: Sequence[str]) -> tuple[str, list[str]]:
    """What names of load points have in common, for the axis, and the rest of each: `http, concurrency 4` becomes `http, 4`."""
    parts = [re.fullmatch(r"(.*?)(?:, )?(\w+) ([\d.,]+)", one) for one in load_points]
    words = {None if part is None else part[2] for part in parts}
    if len(words) > 1 or None in words:
        return "load point", list(load_points)
    protocols = {part[1] for part in parts if part}
    names = [part[3] if len(protocols) == 1 else f"{part[1]}, {part[3]}" for part in parts if part]
    return f"load point: {protocols.pop() if len(protocols) == 1 else 'protocol'}, {words.pop()}", names


def comparison_json(compared: ResultComparison) -> str:
    """The comparison as JSON: times in nanoseconds, rates per second; changes are ratios to the first result, of shares differences."""
    return json.dumps(dataclass_document(SCHEMA, compared), indent=1) + "\n"


def _page(
    compared: ResultComparison, figures: Sequence[Block] = (), headline: Headline | None = None, next_steps: Sequence[Block] = ()
) -> Page:
    differences = list(_differences(compared))
    answer = comparison_answer(compared, is_beside_figures=headline is not None and bool(headline.figure))
    blocks: dict[str, Sequence[Block]] = {
        "" if headline else "Answer": [
            *([] if headline is None else [headline]),
            *(Paragraph(text, is_strong=headline is None) for text in answer),
            *([Paragraph(chance)] if headline and (chance := _may_be_chance(compared)) else []),
            *next_steps,
            *figures,
        ],
        "Results": [Bullets(tuple(Item(_side(side)) for side in compared.sides), is_numbered=True)],
        "Differences from [1]": [Bullets.of(differences) if differences else Paragraph(_NO_DIFFERENCES)],
        "Notes": [Bullets.of(compared.notes)] if compared.notes else [],
        "Figures": [comparison_table(compared), Paragraph(compared.not_covered)],
    }
    return Page("Results side by side", sections_of(blocks))


def _side(side: ComparedResult) -> str:
    commit = f", commit {side.commit[:12]}" if side.commit else ""
    return f"{side.label}: started {to_the_second(side.started_at)}{commit}{'' if side.status == 'complete' else f', {side.status}'}"


def _differences(compared: ResultComparison) -> Iterator[str]:
    """The differences in setup, those marked incomparable first; with more than two results, each names its result."""
    for number, side in enumerate(compared.sides[1:], 2):
        for difference in sorted(side.differences, key=lambda difference: difference.severity):
            mark = "!" if difference.severity == "incomparable" else " "
            owner = f"[{number}] " if len(compared.sides) > 2 else ""
            yield f"{mark} {owner}{difference.key}: {_shortened(difference.baseline)} → {_shortened(difference.candidate)}"


def _shortened(value: object) -> str:
    text = MISSING if value in (None, "") else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"


def _cells(row: MetricRow) -> list[Cell]:
    """Each result's figure, and its change from the first: ` +12.3 % [+7.9, +16.8]`."""
    return [
        Cell(None if value is None else value.value, _figure(row, value) + _change(row, change))
        for value, change in zip(row.values, row.changes, strict=True)
    ]


def _figure(row: MetricRow, value: Estimate | None) -> str:
    if value is None:
        return MISSING
    if row.unit == "share":
        return f"{value.value:.3%}" if value.value else "0"
    return format_rate_per_s(value.value) if row.unit == "per_s" else format_duration_ns(value.value)


def _rounded_outward(low: float, high: float, digits: int) -> tuple[float, float]:
    """An interval's ends with so many decimals, rounded away from each other: a narrow one must not look as if it had no width."""
    scale = 10**digits
    return math.floor(round(low * scale, 9)) / scale, math.ceil(round(high * scale, 9)) / scale


def _change(row: MetricRow, change: Estimate | None) -> str:
    """A change in per cent, of shares in percentage points."""
    if change is None:
        return ""
    origin, digits, unit = (1.0, 1, "%") if row.is_ratio else (0.0, 3, "pp")
    value, low, high = (None if end is None else (end - origin) * 100 for end in (change.value, change.low, change.high))
    if low is None and high is None:
        return f" {value:+.{digits}f} {unit}"
    if low is not None and high is not None:
        low, high = _rounded_outward(low, high, digits)
    low_text, high_text = (MISSING if end is None else f"{end:+.{digits}f}" for end in (low, high))
    return f" {value:+.{digits}f} {unit} [{low_text}, {high_text}]"
