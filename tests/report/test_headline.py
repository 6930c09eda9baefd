"""The large figure at the top of a page, and how far it can be trusted."""

import dataclasses

import pytest

from perfkit.comparison.result_comparison import ComparedResult, MetricRow, ResultComparison
from perfkit.errors import MeasurementWarning
from perfkit.gate.sentences import worst_of
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Step, Trend
from perfkit.report.answer import answer_loads
from perfkit.report.comparison import comparison_headline, comparison_html
from perfkit.report.headline import run_headline
from perfkit.report.history import trends_headline
from perfkit.report.page import Fact, Paragraph
from perfkit.report.verdict_page import decision_sentence, verdict_page
from perfkit.result.search import Search
from perfkit.stats.ratio_interval import Estimate
from tests import stored_results
from tests.report.test_answer import BUSY, GPU_IDLE, LATE, OVERLOADED, UNSTEADY, closed, made, open_
from tests.report.test_verdict import comparison, verdict

SHARE = {
    "unit": "share",
    "scale": "difference",
    "baseline": 0.0,
    "candidate": 0.0,
    "estimate": 0.0,
    "interval": (-0.001, 0.05),
    "margin": 0.01,
}
CACHED = MeasurementWarning("cache_hits", "The cache answered.")
WRONG = MeasurementWarning("invalid_output", "Checked answers were wrong.")
MET, MISSED, UNCLEAR = "satisfied", "violated", "inconclusive"


@pytest.mark.parametrize(
    ("result", "figure", "caption", "interval"),
    [
        (closed(812.0), "812/s", "throughput at concurrency 1", "809/s to 815/s"),
        (closed(200.0, 500.0, 812.0, 815.0), "812/s", "throughput at concurrency 4", "809/s to 815/s"),
        (closed(200.0, 500.0, 812.0, error=None), "812/s", "throughput at concurrency 4", ""),
        (closed(200.0, 500.0, 812.0, verdicts=[MET, MET, MISSED]), "500/s", "throughput at concurrency 2", "498/s to 502/s"),
        (closed(200.0, 500.0, verdicts=[MISSED, MISSED]), "200/s", "throughput at concurrency 1", "199/s to 201/s"),
        (open_([100, 200, 400], [100.0, 199.0, 250.0], warnings=[(), (), (OVERLOADED,)]), "199/s", "throughput answered of 200/s", "198/s to 200/s"),
        (closed(200.0, 900.0, valid=[True, False]), "200/s", "throughput at concurrency 1", "199/s to 201/s"),
    ],
)  # fmt: skip
def test_the_figure_is_that_of_the_load_point_that_the_answer_is_about(result, figure, caption, interval):
    found = run_headline(result)
    assert found is not None
    assert (found.figure, found.caption, found.interval) == (figure, caption, interval)


