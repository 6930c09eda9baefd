"""The report of a sweep: one table over all its cases."""

import csv
import dataclasses
import re

import pytest

from perfkit.cli.main import main
from perfkit.comparison.point_figures import FIGURES
from perfkit.comparison.sweep_ranking import RankedCase, SweepRanking, rank_sweep
from perfkit.errors import ResultError, UsageError
from perfkit.report.chart_panel import legend_keys
from perfkit.report.render import render_text
from perfkit.report.sweep import print_sweep, sweep_picture, sweep_table, write_sweep_report
from perfkit.report.sweep_ranking import ranking_headline, ranking_sentences
from perfkit.result.file import read_result
from perfkit.result.search import Search
from perfkit.result.sweep import SweepFolder, SweepRank, read_sweep
from perfkit.stats.ranking import parse_constraint
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import format_rate_per_s
from tests.report.conftest import Synthetic
from tests.report.subject_pages import sweep_page

CASES: list[tuple[dict[str, int], dict[str, int]]] = [({"workload.batch_size": size, "server.threads": 2}, {}) for size in (1, 4, 8)]


@pytest.fixture
def folder(tmp_path):
    """A sweep of three cases: one complete, one failed, one not valid."""
    sweep = SweepFolder(tmp_path / "sweep", "threads", CASES)
    folders = [sweep.folder / case.folder for case in sweep.document.cases]
    Synthetic(folders[0], protocols=("http",), concurrencies=(1, 2), repetitions=1).write()
    Synthetic(folders[2], protocols=("http",), concurrencies=(4,), repetitions=1, cpu_share=0.95).write()
    sweep.record(0, "complete")
    sweep.record(1, "failed", "the model has no batches")
    sweep.record(2, "invalid", "some points are not valid")
    return sweep.folder


def test_the_table_has_a_row_per_load_point_and_the_reason_of_a_failed_case(folder, capsys, monkeypatch):
    table = sweep_table(folder, read_sweep(folder))
    assert table.headings[:4] == ["workload.batch_size", "server.threads", "protocol", "load"]
    assert [row[:4] for row in table.texts] == [
        ["1", "2", "http", "concurrency 1"],
        ["1", "2", "http", "concurrency 2"],
        ["4", "2", "–", "–"],
        ["8", "2", "http", "concurrency 4"],
    ]
    assert [row[-1] for row in table.texts] == ["–", "–", "the model has no batches", "not valid"]
    assert table.marks == ("", "", "", "invalid")
    monkeypatch.setenv("COLUMNS", "200")
    print_sweep(folder, read_sweep(folder))
    answer = "The cases are not ranked: fewer than two have a valid load point, or a search."
    assert capsys.readouterr().out == f"\n{answer}\n\n{render_text(table)}\n"


def test_the_report_is_markdown_html_and_csv(folder):
    assert [file.name for file in write_sweep_report(folder)] == ["report.md", "report.html", "sweep.csv"]
    markdown, page = ((folder / name).read_text() for name in ("report.md", "report.html"))
    assert "1 of 3 cases complete, 1 failed, 1 invalid." in markdown
    assert "**The cases are not ranked: fewer than two have a valid load point, or a search.**" in markdown
    assert "the model has no batches" in page
    assert 'href="batch_size=1_threads=2/report.html"' in page
    rows = list(csv.DictReader((folder / "sweep.csv").read_text().splitlines()))
    figures = [(row["workload.batch_size"], row["level"], row["valid"]) for row in rows]
    assert figures == [("1", "1", "True"), ("1", "2", "True"), ("8", "4", "False")]


def test_a_search_has_one_row(folder, monkeypatch):
    search = Search(
        slo={"p99": "50ms"}, capacity_per_s=120.0, low_per_s=110.0, high_per_s=None, confidence=0.9, precision=0.05,
        stopped_because="max_probes", reason="The budget was spent.",
    )  # fmt: skip
    result = Synthetic(folder.parent / "search", protocols=("http",), concurrencies=(1,), repetitions=1).write()
    monkeypatch.setattr("perfkit.report.sweep.read_result", lambda path: (result.model_copy(update={"search": search}), path))
    table = sweep_table(folder, read_sweep(folder))
    assert table.texts[0][2:] == ["http", "120/s", "110/s", "–", "0", "max probes"]


