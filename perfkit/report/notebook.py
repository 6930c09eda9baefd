"""The top of a run's page for a notebook: HTML without scripts, style sheets and identifiers, so that it cannot disturb what is around it."""

from html import escape

from perfkit.report.answer import answer
from perfkit.report.chart_svg import render_group
from perfkit.report.grouped_warnings import grouped_warnings
from perfkit.report.headline import run_headline
from perfkit.report.page import Headline
from perfkit.report.run import status_sentence
from perfkit.report.run_charts import summary_groups
from perfkit.report.run_tables import terminal_table
from perfkit.report.table import Table
from perfkit.result.model import Result
from perfkit.text import one_line, safe_lines
from perfkit.units import format_confidence

_INVALID_STYLE = ' style="color:#c0392b"'
_COLOURS = {"good": "#1a7f37", "open": "#9a6700", "bad": "#c0392b"}
_SHAPES = {"good": "✓", "open": "▲", "bad": "✕"}


def result_fragment(result: Result) -> str:
    """A result's status unless complete, its headline, the answer, the main chart, the load points, the warnings, and the codes of the notes."""
    name, status, headline = one_line(str(result.scenario.get("name") or "result")), status_sentence(result), run_headline(result)
    parts = [f"<strong>{escape(name)}</strong>"]
    parts += [f"<p{_INVALID_STYLE}><strong>{escape(safe_lines(status))}</strong></p>"] if status else []
    parts += [_headline_fragment(headline)] if headline else []
    parts += [f"<p>{escape(safe_lines(text))}</p>" for text in answer(result, is_beside_figures=headline is not None)]
    parts += [render_group(group).partition("\n")[2] for group in list(summary_groups(result).values())[:1]]
    parts += [table_fragment(terminal_table(result.summary))] if result.summary else []
    found = grouped_warnings(result.summary)
    warnings = [
        f"<li><code>{escape(one_line(warning.code))}</code> ({escape(safe_lines(warning.load_points))}) {escape(safe_lines(warning.sentences))}</li>"
        for warning in found
        if not warning.is_note
    ]
    parts += ["<ul>", *warnings, "</ul>"] if warnings else []
    if notes := sorted({one_line(warning.code) for warning in found if warning.is_note}):
        parts.append(f"<p><small>{len(notes)} note{'s' * (len(notes) > 1)}: {escape(', '.join(notes))}</small></p>")
    return f"<div>{''.join(parts)}</div>"


def _headline_fragment(headline: Headline) -> str:
    """The word, the large figure with its interval, and the others in a row."""
    colour = _COLOURS[headline.trust]
    word = f'<p style="color:{colour};margin:0.4em 0"><strong>{_SHAPES[headline.trust]} {escape(safe_lines(headline.word))}</strong></p>'
    interval = f"{format_confidence(headline.confidence)} interval: {headline.interval}" if headline.interval else ""
    figures = [(headline.figure, headline.caption, interval, "2.4em")] if headline.figure else []
    figures += [(fact.figure, fact.name, fact.interval, "1.3em") for fact in headline.facts]
    blocks = "".join(
        f'<div><div style="font-size:{size};font-weight:600;line-height:1.1">{escape(safe_lines(figure))}</div>'
        f"{escape(safe_lines(caption))}<br><small>{escape(safe_lines(bounds))}</small></div>"
        for figure, caption, bounds, size in figures
    )
    return f'{word}<div style="display:flex;flex-wrap:wrap;gap:0.6em 2em;align-items:flex-end">{blocks}</div>'


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
