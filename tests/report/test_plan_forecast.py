"""What a plan says about the growth of the demand: the dates, the refusals with what would give a date, and the order."""

import dataclasses

import numpy as np
import pytest

from perfkit.plan.configuration import plan_capacity
from perfkit.plan.evidence import gather_evidence, read_sources
from perfkit.plan.forecast import ModelExhaustion, fit_forecast
from perfkit.plan.inputs import PlanInputs, parse_slo
from perfkit.report.plan_forecast import FORECAST, forecast_group, forecast_models_table, forecast_table
from tests.queue_results import Writer

LENGTH = 60


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A plan with a forecast: 60 days until 2026-03-01, growth by 1 % a day up to 100/s."""
    result = Writer(tmp_path_factory.mktemp("results"))((20, 35, 50, 60, 70, 110), overloaded_from=100)
    dates = np.datetime64("2026-03-01") - np.arange(LENGTH)[::-1]
    peaks = tuple((str(date), 100 * 1.01 ** (index - LENGTH + 1)) for index, date in enumerate(dates))
    inputs = PlanInputs(parse_slo(["p99<300ms"]), (1000.0,), peaks=peaks, replicas_now=12)
    return plan_capacity(gather_evidence(read_sources([str(result)])), inputs)


def said(base, capacity_per_s, lead_time_days=None, **changes):
    """The sentences for a capacity, with fields of the exhaustion replaced."""
    exhaustion = base.forecast.exhaustion(capacity_per_s, lead_time_days)
    return FORECAST.answer(dataclasses.replace(base, exhaustion=dataclasses.replace(exhaustion, **changes)))


def test_the_answer_gives_the_three_dates(base):
    """130/s is exceeded ln 1.3/ln 1.01 = 26.4 days after the last peak."""
    assert said(base, 130.0) == [
        "Demand exceeds what the 12 replicas that there are now serve with headroom (130/s) on 2026-03-28 (P50; P10 2026-03-28, P90 2026-03-28)."
    ]
    (open_ended,) = said(base, 130.0, p90_days=None)
    assert open_ended.endswith("(P50; P10 2026-03-28, P90 later than 2026-04-30).")


def test_a_capacity_below_the_last_peak_is_exceeded_already(base):
    first, order = said(base, 90.0, lead_time_days=14)
    assert (
        first
        == "Demand exceeds what the 12 replicas that there are now serve with headroom (90.0/s) already: the last peak, on 2026-03-01, was 100/s."
    )
    assert order.startswith("Order more replicas now: ")


def test_a_capacity_that_a_weekday_exceeded_is_exceeded_already_on_a_sunday(base):
    """The last peak is that of a quiet Sunday; the Friday before exceeded the capacity."""
    peaks = (*base.inputs.peaks[:-3], ("2026-02-27", 99.0), ("2026-02-28", 40.0), ("2026-03-01", 40.0))
    plan = dataclasses.replace(base, inputs=dataclasses.replace(base.inputs, peaks=peaks))
    (sentence,) = said(plan, 98.0)
    assert sentence == (
        "Demand exceeds what the 12 replicas that there are now serve with headroom (98.0/s) already: the highest peak of the last seven days, on 2026-02-27, was 99.0/s."
    )
    assert " already" not in said(plan, 99.5)[0]


def test_a_date_that_is_less_likely_than_not_is_given_as_a_probability(base):
    (sentence,) = said(base, 130.0, p50_days=None, p90_days=None)
    assert sentence == (
        "Demand exceeds what the 12 replicas that there are now serve with headroom (130/s) by 2026-03-28 with a probability of 10 %, and by 2026-04-30 with less than 50 %; "
        "60 days of history support no longer forecast."
    )


def test_a_date_beyond_the_history_is_refused_with_the_weeks_that_would_give_it(base):
    """300/s is exceeded after 111 days: with 26 more days of history, 85 would remain, and it would have 86."""
    (sentence,) = said(base, 300.0)
    assert sentence == (
        "There is no date of exhaustion: demand exceeds what the 12 replicas that there are now serve with headroom (300/s) by 2026-04-30 with a probability below 10 %, and "
        "60 days of history support no longer forecast. With about 4 more weeks of peaks, the forecast would reach as far as exhaustion at the "
        "present course."
    )
    assert said(base, 300.0, more_days=None)[0].endswith("At the present course, it does not do so within five years.")


def test_models_that_disagree_are_named_with_what_each_says(base):
    scores = {name: dataclasses.replace(score, weight=0.25) for name, score in base.forecast.back_test.models.items()}
    tested = dataclasses.replace(base.forecast.back_test, models=scores)
    plan = dataclasses.replace(base, forecast=dataclasses.replace(base.forecast, back_test=tested))
    models = {name: ModelExhaustion(0.5, None) for name in scores}
    models |= {"exponential": ModelExhaustion(0.98, 26), "linear": ModelExhaustion(0.03, None)}
    (sentence,) = said(plan, 130.0, refusal="models_disagree", models=models, more_days=15)
    assert sentence == (
        "There is no date of exhaustion: the models disagree. By 2026-04-30, demand exceeds what the 12 replicas that there are now serve with headroom (130/s) with a "
        "probability of 98 % by the exponential model (half of its paths by 2026-03-27), but of 3 % by the linear model. About 3 more weeks of "
        "peaks would tell which is wrong."
    )
    (sentence,) = said(plan, 130.0, refusal="models_disagree", models=models, more_days=None)
    assert sentence.endswith(" Even five more years of peaks would not tell which is wrong.")


def test_a_history_that_no_model_describes_is_refused_with_its_back_test(base):
    tested = dataclasses.replace(base.forecast.back_test, coverage=0.55, widening=4.0)
    plan = dataclasses.replace(base, forecast=dataclasses.replace(base.forecast, back_test=tested))
    (sentence,) = said(plan, 130.0)
    assert sentence == (
        "There is no date of exhaustion: none of the models describes this history. In the back-test, the 80 % interval contained 55 % of the "
        "peaks, although it was widened 4 times. Let the history begin after the last change that will not come again."
    )


def test_too_few_peaks_are_refused_with_the_weeks_that_are_missing(base):
    inputs = dataclasses.replace(base.inputs, peaks=base.inputs.peaks[-9:])
    plan = dataclasses.replace(base, inputs=inputs, forecast=None)
    exhaustion = dataclasses.replace(base.exhaustion, refusal="few_days", more_days=5, models={}, history_days=9, reach_days=0)
    plan = dataclasses.replace(plan, exhaustion=exhaustion)
    assert FORECAST.answer(plan) == [
        "There is no date of exhaustion: a forecast needs 14 daily peaks, and there are 9. With about 1 more week of peaks it can be made."
    ]
    assert dict(forecast_table(plan).rows)["exhausted"] == "not told: few days"
    assert forecast_models_table(plan).rows == ()
    assert forecast_group(plan) is None


@pytest.mark.parametrize(
    ("capacity_per_s", "lead_time_days", "sentence"),
    [
        (130.0, 14, "Order more replicas by 2026-03-14: P10 less the lead time of 14 days."),
        (130.0, 27, "Order more replicas now: the last day for an order was 2026-03-01, which is P10 less the lead time of 27 days."),
        (130.0, 42, "Order more replicas now: the last day for an order was 2026-02-14, which is P10 less the lead time of 42 days."),
        (300.0, 42, "No order is due before 2026-03-19: the end of the forecast less the lead time of 42 days."),
        (300.0, 90, "There is no date for an order: the forecast cannot tell whether the replicas last for the lead time of 90 days."),
    ],
)
def test_the_order_is_due_the_lead_time_before_p10(base, capacity_per_s, lead_time_days, sentence):
    assert said(base, capacity_per_s, lead_time_days)[-1] == sentence


def test_the_table_of_models_shows_back_test_weight_and_date_of_each(base):
    table = forecast_models_table(dataclasses.replace(base, exhaustion=base.forecast.exhaustion(130.0)))
    rows = {record["model"]: record for record in table.records}
    assert set(rows) == {"exponential", "linear", "seasonal", "level shifts"}
    assert sum(row["weight"] for row in rows.values()) == pytest.approx(1)
    assert (rows["exponential"]["weight"], rows["exponential"]["p50"]) == (pytest.approx(1), "2026-03-28")
    assert rows["exponential"]["error"] == pytest.approx(0, abs=1e-6)


def test_the_plot_draws_history_fan_capacity_and_each_model_with_weight(base):
    peaks = [peak for _, peak in base.inputs.peaks] * np.exp(np.random.default_rng(1).normal(0, 0.05, LENGTH))
    forecast = fit_forecast(range(LENGTH), peaks, np.random.default_rng(2))
    plan = dataclasses.replace(base, forecast=forecast, exhaustion=forecast.exhaustion(130.0))
    (chart,) = forecast_group(plan).charts
    lines = {line.name: line for line in chart.lines}
    relevant = {name for name, score in forecast.back_test.models.items() if score.weight >= 0.1}
    assert set(lines) == {"measured peaks", "forecast, P50 (P10 to P90)", *(f"{name} model" for name in relevant)}
    assert len(relevant) > 1
    first, last = (np.datetime64("1970-01-01") + int(lines["measured peaks"].xs[place]) for place in (0, -1))
    assert (str(first), str(last)) == (base.inputs.peaks[0][0], base.last_peak_date)
    fan = lines["forecast, P50 (P10 to P90)"]
    assert [round(edge) for edge in fan.band[9]] == [round(float(edge[9])) for edge in forecast.fan_per_s((0.1, 0.9), 10)]
    assert [level.label for level in chart.levels] == ["capacity less headroom", "P10", "P50", "P90"][: len(chart.levels)]
    assert chart.levels[1].value == lines["measured peaks"].xs[-1] + plan.exhaustion.p10_days
