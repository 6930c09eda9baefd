"""What the comparison with Model Analyzer reads of its reports, and how perfkit's measurements are ranked."""

import pytest

from benchmarks.model_analyzer import Measured, findings, rank, scenario
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
from perfkit.scenario.model import Scenario

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
    p99 latency: 50878 usec
"""
ROWS = [
    {"Model Config Path": "paced_config_1", "Concurrency": "4", "Satisfies Constraints": "Yes", "Throughput (infer/sec)": "212.2", "p99 Latency (ms)": "28.7"},
    {"Model Config Path": "paced_config_1", "Concurrency": "8", "Satisfies Constraints": "No", "Throughput (infer/sec)": "209.4", "p99 Latency (ms)": "50.9"},
]  # fmt: skip


def measured(*throughputs_per_s, low=20.0, high=30.0):
    return Measured(list(throughputs_per_s), 25.0, low, high, 2000, True)


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


def test_the_sweep_s_scenario_is_valid():
    document = scenario("grpc://127.0.0.1:1", ["one", "two"], seconds=4, repetitions=5)
    sweep = document.pop("sweep")
    assert sweep == {"target.model": ["one", "two"]}
    assert Scenario.model_validate(document).measure.repetitions == 5


def test_configurations_that_nothing_tells_apart_share_a_rank():
    ranked = rank(
        {
            Setting("fast", 4): measured(200, 202, 201),
            Setting("same", 4): measured(199, 203, 205),
            Setting("slow", 4): measured(100, 101, 99),
        }
    )
    assert {name: one.rank for name, one in ranked.items()} == {"fast": 1, "same": 1, "slow": 3}


def test_a_load_that_may_violate_the_constraint_is_not_ranked():
    ranked = rank(
        {
            Setting("one", 4): measured(100, 101, 99),
            Setting("one", 8): measured(200, 202, 201, high=50.1),
            Setting("two", 8): measured(300, 302, 301, low=51.0, high=60.0),
            Setting("three", 8): measured(300, 302, 301, high=None),
        }
    )
    assert ranked["one"].rank == 1
    assert ranked["one"].setting == Setting("one", 4)
    assert ranked["two"].rank is None
    assert ranked["three"].rank is None


@pytest.mark.parametrize(("copy_per_s", "ranks"), [([100.0, 101.0, 99.0], "the same rank"), ([90.0, 91.0, 89.0], "different ranks")])
def test_the_findings_say_how_far_copies_are_ranked_apart(copy_per_s, ranks):
    copy, original = next(iter(COPIES.items()))
    other_copy, other = list(COPIES.items())[1]
    ranked = rank(
        {
            Setting(original, 2): measured(100.0, 101.0, 99.0),
            Setting(copy, 2): measured(*copy_per_s),
            Setting(other, 2): measured(200.0, 201.0, 202.0),
            Setting(other_copy, 2): measured(200.0, 201.0, 202.0),
        }
    )
    rounds = [
        Analysis([other, original, copy], {Setting(original, 2): Figures(100, 49, True, 300), Setting(copy, 2): Figures(110, 49, within, 300)}, "", 1.0)
        for within in (True, False)
    ]  # fmt: skip
    lines = findings(ranked, rounds)
    assert f"Model Analyzer ranks them apart in 2 of 2 runs, by up to 10.0% in throughput; perfkit gives them {ranks}." in lines[0]
    assert lines[-2:] == [
        "- 2 runs of Model Analyzer gave 1 different rankings.",
        f"- Measurements that satisfy the constraint in some of its runs and violate it in others: {copy} at 2.",
    ]
