"""The expected shares of the benchmark of replicas, against closed forms."""

import pytest

from benchmarks.replicas import Shares, simulated_share


def test_in_a_closed_loop_each_server_has_equally_many_in_flight_so_that_the_shares_are_as_their_rates():
    assert simulated_share((0.010, 0.012), None, 16, requests=40_000) == pytest.approx(10 / 22, abs=0.004)


def test_with_hardly_any_requests_in_flight_they_go_to_each_in_turn():
    assert simulated_share((0.010, 0.012), 0.01, 0, requests=10_000) == pytest.approx(0.5, abs=0.001)


def test_an_address_without_answers_is_not_apart_from_another():
    one = {"requests": 5, "ok": 5, "times_ns": {"p50": 1.0}, "intervals": {"p50": (1.0, 2.0)}}
    none = {"requests": 0, "ok": 0, "times_ns": {"p50": None}, "intervals": {}}
    shares = Shares.of({"replicas": [one, none], "warnings": [{"code": "imbalanced"}]})
    assert (shares.medians_are_apart, shares.second_share, shares.warnings) == (False, 0.0, frozenset({"imbalanced"}))
