"""What the comparison with Model Analyzer reads of its reports, and how perfkit's measurements are ranked."""

import json

import pytest

from benchmarks.model_analyzer import findings, ranking_rows, scenario, setting_rows
from benchmarks.peers.model_analyzer import (
    COPIES,
    Analysis,
    Figures,
    Setting,
    read_figures,
    read_summary,
    request_counts,
    write_models,
    write_variants,
)
from perfkit.comparison.sweep_ranking import rank_sweep
from perfkit.scenario.file import read_cases
from tests.stored_results import point, result

# parts of a report of Model Analyzer 1.58.0, shortened
SUMMARY = """<html><body><div>In <strong>12</strong> measurements across <strong>6</strong> configurations, <strong>paced_dynamic_config_1</strong>
 provides no gain over the default configuration, under the given constraints.</div><table style="border: 1px"><tr><th>Model Config Name</th>
<th>Max Batch Size</th></tr><tr><td style="border: 1px">paced_dynamic_config_1</td><td style="border: 1px">8</td></tr><tr>
<td style="border: 1px">paced_config_0</td><td style="border: 1px">8</td></tr></table></body></html>"""
OUTPUT = """*** Measurement Settings ***
Request concurrency: 4
  Client:
    Request count: 638
    Throughput: 212.201 infer/sec
    p50 latency: 18342 usec
    p99 latency: 28683 usec
Request concurrency: 8
    Request count: 631
    Throughput: 209.39 infer/sec
    p99 latency: 50878 usec
"""
ROWS = [
    {"Model Config Path": "paced_config_1", "Concurrency": "4", "Satisfies Constraints": "Yes", "Throughput (infer/sec)": "212.2", "p99 Latency (ms)": "28.7"},
    {"Model Config Path": "paced_config_1", "Concurrency": "8", "Satisfies Constraints": "No", "Throughput (infer/sec)": "209.4", "p99 Latency (ms)": "50.9"},
]  # fmt: skip


COPY, ORIGINAL = next(iter(COPIES.items()))


def measured(*throughputs_per_s, **changes):
    """The result of one load point with its repetitions."""
    one = point(p99_ms=20, throughput_per_s=throughputs_per_s[0], load={"kind": "closed", "concurrency": 2}, **changes)
    made = result(points=[one])
    points = [made.summary[0].model_copy(update={"repetition": number, "throughput_per_s": value, "inferences_per_s": value})
              for number, value in enumerate(throughputs_per_s)]  # fmt: skip
    return made.model_copy(update={"points": tuple(points)})


def ranked(results):
    return rank_sweep([({"target.model": name}, one) for name, one in results.items()], "throughput", ())


def test_a_summary_gives_the_ranking_and_the_sentence_about_the_best():
    ranking, sentence = read_summary(SUMMARY)
    assert ranking == ["paced_dynamic_config_1", "paced_config_0"]
    assert sentence == (
        "In 12 measurements across 6 configurations, paced_dynamic_config_1 provides no gain over the default configuration, under the given constraints."
    )


def test_a_measurement_has_the_requests_that_perf_analyzer_counted():
    figures = read_figures(ROWS, request_counts(OUTPUT))
    assert figures == {
        Setting("paced_config_1", 4): Figures(212.2, 28.7, True, 638),
        Setting("paced_config_1", 8): Figures(209.4, 50.9, False, 631),
    }


def test_configurations_become_models_of_their_own_name(tmp_path):
    write_models(tmp_path / "models")
    assert "dynamic_batching" in (tmp_path / "models/paced_dynamic/config.pbtxt").read_text()
    assert "dynamic_batching" not in (tmp_path / "models/paced/config.pbtxt").read_text()
    variant = tmp_path / "variants" / "paced_config_1"
    variant.mkdir(parents=True)
    (variant / "config.pbtxt").write_text('name: "paced"\ninput {\n  name: "x"\n}\n')
    assert write_variants(tmp_path / "variants", tmp_path / "repository") == ["paced_config_1"]
    assert (tmp_path / "repository/paced_config_1/config.pbtxt").read_text() == 'name: "paced_config_1"\ninput {\n  name: "x"\n}\n'


def test_the_sweep_measures_each_configuration_at_each_load_under_the_constraint(tmp_path):
    document = scenario("grpc://127.0.0.1:1", ["one", "two"], seconds=4, repetitions=5)
    file = tmp_path / "sweep.yaml"
    file.write_text(json.dumps(document))
    cases = read_cases(file, environ={})
    assert [case.values for case in cases] == [{"target.model": "one"}, {"target.model": "two"}]
    assert all(case.loaded.scenario.slo is not None for case in cases)


@pytest.mark.parametrize(("of_copy", "ranks"), [((100.0, 102.0, 99.0), "them the same rank"), ((90.0, 91.0, 89.0), "them different ranks")])
def test_the_findings_say_how_copies_are_ranked(of_copy, ranks):
    ranking = ranked({ORIGINAL: measured(100.0, 101.0, 99.0), COPY: measured(*of_copy)})
    rounds = [
        Analysis(order, {Setting(ORIGINAL, 2): Figures(100, 49, True, 300), Setting(COPY, 2): Figures(110, 49, True, 300),
                         Setting(COPY, 4): Figures(120, 51, within, 300)}, "", 1.0)
        for order, within in (([ORIGINAL, COPY], False), ([COPY, ORIGINAL], True))
    ]  # fmt: skip
    lines = findings(ranking, rounds)
    assert "ranks the copy first in 1 of 2 runs and second in the others; their throughputs differ by up to 20.0%." in lines[0]
    assert lines[0].endswith(f"perfkit gives {ranks}.")
    assert lines[-2:] == [
        "- Different rankings in 2 runs of Model Analyzer: 2.",
        f"- Measurements that satisfy the constraint in some of its runs and violate it in others: {COPY} at 4.",
    ]


def test_the_tables_show_both_and_which_measurements_are_invalid():
    results = {ORIGINAL: measured(100.0, 101.0, 99.0), COPY: measured(100.0, 102.0, 99.0, valid=False)}
    ranking = ranked(results)
    rounds = [Analysis([COPY, ORIGINAL], {Setting(ORIGINAL, 2): Figures(104.2, 29.4, True, 315)}, "", 1.0)]
    (row,) = ranking_rows(ranking, rounds)[2:]
    assert row.startswith(f"| {ORIGINAL} | – | 2 | 104.2 | 1 |")
    valid, invalid = setting_rows(results, ranking, rounds)[2:]
    assert "| 104.2 | 29.4 | yes | 315 | 100.0 (" in valid
    assert "| – | – | invalid measurement |" in invalid
