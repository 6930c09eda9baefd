"""The plots of a capacity plan."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from perfkit.plan.evidence import KEPT_UP
from perfkit.plan.model import CapacityPlan, ConfigurationPlan
from perfkit.report.plots import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    NS_PER_MS,
    NUMBERS,
    VERMILLION,
    WIDTH_IN,
    add_legend,
    legend_key,
    plot_series,
    render_svgs,
    scale_times,
)
from perfkit.stats.usl import FURTHEST, UslFit
from perfkit.stats.validation import MEAN_WITHIN, P99_WITHIN

_COLOUR_OF = {"p50": BLUE, "p95": GREEN, "p99": VERMILLION}
_PANELS_PER_ROW, _PANEL_IN = 2, 3.5
_FAN_DAYS_AT_LEAST = 30
_RATE = "arrival rate (requests per second)"


def render_plan_plots(plan: CapacityPlan) -> dict[str, str]:
    """SVG by name, in the order of the page; plots without values are left out."""
    figures: tuple[tuple[str, Callable[[CapacityPlan], Figure | None]], ...] = (
        ("rate", rate_figure),
        ("front", front_figure),
        ("throughput", throughput_figure),
        ("latency-throughput", latency_throughput_figure),
        ("gpu", gpu_figure),
        ("forecast", forecast_figure),
        ("held-out", held_out_figure),
    )
    return render_svgs(lambda: ((name, figure(plan)) for name, figure in figures))


def rate_figure(plan: CapacityPlan) -> Figure | None:
    """p50, p95 and p99 against the rate: measurements, fitted curves with 90 % bands, the SLO and the capacity."""
    planned = [one for one in plan.configurations if one.curves]
    if not planned:
        return None
    figure, panels = _panels(len(planned))
    for one, panel in zip(planned, panels, strict=True):
        values_ms = [value_ms for name, colour in _COLOUR_OF.items() for value_ms in _draw_curve(panel, one, name, colour)]
        limits_ms = [limit / NS_PER_MS for limit in plan.inputs.slo.percentiles_ns.values()]
        for limit_ms in limits_ms:
            panel.axhline(limit_ms, color=INK, lw=1, ls="--", gid=f"slo-{limit_ms:g}")
        if one.capacity:
            panel.axvspan(one.capacity.low_per_s, one.capacity.high_per_s, color=MUTED, alpha=0.15, lw=0)
            panel.axvline(one.capacity.per_s, color=MUTED, lw=1, gid="capacity")
        if values_ms:
            scale_times(panel, min(values_ms), max([*values_ms, *limits_ms]))
        panel.set(title=one.name, xlabel=_RATE, ylabel="response time (ms)")
        panel.set_xlim(0, max(point.rate_per_s for point in one.points) * 1.06)
        panel.xaxis.set_major_formatter(NUMBERS)
    add_legend(
        figure,
        *(legend_key(color=colour, marker="o", label=name) for name, colour in _COLOUR_OF.items()),
        legend_key(color=INK, lw=1, ls="--", label="SLO"),
        legend_key(color=MUTED, lw=6, alpha=0.3, label="capacity"),
        legend_key(color=MUTED, marker="o", mfc="white", ls="", label="did not keep up"),
    )
    return figure


def _draw_curve(panel: Axes, one: ConfigurationPlan, name: str, colour: str) -> list[float]:
    """Draws a percentile's measurements and curve; returns the values in ms that set the scale."""
    measured = [
        (point.rate_per_s, point.percentiles_ns[name] / NS_PER_MS, point.state == KEPT_UP)
        for point in one.points
        if name in point.percentiles_ns
    ]
    for has_kept_up, face in ((True, colour), (False, "white")):
        points = [(rate_per_s, value_ms) for rate_per_s, value_ms, kept_up in measured if kept_up is has_kept_up]
        plot_series(panel, points, color=colour, marker="o", mfc=face, ls="", gid=f"measured-{name}-{has_kept_up}")
    curve = one.curves.get(name)
    values_ms = [value_ms for _, value_ms, kept_up in measured if kept_up]
    if curve is None:
        return values_ms
    rates = np.linspace(curve.lowest_rate_per_s, min(curve.highest_rate_per_s, 0.995 * curve.saturation_per_s), 80)
    predicted = [curve.predict(float(rate)) for rate in rates]
    low_ms, middle_ms, high_ms = ([getattr(prediction, end) / NS_PER_MS for prediction in predicted] for end in ("low", "value", "high"))
    panel.plot(rates, middle_ms, color=colour, gid=f"curve-{name}")
    panel.fill_between(rates, low_ms, high_ms, color=colour, alpha=0.15, lw=0)
    # a very wide band does not set the scale
    return [*values_ms, max(min(low_ms), min(values_ms) / 4), min(max(high_ms), 4 * max(values_ms))]


