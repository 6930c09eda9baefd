"""Results for other programs and pages: load points as CSV, histograms as `.hgrm` text for HdrHistogram's plotters, and an HTML fragment, as for notebooks."""

import pathlib
import re
from collections.abc import Mapping, Sequence
from html import escape

from perfkit.recorder.histogram import percentile_distribution
from perfkit.report.answer import answer
from perfkit.report.grouped_warnings import grouped_warnings
from perfkit.report.run import status_sentence
from perfkit.report.run_tables import terminal_table
from perfkit.report.table import Table
from perfkit.result.file import read_result
from perfkit.result.frames import addresses_frame, csv_text, points_frame
from perfkit.result.model import Result
from perfkit.result.time_frames import read_histograms
from perfkit.text.foreign import one_line, safe_lines

_NOT_IN_NAMES = re.compile(r"[^\w.-]+", re.ASCII)


def points_csv(folders: Sequence[pathlib.Path]) -> str:
    """The load points of several results as CSV, a row each, repetitions pooled, followed by a row for each address of targets with several.

    Those alone have an `address`, a column that is left out if there are none. The column `result` is the result folder; docs/how-to/python.md describes the other columns. Raises ResultError.
    """
    import pandas as pd

    parts = []
    for folder in folders:
        result, place = read_result(folder)
        parts.append(points_frame(result.summary).assign(result=str(place)))
        if not (addresses := addresses_frame(result.summary)).empty:
            parts.append(addresses.assign(result=str(place)))
    frame = pd.concat(parts, ignore_index=True)
    return csv_text(frame[["result", *(name for name in frame.columns if name not in ("result", "repetition"))]])


def percentile_distributions(folder: pathlib.Path) -> Mapping[str, str]:
    """The text of an `.hgrm` file for each load point, by file name.

    Repetitions are pooled; values are in milliseconds. Raises ResultError.
    """
    result, folder = read_result(folder)
    files = {}
    for point, counts in zip(result.summary, read_histograms(folder, result), strict=True):
        times = point.times_name.partition(" ")[0]
        name = _NOT_IN_NAMES.sub("-", f"{point.title}-{times}".replace(",", ""))
        files[f"{name}.hgrm"] = percentile_distribution(counts)
    return files


_INVALID_STYLE = ' style="color:#c0392b"'


def result_fragment(result: Result) -> str:
    """A result's status unless complete, the answer, the load points and the warnings."""
    name, status = one_line(str(result.scenario.get("name") or "result")), status_sentence(result)
    parts = [f"<strong>{escape(name)}</strong>"]
    parts += [f"<p{_INVALID_STYLE}><strong>{escape(safe_lines(status))}</strong></p>"] if status else []
    parts += [f"<p><strong>{escape(safe_lines(text))}</strong></p>" for text in answer(result)]
    parts += [table_fragment(terminal_table(result.summary))] if result.summary else []
    warnings = [
        f"<li><code>{escape(one_line(warning.code))}</code> ({escape(safe_lines(warning.load_points))}) {escape(safe_lines(warning.message))}</li>"
        for warning in grouped_warnings(result.summary)
    ]
    parts += ["<ul>", *warnings, "</ul>"] if warnings else []
    return f"<div>{''.join(parts)}</div>"


def table_fragment(table: Table) -> str:
    """A table with its note; invalid rows are red, and their title says so to screen readers."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in table.headings)
    rows = []
    for mark, cells in table.cells:
        style = f'{_INVALID_STYLE} title="not valid"' if mark == "invalid" else ""
        texts = "".join(f"<td>{escape(cell.text or '')}</td>" for cell in cells)
        rows.append(f"<tr{style}>{texts}</tr>")
    note = f"<p><small>{escape(safe_lines(table.note))}</small></p>" if table.note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}"
