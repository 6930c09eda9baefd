"""The simulation of plans in a short form: long windows give a plan whose lower limit is below the truth, short ones are refused."""

import json

import numpy as np
import pytest

from benchmarks.plan_simulation import QUEUES, Case, facts, make_plan, measure, report, simulate_case

MM4, LOGNORMAL, BATCHING = QUEUES


def test_measured_times_are_those_of_the_queue():
    """A batching server at a fifth of its saturation; a batch of one or two takes 45 or 50 ms, and a request waits for one batch at most."""
    one = measure(BATCHING.response_times, 20.0, 120.0, 0, 1, np.random.default_rng(1))
    assert one.measured.valid
    assert one.state == "kept up"
    assert one.measured.throughput_per_s == pytest.approx(20.0, rel=0.1)
    assert one.measured.times.min == pytest.approx(45e6, rel=0.001)
    assert sum(batch.count for batch in one.batches) == one.measured.times.count == one.measured.requests.sent
    beyond = measure(BATCHING.response_times, 120.0, 60.0, 0, 0, np.random.default_rng(1))
    assert beyond.state == "overloaded"
    assert beyond.measured.throughput_per_s == pytest.approx(100.0, rel=0.02)


def test_the_lower_limit_of_plans_from_long_windows_is_below_the_truth():
    """Six plans of two servers. With 95 % lower limits, three or more above the truth have a chance of 0.2 %."""
    above = []
    for queue in (LOGNORMAL, BATCHING):
        for seed in range(3):
            known = facts(queue, make_plan(queue, 60.0, "p99", np.random.default_rng(seed)))
            if not known["refusal"]:
                above.append(known["low_"] > 1)
                assert known["low_"] < known[""] < known["high_"] < 1.5
    assert len(above) >= 3
    assert sum(above) <= 2


def test_plans_from_windows_of_a_few_seconds_are_refused():
    known = facts(MM4, make_plan(MM4, 3.75, "p99", np.random.default_rng(2)))
    assert "The windows are too short for p99" in known["refusal"]


def test_a_case_that_was_done_is_read_and_not_simulated_again(tmp_path):
    done = [{"refusal": "", "low_": 1.01, "": 1.05, "high_": 1.1, "off": [0, 2], "accepted": {"M/G/c": True, "batch service": False}}]
    (tmp_path / "M_M_4-1_4-p99.jsonl").write_text(json.dumps(done[0]) + "\n")
    case = Case("M/M/4", "1/4", "p99", simulate_case(MM4, "1/4", "p99", 1, tmp_path))
    assert case.plans == done
    assert (case.above, case.within_one(0), case.within_one(1), case.is_met) == (1.0, 1.0, 0.0, False)
    assert "| M/M/4 | 1/4 (15 s) | p99 | 1 | 0% | 100% | 0% | 1.01 | 1.05 | 100% | 0% | 100% | 100% | 0% | no |" in report([case])
