"""The forecast of the demand in a capacity plan: its sentences, its tables and its chart."""

from collections.abc import Iterator

import numpy as np

from perfkit.plan.forecast import FEWEST_DAYS, RELEVANT_WEIGHT, Exhaustion, Forecast
from perfkit.plan.model import CapacityPlan
from perfkit.report.chart import BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, Axis, Chart, ChartGroup, Colour, Level, Line
from perfkit.report.plan_tables import PlanPlot, PlanSubject
from perfkit.report.table import Column, Table
from perfkit.units import format_rate_per_s

_COLOUR_OF: dict[str, Colour] = {"exponential": GREEN, "linear": PURPLE, "seasonal": ("#8f8f14", "#d5d54a"), "level shifts": MUTED}
_FURTHEST = 4.0  # times the capacity: a forecast beyond it is beyond the chart


def forecast_answer(plan: CapacityPlan) -> list[str]:
    """The date on which the demand exceeds the replicas, or why there is none, and the last day for an order, in sentences."""
    exhaustion = plan.exhaustion
    if exhaustion is None:
        return []
    if exhaustion.refusal:
        return [f"There is no date of exhaustion: {' '.join(_refusal(plan, exhaustion))}", *_order(plan, exhaustion)]
    supply = _supply(plan, exhaustion)
    if highest := _exceeded(plan, exhaustion):
        day, peak_per_s = highest
        which = "the last peak, on" if day == plan.last_peak_date else "the highest peak of the last seven days, on"
        return [f"Demand exceeds {supply} already: {which} {day}, was {format_rate_per_s(peak_per_s)}.", *_order(plan, exhaustion)]
    p10, p50, p90 = (_date(plan, exhaustion, days) for days in (exhaustion.p10_days, exhaustion.p50_days, exhaustion.p90_days))
    if exhaustion.p50_days is None:
        when = (
            f"Demand exceeds {supply} by {p10} with a probability of 10 %, and by {_day(plan, exhaustion.reach_days)} with less than 50 %"
        )
        return [f"{when}; {exhaustion.history_days} days of history support no longer forecast.", *_order(plan, exhaustion)]
    return [f"Demand exceeds {supply} on {p50} (P50; P10 {p10}, P90 {p90}).", *_order(plan, exhaustion)]


def _exceeded(plan: CapacityPlan, exhaustion: Exhaustion) -> tuple[str, float] | None:
    """The last peak if it exceeds the capacity, otherwise the highest of the last seven days, with its day; None if neither does."""
    peaks, first_day = plan.inputs.peaks, str(np.datetime64(plan.last_peak_date, "D") - 6)
    recent = [(day, peak_per_s) for day, peak_per_s in peaks if day >= first_day and peak_per_s > exhaustion.capacity_per_s]
    return peaks[-1] if peaks[-1] in recent else max(recent, key=lambda peak: peak[1], default=None)


def _refusal(plan: CapacityPlan, exhaustion: Exhaustion) -> Iterator[str]:
    """Why there is no date of exhaustion, and the history that would give one; parts of one text."""
    supply, reach = _supply(plan, exhaustion), _day(plan, exhaustion.reach_days)
    weeks = "" if exhaustion.more_days is None else _weeks(exhaustion.more_days)
    if exhaustion.refusal == "few_days":
        yield f"a forecast needs {FEWEST_DAYS} daily peaks, and there are {len(plan.inputs.peaks)}. With {weeks} of peaks it can be made."
        return
    assert plan.forecast is not None
    tested = plan.forecast.back_test
    if exhaustion.refusal == "not_described":
        yield f"none of the models describes this history. In the back-test, the 80 % interval contained {100 * tested.coverage:.0f} % of the peaks,"
        yield f"although it was widened {tested.widening:g} times. Let the history begin after the last change that will not come again."
    elif exhaustion.refusal == "models_disagree":
        relevant = [name for name in exhaustion.models if tested.models[name].weight >= RELEVANT_WEIGHT]
        least, most = (choose(relevant, key=lambda name: exhaustion.models[name].chance) for choose in (min, max))
        yield f"the models disagree. By {reach}, demand exceeds {supply} with a probability of {100 * exhaustion.models[most].chance:.0f} % by the"
        yield f"{most} model (half of its paths by {_date(plan, exhaustion, exhaustion.models[most].p50_days)}), but of"
        yield f"{100 * exhaustion.models[least].chance:.0f} % by the {least} model."
        yield (
            f"{weeks[:1].upper()}{weeks[1:]} of peaks would tell which is wrong."
            if weeks
            else "Even five more years of peaks would not tell which is wrong."
        )
    else:
        yield f"demand exceeds {supply} by {reach} with a probability below 10 %, and {exhaustion.history_days} days of history support"
        yield "no longer forecast."
        if weeks:
            yield f"With {weeks} of peaks, the forecast would reach as far as exhaustion at the present course."
        else:
            yield "At the present course, it does not do so within five years."


