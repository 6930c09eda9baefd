"""The forecast of a capacity plan: its sentence, its table and its plot."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from perfkit.plan.model import CapacityPlan
from perfkit.report.plan_subject import PlanPlot, PlanSubject
from perfkit.report.plots import BLUE, INK, MUTED, NUMBERS, PANEL_IN, VERMILLION, WIDTH_IN, add_legend, legend_key
from perfkit.report.table import Column, Table
from perfkit.stats.forecast import HORIZON_DAYS
from perfkit.units import format_rate_per_s

_FAN_DAYS_AT_LEAST = 30


def forecast_answer(plan: CapacityPlan) -> list[str]:
    """When the demand exceeds the replicas, as a sentence."""
    if plan.exhaustion is None:
        return []
    p10, p50, p90 = (exhaustion_date(plan, days) for days in (plan.exhaustion.p10_days, plan.exhaustion.p50_days, plan.exhaustion.p90_days))
    supply = f"{plan.exhaustion_replicas} replicas less headroom ({format_rate_per_s(plan.exhaustion.capacity_per_s)})"
    is_expected = plan.exhaustion.p50_days is not None
    when = f"Demand exceeds {supply} on {p50}" if is_expected else f"Demand is not expected to exceed {supply}: {p50}"
    return [f"{when} (P50; P10 {p10}, P90 {p90})."]


def forecast_table(plan: CapacityPlan) -> Table:
    """The trend, and the dates of exhaustion; without rows if there is no forecast."""
    columns = (Column("figure", "figure"), Column("value", "value"))
    if plan.forecast is None or plan.exhaustion is None:
        return Table("forecast", "Forecast", columns, ())
    forecast, exhaustion = plan.forecast, plan.exhaustion
    low, high = (f"{growth:+.3%}" for growth in (forecast.growth_low_per_day, forecast.growth_high_per_day))
    rows = (
        ("history (days)", f"{forecast.days}"),
        ("peak on the last day, by the trend", format_rate_per_s(forecast.level_per_s)),
        ("growth a day (80 % interval)", f"{forecast.growth_per_day:+.3%} ({low} to {high})"),
        (f"capacity of {plan.exhaustion_replicas} replicas, less headroom", format_rate_per_s(exhaustion.capacity_per_s)),
        *((f"exhausted, {name.upper()}", exhaustion_date(plan, getattr(exhaustion, f"{name}_days"))) for name in ("p10", "p50", "p90")),
        ("exhausted by growth alone", exhaustion_date(plan, None if exhaustion.trend_days is None else round(exhaustion.trend_days))),
    )
    note = (
        "Dates are those of the first daily peak above the capacity. "
        f"Beyond {forecast.days} days, the length of the history, they are marked as extrapolated."
    )
    return Table("forecast", "Forecast", columns, rows, note)


def exhaustion_date(plan: CapacityPlan, days: int | None) -> str:
    """The date that many days after the last peak; marked as extrapolated if it lies further ahead than the history is long."""
    assert plan.forecast is not None
    if days is None or days > HORIZON_DAYS:
        return f"not within {HORIZON_DAYS // 365} years"
    beyond = " (extrapolated)" if days > plan.forecast.days else ""
    return f"{np.datetime64(plan.last_peak_date, 'D') + days}{beyond}"


def forecast_figure(plan: CapacityPlan) -> Figure | None:
    """Daily peaks, their forecast, and the capacity."""
    forecast, exhaustion = plan.forecast, plan.exhaustion
    if forecast is None or exhaustion is None:
        return None
    dates = np.array([date for date, _ in plan.inputs.peaks], dtype="datetime64[D]")
    reach = [days for days in (exhaustion.p50_days, exhaustion.p90_days, 0) if days is not None]
    ahead = int(min(max(1.15 * max(reach), forecast.days, _FAN_DAYS_AT_LEAST), 3 * max(forecast.days, _FAN_DAYS_AT_LEAST)))
    ahead = min(ahead, forecast.paths_per_s.shape[1])  # a history may be longer than the simulated future
    days = dates[-1] + np.arange(1, ahead + 1)
    figure = Figure(figsize=(WIDTH_IN, PANEL_IN), layout="constrained")
    panel = figure.subplots()
    panel.plot(dates, [peak for _, peak in plan.inputs.peaks], color=INK, lw=1, gid="history")
    low, middle, high = (forecast.fan_per_s(quantile, ahead) for quantile in (0.1, 0.5, 0.9))
    panel.fill_between(days, low, high, color=BLUE, alpha=0.18, lw=0)
    panel.plot(days, middle, color=BLUE, lw=1, gid="median")
    panel.axhline(exhaustion.capacity_per_s, color=VERMILLION, lw=1, ls="--", gid="capacity")
    dates_of = (("P10", exhaustion.p10_days), ("P50", exhaustion.p50_days), ("P90", exhaustion.p90_days))
    for line, (name, when) in enumerate(dates_of):  # each label a little lower, since the dates may coincide
        if when is not None and when <= ahead:
            panel.axvline(dates[-1] + when, color=MUTED, lw=0.8, ls=":", gid=f"exhausted-{name}")
            place = (dates[-1] + when, 0.16 - 0.06 * line)
            style: dict[str, Any] = {"xytext": (3, 0), "textcoords": "offset points", "color": MUTED, "fontsize": 8}
            panel.annotate(name, place, xycoords=("data", "axes fraction"), **style)
    if forecast.days < ahead:
        panel.axvspan(dates[-1] + forecast.days, days[-1], color=MUTED, alpha=0.08, lw=0)
    panel.set(ylim=(0, None), xlim=(dates[0], days[-1]), ylabel="daily peak (per second)")
    panel.yaxis.set_major_formatter(NUMBERS)
    add_legend(
        figure,
        legend_key(color=INK, lw=1, label="measured peaks"),
        legend_key(color=BLUE, label="forecast, P50"),
        legend_key(color=BLUE, lw=6, alpha=0.25, label="P10 to P90"),
        legend_key(color=VERMILLION, lw=1, ls="--", label="capacity less headroom"),
        legend_key(color=MUTED, lw=6, alpha=0.15, label="beyond the history's length"),
    )
    return figure


FORECAST = PlanSubject(
    "Forecast",
    lambda plan: [forecast_table(plan)],
    {
        "forecast": PlanPlot(
            "Forecast of the demand",
            "A log-linear trend of daily peaks, with simulated futures around it; the daily peak lies within the band with a probability of 80 %. Dotted lines mark the "
            "days by which 10 %, 50 % and 90 % of the simulations first exceed the capacity. The shaded part lies further ahead than the history is long.",
            forecast_figure,
        )
    },
    forecast_answer,
)