def test_of_several_protocols_the_faster_one_is_large_and_the_others_stand_beside_it():
    loads = [point.load for point in closed(1.0, 2.0).summary]
    found = run_headline(made([*loads, *loads], [200.0, 300.0, 210.0, 410.0], protocols=["http", "http", "grpc", "grpc"]))
    assert found is not None
    assert (found.figure, found.caption) == ("410/s", "throughput at concurrency 2 over grpc")
    assert [(fact.name, fact.figure) for fact in found.facts] == [
        ("p50", "2.00 ms"), ("p99", "6.00 ms"), ("failed", "0"), ("throughput over http", "300/s"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("result", "word", "trust"),
    [
        (closed(812.0), "valid", "good"),
        (closed(812.0, warnings=[(BUSY,)]), "valid, on a busy machine", "good"),
        (closed(812.0, verdicts=[MET], warnings=[(BUSY,)]), "SLO met, on a busy machine", "good"),
        (closed(812.0, verdicts=[MET]), "SLO met", "good"),
        (closed(812.0, verdicts=[MISSED]), "SLO missed", "bad"),
        (closed(812.0, verdicts=[UNCLEAR]), "SLO unclear", "open"),
        (closed(812.0, warnings=[(UNSTEADY,)]), "not steady", "open"),
        (closed(812.0, warnings=[(UNSTEADY, GPU_IDLE)]), "GPU idle", "open"),
        (closed(812.0, verdicts=[MET], warnings=[(GPU_IDLE,)]), "SLO met, GPU idle", "open"),
        (closed(812.0, verdicts=[MISSED], warnings=[(GPU_IDLE,)]), "SLO missed", "bad"),
        (closed(812.0, warnings=[(CACHED,)]), "1 warning", "open"),
        (closed(812.0, warnings=[(CACHED, WRONG, BUSY)]), "2 warnings", "open"),
        (closed(500.0, error_rates=[0.3]), "30.00% failed", "open"),
        (closed(500.0, error_rates=[0.005]), "valid", "good"),
        (closed(812.0).model_copy(update={"status": "interrupted"}), "interrupted", "open"),
        (closed(812.0).model_copy(update={"status": "unsuccessful"}), "most requests failed", "bad"),
        (closed(200.0, 812.0, valid=[True, False], warnings=[(), (LATE,)]).model_copy(update={"status": "invalid"}), "1 of 2 load points not valid", "open"),
    ],
)  # fmt: skip
def test_the_word_says_how_far_to_trust_it(result, word, trust):
    found = run_headline(result)
    assert found is not None
    assert (found.word, found.trust) == (word, trust)


def test_a_protocol_that_meets_the_slo_comes_before_a_faster_one_that_misses_it():
    load = closed(1.0).summary[0].load
    found = run_headline(made([load, load], [900.0, 1000.0], protocols=["http", "grpc"], verdicts=[MET, MISSED]))
    assert found is not None
    assert (found.figure, found.word) == ("900/s", "SLO met")
    assert found.facts[-1] == Fact("throughput over grpc", "1,000/s", "SLO missed")


@pytest.mark.parametrize(
    ("reason", "low", "high", "figure", "interval", "word"),
    [
        ("precision", 490.0, 510.0, "500/s", "490/s to 510/s", "confirmed at 490/s"),
        ("never_missed", 500.0, None, "≥ 500/s", "500/s or more", "confirmed"),
        ("budget", None, 510.0, "500/s", "510/s or less", "not decided yet"),
    ],
)
def test_the_headline_of_a_search_says_no_more_than_the_search(reason, low, high, figure, interval, word):
    search = Search(
        slo={"p99": "25ms"},
        capacity_per_s=500.0,
        low_per_s=low,
        high_per_s=high,
        confidence=0.9,
        precision=0.05,
        stopped_because=reason,
        reason="x",
    )
    found = run_headline(stored_results.result().model_copy(update={"search": search}))
    assert found is not None
    assert (found.figure, found.interval, found.word) == (figure, interval, word)


@pytest.mark.parametrize(
    ("result", "marks"),
    [
        (closed(200.0, 500.0, 812.0, 815.0), [(4, "enough")]),
        (closed(200.0, 500.0, 812.0), []),
        (closed(200.0, 500.0, verdicts=[MET, MISSED]), [(1, "SLO met up to here")]),
        (closed(200.0, 500.0, verdicts=[MISSED, MISSED]), [(1, "SLO missed")]),
        (closed(200.0, 500.0, verdicts=[UNCLEAR, MISSED]), [(1, "SLO unclear")]),
        (open_([100, 200], [90.0, 90.0], warnings=[(OVERLOADED,)] * 2), []),
        (open_([100, 200], [100.0, 190.0], error_rates=[0.4, 0.4]), []),
        (open_([100, 200], [100.0, 190.0], warnings=[(), (OVERLOADED,)]), [(100, "kept up")]),
    ],
)
def test_the_charts_mark_the_load_that_the_answer_is_about_with_its_words(result, marks):
    assert [(point.load.level, text) for point, text in answer_loads(result.summary)] == marks


def test_without_a_valid_load_point_there_is_no_large_figure():
    assert run_headline(closed(812.0, valid=[False], warnings=[(LATE,)])) is None
    assert run_headline(stored_results.result().model_copy(update={"summary": ()})) is None


@pytest.mark.parametrize(
    ("kind", "comparisons", "figure", "caption", "trust"),
    [
        ("regressed", [comparison(), comparison("p50", "pass")], "+12.3 %", "p99, grpc, concurrency 16: from 2.00 ms to 2.25 ms", "bad"),
        ("pass", [comparison("p50", "pass", interval=(0.99, 1.02)), comparison("p99", "pass", interval=(0.9, 1.041))], "≤ 4.1 %",
         "the largest slowdown that is not ruled out: p99, grpc, concurrency 16", "good"),
        ("pass", [comparison("throughput", "pass", better="higher", estimate=1.0, interval=(0.8, 1.1))], "≤ 25.0 %",
         "the largest slowdown that is not ruled out: throughput, grpc, concurrency 16", "good"),
        ("inconclusive", [comparison("p99", "inconclusive", interval=(0.9, None))], "", "", "open"),
        ("inconclusive", [comparison("p50", "pass", interval=(0.99, 1.005)), comparison("error_rate", "inconclusive", **SHARE)], "≤ 5.00 points",
         "the largest slowdown that is not ruled out: error rate, grpc, concurrency 16", "open"),
        ("invalid", [], "", "", "bad"),
    ],
)  # fmt: skip
def test_a_gate_shows_the_regression_or_what_it_has_not_ruled_out(kind, comparisons, figure, caption, trust):
    found = verdict_page(verdict(kind, *comparisons)).sections[0].blocks[0]
    assert (found.word, found.figure, found.caption, found.trust) == (kind, figure, caption, trust)


def test_a_gate_without_a_ratio_is_told_by_its_error_rate():
    rate = comparison(
        "error_rate",
        "pass",
        unit="share",
        scale="difference",
        baseline=0.0,
        candidate=0.0,
        estimate=0.0,
        interval=(-0.001, 0.002),
        margin=0.01,
    )
    assert worst_of(verdict("pass", rate)) == rate
    assert worst_of(verdict("invalid")) is None


def compared(*rows, status="complete", sides=2):
    return ResultComparison(
        tuple(ComparedResult(f"r{number}", "2026-01-02", "", status if number == 2 else "complete", ()) for number in range(1, sides + 1)),
        (),
        rows,
    )


def row(metric, low, value, high, *others, better="lower", unit="ns", load_point="http, concurrency 4"):
    changes = (None, Estimate(value, low, high), *others)
    return MetricRow(load_point, metric, unit, better, (Estimate(1.0, 1.0, 1.0),) * len(changes), changes)


SLOWER, FASTER, SAME = row("p99", 1.05, 1.1, 1.15), row("p50", 0.7, 0.8, 0.9), row("p95", 0.9, 1.0, 1.1)
MORE = row("throughput", 1.2, 1.3, 1.4, better="higher", unit="per_s")


@pytest.mark.parametrize(
    ("comparison_of_results", "word", "trust", "figure", "interval", "caption"),
    [
        (compared(SLOWER, SAME), "worse", "bad", "+10.0 %", "+4.3 to +15.7", "p99, http, concurrency 4: [2] r2 against [1] r1, the largest change of 2 figures"),
        (compared(FASTER, MORE), "better", "good", "+30.0 %", "+18.6 to +41.5", "throughput, http, concurrency 4: [2] r2 against [1] r1, the largest change of 2 figures"),
        (compared(SLOWER, FASTER), "better and worse", "open", "-20.0 %", "-31.3 to -8.5", "p50, http, concurrency 4: [2] r2 against [1] r1, the largest change of 2 figures"),
        (compared(SAME), "no change is shown", "open", "", "", ""),
        (compared(SLOWER, status="invalid"), "[2] not valid", "bad", "", "", ""),
        (compared(SLOWER, status="unsuccessful"), "[2] failed most requests", "bad", "", "", ""),
        (compared(row("error rate", 0.01, 0.02, 0.03, unit="share"), SLOWER), "worse", "bad", "+10.0 %", "+4.3 to +15.7", "p99, http, concurrency 4: [2] r2 against [1] r1, the largest change of 2 figures"),
        (compared(row("error rate", 0.01, 0.02, 0.03, unit="share")), "worse", "bad", "+2.00 points", "+1.00 to +3.00", "error rate, http, concurrency 4: [2] r2 against [1] r1"),
    ],
)  # fmt: skip
def test_a_comparison_shows_the_largest_change_beyond_chance(comparison_of_results, word, trust, figure, interval, caption):
    found = comparison_headline(comparison_of_results)
    assert (found.word, found.trust, found.figure, found.interval, found.caption) == (word, trust, figure, interval, caption)


def test_further_results_have_their_largest_change_beside_it():
    found = comparison_headline(compared(row("p99", 1.05, 1.1, 1.15, Estimate(1.5, 1.4, 1.6)), sides=3))
    assert (found.figure, found.caption) == ("+50.0 %", "p99, http, concurrency 4: [3] r3 against [1] r1, the largest change of 2 figures")
    assert found.facts == (Fact("p99, http, concurrency 4: [2] r2", "+10.0 %", "+4.3 to +15.7"),)


def test_the_largest_of_many_changes_has_an_interval_that_allows_for_their_number():
    # one that just shows a change by itself: by Bonferroni a true one of 24 needs z = 3.08 instead of 1.96
    lone = row("p99", 1.001, 1.05, 1.1)
    assert comparison_headline(compared(lone)).figure == "+5.0 %"
    many = compared(lone, *[dataclasses.replace(SAME, metric=f"p{number}") for number in range(23)])
    assert (comparison_headline(many).word, comparison_headline(many).figure) == ("no change beyond chance", "")
    assert "the headline counts one of these 24 only if its 99.79 % interval shows it." in comparison_html(many)
    assert "one in twenty" not in comparison_html(compared(SAME, SAME))


@pytest.mark.parametrize(("degrees", "is_shown"), [(None, True), (2, False)])
def test_a_change_of_few_repetitions_is_widened_by_the_t_distribution(degrees, is_shown):
    # for 24 figures the t of two degrees grows by 5.1, the normal quantile by 1.57
    one = dataclasses.replace(row("throughput", 1.04, 1.1, 1.163, better="higher", unit="per_s"), degrees=(None, degrees))
    many = compared(one, *[dataclasses.replace(SAME, metric=f"p{number}") for number in range(23)])
    assert (comparison_headline(many).figure == "+10.0 %") is is_shown


@pytest.mark.parametrize(
    ("changed", "is_explained"),
    [(SLOWER, True), (row("error rate", 0.01, 0.02, 0.03, unit="share"), False), (row("CPU time", 1.1, 1.2, 1.3), False)],
)
def test_only_times_and_throughput_that_are_worse_lead_to_an_explanation(changed, is_explained):
    page = comparison_html(compared(changed))
    assert ("perfkit explain r2" in page) is is_explained
    assert "perfkit gate SCENARIO" in page


def trend(*steps, results=20):
    entries = tuple(HistoryEntry(f"2026-01-{1 + number:02}T00:00:00.000+00:00", "c", "h", {}, "r") for number in range(results))
    return Trend(Series("smoke"), "http, concurrency 4", "p99", "ns", entries, (1e6,) * results), steps


def step(day, ratio, accepted_until=""):
    return Step(
        5, f"commit-of-{day}", "before", f"2026-01-{day:02}T00:00:00.000+00:00", ratio, ratio > 1, 0.001, (), "known", accepted_until
    )


def throughput_trend(*steps):
    whole, _ = trend()
    return dataclasses.replace(whole, metric="throughput", unit="per_s"), [
        dataclasses.replace(one, is_worse=one.ratio < 1) for one in steps
    ]


@pytest.mark.parametrize(
    ("trends", "word", "trust", "figure", "caption"),
    [
        ([trend(step(3, 1.3), step(9, 1.2), step(12, 0.7))], "2 times worse, last since 2026-01-09", "bad", "+20.0 %", "p99, http, concurrency 4, smoke: commit commit-of-"),
        ([trend(step(9, 1.3)), throughput_trend(step(9, 0.8))], "worse since 2026-01-09", "bad", "+30.0 %", "p99, http, concurrency 4, smoke: commit commit-of-"),
        ([trend(dataclasses.replace(step(9, 1.3), commit=""))], "worse since 2026-01-09", "bad", "+30.0 %", "p99, http, concurrency 4, smoke: commit not recorded"),
        ([trend(step(9, 1.2, "2026-12-31"), step(12, 0.7))], "no step for the worse", "good", "", ""),
        ([trend(), trend(results=3)], "no step for the worse", "good", "", ""),
        ([trend(results=3)], "too few results to detect a step", "open", "", ""),
    ],
)  # fmt: skip
def test_a_history_shows_the_newest_step_for_the_worse_that_nobody_accepted(trends, word, trust, figure, caption):
    found = trends_headline(trends, ())
    assert (found.word, found.trust, found.figure, found.caption) == (word, trust, figure, caption)


def test_the_other_figures_of_one_step_stand_beside_it():
    found = trends_headline([trend(step(9, 1.3)), throughput_trend(step(9, 0.8))], ())
    assert found.facts == (Fact("throughput, http, concurrency 4", "-20.0 %"), Fact("time series", "2"))


def test_a_comparison_of_several_names_those_that_are_worse():
    found = comparison_headline(compared(row("p99", 1.05, 1.1, 1.15, Estimate(0.8, 0.7, 0.9)), sides=3))
    assert (found.word, found.trust) == ("[2] worse, [3] better", "open")
    unchanged = comparison_headline(compared(row("p99", 0.9, 1.0, 1.1, Estimate(1.2, 1.1, 1.3)), sides=3))
    assert (unchanged.word, unchanged.trust) == ("[3] worse", "bad")


def test_a_percentile_of_too_few_requests_is_a_fact_without_a_figure():
    result = closed(812.0)
    (point,) = result.summary
    few = point.model_copy(update={"service_time_ns": point.service_time_ns.model_copy(update={"count": 38, "p99": None})})
    found = run_headline(result.model_copy(update={"summary": (few,)}))
    assert found is not None
    assert found.facts[:2] == (found.facts[0], Fact("p99", "–", "too few requests: 38 of 662"))
    assert found.facts[0].figure == "2.00 ms"


@pytest.mark.parametrize(
    ("kind", "one", "sentence"),
    [
        ("regressed", comparison(), "Regressed, since p99 is shown to be worse by at least 7.9 %, more than the 1 % that count as no change. The estimate is beyond the margin of 10 %, which a pass must stay below."),
        ("regressed", comparison(estimate=1.08, interval=(1.005, None)), "Regressed, since p99 is shown to be worse by more than the 1 % that count as no change. The estimate is within the margin of 10 %, which a pass must stay below."),
        ("pass", comparison(verdict="pass", estimate=1.0, interval=(0.97, 1.041)), "Passed, since the whole interval of each metric is below its margin: p99 is worse by at most 4.1 %, with a margin of 10 %."),
        ("pass", comparison(verdict="pass", estimate=0.9, interval=(0.85, 0.95)), "Passed, since the whole interval of each metric is below its margin: p99 is not worse."),
        ("inconclusive", comparison(verdict="inconclusive", interval=(0.99, 1.2)), "Undecided: p99 may be worse by 20.0 %, more than its margin of 10 %, but is not shown to be worse by more than the 1 % that count as no change."),
    ],
)  # fmt: skip
def test_the_page_of_a_gate_says_by_which_rule_it_decided_no_more_than_the_interval_bears(kind, one, sentence):
    assert decision_sentence(verdict(kind, one)) == sentence
    blocks = verdict_page(verdict(kind, one)).sections[0].blocks
    assert blocks[1] == Paragraph(sentence)


def test_a_pass_names_the_metric_whose_interval_is_nearest_to_its_own_margin():
    loose = comparison("p99", verdict="pass", margin=0.2, estimate=1.0, interval=(0.97, 1.08))
    tight = comparison("p50", verdict="pass", margin=0.05, estimate=1.0, interval=(0.98, 1.04))
    told = "Passed, since the whole interval of each metric is below its margin: p50, the nearest to it, is worse by at most 4.0 %, with a margin of 5 %."
    assert decision_sentence(verdict("pass", loose, tight)) == told