def _order(plan: CapacityPlan, exhaustion: Exhaustion) -> Iterator[str]:
    """The last day for an order; nothing without a lead time."""
    if exhaustion.lead_time_days is None:
        return
    lead_time = f"the lead time of {exhaustion.lead_time_days} days"
    if exhaustion.order_by_days is not None:
        day = _day(plan, exhaustion.order_by_days)
        if exhaustion.order_by_days > 0:
            yield f"Order more replicas by {day}: P10 less {lead_time}."
        else:
            yield f"Order more replicas now: the last day for an order was {day}, which is P10 less {lead_time}."
    elif exhaustion.refusal == "beyond_history" and exhaustion.reach_days > exhaustion.lead_time_days:
        yield f"No order is due before {_day(plan, exhaustion.reach_days - exhaustion.lead_time_days)}: the end of the forecast less {lead_time}."
    else:
        yield f"There is no date for an order: the forecast cannot tell whether the replicas last for {lead_time}."


def order_day(plan: CapacityPlan) -> str:
    """The last day for an order, or `now` if it is over; empty if there is none."""
    exhaustion = plan.exhaustion
    if exhaustion is None or exhaustion.order_by_days is None:
        return ""
    return _day(plan, exhaustion.order_by_days) if exhaustion.order_by_days > 0 else "now"


def _supply(plan: CapacityPlan, exhaustion: Exhaustion) -> str:
    replicas = f"{plan.exhaustion_replicas:,} replica{'' if plan.exhaustion_replicas == 1 else 's'}"
    which = "as planned" if plan.inputs.replicas_now is None else "that there are now"
    return f"what the {replicas} {which} serve with headroom ({format_rate_per_s(exhaustion.capacity_per_s)})"


