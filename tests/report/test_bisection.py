import io
import json

import pytest

from perfkit.bisection.folder import Bisection
from perfkit.bisection.revisions import Revision
from perfkit.report.bisection import gates_table, print_bisection, render_bisection_markdown
from perfkit.units import format_signed_change
from tests.simulated_revisions import SimulatedRevisions, bisect, slower_from


@pytest.fixture
def found(tmp_path):
    """A bisection of eight revisions, of which the sixth is the first slower one and the fourth is broken."""
    slowdowns = slower_from(6, 8, throughput=1.5)
    return bisect(SimulatedRevisions(slowdowns, faults={4: "broken"}), tmp_path / "out")


def renamed(bisection: Bisection, subject: str) -> Bisection:
    """The same bisection with other subjects."""
    document = json.loads(json.dumps(bisection.document()))
    for revision in [document["first_slower"], document["good"], document["bad"], *(gate["revision"] for gate in document["gates"])]:
        revision["subject"] = subject
    return Bisection.model_validate(document)


def test_the_table_has_the_revisions_in_the_order_of_their_history(found):
    table = gates_table(found)
    assert [row["position"] for row in table.records] == [3, 4, 5, 6, 8]
    assert [row["outcome"] for row in table.records] == ["not slower", "skipped", "not slower", "slower", "slower"]
    assert table.texts[0][0] == "3 of 8"
    assert table.texts[1][-2:] == ["–", "skipped"]
    assert table.texts[-1][1] == found.bad.short


def test_a_change_is_shown_with_its_interval_and_a_share_in_points():
    assert format_signed_change("ratio", 1.1234, (1.079, 1.168)) == "+12.3 % [+7.9, +16.8]"
    assert format_signed_change("ratio", 0.5, (None, 0.75)) == "-50.0 % [-25.0 or less]"
    assert format_signed_change("difference", 0.005, (0.001, 0.009)) == "+0.50 points [+0.10, +0.90]"
    assert format_signed_change("difference", -0.005) == "-0.50 points"


def test_stdout_begins_with_the_answer_and_ends_with_how_sure_it_is(found, monkeypatch):
    stdout = io.StringIO()
    monkeypatch.setattr("sys.stdout", stdout)
    monkeypatch.setenv("COLUMNS", "300")
    print_bisection(found)
    lines = stdout.getvalue().splitlines()
    assert lines[0] == f"FOUND: {found.first_slower.short} (Change 6) is the first revision that is slower."
    assert "the answer is wrong with a probability of at most 4%" in stdout.getvalue()
    assert "slower is beyond -" in stdout.getvalue()


def test_foreign_subjects_cannot_end_a_table_or_a_line(found):
    odd = renamed(found, "| a | <b>`x`</b>\n## heading")
    markdown = render_bisection_markdown(odd)
    assert "<b>" not in markdown
    assert "\n## heading" not in markdown
    rows = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert Revision.model_validate(odd.document()["bad"]).subject.startswith("| a |")
