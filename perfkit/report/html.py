"""The report as one HTML page that needs nothing else: no scripts, no fonts, no network."""

import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jinja2

from perfkit.report.calibration import calibration_facts, read_kept
from perfkit.report.markdown import (
    ENDING,
    PERCENTILES,
    THROUGHPUT,
    TIMES,
    WITHHELD,
    Cell,
    Column,
    grouped_warnings,
    headline,
    load_columns,
    scenario_name,
    status_sentence,
)
from perfkit.report.resources import GPU_HEADINGS, gpu_rows, server_columns
from perfkit.report.search import is_marked, search_headings, search_rows
from perfkit.result.model import Point, Requests, Result
from perfkit.stats.validity import BUSY_CORE_SHARE
from perfkit.units import NS_PER_S, format_duration_ns

_TEMPLATES = pathlib.Path(__file__).with_name("templates")
# what each plot is called, and the sentence that says how to read it
_PLOTS = {
    "search": (
        "The search for the capacity",
        "Each mark is a probe: what was measured as a multiple of its limit, against the rate; a triangle at the top lies above it. The capacity is where the "  # noqa: ISC004 - one sentence of a pair
        "line crosses 1. A mark that is not filled is the probe that confirms the interval's lower end.",
    ),
    "load": (
        "Throughput and {times} against {load}",
        "Where throughput stops rising and the {times} goes on rising, the server is saturated: more requests only wait.",
    ),
    "percentiles": (
        "{Times} by percentile",
        "Each line is a load point: that share of its requests took at most the time on the left. "  # noqa: ISC004 - one sentence of a pair
        "A steep end is a long tail; a line ends where less than one sample is expected beyond it.",
    ),
    "resources": (
        "Server, GPUs and generator beside the requests",
        "What moves together with the {times} is a candidate for its cause: a queue that grows, a GPU that throttles, a generator that is late. "  # noqa: ISC004 - one sentence of a pair
        "The server's times are its own means per request.",
    ),
    "timeline": (
        "Over time",
        "Level lines are a steady system; a slope within a repetition is a drift, a step between two repetitions a change of the machine or the server.",
    ),
}
_SCHEMA_KEYS = ("schema", "schema_version")
_PLAIN = re.compile(r"[A-Za-z0-9_./][\w ./:+@-]*")
_REPETITION = (
    Column("repetition", lambda point: Cell(WITHHELD if point.repetition is None else str(point.repetition + 1))),
    Column("window", lambda point: Cell(format_duration_ns(point.duration_s * NS_PER_S))),
    Column("sent", lambda point: Cell(f"{point.requests.sent:,}")),
    THROUGHPUT,
    *(column for column in PERCENTILES if column.heading in ("p50", "p90", "p99")),
    *ENDING,
)
_OUTCOMES = tuple(name for name in Requests.model_fields if name not in ("scheduled", "sent"))


def render_html(result: Result, plots: Mapping[str, str]) -> str:
    """The page; `plots` is SVG by name, as `perfkit.report.plots.draw_plots` gives it."""
    order = [(point.protocol, point.load) for point in result.summary]
    repetitions = sorted(result.points, key=lambda point: (order.index((point.protocol, point.load)), point.repetition or 0))
    return page(
        "report.html.j2",
        name=scenario_name(result),
        result=result,
        status=status_sentence(result),
        subject=_subject(result),
        headline=_table(headline(result.summary), result.summary),
        times=TIMES[result.summary[0].times_name] if result.summary else "",
        repetitions=_table((*load_columns(repetitions), *_REPETITION), repetitions),
        server=_table(server_columns(result.summary), result.summary) if server_columns(result.summary) else None,
        gpu_headings=GPU_HEADINGS,
        gpus=gpu_rows(result.summary),
        warnings=grouped_warnings(result.summary),
        failures=_failures(result.summary),
        search=_search(result),
        plots=[_plot(name, svg, result.summary[0]) for name, svg in plots.items()],
        environment=[(title, list(facts)) for title, facts in _environment(result.environment)],
        scenario="\n".join(_yaml_lines(result.scenario)),
        busy_share=f"{BUSY_CORE_SHARE:.0%}",
    )