def _weeks(days: int) -> str:
    weeks = -(-days // 7)
    return f"about {weeks} more week{'s' if weeks > 1 else ''}"


def _day(plan: CapacityPlan, days: int) -> str:
    """The date `days` after the last peak."""
    return str(np.datetime64(plan.last_peak_date, "D") + days)


def _date(plan: CapacityPlan, exhaustion: Exhaustion, days: int | None) -> str:
    """The date `days` after the last peak, or for None that it lies beyond the end of the forecast."""
    return f"later than {_day(plan, exhaustion.reach_days)}" if days is None else _day(plan, days)


def forecast_table(plan: CapacityPlan) -> Table:
    """The history, the capacity and the dates of exhaustion; no rows without peaks."""
    columns = (Column("figure", "figure"), Column("value", "value"))
    if plan.exhaustion is None:
        return Table("forecast", "Forecast", columns, ())
    exhaustion, forecast = plan.exhaustion, plan.forecast
    rows = [("history (days)", f"{exhaustion.history_days}")]
    if forecast is not None:
        rows += [
            ("peak on the last day, by the models", format_rate_per_s(forecast.level_per_s)),
            ("growth a day, by the models", f"{forecast.growth_per_day:+.3%}"),
            ("forecast up to", _day(plan, exhaustion.reach_days)),
            ("widened by the back-test", f"{forecast.back_test.widening:g} times" if forecast.back_test.widening > 1 else "no"),
        ]
    rows.append((f"capacity of {plan.exhaustion_replicas} replicas, less headroom", format_rate_per_s(exhaustion.capacity_per_s)))
    if exhaustion.refusal:
        rows.append(("exhausted", f"not told: {exhaustion.refusal.replace('_', ' ')}"))
    else:
        dates = (("P10", exhaustion.p10_days), ("P50", exhaustion.p50_days), ("P90", exhaustion.p90_days))
        rows += [(f"exhausted, {name}", _date(plan, exhaustion, days)) for name, days in dates]
    if exhaustion.order_by_days is not None:
        day = _day(plan, exhaustion.order_by_days)
        rows.append(("order by", day if exhaustion.order_by_days > 0 else f"now; the last day was {day}"))
    note = "A date is that of the first daily peak above the capacity. The forecast reaches as far ahead as the history is long, and at most five years."
    return Table("forecast", "Forecast", columns, tuple(rows), note)


def forecast_models_table(plan: CapacityPlan) -> Table:
    """Each model with its back-test, its weight and its own date of exhaustion; no rows without a forecast."""
    columns = (
        Column("model", "model"),
        Column("error", "error", "number"),
        Column("coverage", "in its 80 % interval", "share"),
        Column("log_score", "log score", "number"),
        Column("weight", "weight", "share"),
        Column("chance", "chance of exhaustion", "share"),
        Column("p50", "exhausted, P50"),
    )
    exhaustion, forecast = plan.exhaustion, plan.forecast
    if exhaustion is None or forecast is None:
        return Table("forecast_models", "Models of the forecast", columns, ())
    rows = tuple(
        (name, score.error, score.coverage, score.log_score, score.weight, one.chance, _date(plan, exhaustion, one.p50_days))
        for name, score in forecast.back_test.models.items()
        for one in (exhaustion.models[name],)
    )
    return Table("forecast_models", "Models of the forecast", columns, rows, _back_test_note(forecast))


def _back_test_note(forecast: Forecast) -> str:
    tested = forecast.back_test
    widened = f", and {100 * tested.coverage:.0f} % after it was widened {tested.widening:g} times" if tested.widening > 1 else ""
    return (
        f"Back-test: the history was cut at {tested.origins} days, and each model forecast up to {tested.longest_days} days of the rest. Error: mean absolute "
        "scaled error; below 1 is better than repeating the week before. The weight follows from the log score. The 80 % interval of the weighted models contained "
        f"{100 * tested.coverage_before_widening:.0f} % of the peaks{widened}. Chance of exhaustion: the probability within the reach of the forecast."
    )


def forecast_group(plan: CapacityPlan) -> ChartGroup | None:
    """The daily peaks, the forecast of the weighted models and of each one, and the capacity; None without a forecast."""
    forecast, exhaustion = plan.forecast, plan.exhaustion
    if forecast is None or exhaustion is None:
        return None
    dates = [int(date) for date in np.array([date for date, _ in plan.inputs.peaks], dtype="datetime64[D]").astype(int)]
    peaks, ahead = [peak for _, peak in plan.inputs.peaks], forecast.reach_days
    days = tuple(range(dates[-1] + 1, dates[-1] + ahead + 1))
    low, middle, high = (quantile.tolist() for quantile in forecast.fan_per_s((0.1, 0.5, 0.9), ahead))
    lines = [
        Line.of("measured peaks", list(zip(dates, peaks, strict=True)), INK),
        Line("forecast, P50 (P10 to P90)", days, tuple(middle), BLUE, band=tuple(zip(low, high, strict=True))),
    ]
    for name, score in forecast.back_test.models.items():
        if score.weight >= RELEVANT_WEIGHT:
            levels_per_s = np.exp(forecast.fits[name].outlook(np.arange(1.0, ahead + 1)).centre).tolist()
            lines.append(Line(f"{name} model", days, tuple(levels_per_s), _COLOUR_OF.get(name, MUTED), "dashed"))
    levels = [Level(exhaustion.capacity_per_s, "capacity less headroom", colour=VERMILLION)]
    dates_of = (("P10", exhaustion.p10_days), ("P50", exhaustion.p50_days), ("P90", exhaustion.p90_days))
    levels += [Level(dates[-1] + when, name, is_vertical=True, colour=MUTED) for name, when in dates_of if when is not None]
    top = 1.1 * max(exhaustion.capacity_per_s, *high, *peaks)
    y = Axis("daily peak", "/s", "linear", low=0.0, high=min(top, _FURTHEST * exhaustion.capacity_per_s))
    x = Axis("date", scale="date", low=dates[0], high=days[-1])
    return ChartGroup((Chart("Daily peaks and their forecast", x, y, tuple(lines), levels=tuple(levels), height_px=340),))


FORECAST = PlanSubject(
    "Forecast",
    lambda plan: [forecast_table(plan), forecast_models_table(plan)],
    {
        "forecast": PlanPlot(
            "Forecast of the demand",
            "The daily peaks, and their forecast by several models, which are weighted by a back-test: how well each forecast the later part of the history from its earlier "
            "part. A daily peak lies within the band with a probability of 80 %. Dashed lines are the single models without scatter. Dotted vertical lines mark the days by which "
            "10 %, 50 % and 90 % of the simulated futures have exceeded the capacity.",
            forecast_group,
        )
    },
    forecast_answer,
)
