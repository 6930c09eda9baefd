"""Comparisons: differences of the settings first, then figures with their changes."""

import json
import math
import re
from html.parser import HTMLParser

import pytest

from perfkit.comparison.result_comparison import compare_results
from perfkit.comparison.sweep_ranking import rank_sweep
from perfkit.errors import IncomparableError
from perfkit.report.comparison import comparison_answer, comparison_html, comparison_json, comparison_markdown, comparison_text
from perfkit.result.load import RampLoad
from perfkit.result.model import Result
from tests.stored_results import changed, document, point, result

SLOWER = {"p50_ms": 2.2, "p99_ms": 6.0, "throughput_per_s": 450.0}


def rows(compared):
    return {row.metric: row for row in compared.rows}


def test_changes_are_ratios_to_the_first_with_intervals_from_both():
    found = rows(compare_results([("a", result()), ("b", result(**SLOWER))]))
    change = found["p50"].changes[1]
    # both figures are known to 2 % each way; MOVER puts the two together
    assert change.value == pytest.approx(1.1)
    assert change.high == pytest.approx(1.1 * math.exp(math.hypot(math.log(1.02), math.log(0.98))))
    assert found["p50"].changes[0] is None
    assert found["throughput"].changes[1].value == pytest.approx(0.9)
    assert found["throughput"].better == "higher"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "[2] b: no figure shows a change from [1] a."),
        (
            {"p50_ms": 2.2, "throughput_per_s": 450.0},
            "Against [1] a, [2] b is 10.0 % slower in p50 (6.9 to 13.2 %); has 10.0 % less throughput (9.9 to 10.1 %); 4 other figures show no change.",
        ),
        ({"p50_ms": 1.8}, "Against [1] a, [2] b is 10.0 % faster in p50 (7.4 to 12.6 %); 5 other figures show no change."),
        (
            {"requests": {**point()["requests"], "ok": 4950, "rejected": 50}, "error_rate": 0.01},
            "Against [1] a, [2] b has a higher error rate by 1.000 points (0.850 to 1.173 points); 5 other figures show no change.",
        ),
    ],
)
def test_the_answer_comes_first_and_names_what_changed_with_its_interval(changes, sentence):
    compared = compare_results([("a", result()), ("b", result(**changes))])
    assert comparison_answer(compared) == [sentence]
    (beside_figures,) = comparison_answer(compared, is_beside_figures=True)
    for form, told in ((comparison_text, sentence), (comparison_html, beside_figures)):
        shown = " ".join(form(compared).split())
        assert shown.index(told) < shown.index("No recorded settings differ.")


def test_scans_are_not_compared():
    ramp = RampLoad(start=1, concurrency=8, over_s=10.0)
    scan = result().model_copy(update={"summary": tuple(one.model_copy(update={"load": ramp}) for one in result().summary)})
    with pytest.raises(IncomparableError, match=r"b: a scan is no load point"):
        compare_results([("a", result()), ("b", scan)])
    assert rank_sweep([({"x": 1}, scan), ({"x": 2}, scan)], None, ()) is None


def test_beside_the_headline_and_the_charts_sizes_are_not_repeated():
    compared = compare_results([("a", result()), ("b", result(p50_ms=1.8))])
    assert comparison_answer(compared, is_beside_figures=True) == ["Against [1] a, [2] b is faster in p50; 5 other figures show no change."]
    slower = compare_results([("a", result()), ("b", result(p50_ms=2.2, throughput_per_s=450.0))])
    told = "Against [1] a, [2] b is slower in p50; has less throughput; 4 other figures show no change."
    assert comparison_answer(slower, is_beside_figures=True) == [told]


@pytest.mark.parametrize(
    ("before_ms", "after_ms", "told"),
    [
        # the ends by MOVER, on logarithms: 0.4 exp(√(ln² 1.05 + ln² 1.25)) and 1.6 exp(-√(ln² 0.975 + ln² 1.02))
        ((5.0, 4.0, None), (2.0, 1.9, 2.1), "60.0 % faster in p99 (49.7 % or more)"),
        ((5.0, 4.9, 5.1), (8.0, 7.8, None), "60.0 % slower in p99 (54.9 % or more)"),
        ((5.0, 4.0, None), (8.0, 7.8, None), None),
    ],
)
def test_an_interval_that_is_open_at_one_end_shows_a_change_by_the_other(before_ms, after_ms, told):
    def side(p99_ms, *ends_ms):
        ends = {"p99": [end if end is None else end * 1e6 for end in ends_ms]}
        return result(p99_ms=p99_ms, intervals={**point()["intervals"], **ends})

    (answer,) = comparison_answer(compare_results([("a", side(*before_ms)), ("b", side(*after_ms))]))
    assert told in answer if told else "p99" not in answer


