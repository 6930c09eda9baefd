"""The report of a run: its page and its Markdown."""

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.errors import first_sentence
from perfkit.report.answer import answer
from perfkit.report.breakdown import breakdown_sentences, breakdown_table, contrast_table, slowest_table
from perfkit.report.chart import ChartGroup
from perfkit.report.environment import ceilings_sentence, environment_groups, stored_calibration, transport_sentence
from perfkit.report.first_requests import cold_start_table, idle_table
from perfkit.report.grouped_warnings import GroupedWarning, grouped_warnings, warning_bullets, warnings_table
from perfkit.report.headline import answer_points, run_headline
from perfkit.report.load_points import sequences_table, streams_table, tokens_table
from perfkit.report.mix import neighbours_table
from perfkit.report.page import (
    Block,
    Bullets,
    Code,
    Facts,
    Figure,
    Item,
    Page,
    Paragraph,
    Section,
    next_blocks,
    sections_of,
    write_files,
)
from perfkit.report.run_next_steps import run_next_steps
from perfkit.report.run_tables import failures_table, repetitions_table, summary_table
from perfkit.report.scan import scan_table
from perfkit.report.search import probes_table
from perfkit.report.server_tables import (
    composing_models_table,
    connections_table,
    gpu_table,
    machines_table,
    replicas_table,
    server_table,
    server_times_table,
)
from perfkit.report.surge import surge_table
from perfkit.result.file import read_result
from perfkit.result.fingerprint import is_on_gpu
from perfkit.result.json_file import as_mapping
from perfkit.result.model import Point, Result
from perfkit.stats.validity import BUSY_CORE_SHARE
from perfkit.telemetry.series import Series
from perfkit.text import to_the_second

_STATUSES = {
    "complete": "",
    "unsuccessful": "Most requests failed; the times are those of the few that were answered.",
    "interrupted": "This run was interrupted; the figures cover what was measured until then.",
    "incomplete": "This run is incomplete; the figures cover what was measured before it stopped.",
    "invalid": "This measurement is not valid; do not rely on its figures.",
}
_GPU_PLOT = "gpus"
_PLOTS = {
    _GPU_PLOT: (
        "GPUs over time",
        (
            "What the GPUs did in the measured seconds, load points one after another. Where a GPU is not busy although requests are in "
            "flight, the server does something else; where it is always busy, more requests only wait. The charts over time below have the "
            "same axis: cursor and zoom move both."
        ),
    ),
    "search": (
        "The search for the capacity",
        (
            "Each mark is a probe: the share of its requests that were slower than the SLO's limit, against the arrival rate. The capacity is "
            "where the fitted curve reaches the share that the SLO allows. The square is the probe that confirms the interval's lower end."
        ),
    ),
    "load": (
        "Throughput and {times} against {load}",
        "Where throughput stops rising while the {times} keeps rising, the server is saturated: additional requests only wait.",
    ),
    "trade": (
        "{Times} against throughput",
        "Each mark is a load point: what a request takes at the throughput that the server gives. Where the line turns upwards, the server is saturated.",
    ),
    "cold_start": (
        "The first requests after a start",
        (
            "Each line is a start: the service time of each request after it, one after the other. The level is the median of the second half "
            "of the requests, which is what a warm server needs."
        ),
    ),
    "surge": (
        "Arrivals and goodput around the surge",
        (
            "Requests by their intended starts, as a mean over the repetitions: those that were meant to start, and those of them that were answered "
            "within the SLO. The shaded part is the surge; the target has recovered where the lines meet again after it."
        ),
    ),
    "scan": (
        "Throughput and service time against the requests in flight",
        (
            "One pass, in which the requests in flight rise steadily. Each mark is a step of it. At the knee throughput ÷ service time is highest: "
            "with more requests in flight they mostly wait for each other. The shaded steps are not shown to have less."
        ),
    ),
    "idle": (
        "The first request after an idle gap",
        (
            "Each mark is the median, with its 95 % interval, of the first request after a gap of that length, and of those that follow it "
            "closely. The distance between them is what a request pays for the silence before it."
        ),
    ),
    "streams": (
        "Streams against {load}",
        "The time to the first response and the gaps are what readers of a stream see; the time to the last is that of the whole request.",
    ),
    "percentiles": (
        "{Times} by percentile",
        (
            "Each line is a load point: that share of its requests took at most the time on the left. A steep end is a long tail. "
            "A line ends where less than one sample is expected beyond it."
        ),
    ),
    "waterfall": (
        "The slowest traced requests",
        (
            "Each row is a request, and each colour a part of its time, one after the other: the load generator, the way to the server, its "
            "queue and its work, and the way back. The label is the second of the window at which the request was intended."
        ),
    ),
    "timeline": (
        "Over time",
        (
            "What was recorded, on one axis of the measured seconds, load points one after another. The shades behind the {times} are its "
            "distribution in each step. Whatever moves together with the {times} may be its cause: a growing queue, a throttling GPU, a late "
            "generator. A grey background marks stalls and bursts of failures, a red one load points that are not valid."
        ),
    ),
}
"""Each plot's title, and the sentence that says how to read it."""
_MAIN_PLOTS = ("search", "load", "cold_start", "surge", "scan", "idle", "percentiles")
"""The first of these that a run has stands beside the answer."""
_OVER_TIME = {"stall": "stalls", "error_burst": "bursts of errors", "not_steady": "drift"}
_DEFINITIONS = (
    ("closed loop", "A fixed number of requests, the concurrency, is in flight; the next is sent when one is answered. A slower server is therefore sent fewer requests."),
    ("service time", "Finished − started, on the client: from handing the request to a ready connection to the end of its answer. Requests that timed out or were unfinished count with their age, a lower bound; other failures do not count."),
    ("open loop", "Requests start on schedule, independently of earlier ones. A request sent late is counted from its intended start."),
    ("response time", "Finished − intended start: what a user would have waited. A closed loop has no intended starts and therefore omits the response time: its figures do not include the wait that users of an overloaded server would see."),
    ("throughput", "Ok answers that arrived within the measured window ÷ the window's length. Inferences are throughput × batch size."),
    ("streams", "First response and last response − start of the request, in an open loop its intended start; gaps between consecutive responses. A final marker without data is no response. Responses per second count what came in the window."),
    ("percentiles", "From HDR histograms with three significant digits. A percentile q is withheld, and shown as –, below 1/(1−q) samples: 10 for p90, 20 for p95, 100 for p99, 1,000 for p99.9."),
    ("errors", "1 − ok ÷ scheduled requests."),
    ("generator CPU", f"The share of one core that the load generator kept busy. Above {BUSY_CORE_SHARE:.0%} the figures may be limited by the generator, and the point is not valid."),
)  # fmt: skip
_MOST_FINDINGS = 3


