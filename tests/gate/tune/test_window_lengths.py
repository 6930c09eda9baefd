"""How many configurations there is time for, by the scenario alone."""

import pytest

from perfkit.gate.tune.objective import GOODPUT, objective_of
from perfkit.gate.tune.window_lengths import fitting
from perfkit.scenario.file import read_document


def scenario(warmup):
    target = {"url": "http://127.0.0.1:1", "model": "m"}
    document = {"name": "m", "target": target, "load": {"closed": {"concurrency": 1}}, "measure": {"warmup": warmup}}
    return read_document(document, environ={}).scenario


@pytest.mark.parametrize(
    ("warmup", "steps", "limit_s", "expected"),
    [
        # windows of 1 s; a scan has four steps of 0.5 + 0.2 s, and a visit 1 s to apply and 1 s of warm-up: 480 / (2.8 + 3 × 3)
        ("1s", 4, 600, 40),
        # at most eight steps are expected: 480 / (5.6 + 9)
        ("1s", 20, 600, 32),
        # windows of a 120th of the time, also in the scan: 48 / (4 × 0.7 + 3 × 2.5)
        ("1s", 4, 60, 4),
        # without a warm-up: 48 / (4 × 0.5 + 3 × 1.5)
        ("0s", 4, 60, 7),
        ("1s", 4, 1, 0),
    ],
)
def test_a_space_fits_that_can_be_measured_in_three_rounds_before_the_confirmation(warmup, steps, limit_s, expected):
    assert fitting(scenario(warmup), steps, limit_s, GOODPUT) == expected


def test_windows_of_a_rate_are_as_long_as_400_requests_take():
    # 4 s each, one in the scan: 480 / (4.2 + 3 × 6)
    assert fitting(scenario("1s"), 1, 600, objective_of("latency", 100.0)) == 21
