"""The history's time series and their steps: as a picture, and in words."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perfkit.history.trend import Step, Trend, trend_levels
from perfkit.text.foreign import one_line, sentence
from perfkit.units import NS_PER_S

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TrendSteps = Sequence[tuple[Trend, Sequence[Step]]]
"""Time series, each with its steps."""
_COMMIT_LENGTH, _TITLE_LENGTH = 10, 100
_MOST_DRAWN = 2_000  # the latest results: as many dots as a panel can show
_FEWEST_RESULTS = 10  # below that no step is significant: of C(9, 4) orders the two most extreme already occur by chance in 1.6 %


def render_trends(trends: TrendSteps) -> str:
    """The time series as SVG, a panel each: a dot per result, the levels between steps, and the steps with their commits."""
    from perfkit.report.plots import render_svgs

    return render_svgs(lambda: [("trends", _figure(trends))])["trends"]


def render_steps(trends: TrendSteps) -> str:
    """A paragraph for each time series with steps, and the number of those without."""
    lines = []
    for trend, steps in trends:
        if steps:
            lines += [f"{one_line(trend.title)} ({len(trend.values)} results)", *(line for step in steps for line in _step_lines(step)), ""]
    without_steps = sum(not steps for _, steps in trends)
    short = sum(len(trend.values) < _FEWEST_RESULTS for trend, _ in trends)
    too_short = f" {short} have fewer than {_FEWEST_RESULTS} results, too few to detect a step." if short else ""
    lines.append(f"{without_steps} of {len(trends)} time series have no step.{too_short}")
    lines.append(
        "A time series without a true step shows one with a probability of about 1 %. "
        "Steps are detected some results after they occur; they gate nothing."
    )
    return "\n".join(lines) + "\n"


def _step_lines(step: Step) -> Iterator[str]:
    commit, before = _short(step.commit), _short(step.previous_commit)
    is_same = step.commit and step.commit == step.previous_commit
    commits = f"the same commit {commit} as before" if is_same else f"commit {commit}, after {before}"
    effect = "worse" if step.is_worse else "better"
    yield f"  {one_line(step.started_at)}: {100 * (step.ratio - 1):+.1f} % ({effect}), p {step.p:.2g}: {commits}"
    yield from (f"    at the same time: {sentence(change)}" for change in step.environment)


def _short(commit: str) -> str:
    return one_line(commit[:_COMMIT_LENGTH]) or "unknown"


def _figure(trends: TrendSteps) -> "Figure":
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from perfkit.report.plots import BLUE, MUTED, VERMILLION, WIDTH_IN

    figure = Figure(figsize=(WIDTH_IN, 0.6 + 2.1 * len(trends)), layout="constrained")
    panels = figure.subplots(len(trends), 1, squeeze=False)[:, 0]
    for number, (panel, (trend, steps)) in enumerate(zip(panels, trends, strict=True)):
        scale = 1.0 if trend.unit == "per_s" else NS_PER_S / 1000
        first, last = max(len(trend.values) - _MOST_DRAWN, 0), len(trend.values)
        values = [value / scale for value in trend.values[first:]]
        panel.plot(range(first + 1, last + 1), values, color=BLUE, marker="o", ms=3, lw=0.8, alpha=0.9, gid=f"trend-{number}")
        for start, end, level in trend_levels(trend, steps):
            panel.plot(
                (max(start, first) + 0.5, max(end, first) + 0.5),
                (level / scale, level / scale),
                color=VERMILLION,
                lw=1.0,
                alpha=0.7,
                gid=f"level-{number}-{start}",
            )
        for step in steps:
            panel.axvline(step.index + 0.5, color=VERMILLION, lw=1.2, gid=f"step-{number}-{step.index}")
            label = f" {_short(step.commit)} {100 * (step.ratio - 1):+.0f} % "
            side = "left" if step.index < (first + last) / 2 else "right"  # on the side with more room
            panel.annotate(label, (step.index + 0.5, 1), xycoords=("data", "axes fraction"), ha=side, va="top", color=VERMILLION)
        changed = [i for i in range(first + 1, last) if trend.entries[i].fingerprint != trend.entries[i - 1].fingerprint]
        heights = panel.get_xaxis_transform()
        panel.vlines([i + 0.5 for i in changed], 0, 1, MUTED, lw=0.8, ls=":", transform=heights, gid=f"environment-{number}")
        panel.set(title=one_line(trend.title, _TITLE_LENGTH), ylabel="per second" if trend.unit == "per_s" else "ms")
        panel.set(ylim=(0, max(values) * 1.15), xlim=(first + 0.5, last + 0.5))
        panel.xaxis.set_major_locator(MaxNLocator(12, integer=True, min_n_ticks=1))
    panels[-1].set_xlabel("results in order of time; orange: levels, and steps with their commits; dotted: the environment changed")
    return figure
