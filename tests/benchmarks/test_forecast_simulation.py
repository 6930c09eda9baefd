"""The short form of the simulated forecasts: the date lies between P10 and P90 in most histories, whatever made them grow."""

import numpy as np
import pytest

from benchmarks.forecast_simulation import LEVEL_PER_S, TRUTHS, Figures, forecast, simulate

HISTORIES = 30


@pytest.mark.parametrize("truth", ["exponential", "linear", "yearly season", "step"])
def test_the_date_lies_between_p10_and_p90_in_three_of_four_histories(truth):
    """30 histories of 90 days. False alarms, for other seeds: at a coverage of 85 %, fewer than 20 of 30 hold with a chance of 0.3 %
    (binomial), and one of the four kinds with 1.2 %."""
    outcomes = [forecast(truth, 90, seed) for seed in range(HISTORIES)]
    claimed = [outcome for outcome in outcomes if outcome.refusal in ("", "beyond_history")]
    assert len(claimed) >= 18
    assert sum(outcome.place == "inside" for outcome in claimed) / len(claimed) >= 20 / 30


def test_growing_histories_get_dates():
    """Intervals that are open for everyone would hold always: in these histories of 365 days, most P90 are closed."""
    figures = Figures([forecast("linear", 365, seed) for seed in range(12)])
    assert len(figures.dated) >= 6
    assert sum(outcome.is_open for outcome in figures.dated) <= len(figures.dated) / 2


@pytest.mark.parametrize("truth", TRUTHS)
def test_the_history_ends_at_its_level_and_the_future_follows(truth):
    case = simulate(truth, 90, seed=1)
    assert (case.peaks_per_s.size, case.future_per_s.size) == (90, 135)
    assert case.capacity_per_s > 0.8 * np.median(case.peaks_per_s[-7:])
    if truth in ("exponential", "linear", "flat"):
        assert case.peaks_per_s[-7:].mean() == pytest.approx(LEVEL_PER_S, rel=0.1)


def test_the_same_seed_gives_the_same_history():
    assert (simulate("step", 30, 5).peaks_per_s == simulate("step", 30, 5).peaks_per_s).all()
