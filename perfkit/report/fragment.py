"""A result as an HTML fragment for other pages, such as notebooks; it has no style sheet, which could change those pages."""

from html import escape

from perfkit.report.answer import answer
from perfkit.report.grouped_warnings import grouped_warnings
from perfkit.report.run import status_sentence
from perfkit.report.run_tables import terminal_table
from perfkit.report.table import Table
from perfkit.result.model import Result
from perfkit.text.foreign import one_line, safe_lines

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
