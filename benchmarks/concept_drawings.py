"""The plots of docs/concepts, each drawn from the results of runs, with the sentences that go under it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator
from scipy.optimize import brentq
from scipy.stats import norm

from benchmarks.concept_runs import CAPACITY_PER_S, GATE_MODEL, INTERVAL_RATE_PER_S, QUEUED_MEAN_MS, SEED, WINDOWS_S
from benchmarks.concept_style import NS_PER_MS, NUMBERS, STYLE
from perfkit.api.result import Result
from perfkit.gate.verdict import Verdict
from perfkit.plan.queueing import erlang_c
from perfkit.report.chart import BLUE, GREEN, INK, MUTED, RED, VERMILLION
from perfkit.result.distribution import Distribution
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.result.model import Point

NAIVE_LIMIT = 0.05
_CARD = "#f6f8fa"
"""The background: readable in the light and in the dark scheme of the site."""
PLOT_STYLE = {**STYLE, "font.size": 10, "axes.titlesize": 10.5, "figure.facecolor": _CARD, "axes.facecolor": _CARD, "grid.color": "#dfe3e8"}
_WIDTH_IN = 5.6
_OPEN_AT = 2.2
"""Where an interval without an upper end is cut off, as a multiple of the true value."""


class Plot(NamedTuple):
    """A drawn plot, and the sentences under it: what was run, and what came out."""

    figure: Figure
    caption: str


Measure = Callable[[str], Result]
"""Gives the result of a run by its name."""


def _panels(rows: int, height_in: float) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(_WIDTH_IN, height_in), layout="constrained")
    return figure, list(figure.subplots(rows, 1, squeeze=False, sharex="all")[:, 0])


def _log_ticks(axis: Any, ticks: Sequence[float]) -> None:
    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(NUMBERS)
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def _legend(panel: Axes, **place: Any) -> None:
    panel.legend(**{"loc": "upper left", "fontsize": 9, "handlelength": 1.6, "labelspacing": 0.3, **place})


def _response(point: Point) -> Distribution:
    assert point.response_time_ns is not None
    return point.response_time_ns


def _ms(time_ns: float | None) -> str:
    if time_ns is None:
        return "–"
    return f"{time_ns / NS_PER_MS:.3g} ms" if time_ns < 999.5 * NS_PER_MS else f"{time_ns / NS_PER_MS / 1000:.2f} s"


def loops(result: Measure) -> Plot:
    """Requests sent and their times in each second, of a closed and an open loop, while the server stands still for 2 s."""
    figure, (sent, times) = _panels(2, 4.4)
    counts = {}
    for name, kind, colour in (("closed", "service", VERMILLION), ("open", "response", BLUE)):
        rows = result(f"loops-{name}").intervals()
        rows = rows[rows.times == kind].assign(second=rows.window_s.round().astype(int)).set_index("second").reindex(range(14))
        middles, counts[name] = rows.index + 0.5, rows.samples.fillna(0).astype(int)
        words = {"closed": "closed loop: 2 requests in flight", "open": "open loop: 100 requests a second"}[name]
        sent.plot(middles, counts[name], color=colour[0], marker="o", label=words)
        times.plot(middles, rows.max_ns.astype(float) / NS_PER_MS, color=colour[0], marker="o")
    sent.set(title="Requests sent in each second", ylim=(0, 150))
    times.set(title="The longest time of these requests (ms)", xlabel="second of the run", yscale="log", ylim=(10, 5000))
    _log_ticks(times.yaxis, (20, 100, 500, 2000))
    _legend(sent, ncols=2, columnspacing=1)
    slow = {}
    for name, kind in (("closed", "service"), ("open", "response")):
        buckets = result(f"loops-{name}").histograms()
        slow[name] = buckets["count"][(buckets.times == kind) & (buckets.high_ns > 100 * NS_PER_MS)].sum()
    return Plot(
        figure,
        f"Four requests at a time, 20 ms each; no answer in the last 2 of every 8 s (the second stall begins as the run ends). In the second with the fewest the closed loop sent "
        f"{min(counts['closed'])} requests, the open loop {min(counts['open'])}. Slower than 100 ms were {slow['closed']} requests of the "
        f"closed loop and {slow['open']} of the open one.",
    )


def omission(result: Measure) -> Plot:
    """The percentiles that each loop reports for a server that stalls, beside those that its users see."""
    figure, (panel,) = _panels(1, 3.3)
    tails = [10 ** (power / 40) for power in range(12, 130)]
    users = [(1000 * (0.1 - 1 / tail) / 0.1 if tail > 10 else 1.0) for tail in tails]
    panel.plot(tails, users, color=INK[0], ls=":", label="what users see, by the declared stall")
    figures = {}
    for name, kind, colour in (("open", "response", BLUE), ("closed", "service", VERMILLION)):
        buckets = result(f"omission-{name}").histograms()
        buckets = buckets[buckets.times == kind]
        beyond = [1 / (1 - share) if share < 1 else math.inf for share in buckets.cumulative_share]
        panel.step(beyond, buckets.high_ns / NS_PER_MS, where="pre", color=colour[0], label=f"{name} loop: {kind} time")
        (point,) = result(f"omission-{name}").summary
        figures[name] = _response(point) if name == "open" else point.service_time_ns
    panel.set(xscale="log", yscale="log", xlim=(2, 2000), ylim=(0.5, 2000), xlabel="percentile", title="Time (ms)")
    panel.xaxis.set_major_locator(FixedLocator([2, 10, 20, 100, 1000]))
    panel.xaxis.set_ticklabels(["p50", "p90", "p95", "p99", "p99.9"])
    panel.xaxis.set_minor_locator(NullLocator())
    _log_ticks(panel.yaxis, (1, 10, 100, 1000))
    _legend(panel, loc="center right", bbox_to_anchor=(1.0, 0.5))
    closed, opened = figures["closed"], figures["open"]
    return Plot(
        figure,
        f"A server that answers in 1 ms and stands still for 1 s of every 10 s. The closed loop, one request in flight, reports a p99 of "
        f"{_ms(closed.p99)}; the open loop, 200 requests a second, a p95 of {_ms(opened.p95)} and a p99 of {_ms(opened.p99)}.",
    )


def warm_up(result: Measure) -> Plot:
    """The service time of each request after a cold start, and where perfkit takes the model to be warm."""
    figure, (panel,) = _panels(1, 3.0)
    starts = result("cold").points[0].cold_start
    assert starts is not None
    start = starts.starts[0]
    assert start.steady_after_requests is not None
    assert start.warm_p50_ns is not None
    panel.plot(
        range(1, len(start.times_ns) + 1), [math.nan if ns is None else ns / NS_PER_MS for ns in start.times_ns],
        ls="", marker=".", ms=4, color=BLUE[0],
    )  # fmt: skip
    panel.axvline(start.steady_after_requests + 0.5, color=VERMILLION[0], ls="--", lw=1.2)
    panel.annotate(
        f" warm after {start.steady_after_requests} requests",
        (start.steady_after_requests, 0.9),
        xycoords=("data", "axes fraction"),
        color=VERMILLION[0],
    )
    panel.set(
        xlabel="request after the model was loaded",
        title="Service time of each request (ms)",
        ylim=(0, None),
        xlim=(0, len(start.times_ns)),
    )
    (without,), (detected,) = result("warmup-none").summary, result("warmup-auto").summary
    return Plot(
        figure,
        f"5 ms when warm, six times as long at first; the excess falls to 1/e every 250 ms. A 10 s run from the first request on reports a mean of "
        f"{_ms(without.service_time_ns.mean)} and a p99 of {_ms(without.service_time_ns.p99)}; the same run with `warmup: auto` left out "
        f"{detected.warmup_s:.1f} s and reports {_ms(detected.service_time_ns.mean)} and {_ms(detected.service_time_ns.p99)}.",
    )


def percentiles(result: Measure) -> Plot:
    """The p99 with its interval from windows of growing length, beside the declared one."""
    figure, panels = _panels(2, 5.0)
    sigma = math.sqrt(math.log(1.25))
    truths_ms = {
        "independent": 10 * math.exp(sigma * norm.ppf(0.99) - sigma**2 / 2),
        "queued": math.log(100) / (1 / QUEUED_MEAN_MS - INTERVAL_RATE_PER_S / 1000),
    }
    titles = {"independent": "p99 (ms), no request waits for another", "queued": "p99 (ms), one at a time, busy for 60 % of the time"}
    sentences, covered, all_windows, width_ms = [], 0, 0, math.nan
    for panel, (kind, truth_ms), colour in zip(panels, truths_ms.items(), (BLUE, VERMILLION), strict=True):
        panel.axhline(truth_ms, color=INK[0], ls=":", label="by the declared service times")
        for window_s in WINDOWS_S:
            (point,) = result(f"{kind}-{window_s:g}s").summary
            times = point.response_time_ns
            if times is None or times.p99 is None:
                continue
            low_ns, high_ns = point.intervals["p99"]
            samples = times.count
            top_ms = high_ns / NS_PER_MS if high_ns is not None else _OPEN_AT * truth_ms
            panel.plot([samples, samples], [low_ns / NS_PER_MS, top_ms], color=colour[0], lw=2)
            if high_ns is None:
                panel.plot([samples], [top_ms], color=colour[0], marker="^")
            panel.plot([samples], [times.p99 / NS_PER_MS], color=colour[0], marker="o", ms=5)
            width_ms = top_ms - low_ns / NS_PER_MS
            covered += low_ns / NS_PER_MS <= truth_ms <= top_ms
            all_windows += 1
        panel.set(title=titles[kind], xscale="log", ylim=(0, 1.05 * _OPEN_AT * truth_ms))
        sentences.append(f"{width_ms:.1f} ms wide {'above' if kind == 'independent' else 'below'}")
    _legend(panels[0], loc="upper right")
    _log_ticks(panels[-1].xaxis, [round(INTERVAL_RATE_PER_S * window) for window in WINDOWS_S])
    panels[-1].set_xlabel("requests in the window")
    return Plot(
        figure,
        f"Windows of {WINDOWS_S[0]:g} to {WINDOWS_S[-1]:g} s at {INTERVAL_RATE_PER_S} Poisson arrivals a second, each with its own seed from {SEED} on; a triangle "
        f"is an interval without an upper end. That of the longest window is {' and '.join(sentences)}. {covered} of the {all_windows} intervals contain the declared "
        "value.",
    )


def saturation(result: Measure) -> Plot:
    """Throughput and times against concurrency."""
    figure, (rate, times) = _panels(2, 4.4)
    points = result("saturation-closed").summary
    concurrency = [point.load.concurrency for point in points if isinstance(point.load, ClosedLoad)]
    rates = [point.throughput_per_s for point in points]
    rate.plot(concurrency, rates, color=BLUE[0], marker="o")
    rate.axhline(CAPACITY_PER_S, color=INK[0], ls=":", label=f"4 at a time, 10 ms each: {CAPACITY_PER_S}/s")
    rate.set(title="Throughput (answers per second)", ylim=(0, 460), xscale="log")
    _legend(rate, loc="lower right")
    for name, colour in (("p99", VERMILLION), ("p50", BLUE)):
        times.plot(
            concurrency,
            [(getattr(point.service_time_ns, name) or math.nan) / NS_PER_MS for point in points],
            color=colour[0],
            marker="o",
            label=name,
        )
    times.set(title="Service time (ms)", xlabel="concurrency: requests in flight", ylim=(0, None))
    _log_ticks(times.xaxis, [1, 2, 3, 4, 6, 8, 12, 16, 32])
    _legend(times)
    at = dict(zip(concurrency, points, strict=True))
    return Plot(
        figure,
        f"Four requests at a time, exponential service times with a mean of 10 ms. From 8 to 32 requests in flight the throughput goes from {at[8].throughput_per_s:.0f}/s to "
        f"{at[32].throughput_per_s:.0f}/s, and the p50 from {_ms(at[8].service_time_ns.p50)} to {_ms(at[32].service_time_ns.p50)}.",
    )


def response_ms(share: float, rate_per_s: float) -> float:
    """The percentile of the response time of the M/M/4 queue (F. S. Hillier, G. J. Lieberman, Introduction to Operations Research, 17.6)."""
    service_per_ms, servers = 0.1, 4
    offered = rate_per_s / 1000 / service_per_ms
    wait, spare = erlang_c(servers, offered), servers - 1 - offered

    def beyond(time_ms: float) -> float:
        waiting = -math.expm1(-service_per_ms * time_ms * spare) / spare if abs(spare) > 1e-9 else service_per_ms * time_ms
        return math.exp(-service_per_ms * time_ms) * (1 + wait * waiting) - (1 - share)

    return float(brentq(beyond, 0, 5000))


def load(result: Measure) -> Plot:
    """Response times against the arrival rate, beside the known queue."""
    figure, (panel,) = _panels(1, 3.3)
    points = result("saturation-open").summary
    rates = [point.load.rate_per_s for point in points if isinstance(point.load, OpenLoad)]
    curve = [rate for rate in range(20, CAPACITY_PER_S, 2) if rate != 300]
    for name, share, colour in (("p99", 0.99, VERMILLION), ("p50", 0.5, BLUE)):
        panel.plot(
            curve,
            [response_ms(share, rate) for rate in curve],
            color=INK[0],
            lw=1,
            ls=":",
            label="by the theory of queues" if name == "p99" else None,
        )
        values = [getattr(_response(point), name) / NS_PER_MS for point in points]
        ends = [
            [end_ns / NS_PER_MS if end_ns else value * 2 for end_ns in point.intervals[name]]
            for point, value in zip(points, values, strict=True)
        ]
        errors = [
            [value - low for value, (low, _) in zip(values, ends, strict=True)],
            [high - value for value, (_, high) in zip(values, ends, strict=True)],
        ]
        panel.errorbar(rates, values, yerr=errors, color=colour[0], ls="", marker="o", ms=5, lw=1.6, label=f"{name} with its interval")
    panel.axvline(CAPACITY_PER_S, color=MUTED[0], ls="--", lw=1)
    panel.set(yscale="log", xlim=(0, 410), ylim=(5, 1000), xlabel="arrival rate (requests per second)", title="Response time (ms)")
    _log_ticks(panel.yaxis, (5, 10, 20, 50, 100, 200, 500, 1000))
    _legend(panel)
    at = dict(zip(rates, points, strict=True))
    low, middle, high = (_response(at[rate]).p99 for rate in (40, 280, 380))
    return Plot(
        figure,
        f"The same server with Poisson arrivals. The p99 is {_ms(low)} at a tenth of the saturation rate, {_ms(middle)} at 70 % of it, "
        f"and {_ms(high)} at 95 %.",
    )


def false_alarms(verdict: Verdict) -> Plot:
    """How much two runs of an unchanged server differ, and what the gate makes of all pairs together."""
    shown = [comparison for comparison in verdict.comparisons if comparison.metric in ("throughput", "p50", "p95", "p99")]
    figure, (panel,) = _panels(1, 3.4)
    panel.axhspan(-100 * NAIVE_LIMIT, 100 * NAIVE_LIMIT, color=GREEN[0], alpha=0.12, lw=0)
    panel.axhline(0, color=MUTED[0], lw=0.8)
    alarming, sentences = set(), []
    for place, comparison in enumerate(shown):
        values = zip(comparison.baseline_values, comparison.candidate_values, strict=True)
        slower = [(other / base if comparison.better == "lower" else base / other) - 1 for base, other in values if base and other]
        alarming |= {number for number, change in enumerate(slower) if change > NAIVE_LIMIT}
        spread = [place - 0.3 + 0.3 * number / max(len(slower) - 1, 1) for number in range(len(slower))]
        colours = [RED[0] if change > NAIVE_LIMIT else BLUE[0] for change in slower]
        panel.scatter(spread, [100 * change for change in slower], c=colours, s=16, zorder=3)
        assert comparison.interval is not None
        assert comparison.estimate is not None
        ends = [end if comparison.better == "lower" else 1 / end for end in comparison.interval if end]
        middle = comparison.estimate if comparison.better == "lower" else 1 / comparison.estimate
        panel.plot([place + 0.22] * 2, [100 * (end - 1) for end in ends], color=INK[0], lw=2.2)
        panel.plot([place + 0.22], [100 * (middle - 1)], color=INK[0], marker="D", ms=5)
        sentences.append(f"{comparison.metric} {sum(change > NAIVE_LIMIT for change in slower)}")
    panel.set(title="Slower by (%)", xlim=(-0.5, len(shown) - 0.5))
    panel.xaxis.set_major_locator(FixedLocator(range(len(shown))))
    panel.xaxis.set_ticklabels([comparison.metric for comparison in shown])
    panel.grid(visible=False, axis="x")
    return Plot(
        figure,
        f"{verdict.pairs} pairs of runs of 2 s, each after a restart, of one server beside itself ({GATE_MODEL.replace(',', ', ')}). Dots: one side of a pair against the "
        f"other; red: more than {NAIVE_LIMIT:.0%} slower ({', '.join(sentences)}; in {len(alarming)} of {verdict.pairs} pairs at least one). Diamonds: what "
        f"`perfkit gate` says of all pairs, with its interval; its verdict is *{verdict.kind}*.",
    )