@pytest.mark.parametrize(
    ("status", "caution"),
    [("invalid", "[1] and [2] are NOT VALID: the figures"), ("unsuccessful", "[1] and [2] are NO SUCCESS: most requests")],
)
def test_what_must_be_known_of_a_result_is_in_the_answer(status, caution):
    sides = [(name, result().model_copy(update={"status": status})) for name in "ab"]
    assert comparison_answer(compare_results(sides))[-1].startswith(caution)


def test_the_answer_names_the_largest_change_of_each_metric_and_counts_the_others():
    def side(p50s_ms):
        return result(
            points=[point(p50_ms=p50_ms, load={"kind": "closed", "concurrency": 4**index}) for index, p50_ms in enumerate(p50s_ms)]
        )

    compared = compare_results([("a", side([2.0, 2.0, 2.0])), ("b", side([2.0, 2.2, 3.0]))])
    (sentence,) = comparison_answer(compared)
    assert sentence.startswith(
        "Against [1] a, [2] b is 50.0 % slower in p50 (45.8 to 54.4 %) at http, concurrency 16, and changed at 2 of 3 load points"
    )


def with_cpu_time(*repetitions_us):
    """A result whose repetitions have these CPU times of the server for a request; None where it is unknown."""
    made = document()
    known = [one for one in repetitions_us if one is not None]
    for number, one in enumerate(repetitions_us):
        made = changed(made, f"points.{number}.server_cpu", None if one is None else {"cpus": 0.4, "time_per_request_ns": 1e3 * one})
    pooled = {"cpus": 0.4, "time_per_request_ns": 1e3 * sum(known) / len(known)}
    return Result.model_validate(changed(made, "summary.0.server_cpu", pooled))


def test_the_servers_cpu_time_is_a_row_where_it_is_known():
    compared = compare_results([("a", with_cpu_time(99, 100, 101)), ("b", with_cpu_time(148, 150, 152))])
    row = rows(compared)["CPU time"]
    assert [one.value for one in row.values] == [100e3, 150e3]
    assert row.changes[1].value == pytest.approx(1.5)
    assert 1.4 < row.changes[1].low < 1.5 < row.changes[1].high < 1.6
    (answer,) = comparison_answer(compared)
    assert re.fullmatch(
        r"Against \[1\] a, \[2\] b has 50\.0 % more CPU time \(4\d\.\d to 5\d\.\d %\); 6 other figures show no change\.", answer
    )
    assert "CPU time" not in rows(compare_results([("a", result()), ("b", result())]))


def test_a_cpu_time_of_too_few_repetitions_has_no_interval_and_shows_no_change():
    compared = compare_results([("a", with_cpu_time(99, None, 101)), ("b", with_cpu_time(148, 150, 152))])
    row = rows(compared)["CPU time"]
    assert (row.values[0].low, row.values[0].high) == (None, None)
    assert (row.changes[1].value, row.changes[1].low, row.changes[1].high) == (pytest.approx(1.5), None, None)
    assert comparison_answer(compared) == [
        "[2] b: no figure shows a change from [1] a; 1 of 7 figures have no interval, so whether they changed cannot be told."
    ]


def test_a_cpu_time_that_one_result_lacks_is_told_with_its_cause():
    compared = compare_results([("a", with_cpu_time(99, 100, 101)), ("b", result())])
    said = "CPU time of http, concurrency 4 is missing in b: perfkit did not start the server, or did not measure it."
    assert said in compared.notes
    assert rows(compared)["CPU time"].changes == (None, None)


def test_an_unknown_interval_is_said_and_the_chart_has_a_mark_without_one():
    sides = [result(throughput_per_s=rate) for rate in (500.0, 450.0)]
    sides = [one.model_copy(update={"points": one.points[:1]}) for one in sides]
    compared = compare_results([("a", sides[0]), ("b", sides[1])])
    assert comparison_answer(compared) == [
        "[2] b: no figure shows a change from [1] a; 1 of 6 figures have no interval, so whether they changed cannot be told."
    ]
    page = comparison_html(compared)
    crosses = {}
    for panel in page.split('<p class="chart-title">')[1:]:
        title, _, drawn = panel.partition("</p>")
        crosses[title] = drawn.count('stroke-opacity="0.8"')
    assert crosses["throughput"] == 0
    assert crosses["p50"] == 1


def test_any_number_of_results_can_be_compared():
    compared = compare_results([(str(index), result(p50_ms=2.0 + index)) for index in range(5)])
    assert [change and round(change.value, 3) for change in rows(compared)["p50"].changes] == [None, 1.5, 2.0, 2.5, 3.0]
    assert all(len(row.values) == 5 for row in compared.rows)


def test_error_rates_are_compared_by_difference():
    failing = result(requests={**point()["requests"], "ok": 4950, "rejected": 50}, error_rate=0.01)
    change = rows(compare_results([("a", result()), ("b", failing)]))["error rate"].changes[1]
    assert change.value == pytest.approx(0.01)
    assert 0.005 < change.low < 0.01 < change.high < 0.015