def page(template: str, **values: Any) -> str:
    """A template filled in."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template(template).render(**values)


def _plot(name: str, svg: str, point: Point) -> tuple[str, str, str]:
    """A plot's title, how to read it, and itself."""
    words = {
        "times": point.times_name,
        "Times": point.times_name.capitalize(),
        "load": "concurrency" if point.load.kind == "closed" else "the rate",
    }
    first, _, number = name.partition("-")
    title, reading = (text.format(**words) for text in _PLOTS[first])
    return (title, reading, inline_svg(svg, title)) if not number else (f"{title}, continued", "", inline_svg(svg, f"{title}, {number}"))


def _search(result: Result) -> dict[str, Any] | None:
    """The search's sentence, and its probes as a table."""
    if result.search is None:
        return None
    rows = search_rows(result)
    columns = len(search_headings(result.search))
    is_figure = [index not in (1, columns - 1) for index in range(columns)]
    return {
        "reason": result.search.reason,
        "table": {
            "headings": list(zip(search_headings(result.search), is_figure, strict=True)),
            "rows": [(not is_marked(row), list(zip(map(Cell, row), is_figure, strict=True))) for row in rows],
        },
    }


def _subject(result: Result) -> str:
    """What was measured, for the line under the title; empty where the run did not come that far."""
    model = (result.scenario.get("target") or {}).get("model")
    url = (result.environment.get("target") or {}).get("url")
    return "".join(f"{text}, " for text in (model, url) if text)


def _table(columns: Sequence[Column], points: Sequence[Point]) -> dict[str, Any]:
    """Headings and rows of cells, each with whether it is a figure."""
    rows = [(point.valid, [(column.cell(point), column.is_figure) for column in columns]) for point in points]
    return {"headings": [(column.heading, column.is_figure) for column in columns], "rows": rows}


def _failures(points: Sequence[Point]) -> list[tuple[Point, list[tuple[str, int, tuple[str, ...]]]]]:
    """The points with failures: outcome, number, and a few of the sentences they came with."""
    listed = []
    for point in points:
        counts = [(name, getattr(point.requests, name)) for name in _OUTCOMES if name != "ok"]
        some = [(name.replace("_", " "), count, tuple(filter(None, point.errors.get(name, ())))) for name, count in counts if count]
        if some:
            listed.append((point, some))
    return listed


def _environment(environment: Mapping[str, Any]) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    """Title and facts: the generator's machine and its calibration, the target, the bundled server, and whatever else there is."""
    titles = {"generator": "Load generator", "target": "Target", "bundled_server": "Bundled server", "telemetry": "Telemetry"}
    for key, value in environment.items():
        facts = value if isinstance(value, Mapping) else {key: value}
        yield titles.get(key, key), _facts({name: fact for name, fact in facts.items() if name not in ("bundled_server", "calibration")})
        if calibration := read_kept(facts):
            yield "Calibration", calibration_facts(calibration)
        server = facts.get("bundled_server")
        if server:
            facts = server if isinstance(server, Mapping) else {"description": server}
            yield titles["bundled_server"], _facts({name: fact for name, fact in facts.items() if name != "event"})  # always "ready"


def _facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values as people read them."""
    for name, value in facts.items():
        is_size = name.endswith("_bytes") and isinstance(value, int)
        yield name.removesuffix("_bytes").replace("_", " "), f"{value / 2**30:.1f} GiB" if is_size else _fact(value)


def _fact(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_fact(one)}" for name, one in value.items())
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, int) and not isinstance(one, bool) for one in value):
            return _ranges(list(value))
        return ", ".join(map(_fact, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return WITHHELD if value in (None, "") else str(value)


def _ranges(numbers: Sequence[int]) -> str:
    """`0–3, 8` for the numbers of CPUs; order is kept."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def _yaml_lines(mapping: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """A mapping as a scenario file shows it: nested mappings indented, everything else on the key's line."""
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{_yaml(key)}:"
            yield from _yaml_lines(value, indent + "  ")
        elif not (key in _SCHEMA_KEYS and not indent):
            yield f"{indent}{_yaml(key)}: {_yaml(value)}"


def _yaml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml(key)}: {_yaml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and ": " not in value and not _reads_otherwise(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _reads_otherwise(text: str) -> bool:
    """Whether YAML would not take it for text."""
    if text.lower() in ("true", "false", "null", "yes", "no", "on", "off", "nan"):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def inline_svg(svg: str, title: str) -> str:
    """A picture as part of the page: without the XML declaration, with a name for those who do not see it."""
    picture = svg[svg.index("<svg") :]
    return picture.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