def write_reports(folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes `report.html`, `report.md` and `plots/*.svg` into a result folder; raises ResultError."""
    from perfkit.report.chart_svg import render_plots
    from perfkit.report.render import render_html, render_markdown
    from perfkit.report.run_charts import run_charts
    from perfkit.report.timeline import read_timeline

    result, folder = read_result(folder)
    timeline = read_timeline(folder, result)
    charts = run_charts(result, timeline)
    texts = {folder / "plots" / f"{name}.svg": svg for name, svg in render_plots(charts).items()}
    texts[folder / "report.md"] = render_markdown(run_summary_page(result))
    texts[folder / "report.html"] = render_html(run_page(result, charts, timeline.telemetry))
    write_files(texts, replacing=folder.glob("plots/*.svg"), place=str(folder))
    return list(texts)


def main_plot(charts: Mapping[str, ChartGroup]) -> str | None:
    """The name of the chart that shows the answer; None if there is none."""
    return next((name for name in charts if name in _MAIN_PLOTS), None)


def run_page(result: Result, charts: Mapping[str, ChartGroup], telemetry: Mapping[tuple[int, int], Sequence[Series]] | None = None) -> Page:
    """The whole report with the charts by name; `telemetry` has the series of a timeline.

    The answer with its chart, the load points, the warnings, and the sections on the purpose of the run are shown at once; all others are
    folded, by subject.
    """
    points = result.summary
    order = [point.key for point in points]
    repetitions = sorted(result.points, key=lambda point: (order.index(point.key), point.repetition or 0))
    environment = tuple(environment_groups(result.environment))
    main = main_plot(charts)
    figures = {name: _figure(name, group, points[0]) for name, group in charts.items()}
    of_gpus = [figures[_GPU_PLOT]] if _GPU_PLOT in figures else []
    kinds = (functools.partial(slowest_table, telemetry=telemetry), failures_table, machines_table, replicas_table, connections_table, server_table, server_times_table, composing_models_table)  # fmt: skip
    tables = [table(points) for table in kinds]
    folded: dict[str, tuple[str, Sequence[Block]]] = {
        "SLO": (_slo_finding(points), _slo(points)),
        **{
            figure.title: (_plot_finding(name, points), [dataclasses.replace(figure, title="")])
            for name, figure in figures.items()
            if name not in (main, _GPU_PLOT)
        },
        **{table.title: ("", [table] if table.rows else []) for table in tables},
        "GPUs": ("", [] if is_on_gpu(result) or not (table := gpu_table(points)).rows else [table]),
        "Notes": _notes(points),
        "Calibration": ("", _calibration(points)),
        "Repetitions": (f"{max((point.repetition or 0 for point in repetitions), default=0) + 1} of each load point", [repetitions_table(repetitions)] if repetitions else []),
        "Environment": ("", [Facts(environment) if environment else Paragraph("No environment was recorded.")]),
        "Scenario": ("", [Code(_yaml(result.scenario))]),
        "How the figures are defined": ("", [Facts((("", _DEFINITIONS),))]),
    }  # fmt: skip
    overrides = [f"overrides: {', '.join(result.overrides)}"] if result.overrides else []
    headline, warnings = run_headline(result), [one for one in grouped_warnings(points) if not one.is_note]
    told_first = _told_first(warnings, [] if result.search is not None else list(answer_points(result).values()))
    # what is told above in full has no row
    attention = warnings_table([one for one in warnings if one not in warnings[:_MOST_FINDINGS] or not _is_told(one)], are_notes=False)
    opened: dict[str, Sequence[Block]] = {
        "": [
            *([] if headline is None else [headline]),
            *(Paragraph(text, is_strong=headline is None) for text in answer(result, is_beside_figures=headline is not None)),
            *told_first,
            *next_blocks(*run_next_steps(result, warnings)),
            *([] if main is None else [figures[main]]),
        ],
        **_opening(result, [attention] if attention.rows else [], of_gpus),
    }
    return Page(
        title=_name(result),
        subtitle=", ".join([run_subject(result), *overrides]),
        banner=status_sentence(result),
        sections=(
            *sections_of(opened),
            *(Section(title, tuple(blocks), finding, is_folded=True) for title, (finding, blocks) in folded.items() if blocks),
        ),
        footer=f"Made from the files beside this page: `result.json` ({result.schema_version}), `latency.hlog`, and telemetry if there is any.",
    )


def run_summary_page(result: Result) -> Page:
    """The report in Markdown, which has no charts: answer, load points, warnings, SLO verdicts and notes."""
    calibration, warnings = stored_calibration(result.environment.get("generator")), grouped_warnings(result.summary)
    blocks = {
        "Answer": [Paragraph(text, is_strong=True) for text in answer(result)],
        **_opening(result, warning_bullets(warnings, are_notes=False)),
        "SLO": _slo(result.summary),
        "Calibration": [*_calibration(result.summary), *([Paragraph(ceilings_sentence(calibration))] if calibration else [])],
        "Notes": warning_bullets(warnings, are_notes=True),
    }
    shared = _shared_memory(result.scenario)
    return Page(_name(result), sections_of(blocks), f"With {shared}." if shared else "", banner=status_sentence(result))


def _told_first(warnings: Sequence[GroupedWarning], answered: Sequence[Point]) -> list[Block]:
    """The warnings to read before the figures: the first sentences of the first ones, and a word on those of other load points than the answer's."""
    own = {warning.code for point in answered for warning in point.warnings} if answered else {one.code for one in warnings}
    others = {one.code: "" if one.code in own else " (not the load of the answer)" for one in warnings}
    items = [Item(first_sentence(one.message), f"{one.load_points}{others[one.code]}", one.code) for one in warnings[:_MOST_FINDINGS]]
    if len(warnings) > _MOST_FINDINGS:
        items.append(Item(f"{len(warnings) - _MOST_FINDINGS} more below."))
    return [Bullets(tuple(items))] if items else []


def _is_told(warning: GroupedWarning) -> bool:
    """Whether a warning has nothing to say beyond its first sentence."""
    return not warning.remedy and first_sentence(warning.message) == warning.message


def _opening(result: Result, attention: Sequence[Block], gpu_figures: Sequence[Block] = ()) -> dict[str, Sequence[Block]]:
    """The sections that every form of the report has after its answer, by title; the GPUs only if one of them served the run."""
    has_gpu, points = is_on_gpu(result), result.summary
    return {
        "Summary": [summary_table(points, has_gpu=has_gpu) if points else Paragraph("No load point was measured.")],
        "Attention": attention,
        "Probes": [probes_table(result)] if result.search else [],
        **({"GPUs": [*([table] if (table := gpu_table(points)).rows else []), *gpu_figures]} if has_gpu else {}),
        **_where_the_time_went(points),
        "Workloads alone and together": [table] if (table := neighbours_table(result)).rows else [],
        "Sequences": [table] if (table := sequences_table(points)).rows else [],
        "Streams": [table] if (table := streams_table(points)).rows else [],
        "Tokens": [table] if (table := tokens_table(points)).rows else [],
        "Cold starts": [starts] if (starts := cold_start_table(points)).rows else [],
        "Surges": [surges] if (surges := surge_table(points)).rows else [],
        "Scan": [scan] if (scan := scan_table(points)).rows else [],
        "Idle gaps": [idle] if (idle := idle_table(points)).rows else [],
    }


def _slo(points: Sequence[Point]) -> list[Block]:
    judged = [
        Item(point.slo.reason, point.title if point.valid else f"{point.title}, NOT VALID") for point in points if point.slo is not None
    ]
    return [Bullets(tuple(judged))] if judged else []


def _slo_finding(points: Sequence[Point]) -> str:
    judged = [point for point in points if point.slo is not None]
    met = sum(point.valid and point.slo is not None and point.slo.verdict == "satisfied" for point in judged)
    invalid = sum(not point.valid for point in judged)
    return f"met at {met} of {len(judged)} load points{f', {invalid} not valid' if invalid else ''}"


def _notes(points: Sequence[Point]) -> tuple[str, list[Block]]:
    table = warnings_table(grouped_warnings(points), are_notes=True)
    return ", ".join(dict.fromkeys(row[0] for row in table.texts)), [table] if table.rows else []


def _calibration(points: Sequence[Point]) -> list[Block]:
    return [Paragraph(transport)] if (transport := transport_sentence(points)) else []


def _plot_finding(name: str, points: Sequence[Point]) -> str:
    """The content of a folded figure in a few words; empty where only the figure itself shows it."""
    if name == "timeline":
        codes = collections.Counter(warning.code for point in points for warning in {*point.warnings} if warning.code in _OVER_TIME)
        return (
            ", ".join(f"{_OVER_TIME[code]} in {count} load point{'s' * (count > 1)}" for code, count in codes.items())
            or "no stall, no burst of errors"
        )
    if name != "percentiles":
        return ""
    ratios = [point.times.p99 / point.times.p50 for point in points if point.valid and point.times.p50 and point.times.p99]
    return f"p99 up to {max(ratios):.1f} times the p50" if ratios else ""


def _where_the_time_went(points: Sequence[Point]) -> dict[str, Sequence[Block]]:
    """The parts of traced requests, by title."""
    sentences = breakdown_sentences(points)
    tables = [table for table in (breakdown_table(points), contrast_table(points)) if table.rows]
    return {"Where the time went": [*(Paragraph(text) for text in sentences), *tables]} if sentences else {}


def _figure(name: str, charts: ChartGroup, point: Point) -> Figure:
    load = "arrival rate" if point.load.kind == "open" else point.load.quantity
    title, caption = (text.format(times=point.times_name, Times=point.times_name.capitalize(), load=load) for text in _PLOTS[name])
    return Figure(title, caption, charts)


def _name(result: Result) -> str:
    return str(result.scenario.get("name") or "result")


def run_subject(result: Result) -> str:
    """The scenario's name, and when the run started."""
    return ", ".join([*_subject(result), f"started {to_the_second(result.started_at)}"])


def _subject(result: Result) -> list[str]:
    """The model, the target's URL, or that of each protocol, as far as they are known, and what was in shared memory."""
    wanted, measured = result.scenario.get("target") or {}, result.environment.get("target") or {}
    if result.is_mix:
        workloads = result.environment.get("workloads") or {}
        return [f"{name}: {one.get('model')} at {one.get('url')}" for name, one in workloads.items() if isinstance(one, Mapping)]
    urls = [url for protocol, url in (wanted.get("urls") or {}).items() if protocol in (measured.get("protocols") or {})]
    texts = [", ".join(map(str, url)) if isinstance(url, list) else url for url in urls or [measured.get("url")]]
    return [str(text) for text in (wanted.get("model"), *texts, _shared_memory(result.scenario)) if text]


def _shared_memory(scenario: Mapping[str, Any]) -> str:
    """Which tensors were in shared memory: `inputs and outputs in system shared memory`; empty without any."""
    shared = as_mapping(scenario.get("shared_memory"))
    tensors = " and ".join(name for name in ("inputs", "outputs") if shared.get(name))
    return f"{tensors} in {shared.get('kind')} shared memory" if tensors else ""


def status_sentence(result: Result) -> str:
    """A sentence on what the status means for the figures; empty for a complete run."""
    if result.status == "complete":
        return ""
    invalid = [point.title for point in result.summary if not point.valid]
    if result.status == "invalid" and 0 < len(invalid) < len(result.summary):
        named = f"{'; '.join(invalid[:_MOST_FINDINGS])}{'; …' * (len(invalid) > _MOST_FINDINGS)}"
        return f"{len(invalid)} of {len(result.summary)} load points are not valid; do not rely on their figures: {named}."
    has_reason = result.status_reason and result.status_reason != result.status
    return _STATUSES[result.status] + (f" Reason: {result.status_reason.rstrip('.')}." if has_reason else "")


def _yaml(scenario: Mapping[str, Any]) -> str:
    """The scenario as its file would show it: mappings indented, lists on one line."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes lists on one line."""

    Dumper.add_representer(list, lambda dumper, values: dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True))
    own = {key: value for key, value in scenario.items() if key not in ("schema", "schema_version")}
    return yaml.dump(own, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=1000)