def throughput_figure(plan: CapacityPlan) -> Figure | None:
    """Throughput against concurrency, with the fitted scalability law and the bounds."""
    planned = [one for one in plan.configurations if len({point.concurrency for point in one.closed}) > 1]
    if not planned:
        return None
    figure, panels = _panels(len(planned))
    for one, panel in zip(planned, panels, strict=True):
        concurrencies = [point.concurrency for point in one.closed]
        panel.plot(concurrencies, [point.throughput_per_s for point in one.closed], color=BLUE, marker="o", ls="", gid="measured")
        lowest, largest = min(concurrencies), max(concurrencies)
        if isinstance(one.usl, UslFit):
            for low, high, style in ((lowest, largest, "-"), (largest, FURTHEST * largest, ":")):
                n = np.linspace(low, high, 80)
                panel.plot(n, [one.usl.throughput_per_s(float(at)) for at in n], color=VERMILLION, ls=style, gid=f"law{style}")
            if one.usl.peak:
                panel.axvspan(one.usl.peak.low, one.usl.peak.high, color=MUTED, alpha=0.15, lw=0)
        if one.bounds:
            n = np.linspace(lowest, largest, 80)
            panel.plot(n, [one.bounds.throughput_per_s(float(at)) for at in n], color=MUTED, lw=0.8, ls="--", gid="bound")
        panel.set(title=one.name, xlabel="concurrency (requests in flight)", ylabel="ok answers per second")
        panel.set(ylim=(0, max(point.throughput_per_s for point in one.closed) * 1.12), xlim=(0, None))
        panel.yaxis.set_major_formatter(NUMBERS)
    add_legend(
        figure,
        legend_key(color=BLUE, marker="o", ls="", label="measured"),
        legend_key(color=VERMILLION, label="scalability law"),
        legend_key(color=VERMILLION, ls=":", label="extrapolated"),
        legend_key(color=MUTED, lw=0.8, ls="--", label="bound min(N/R₁, X_max)"),
        legend_key(color=MUTED, lw=6, alpha=0.3, label="peak, 95 % interval"),
    )
    return figure


def latency_throughput_figure(plan: CapacityPlan) -> Figure | None:
    """p50 and p99 against throughput, in a colour per configuration."""
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN), layout="constrained")
    panel, times_ms, handles = figure.subplots(), [], []
    for index, one in enumerate(plan.configurations):
        colour = f"C{index}"
        for name, style in (("p50", "-"), ("p99", "--")):
            values = [
                (point.throughput_per_s, point.percentiles_ns[name] / NS_PER_MS) for point in one.points if name in point.percentiles_ns
            ]
            plot_series(panel, values, color=colour, ls=style, marker="o", gid=f"{name}-{one.name}")
            times_ms += [value for _, value in values]
        handles.append(legend_key(color=colour, marker="o", label=one.name))
    if not times_ms:
        return None
    scale_times(panel, min(times_ms), max(times_ms))
    panel.set(xlim=(0, None), xlabel="throughput (ok answers per second)", ylabel="response time (ms)")
    panel.xaxis.set_major_formatter(NUMBERS)
    add_legend(figure, *handles, legend_key(color=MUTED, ls="-", label="p50"), legend_key(color=MUTED, ls="--", label="p99"))
    return figure


def gpu_figure(plan: CapacityPlan) -> Figure | None:
    """GPU utilisation, power and energy per inference against the rate; None if no result has GPUs."""
    planned = [
        one for one in plan.configurations if any(point.power_w is not None or point.gpu_utilization is not None for point in one.points)
    ]
    if not planned:
        return None
    figure = Figure(figsize=(WIDTH_IN, 3.2), layout="constrained")
    busy, power, energy = figure.subplots(1, 3)
    handles, has_idle = [], False
    for index, one in enumerate(planned):
        colour = f"C{index}"
        above_idle = [(p.rate_per_s, p.energy.above_idle_j) for p in one.points if p.energy and p.energy.above_idle_j is not None]
        series = (
            (busy, [(p.rate_per_s, 100 * p.gpu_utilization) for p in one.points if p.gpu_utilization is not None], "-", "utilization"),
            (power, [(p.rate_per_s, p.power_w) for p in one.points if p.power_w is not None], "-", "power"),
            (energy, [(p.rate_per_s, p.energy.gross_j) for p in one.points if p.energy], "-", "energy"),
            (energy, above_idle, "--", "idle"),
        )
        for panel, values, style, name in series:
            plot_series(panel, values, color=colour, marker="o", ls=style, gid=f"{name}-{one.name}")
        handles.append(legend_key(color=colour, marker="o", label=one.name))
        has_idle = has_idle or bool(above_idle)
    for panel, title in ((busy, "GPU busy (% of time)"), (power, "power (W)"), (energy, "energy per inference (J)")):
        panel.set(title=title, xlabel=_RATE, xlim=(0, None), ylim=(0, None))
    add_legend(figure, *handles, *([legend_key(color=MUTED, ls="--", label="above idle")] if has_idle else []))
    return figure


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
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN), layout="constrained")
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


