"""What each objective compares."""

import pytest

from perfkit.gate.tune.folder import Window
from perfkit.gate.tune.objective import GOODPUT, objective_of

LATENCY, COST = objective_of("latency", 200.0), objective_of("cost", None)
WINDOW = Window(
    candidate=0, phase="race", round=1, concurrency=4, length_s=2.0, is_valid=True, throughput_per_s=300.0, p99_ns=20_000_000, server_cpus=1.5, scheduled=600
)  # fmt: skip


def test_the_value_of_a_window():
    assert GOODPUT.value(WINDOW) == 300.0
    assert LATENCY.value(WINDOW) == 50.0
    assert COST.value(WINDOW) == 200.0


def test_a_window_without_the_figure_has_no_value():
    unknown = WINDOW.model_copy(update={"p99_ns": None, "server_cpus": None})
    assert (LATENCY.value(unknown), COST.value(unknown)) == (0.0, 0.0)


def test_the_load_of_latency_is_poisson_arrivals_and_that_of_the_others_a_closed_loop():
    assert LATENCY.load(0).model_dump(mode="json", by_alias=True, exclude_unset=True) == {
        "open": {"rate": ["200/s"], "arrivals": "poisson"}
    }
    assert {one.load(4).model_dump_json(by_alias=True, exclude_unset=True) for one in (GOODPUT, COST)} == {'{"closed":{"concurrency":[4]}}'}


def test_a_time_is_better_the_smaller_it_is():
    ratio, interval = LATENCY.figures(2.0, (1.6, 2.5))
    assert (ratio, *interval) == pytest.approx((0.5, 0.4, 0.625))
    assert (
        LATENCY.ratio_text(ratio, interval, " under p50 < 5ms") == "p99 at 200/s 0.50 times the present one's under p50 < 5ms [0.40, 0.62]"
    )
    assert COST.ratio_text(*COST.figures(1.5, (1.4, 1.6)), "") == "1.50 times the throughput per CPU in use [1.40, 1.60]"


@pytest.mark.parametrize(
    ("answered_per_s", "windows", "is_short"),
    [
        (200.0, 1, False),
        (180.0, 1, False),  # 40 of 400 more arrived than were answered, which is chance: 2.6 times the root of 800 is 73
        (160.0, 1, True),
        (180.0, 8, True),  # 320 of 3,200; the root of 6,400 times 2.6 is 206
        (197.0, 80, False),  # less than 2 %
    ],
)
def test_a_rate_that_is_not_delivered_is_told_from_chance(answered_per_s, windows, is_short):
    one = WINDOW.model_copy(update={"scheduled": 400, "throughput_per_s": answered_per_s})
    assert bool(LATENCY.shortfall([one] * windows)) == is_short
    assert GOODPUT.shortfall([one] * windows) == ""