def test_a_result_that_cannot_be_believed_is_a_row_with_the_reason(folder):
    file = folder / "batch_size=1_threads=2" / "result.json"
    text = file.read_text()
    (file.parent / "checksums.sha256").unlink(missing_ok=True)
    file.write_text(text.replace('"sent": ', '"sent": 9', 1))
    table = sweep_table(folder, read_sweep(folder))
    assert any("result.json: points.0.requests.s" in str(row[-1]) for row in table.rows)


@pytest.fixture
def ranked_folder(tmp_path):
    """A sweep of two cases with two repetitions of two load points each; the second server is a fifth slower."""
    values: list[tuple[dict[str, int], dict[str, int]]] = [({"server.threads": threads}, {}) for threads in (1, 2)]
    sweep = SweepFolder(tmp_path / "sweep", "threads", values, SweepRank(where=("error_rate<1%",)))
    for case, service_ms in zip(sweep.document.cases, (50.0, 40.0), strict=True):
        Synthetic(sweep.folder / case.folder, protocols=("http",), concurrencies=(1, 2), service_ms=service_ms).write()
    for index in range(2):
        sweep.record(index, "complete")
    return sweep.folder


def test_the_ranking_is_in_the_report_on_the_console_and_in_a_file(ranked_folder, capsys):
    written = write_sweep_report(ranked_folder)
    assert [str(file.relative_to(ranked_folder)) for file in written][-2:] == ["ranking.csv", "plots/ranking.svg"]
    print_sweep(ranked_folder, read_sweep(ranked_folder))
    printed = capsys.readouterr().out
    rows = list(csv.DictReader((ranked_folder / "ranking.csv").read_text().splitlines()))
    assert [(row["rank"], row["server.threads"], row["load"], row["constraints"]) for row in rows] == [
        ("1", "2", "concurrency 2", "all hold"), ("2", "1", "concurrency 2", "all hold"),
    ]  # fmt: skip
    assert float(rows[0]["inferences_low_per_s"]) < float(rows[0]["inferences_per_s"]) < float(rows[0]["inferences_high_per_s"])
    for text, end in ((printed, ": "), ((ranked_folder / "report.html").read_text().replace("&lt;", "<"), ".</p>")):
        assert f"threads=2 at concurrency 2 has the highest throughput of the cases that satisfy error_rate < 1 %{end}" in text


def first_block(folder):
    """The headline of a sweep's page, from its ranking."""
    sweep = read_sweep(folder)
    results = [(case.values, read_result(folder / case.folder)[0]) for case in sweep.cases]
    ranking = rank_sweep(results, None, [parse_constraint(text, FIGURES) for text in sweep.rank.where])
    assert ranking is not None
    return ranking, ranking_headline(ranking)


def test_the_page_begins_with_the_best_case_and_its_lead_with_its_interval(ranked_folder):
    ranking, headline = first_block(ranked_folder)
    best, second = (one.figures["throughput"] for one in ranking.rows)
    assert (headline.word, headline.trust) == ("best case", "good")
    assert headline.figure == format_rate_per_s(best.value)
    assert headline.interval == f"{format_rate_per_s(best.low)} to {format_rate_per_s(best.high)}"
    assert headline.caption == "throughput: threads=2 at concurrency 2"
    lead = headline.facts[0]
    assert lead.name == "throughput against threads=1"
    assert float(lead.figure.rstrip(" %")) == pytest.approx(100 * (best.value / second.value - 1), abs=0.06)
    low, high = (float(end) for end in re.match(r"([+-][\d.]+) to ([+-][\d.]+) \(95 %\)$", lead.interval).groups())
    assert 0 < low < float(lead.figure.rstrip(" %")) < high
    page = (write_sweep_report(ranked_folder), (ranked_folder / "report.html").read_text())[1]
    assert page.index("best case") < page.index("<figure>") < page.index("<h2>Ranking</h2>") < page.index("<h2>Cases</h2>")
    assert ranking_headline(ranking, "1 of 2 cases complete").word == "best so far, 1 of 2 cases complete"


