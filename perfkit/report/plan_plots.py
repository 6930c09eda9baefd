"""The plots of a capacity plan's measurements: times against rates, closed loops, GPUs and queueing models."""

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
    PANEL_IN,
    VERMILLION,
    WIDTH_IN,
    add_legend,
    legend_key,
    plot_series,
    scale_times,
)
from perfkit.stats.usl import FURTHEST, UslFit
from perfkit.stats.validation import MEAN_WITHIN, P99_WITHIN

_COLOUR_OF = {"p50": BLUE, "p95": GREEN, "p99": VERMILLION}
_PANELS_PER_ROW = 2
_RATE = "arrival rate (requests per second)"


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
    figure = Figure(figsize=(WIDTH_IN, PANEL_IN), layout="constrained")
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


def _panels(number: int) -> tuple[Figure, list[Axes]]:
    columns = min(number, _PANELS_PER_ROW)
    rows = -(-number // columns)
    figure = Figure(figsize=(WIDTH_IN, PANEL_IN * rows), layout="constrained")
    panels: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for panel in panels[number:]:
        panel.set_visible(False)
    return figure, panels[:number]
