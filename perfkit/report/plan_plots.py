"""The pictures of a plan, as SVG text."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from perfkit.plan.model import CapacityPlan, ConfigurationPlan
from perfkit.plan.rate_points import KEPT_UP
from perfkit.report.plots import BLUE, GREEN, INK, MUTED, NS_PER_MS, NUMBERS, VERMILLION, WIDTH_IN, render_svgs, scale_times
from perfkit.stats.usl import FURTHEST, UslFit

_BY_PERCENTILE = {"p50": BLUE, "p95": GREEN, "p99": VERMILLION}
_PANELS_A_ROW, _PANEL_IN = 2, 3.5
_FAN_DAYS_AT_LEAST = 30


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
    """The rate against p50, p95 and p99: measured, the curve with its 90 % band, the SLO and the capacity."""
    shown = [one for one in plan.configurations if one.curves]
    if not shown:
        return None
    figure, panels = _panels(len(shown))
    for one, panel in zip(shown, panels, strict=True):
        values = [_draw_curve(panel, one, name, colour) for name, colour in _BY_PERCENTILE.items()]
        limits_ms = [limit / NS_PER_MS for limit in plan.inputs.slo.percentiles_ns.values()]
        for limit_ms in limits_ms:
            panel.axhline(limit_ms, color=INK, lw=1, ls="--", gid=f"slo-{limit_ms:g}")
        if one.capacity:
            panel.axvspan(one.capacity.low_per_s, one.capacity.high_per_s, color=MUTED, alpha=0.15, lw=0)
            panel.axvline(one.capacity.per_s, color=MUTED, lw=1, gid="capacity")
        known = [value for some in values for value in some]
        if known:
            scale_times(panel, min(known), max([*known, *limits_ms]))
        panel.set_title(one.name)
        panel.set_xlabel("arrival rate (requests per second)")
        panel.set_ylabel("response time (ms)")
        panel.set_xlim(0, max(point.rate_per_s for point in one.points) * 1.06)
        panel.xaxis.set_major_formatter(NUMBERS)
    keys = [Line2D([], [], color=colour, marker="o", label=name) for name, colour in _BY_PERCENTILE.items()]
    keys += [Line2D([], [], color=INK, lw=1, ls="--", label="SLO"), Line2D([], [], color=MUTED, lw=6, alpha=0.3, label="capacity")]
    keys.append(Line2D([], [], color=MUTED, marker="o", mfc="white", ls="", label="did not keep up"))
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def _draw_curve(panel: Axes, one: ConfigurationPlan, name: str, colour: str) -> list[float]:
    """Draws a percentile and gives its values, for the scale."""
    measured = [
        (point.rate_per_s, point.percentiles_ns[name] / NS_PER_MS, point.state == KEPT_UP)
        for point in one.points
        if name in point.percentiles_ns
    ]
    for kept_up, face in ((True, colour), (False, "white")):
        some = [(rate, value) for rate, value, kept in measured if kept is kept_up]
        if some:
            panel.plot(*zip(*some, strict=True), color=colour, marker="o", mfc=face, ls="", gid=f"measured-{name}-{kept_up}")
    curve = one.curves.get(name)
    values = [value for _, value, kept in measured if kept]
    if curve is None:
        return values
    rates = np.linspace(curve.lowest_rate_per_s, min(curve.highest_rate_per_s, 0.995 * curve.saturation_per_s), 80)
    predicted = [curve.predict(float(rate)) for rate in rates]
    panel.plot(rates, [p.value / NS_PER_MS for p in predicted], color=colour, gid=f"curve-{name}")
    low, high = [p.low / NS_PER_MS for p in predicted], [p.high / NS_PER_MS for p in predicted]
    panel.fill_between(rates, low, high, color=colour, alpha=0.15, lw=0)
    # a band may reach to nothing and to anything: it does not set the scale
    return [*values, max(min(low), min(values) / 4), min(max(high), 4 * max(values))]


def throughput_figure(plan: CapacityPlan) -> Figure | None:
    """Throughput against concurrency with the fitted law and the bounds."""
    shown = [one for one in plan.configurations if len({point.concurrency for point in one.closed}) > 1]
    if not shown:
        return None
    figure, panels = _panels(len(shown))
    for one, panel in zip(shown, panels, strict=True):
        concurrencies = [point.concurrency for point in one.closed]
        panel.plot(concurrencies, [point.throughput_per_s for point in one.closed], color=BLUE, marker="o", ls="", gid="measured")
        highest = max(point.throughput_per_s for point in one.closed)
        if isinstance(one.usl, UslFit):
            for low, high, style in (
                (min(concurrencies), max(concurrencies), "-"),
                (max(concurrencies), FURTHEST * max(concurrencies), ":"),
            ):
                n = np.linspace(low, high, 80)
                panel.plot(n, [one.usl.throughput_per_s(float(at)) for at in n], color=VERMILLION, ls=style, gid=f"law{style}")
            if one.usl.peak:
                panel.axvspan(one.usl.peak.low, one.usl.peak.high, color=MUTED, alpha=0.15, lw=0)
        if one.bounds:
            n = np.linspace(min(concurrencies), max(concurrencies), 80)
            panel.plot(n, [one.bounds.throughput_per_s(float(at)) for at in n], color=MUTED, lw=0.8, ls="--", gid="bound")
        panel.set_title(one.name)
        panel.set_xlabel("concurrency (requests in flight)")
        panel.set_ylabel("ok answers per second")
        panel.set_ylim(0, highest * 1.12)
        panel.set_xlim(0, None)
        panel.yaxis.set_major_formatter(NUMBERS)
    keys = [
        Line2D([], [], color=BLUE, marker="o", ls="", label="measured"),
        Line2D([], [], color=VERMILLION, label="scalability law"),
        Line2D([], [], color=VERMILLION, ls=":", label="extrapolated"),
        Line2D([], [], color=MUTED, lw=0.8, ls="--", label="bound min(N/R₁, X_max)"),
        Line2D([], [], color=MUTED, lw=6, alpha=0.3, label="peak, 95 % interval"),
    ]
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def latency_throughput_figure(plan: CapacityPlan) -> Figure | None:
    """Response time against throughput, a line a configuration."""
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN), layout="constrained")
    panel, known, keys = figure.subplots(), [], []
    for place, one in enumerate(plan.configurations):
        colour = f"C{place}"
        for name, style in (("p50", "-"), ("p99", "--")):
            some = [
                (point.throughput_per_s, point.percentiles_ns[name] / NS_PER_MS) for point in one.points if name in point.percentiles_ns
            ]
            if some:
                panel.plot(*zip(*some, strict=True), color=colour, ls=style, marker="o", gid=f"{name}-{one.name}")
                known += [value for _, value in some]
        keys.append(Line2D([], [], color=colour, marker="o", label=one.name))
    if not known:
        return None
    scale_times(panel, min(known), max(known))
    panel.set_xlim(0, None)
    panel.xaxis.set_major_formatter(NUMBERS)
    panel.set_xlabel("throughput (ok answers per second)")
    panel.set_ylabel("response time (ms)")
    keys += [Line2D([], [], color=MUTED, ls=style, label=name) for name, style in (("p50", "-"), ("p99", "--"))]
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def gpu_figure(plan: CapacityPlan) -> Figure | None:
    """GPU time busy, power and energy an inference against the rate; None where no result has GPUs."""
    shown = [
        one for one in plan.configurations if any(point.power_w is not None or point.gpu_utilization is not None for point in one.points)
    ]
    if not shown:
        return None
    figure = Figure(figsize=(WIDTH_IN, 3.2), layout="constrained")
    busy, power, energy = figure.subplots(1, 3)
    for place, one in enumerate(shown):
        colour = f"C{place}"
        series = (
            (busy, [(p.rate_per_s, 100 * p.gpu_utilization) for p in one.points if p.gpu_utilization is not None], "-", "utilization"),
            (power, [(p.rate_per_s, p.power_w) for p in one.points if p.power_w is not None], "-", "power"),
            (energy, [(p.rate_per_s, p.energy.gross_j) for p in one.points if p.energy], "-", "energy"),
            (
                energy,
                [(p.rate_per_s, p.energy.above_idle_j) for p in one.points if p.energy and p.energy.above_idle_j is not None],
                "--",
                "idle",
            ),
        )
        for panel, some, style, name in series:
            if some:
                panel.plot(*zip(*some, strict=True), color=colour, marker="o", ls=style, gid=f"{name}-{one.name}")
    for panel, title in ((busy, "GPU busy (% of time)"), (power, "power (W)"), (energy, "energy an inference (J)")):
        panel.set_title(title)
        panel.set_xlabel("arrival rate (requests per second)")
        panel.set_xlim(0, None)
        panel.set_ylim(0, None)
    keys = [Line2D([], [], color=f"C{place}", marker="o", label=one.name) for place, one in enumerate(shown)]
    if any(p.energy and p.energy.above_idle_j is not None for one in shown for p in one.points):
        keys.append(Line2D([], [], color=MUTED, ls="--", label="above idle"))
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def forecast_figure(plan: CapacityPlan) -> Figure | None:
    """Daily peaks, the fan of their future, and the capacity."""
    forecast, exhaustion = plan.forecast, plan.exhaustion
    if forecast is None or exhaustion is None:
        return None
    dates = np.array([date for date, _ in plan.inputs.peaks], dtype="datetime64[D]")
    reach = [days for days in (exhaustion.p50_days, exhaustion.p90_days, 0) if days is not None]
    ahead = int(min(max(1.15 * max(reach), forecast.days, _FAN_DAYS_AT_LEAST), 3 * max(forecast.days, _FAN_DAYS_AT_LEAST)))
    days = dates[-1] + np.arange(1, ahead + 1)
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN), layout="constrained")
    panel = figure.subplots()
    panel.plot(dates, [peak for _, peak in plan.inputs.peaks], color=INK, lw=1, gid="history")
    low, middle, high = (forecast.fan_per_s(quantile, ahead) for quantile in (0.1, 0.5, 0.9))
    panel.fill_between(days, low, high, color=BLUE, alpha=0.18, lw=0)
    panel.plot(days, middle, color=BLUE, lw=1, gid="median")
    panel.axhline(exhaustion.capacity_per_s, color=VERMILLION, lw=1, ls="--", gid="capacity")
    dates_of = (("P10", exhaustion.p10_days), ("P50", exhaustion.p50_days), ("P90", exhaustion.p90_days))
    for line, (name, when) in enumerate(dates_of):  # each a little lower, since they may fall together
        if when is not None and when <= ahead:
            panel.axvline(dates[-1] + when, color=MUTED, lw=0.8, ls=":", gid=f"exhausted-{name}")
            place = (dates[-1] + when, 0.16 - 0.06 * line)
            panel.annotate(
                name, place, xycoords=("data", "axes fraction"), xytext=(3, 0), textcoords="offset points", color=MUTED, fontsize=8
            )
    if forecast.days < ahead:
        panel.axvspan(dates[-1] + forecast.days, days[-1], color=MUTED, alpha=0.08, lw=0)
    panel.set_ylim(0, None)
    panel.set_xlim(dates[0], days[-1])
    panel.yaxis.set_major_formatter(NUMBERS)
    panel.set_ylabel("daily peak (per second)")
    keys = [
        Line2D([], [], color=INK, lw=1, label="measured peaks"),
        Line2D([], [], color=BLUE, label="forecast, P50"),
        Line2D([], [], color=BLUE, lw=6, alpha=0.25, label="P10 to P90"),
        Line2D([], [], color=VERMILLION, lw=1, ls="--", label="capacity less headroom"),
        Line2D([], [], color=MUTED, lw=6, alpha=0.15, label="further than the history is long"),
    ]
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def held_out_figure(plan: CapacityPlan) -> Figure | None:
    """Signed errors of the queueing models on the points they were not fitted to, with what is allowed."""
    shown = [(one, validation) for one in plan.configurations for validation in one.validations if validation.errors]
    if not shown:
        return None
    figure, panels = _panels(len(shown))
    for (one, validation), panel in zip(shown, panels, strict=True):
        for figure_name, colour, marker, allowed in (("mean", BLUE, "o", 10), ("p99", VERMILLION, "s", 15)):
            some = [(held.rate_per_s, 100 * held.error) for held in validation.errors if held.figure == figure_name]
            if some:
                panel.plot(*zip(*some, strict=True), color=colour, marker=marker, ls="", gid=f"error-{figure_name}")
                for side in (-allowed, allowed):
                    panel.axhline(side, color=colour, lw=0.8, ls=":")
        panel.axhline(0, color=INK, lw=0.8)
        panel.set_title(f"{one.name}: {validation.model.split(',')[0]}, {'holds' if validation.is_accepted else 'rejected'}")
        panel.set_xlabel("arrival rate (requests per second)")
        panel.set_ylabel("predicted − measured (%)")
    keys = [
        Line2D([], [], color=BLUE, marker="o", ls="", label="mean"),
        Line2D([], [], color=VERMILLION, marker="s", ls="", label="p99"),
    ]
    keys.append(Line2D([], [], color=MUTED, lw=0.8, ls=":", label="allowed"))
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def front_figure(plan: CapacityPlan) -> Figure | None:
    """Cost against response time, a point a headroom, with the Pareto front."""
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN), layout="constrained")
    panel, keys, known, front = figure.subplots(), [], [], []
    for place, one in enumerate(plan.configurations):
        if not one.operations:
            continue
        colour = f"C{place}"
        for it in one.operations:
            amount = it.cost_per_hour if plan.compares_costs and it.cost_per_hour is not None else float(it.replicas)
            is_on = (one.name, it.headroom) in plan.front
            panel.plot(
                [amount], [it.slo_percentile_ns / NS_PER_MS], color=colour, marker="o", mfc=colour if is_on else "white", ms=5, ls=""
            )
            known.append(it.slo_percentile_ns / NS_PER_MS)
            if is_on:
                front.append((amount, it.slo_percentile_ns / NS_PER_MS))
            if math.isclose(it.headroom, plan.inputs.headroom) and one.name == plan.cheapest:
                panel.annotate("planned", (amount, it.slo_percentile_ns / NS_PER_MS), xytext=(6, 6), textcoords="offset points", color=INK)
        keys.append(Line2D([], [], color=colour, marker="o", ls="", ms=5, label=one.name))
    if not known:
        return None
    panel.plot(*zip(*sorted(front), strict=True), color=MUTED, lw=1, zorder=1, gid="front")
    scale_times(panel, min(known), max(known))
    panel.set_xlim(0, None)
    panel.xaxis.set_major_formatter(NUMBERS)
    currency = next((one.currency for one in plan.configurations if one.currency), "")
    panel.set_xlabel(f"cost an hour{f' ({currency})' if currency else ''}" if plan.compares_costs else "replicas")
    panel.set_ylabel(f"expected {plan.chosen.slo_percentile.replace('_', '.')} (ms)")
    keys.append(Line2D([], [], color=MUTED, lw=1, marker="o", mfc=MUTED, ms=5, label="on the front"))
    figure.legend(handles=keys, loc="outside right upper")
    return figure


def _panels(number: int) -> tuple[Figure, list[Axes]]:
    columns = min(number, _PANELS_A_ROW)
    rows = -(-number // columns)
    figure = Figure(figsize=(WIDTH_IN, _PANEL_IN * rows if rows > 1 else _PANEL_IN), layout="constrained")
    found: Sequence[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in found[number:]:
        panel.set_visible(False)
    return figure, list(found[:number])