def test_without_a_shown_difference_no_case_is_called_better(tmp_path):
    sweep = SweepFolder(tmp_path / "sweep", "threads", CASES[:2])
    for case in sweep.document.cases:
        Synthetic(sweep.folder / case.folder, protocols=("http",), concurrencies=(1, 2)).write()
    for index in range(2):
        sweep.record(index, "complete")
    ranking, headline = first_block(sweep.folder)
    assert ranking.rows[1].rank == 1
    assert (headline.word, headline.trust) == ("no case is shown to be better", "open")


@pytest.mark.parametrize(("second", "trust"), [("violated", "good"), ("cannot be told", "open")])
def test_a_case_without_another_that_is_ranked_is_the_only_one_known_to_satisfy_the_constraints(second, trust):
    figures = {"throughput": Estimate(100.0, 90.0, 110.0)}
    ranked = RankedCase({"n": 1}, "http", "concurrency 1", 1, "holds", (), figures, 3, None)
    rows = [ranked, dataclasses.replace(ranked, values={"n": 2}, rank=None, verdict=second)]
    headline = ranking_headline(SweepRanking("throughput", tuple(rows), (), (), 0.95))
    assert (headline.word, headline.trust, headline.facts) == ("the only case known to satisfy the constraints", trust, ())


def test_constraints_that_no_case_satisfies_are_the_word(ranked_folder):
    file = ranked_folder / "sweep.json"
    file.write_text(file.read_text().replace("error_rate<1%", "throughput>10000/s"))
    _, headline = first_block(ranked_folder)
    assert (headline.word, headline.trust) == ("no case satisfies the constraints", "bad")


def test_the_warnings_of_the_cases_are_on_the_page_with_their_cases(tmp_path):
    page = sweep_page(tmp_path).read_text()
    attention = page[page.index("<h2>Attention</h2>") : page.index("<h2>Cases</h2>")]
    assert "The server&#39;s response cache answered 40 to 80 of 500 requests." in attention
    assert "threads=2: all load points; threads=4: all load points" in attention
    assert ">--set workload.variants=N<" in attention


@pytest.mark.parametrize(
    ("by", "rule"),
    [
        ("throughput", "the ratio excludes 1 (from the scatter of the repetitions"),
        ("p99", "the ratio excludes 1 (from the intervals of both figures)"),
        ("error_rate", "the difference of both error rates excludes 0:"),
    ],
)
def test_the_note_says_how_cases_are_compared(ranked_folder, by, rule):
    write_sweep_report(ranked_folder, by)
    assert f"One is better if the 95 % interval of {rule}" in (ranked_folder / "report.md").read_text()


@pytest.mark.parametrize(
    ("groups", "pairing"),
    [
        ((1, 1, 1), "which are paired: what a repetition"),
        ((1, 1, None), "which are paired between cases that were interleaved: what"),
        ((1, 2, 3), "which are not paired)"),
    ],
)
def test_the_note_says_whether_repetitions_are_paired(tmp_path, groups, pairing):
    sweep = SweepFolder(tmp_path / "sweep", "threads", CASES)
    for group in sorted({group for group in groups if group}):
        sweep.record_group([index for index, one in enumerate(groups) if one == group])
    for case in sweep.document.cases:
        Synthetic(sweep.folder / case.folder, protocols=("http",), concurrencies=(1,), repetitions=3).write()
    for index in range(3):
        sweep.record(index, "complete")
    write_sweep_report(sweep.folder)
    assert f"(from the scatter of the repetitions, {pairing}" in (sweep.folder / "report.md").read_text()


def test_options_replace_the_ranking_of_the_scenario(ranked_folder):
    write_sweep_report(ranked_folder, "p99", ["p99<1s", "throughput>10000/s"])
    rows = list(csv.DictReader((ranked_folder / "ranking.csv").read_text().splitlines()))
    assert [(row["rank"], row["server.threads"]) for row in rows] == [("", "2"), ("", "1")]
    assert {row["constraints"].split(";")[0] for row in rows} == {"violated: throughput > 10,000/s"}
    with pytest.raises(UsageError, match="--rank-by 'speed' is not a known figure; known are throughput, "):
        write_sweep_report(ranked_folder, "speed")
    with pytest.raises(UsageError, match="--where: expected a constraint such as 'gpu_memory<40GiB', found 'fast'"):
        write_sweep_report(ranked_folder, None, ["fast"])