def test_differences_of_the_settings_come_before_the_figures():
    other = changed(changed(document(), "environment.generator.kernel", "6.2.0"), "scenario.workload.seed", 3)
    text = comparison_text(compare_results([("a", result()), ("b", Result.model_validate(other))]))
    assert "! generator.kernel: 6.1.0 → 6.2.0" in text
    assert "  scenario.workload.seed: 0 → 3" in text
    assert text.index("6.2.0") < text.index("scenario.workload.seed") < text.index("throughput")
    assert "No recorded settings differ." in comparison_text(compare_results([("a", result()), ("b", result())]))


def test_a_metric_that_a_result_lacks_has_a_note():
    lacking = Result.model_validate(changed(document(), "summary.0.service_time_ns.p99", None))
    compared = compare_results([("a", result()), ("b", lacking)])
    assert "p99 of http, concurrency 4 is missing in b: too few samples." in compared.notes
    assert rows(compared)["p99"].changes == (None, None)


def test_load_points_that_not_all_results_have_are_left_out_with_a_note():
    more = result(points=[point(), point(load={"kind": "closed", "concurrency": 16})])
    compared = compare_results([("a", more), ("b", result())])
    assert {row.load_point for row in compared.rows} == {"http, concurrency 4"}
    assert "Left out, because not all results have it: http concurrency 16 of a." in compared.notes


def test_results_without_a_common_load_point_are_incomparable():
    other = result(points=[point(load={"kind": "closed", "concurrency": 16})])
    with pytest.raises(IncomparableError, match=r"no load point in common \(a: http concurrency 4; b: http concurrency 16\)"):
        compare_results([("a", result()), ("b", other)])


def test_incomplete_and_invalid_results_have_notes():
    broken = changed(changed(document(), "status", "interrupted"), "summary.0.valid", False)
    notes = compare_results([("a", result()), ("b", Result.model_validate(broken))]).notes
    assert notes == (
        "b is interrupted.",
        "Not valid in b: http concurrency 4; its figures may be those of the load generator or of a cold target.",
    )


def test_every_form_says_what_the_intervals_leave_out_and_escapes_labels():
    compared = compare_results([("a<b", result()), ("c|d", result(**SLOWER))])
    read = json.loads(comparison_json(compared))
    assert read["schema"] == "perfkit.comparison/1"
    assert [row["metric"] for row in read["rows"]] == ["throughput", "p50", "p90", "p95", "p99", "error rate"]
    for form in (comparison_text, comparison_markdown, comparison_html, comparison_json):
        assert "leave out the variation between restarts" in form(compared)
    assert "c\\|d" in comparison_markdown(compared)
    cells = []

    class Reader(HTMLParser):
        def handle_data(self, data):
            cells.append(data)

    page = comparison_html(compared)
    Reader().feed(page)
    assert "<b:" not in page
    assert any(cell.startswith("a<b: started") for cell in cells)
    assert any("2.20 ms +10.0 %" in cell for cell in cells)


def test_no_interval_has_zero_width():
    # every repetition alike, percentiles within one bucket of the histogram, and more requests than decimals
    alike = {"intervals": {name: [2_000_000, 2_000_000] for name in ("p50", "p90", "p95", "p99")}, "p99_ms": 2.0}
    requests = {**point()["requests"], "scheduled": 10**12, "sent": 10**12, "ok": 10**12}
    many = {**alike, "requests": requests}
    for changes in (alike, many, {**many, "p50_ms": 2.2}):
        compared = compare_results(
            [("a", result(**{**alike, "requests": changes.get("requests", point()["requests"])})), ("b", result(**changes))]
        )
        for row in compared.rows:
            for one in (*row.values, *row.changes[1:]):
                assert one.low is not None
                assert one.high is not None
                assert one.low < one.high
        for form in (comparison_text, comparison_markdown, comparison_html):
            shown = re.findall(r"\[([-+–][^,\]]*), ([^\]]*)\]", form(compared))
            assert len(shown) >= 6
            assert all(low != high for low, high in shown)
    percentile = rows(compare_results([("a", result(**alike)), ("b", result(**alike))]))["p50"]
    assert percentile.values[0].high - percentile.values[0].value == 1024  # the width of the bucket of 2 ms in the layout of HdrHistogram


@pytest.mark.parametrize("repetitions", [1, 2])
def test_the_throughput_of_fewer_than_three_repetitions_has_no_interval(repetitions):
    sides = []
    for rates in ((500.0, 480.0), (450.0, 350.0)):
        made = result(throughput_per_s=rates[0])
        points = tuple(
            one.model_copy(update={"throughput_per_s": rate}) for one, rate in zip(made.points, rates[:repetitions], strict=False)
        )
        sides.append(made.model_copy(update={"points": points}))
    compared = compare_results([("a", sides[0]), ("b", sides[1])])
    row = rows(compared)["throughput"]
    assert [(value.low, value.high) for value in row.values] == [(None, None)] * 2
    assert (row.changes[1].low, row.changes[1].high) == (None, None)
    assert re.search(r"450/s -10\.0 %\s*$", comparison_text(compared), re.MULTILINE)
