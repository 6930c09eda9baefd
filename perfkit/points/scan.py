"""The figures of a scan, whose requests in flight rise over the window: throughput and times in steps, and the knee. Pure."""

from collections.abc import Sequence

import numpy as np

from perfkit.points.measured import PointMeasurement
from perfkit.result.distribution import distribution
from perfkit.result.load import RampLoad
from perfkit.result.scan import Knee, Scan, ScanStep
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.knee import LoadStep, knee_steps
from perfkit.units import NS_PER_S, format_rate_per_s

_MOST_STEPS, _FEWEST_STEPS, _INSTANTS = 20, 5, 1000
_FAILED_SHARE = 0.01  # with more, the ok answers are those of a server that does less


def pooled_scan(parts: Sequence[PointMeasurement]) -> Scan | None:
    """The scan of a load point, its repetitions together; None for other loads, and where a window ended before the fifth step.

    A step has whole batches of the recording. Its throughput is of the ok answers that came in it, its times are of the requests that started in it.
    """
    load, windows = parts[0].load, [part.window for part in parts]
    if not isinstance(load, RampLoad):
        return None
    batches = min(len(window.batches) for window in windows)
    size = max(-(-batches // _MOST_STEPS), 1)
    if batches // size < _FEWEST_STEPS:
        return None
    length = min(window.series.answered.size for window in windows)
    answered = np.sum([window.series.answered[:length] for window in windows], axis=0) / len(windows)
    interval_s, step_s = windows[0].series.interval_ns / NS_PER_S, size * windows[0].batch_ns / NS_PER_S
    numbers = ((np.arange(length) + 0.5) * interval_s // step_s).astype(int)
    steps, measured, failed_shares = list[ScanStep](), list[LoadStep](), list[float]()
    for number in range(batches // size):
        of_step = slice(number * size, (number + 1) * size)
        times = BucketCounts.merged(batch for window in windows for batch in window.batches[of_step])
        finished, ended = (sum(one[name] for window in windows for one in window.batch_counts[of_step]) for name in ("finished", "ended"))
        failed_shares.append(1 - finished / ended if ended else 0.0)
        figures, counts = distribution(times) if times.count else None, answered[numbers == number].tolist()
        throughput_per_s = finished / (len(windows) * step_s)
        measured.append(LoadStep(throughput_per_s, figures.mean / NS_PER_S if figures else 0.0, counts))
        steps.append(
            ScanStep(
                concurrency=float(np.mean(levels := _levels_within(load, number * step_s, step_s))),
                lowest=levels[0],
                highest=levels[-1],
                throughput_per_s=throughput_per_s,
                mean_ns=figures.mean if figures else None,
                p50_ns=figures.p50 if figures else None,
                p99_ns=figures.p99 if figures else None,
            )
        )
    knee, reason, proposed = _knee(load, steps, measured, failed_shares)
    if min(window.length_ns for window in windows) < load.over_s * NS_PER_S:
        reason = f"The scan ended early, at {steps[-1].highest:,} of {load.concurrency:,} requests in flight. {reason}"
    return Scan(steps=tuple(steps), knee=knee, reason=reason, proposed=proposed)


def _knee(
    load: RampLoad, steps: Sequence[ScanStep], measured: Sequence[LoadStep], failed_shares: Sequence[float]
) -> tuple[Knee | None, str, tuple[int, ...]]:
    """The knee, a sentence about it, and the concurrencies to measure."""
    if (number := next((number for number, share in enumerate(failed_shares) if share > _FAILED_SHARE), None)) is not None:
        low = steps[number].lowest
        reason = f"No knee: {failed_shares[number]:.0%} of the requests failed or were given up at {_span(steps[number])} in flight (step {number + 1} of {len(steps)}). See why, or scan fewer."
        return None, reason, _levels(1, 1, low / 4, low / 2, low)
    found = knee_steps(measured)
    if found is None:
        return None, "No request was answered.", ()
    best, first, last = found
    low, reached = steps[first].lowest, steps[-1].highest  # several steps may have the same number in flight
    if steps[last].highest == reached:
        is_rising = steps[best].highest == reached and low > load.start
        reason = f"No knee up to {reached:,} requests in flight: throughput ÷ service time may still rise. Scan further."
        if not is_rising:
            reason = "Too few answers per step to tell a knee: give a longer `over`, about 100 service times for each step."
        return None, reason, _levels(load.start, low / 2, low, reached, 2 * reached) if is_rising else ()
    if low == load.start:
        high = steps[last].highest
        further = f"begin lower than {load.start:,}" if load.start > 1 else "scan a shorter range, or longer"
        return None, f"The knee is at {high:,} requests in flight or fewer: {further}.", _levels(1, 1, high / 4, high / 2, high)
    top = steps[best]
    knee = Knee(concurrency=top.concurrency, low=low, high=steps[last].highest, throughput_per_s=top.throughput_per_s)
    levels = _levels(load.start, 1, top.highest / 2, knee.low, top.highest, knee.high, 2 * top.highest)
    most = format_rate_per_s(max(one.throughput_per_s for one in steps))
    reason = f"Knee at {_span(top)} requests in flight (range {knee.low:,} to {knee.high:,}), with {format_rate_per_s(knee.throughput_per_s)}; the most was {most}."
    return knee, reason, levels


def _levels_within(load: RampLoad, start_s: float, length_s: float) -> list[int]:
    """The requests in flight at instants close to each other."""
    return [load.concurrency_at(start_s + (number + 0.5) / _INSTANTS * length_s) for number in range(_INSTANTS)]


def _span(step: ScanStep) -> str:
    return f"{step.lowest:,}" if step.lowest == step.highest else f"{step.lowest:,} to {step.highest:,}"


def _levels(lowest: int, *levels: float) -> tuple[int, ...]:
    """Whole numbers of requests in flight in ascending order, each at least `lowest`."""
    return tuple(sorted({max(round(level), lowest) for level in levels}))
