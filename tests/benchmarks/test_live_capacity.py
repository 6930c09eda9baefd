"""Live capacity checks without servers: the true capacities, and when later measurements contradict a search."""

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.known_queues import QUEUES, known_queue, lognormal_survival
from benchmarks.live_capacity import (
    HeldOut,
    SearchOutcome,
    agrees,
    densenet_scenario,
    held_out_capacity,
    is_right,
    read_held_out,
    read_search,
    shown_later,
)
from benchmarks.simulated_queues import poisson_arrivals, response_times, service_times
from perfkit.scenario.model import Scenario
from server_stub.synthetic.declaration import parse_service_model


def outcome(capacity, low, high, exit_code=0):
    return SearchOutcome(capacity, low, high, exit_code, 60.0, "precision")


def held_out(*ratios, spread=1.05):
    return [
        HeldOut(share, ratio, ratio / spread, ratio * spread, 1500, 400, True) for share, ratio in zip((0.9, 1.0, 1.1), ratios, strict=True)
    ]


@pytest.mark.parametrize("name", QUEUES)
def test_a_queue_s_declaration_is_one_of_the_server_s(name):
    parse_service_model(known_queue(name, 4.0).declaration)


def test_an_unknown_queue_is_refused():
    with pytest.raises(ValueError, match="'batches' is not a known queue; known are exponential, constant, "):
        known_queue("batches", 4.0)


def test_the_limit_of_one_exponential_server_is_the_closed_form():
    queue = known_queue("exponential", 4.0)
    assert queue.capacity_per_s == pytest.approx(175)
    assert queue.p99_ms == pytest.approx(math.log(100) / (1 / 4.0 - 0.175))  # of M/M/1: ln 100 / (μ - λ), in milliseconds


def test_at_the_capacity_the_simulated_p99_of_lognormal_services_is_the_limit():
    rng = np.random.default_rng(5)
    arrivals = poisson_arrivals(0.7, 4e6, rng)
    times = response_times(arrivals, service_times(2, arrivals.size, rng))
    assert (times > known_queue("lognormal", 1.0).p99_ms).mean() == pytest.approx(0.01, rel=0.15)
    assert lognormal_survival(np.array([0.0, 1e9])).tolist() == [1.0, pytest.approx(0)]


def test_only_a_conclusive_search_can_be_wrong():
    assert is_right(outcome(100, 95, 105), 109)
    assert not is_right(outcome(100, 95, 105), 112)
    assert not is_right(outcome(100, 95, 105), 90)
    assert is_right(outcome(100, 95, 105, exit_code=3), 200)


def test_later_runs_give_the_rate_at_which_the_limit_is_reached():
    later = held_out_capacity(held_out(0.8, 1.0, 1.25))
    assert later.share == pytest.approx(1.0)
    assert 0.97 < later.low < 1.0 < later.high < 1.03
    assert held_out_capacity(held_out(0.64, 0.8, 1.0)).share == pytest.approx(1.1)


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ((0.8, 1.0, 1.25), True),
        ((0.9, 1.1, 1.4), True),  # 5 % below, within both intervals
        ((1.2, 1.5, 2.0), False),  # missed at the lowest rate
        ((0.6, 0.7, 0.8), False),  # met at the highest
    ],
)
def test_a_search_is_contradicted_by_what_its_interval_does_not_allow(ratios, expected):
    points = held_out(*ratios)
    assert agrees(outcome(10, 9.4, 10.6), points, held_out_capacity(points)) is expected


def test_an_interval_that_is_open_above_shows_no_limit_to_be_met():
    point = {"intervals": {"p90": [80e6, None]}, "response_time_ns": {"p90": 100e6, "max": 300e6}, "effective_samples": {"p90": 40.0},
             "requests": {"ok": 90}, "valid": False}  # fmt: skip
    assert read_held_out(1.1, point, 100.0) == HeldOut(1.1, 1.0, 0.8, 100.0, 90, 40.0, False)


def test_a_search_without_a_result_says_why():
    assert read_search(6, None, "loading\nperfkit: not ready\n", 1.0).note == "perfkit: not ready"
    document: dict[str, Any] = {"search": {"capacity_per_s": 10.0, "low_per_s": 9.0, "high_per_s": None, "stopped_because": "max_probes", "confirmation": None,
                           "probes": [{"valid": True}, {"valid": False}]}}  # fmt: skip
    found = read_search(3, document, "", 1.0)
    assert found[:4] == (10.0, 9.0, None, 3)
    assert found.note == "max_probes, 2 probes (1 invalid), confirmation none"
    document["search"] |= {"stopped_because": "too_short", "needed_s": 1234.4}
    assert read_search(3, document, "", 1.0).note == "too_short, 2 probes (1 invalid), confirmation none, would take 1234 s"


def test_densenet_s_scenarios_are_valid():
    search = {"search": {"slo": {"p90": "180.5ms"}, "precision": "8%", "budget": "15m"}}
    for load in (search, {"open": {"rate": [9.0, 10.0]}}):
        assert Scenario.model_validate(densenet_scenario("http://127.0.0.1:1", 1, load, 30)).workload.seed == 1


def test_an_open_end_of_the_search_s_interval_contradicts_nothing():
    points = held_out(0.6, 0.7, 0.8)
    later = held_out_capacity(points)
    assert agrees(outcome(10, 9.4, None, exit_code=3), points, later)
    assert not agrees(outcome(10, 9.4, 10.6), points, later)
    assert shown_later(later, 10) == ("above 11/s", "–")