def held_out_figure(plan: CapacityPlan) -> Figure | None:
    """Signed errors of the queueing models on held-out points, with the allowed range."""
    planned = [(one, validation) for one in plan.configurations for validation in one.validations if validation.errors]
    if not planned:
        return None
    figure, panels = _panels(len(planned))
    for (one, validation), panel in zip(planned, panels, strict=True):
        for figure_name, colour, marker, allowed in (("mean", BLUE, "o", MEAN_WITHIN), ("p99", VERMILLION, "s", P99_WITHIN)):
            values = [(held.rate_per_s, 100 * held.error) for held in validation.errors if held.figure == figure_name]
            plot_series(panel, values, color=colour, marker=marker, ls="", gid=f"error-{figure_name}")
            for share in (-allowed, allowed) if values else ():
                panel.axhline(100 * share, color=colour, lw=0.8, ls=":")
        panel.axhline(0, color=INK, lw=0.8)
        title = f"{one.name}: {validation.model.split(',')[0]}, {'holds' if validation.is_accepted else 'rejected'}"
        panel.set(title=title, xlabel=_RATE, ylabel="predicted − measured (%)")
    add_legend(
        figure,
        legend_key(color=BLUE, marker="o", ls="", label="mean"),
        legend_key(color=VERMILLION, marker="s", ls="", label="p99"),
        legend_key(color=MUTED, lw=0.8, ls=":", label="allowed"),
    )
    return figure


def front_figure(plan: CapacityPlan) -> Figure | None:
    """Cost against response time, a point per headroom, with the Pareto front."""
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN), layout="constrained")
    panel, handles, times_ms, front = figure.subplots(), [], [], []
    for index, one in enumerate(plan.configurations):
        if not one.operations:
            continue
        colour = f"C{index}"
        for operation in one.operations:
            amount = operation.cost_per_hour if plan.compares_costs and operation.cost_per_hour is not None else float(operation.replicas)
            time_ms, is_on_front = operation.slo_percentile_ns / NS_PER_MS, (one.name, operation.headroom) in plan.front
            panel.plot([amount], [time_ms], color=colour, marker="o", mfc=colour if is_on_front else "white", ms=5, ls="")
            times_ms.append(time_ms)
            if is_on_front:
                front.append((amount, time_ms))
            if math.isclose(operation.headroom, plan.inputs.headroom) and one.name == plan.cheapest:
                panel.annotate("planned", (amount, time_ms), xytext=(6, 6), textcoords="offset points", color=INK)
        handles.append(legend_key(color=colour, marker="o", ls="", ms=5, label=one.name))
    if not times_ms:
        return None
    panel.plot(*zip(*sorted(front), strict=True), color=MUTED, lw=1, zorder=1, gid="front")
    scale_times(panel, min(times_ms), max(times_ms))
    panel.xaxis.set_major_formatter(NUMBERS)
    currency = next((f" ({one.currency})" for one in plan.configurations if one.currency), "")
    cost = f"cost per hour{currency}" if plan.compares_costs else "replicas"
    panel.set(xlim=(0, None), xlabel=cost, ylabel=f"expected {plan.chosen.slo_percentile.replace('_', '.')} (ms)")
    add_legend(figure, *handles, legend_key(color=MUTED, lw=1, marker="o", mfc=MUTED, ms=5, label="on the front"))
    return figure


def _panels(number: int) -> tuple[Figure, list[Axes]]:
    columns = min(number, _PANELS_PER_ROW)
    rows = -(-number // columns)
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN * rows), layout="constrained")
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[number:]:
        panel.set_visible(False)
    return figure, panels[:number]