def test_a_stored_ranking_that_cannot_be_read_is_refused(ranked_folder):
    file = ranked_folder / "sweep.json"
    file.write_text(file.read_text().replace("error_rate<1%", "speed<1%"))
    with pytest.raises(ResultError, match=r"sweep\.json: the cases cannot be ranked: 'speed' is not a known figure"):
        write_sweep_report(ranked_folder)


def test_many_ties_are_listed_in_one_sentence():
    rows = [
        RankedCase(
            {"server.threads": number}, "http", "concurrency 1", 1, "holds", (), {"throughput": Estimate(100.0, 90.0, 110.0)}, 3, 2.5
        )
        for number in range(7)
    ]
    sentences = list(ranking_sentences(SweepRanking("throughput", tuple(rows), (), (), 0.95)))
    assert sentences[1] == (
        "threads=1 (100/s (90.0/s to 110/s)) is indistinguishable from it. About 8 repetitions of each (now 3) would tell them apart, or windows "
        "2.5 times as long."
    )
    assert sentences[4:] == ["Also indistinguishable from it: threads=4; threads=5; threads=6."]


def test_a_figure_that_no_case_has_is_said(ranked_folder, capsys):
    write_sweep_report(ranked_folder, "capacity")
    sentence = "The cases are not ranked by capacity: fewer than two have a valid load point, or a search, with this figure."
    assert sentence in (ranked_folder / "report.md").read_text()
    assert not (ranked_folder / "ranking.csv").exists()
    file = ranked_folder / "sweep.json"
    file.write_text(file.read_text().replace('"by": null', '"by": "capacity"'))
    print_sweep(ranked_folder, read_sweep(ranked_folder))
    assert capsys.readouterr().out.startswith(f"\n{sentence}\n")


def test_only_a_sweep_can_be_ranked_again(ranked_folder, capsys):
    case = ranked_folder / "threads=1"
    assert main(["report", str(case), "--rank-by", "p99"]) == 2
    assert f"{case}: --rank-by and --where rank the cases of a sweep, and this is not a sweep's folder" in capsys.readouterr().err
    assert not (case / "report.html").exists()


@pytest.mark.parametrize(
    ("p99", "requests", "reason"),
    [
        (
            Estimate(66e6, 60e6, None),
            500,
            "500 requests are too few for an upper end of its interval, which needs 662; measure about 1.4 times as long.",
        ),
        (Estimate(149e6, 140e6, 160e6), 5000, "its interval contains the limit; measure longer, four times as long for half the width."),
    ],
)
def test_a_constraint_that_cannot_be_judged_has_its_reason_and_no_case_is_the_large_figure(p99, requests, reason):
    rows = tuple(
        RankedCase(
            {"n": n}, "http", "concurrency 1", 1, "cannot be told", (("p99 < 150 ms", "cannot be told"),),
            {"throughput": Estimate(100.0 - n, 90.0, 110.0), "p99": p99}, 3, None, requests=requests,
        )
        for n in (1, 2)
    )  # fmt: skip
    ranking = SweepRanking("throughput", rows, (), (), 0.95)
    first = next(ranking_sentences(ranking, has_figure=False))
    assert first.endswith(f"Whether it satisfies p99 < 150 ms is not known: {reason}")
    headline = ranking_headline(ranking)
    assert (headline.figure, headline.word) == ("", "no case is shown to satisfy the constraints")
    assert (headline.facts[0].name, headline.facts[0].figure) == ("throughput: n=1 at concurrency 1, the best guess", "99.0/s")


def test_each_case_has_one_legend_entry_and_the_marks_tell_what_holds(tmp_path):
    page = sweep_page(tmp_path).read_text()
    group = sweep_picture(tmp_path / "sweep")[2]
    assert group is not None
    (chart,) = group.charts
    assert [key.name for key in legend_keys(chart)] == ["1: threads=2", "2: threads=4", "3: threads=1", "limit on p99"]
    marks = {label: line.style for line in chart.lines for label in line.labels}
    assert marks == {
        "concurrency 1": "dots",
        "concurrency 2": "large",
        "concurrency 1, not known whether it satisfies the constraints": "hollow",
        "concurrency 8, violates a constraint": "cross",
    }
    assert "best case" in page
