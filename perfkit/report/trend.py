"""Trends with their steps as a picture."""

import itertools
import statistics

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from perfkit.report.plot_style import WIDTH_IN, drawn
from perfkit.report.trend_text import Found, short_commit
from perfkit.units import NS_PER_S

_LINE, _STEP, _BREAK = "#0072b2", "#d55e00", "#57606a"


def draw_trends(found: Found) -> str:
    """A panel for each trend as SVG: a dot for each result, the level between steps, steps with their commits."""
    return drawn(lambda: _figure(found), "trends")


def _figure(found: Found) -> Figure:
    figure = Figure(figsize=(WIDTH_IN, 0.6 + 2.1 * len(found)), layout="constrained")
    panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    for number, (panel, (trend, steps)) in enumerate(zip(panels, found, strict=True)):
        scale = 1.0 if trend.unit == "per_s" else NS_PER_S / 1000
        values = [value / scale for value in trend.values]
        places = range(1, len(values) + 1)
        panel.plot(places, values, color=_LINE, marker="o", ms=3, lw=0.8, alpha=0.9, gid=f"trend-{number}")
        for start, end in itertools.pairwise((0, *(step.index for step in steps), len(values))):
            level = statistics.geometric_mean(values[start:end])
            panel.plot((start + 0.5, end + 0.5), (level, level), color=_STEP, lw=1.0, alpha=0.7, gid=f"level-{number}-{start}")
        for step in steps:
            panel.axvline(step.index + 0.5, color=_STEP, lw=1.2, gid=f"step-{number}-{step.index}")
            label = f" {short_commit(step.commit)} {100 * (step.ratio - 1):+.0f} % "
            side = "left" if step.index < len(values) / 2 else "right"  # where there is room
            panel.annotate(label, (step.index + 0.5, 1), xycoords=("data", "axes fraction"), ha=side, va="top", color=_STEP)
        for index in range(1, len(values)):
            if trend.entries[index].fingerprint != trend.entries[index - 1].fingerprint:
                panel.axvline(index + 0.5, color=_BREAK, lw=0.8, ls=":", gid=f"environment-{number}-{index}")
        panel.set_title(trend.title)
        panel.set_ylabel("per second" if trend.unit == "per_s" else "ms")
        panel.set_ylim(0, max(values) * 1.15)
        panel.set_xlim(0.5, len(values) + 0.5)
        panel.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    panels[-1].set_xlabel("results in the order of time; orange: levels, and steps with their commits; dotted: the environment changed")
    return figure
