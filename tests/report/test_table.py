"""One table as text, Markdown, HTML and CSV."""

import dataclasses
import re

import pytest

from perfkit.report.page import Page, Section
from perfkit.report.render import render_csv, render_html, render_markdown_table, render_text
from perfkit.report.table import Cell, Column, Table

TABLE = Table(
    name="points",
    title="Points",
    columns=(
        Column("name", "name"),
        Column("time_ns", "time", "duration_ns"),
        Column("requests", "requests", "count"),
        Column("rate_per_s", "arrival rate of the load", "rate_per_s"),
        Column("valid", "valid", "yes_no"),
    ),
    rows=(("a|b", 1_500_000, 1200, 2.125, True), ("<c>", Cell(None, note="too few samples"), None, Cell(2.0, "about 2"), False)),
    note="A note.",
    marks=("information", "invalid"),
)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("text", "x", "x"), ("yes_no", True, "yes"), ("yes_no", False, "no"), ("duration_ns", 1_500_000, "1.50 ms"),
        ("rate_per_s", 1234.5, "1,234/s"), ("share", 0.1234, "12.3%"), ("error_rate", 0.00001, "<0.01%"), ("signed_share", -0.05, "-5.0%"),
        ("power_w", 312.34, "312.3 W"), ("energy_j", 0.12345, "0.123 J"), ("cost", 1234.5, "1,234"), ("cost", 999.5, "999.50"), ("cost", 0.0042, "0.0042"), ("cost", 0.0, "0.00"), ("count", 12345, "12,345"),
        ("number", 1.23456, "1.235"), ("number", 12345.6, "12,346"), ("number", None, "–"),
    ],
)  # fmt: skip
def test_a_value_is_written_by_its_columns_kind(kind, value, text):
    assert Column("key", "heading", kind).cell(value).text == text


def test_records_hold_plain_values_by_key():
    assert TABLE.records[1] == {"name": "<c>", "time_ns": None, "requests": None, "rate_per_s": 2.0, "valid": False}


def test_columns_without_values_are_left_out():
    table = dataclasses.replace(TABLE, rows=tuple((row[0], None, Cell(None), *row[3:]) for row in TABLE.rows))
    assert table.without_empty_columns().headings == ["name", "arrival rate of the load", "valid"]


def test_only_people_see_the_first_rows_alone():
    table = dataclasses.replace(TABLE, shown_rows=(0, 1))
    assert len(table.texts) == 1
    assert len(table.records) == len(render_csv(table, 6).splitlines()) - 1 == 2


def test_csv_keeps_integers_beside_missing_values_and_rounds_floats():
    assert render_csv(TABLE, 3).splitlines() == ["name,time_ns,requests,rate_per_s,valid", "a|b,1500000,1200,2.12,True", "<c>,,,2,False"]


def test_markdown_aligns_figures_escapes_texts_and_sets_information_in_italics():
    assert render_markdown_table(TABLE).splitlines() == [
        "| name | time | requests | arrival rate of the load | valid |",
        "|---|---:|---:|---:|---|",
        r"| *a\|b* | *1.50 ms* | *1,200* | *2.12/s* | *yes* |",
        r"| \<c\> | – | – | about 2 | no |",
        "",
        "A note.",
    ]


def test_html_marks_rows_and_notes():
    page = render_html(Page("Title", (Section("Points", (TABLE,)),)))
    assert '<tr class="invalid">' in page
    assert '<td class="figure" title="too few samples">–</td>' in page
    assert "&lt;c&gt;" in page
    assert re.search(r'</table>\s*</div>\s*<p class="muted note">A note.</p>', page), "outside of what scrolls"


def test_text_aligns_columns_and_wraps_long_headings():
    heading, second_line, _, first, second, note = render_text(TABLE).splitlines()
    assert heading.split() == ["arrival", "rate", "of"]
    assert second_line.split() == ["name", "time", "requests", "the", "load", "valid"]
    assert first.split() == ["a|b", "1.50", "ms", "1,200", "2.12/s", "yes"]
    assert second.index("about 2") + len("about 2") == first.index("2.12/s") + len("2.12/s")
    assert note == "A note."


def test_text_is_never_cut_off():
    long = "x" * 300
    table = Table("long", "Long", (Column("a", "a"), Column("b", "b")), ((long, long), ("[red]y[/red]", "z")))
    lines = render_text(table).splitlines()
    assert lines[2].split() == [long, long]
    assert lines[3].split() == ["[red]y[/red]", "z"]
