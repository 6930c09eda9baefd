"""The figures of each machine of a fleet, and warnings about a machine unlike the others and about its clock."""

import math
import statistics
from collections.abc import Iterator, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.measurement.point_measurement import MachineMeasurement, PointMeasurement
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES, Distribution, distribution
from perfkit.result.model import Machine
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentile_interval import percentile_intervals
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S, format_duration_ns

_WITH_INTERVAL = ("p50", "p99")
# smaller differences are in the table only
_LEAST_DEVIATION = 0.2
_MOST_COMPARED = 8


def machine_figures(parts: Sequence[PointMeasurement]) -> tuple[Machine, ...] | None:
    """The machines of a load point, repetitions pooled; None without a fleet."""
    names = dict.fromkeys(one.recorded.name for part in parts for one in part.machines)
    return tuple(_figures(name, parts) for name in names) or None


def _figures(name: str, parts: Sequence[PointMeasurement]) -> Machine:
    of_machine = [one for part in parts for one in part.machines if one.recorded.name == name]
    window_s = sum(part.window.length_ns for part in parts) / NS_PER_S
    windows = [one.window for one in of_machine if one.window is not None]
    requests, ok = sum(sum(one.outcomes.values()) for one in windows), sum(one.outcomes[Outcome.OK] for one in windows)
    is_open, worst = parts[0].is_open, max(of_machine, key=lambda one: one.recorded.clock_bound_ns).recorded
    intervals = percentile_intervals([batch for one in windows for batch in one.batches], [QUANTILES[q] for q in _WITH_INTERVAL])
    delays = distribution(BucketCounts.merged(one.times["start_delay"] for one in windows)) if is_open else None
    return Machine(
        name=name,
        workers=max(one.recorded.workers for one in of_machine),
        lost=tuple(lost for one in of_machine for lost in one.recorded.lost),
        requests=requests,
        ok=ok,
        errors=requests - ok,
        throughput_per_s=sum(one.finished for one in windows) / window_s if window_s else 0.0,
        times_ns=distribution(BucketCounts.merged(_times(one, is_open=is_open) for one in windows)),
        intervals={q: (one.low_ns, one.high_ns) for q in _WITH_INTERVAL if (one := intervals.get(QUANTILES[q]))},
        start_delay_p99_ns=None if delays is None else delays.p99,
        cpu_share=max((one.recorded.shares.cpu for one in of_machine if one.recorded.shares is not None), default=0.0),
        clock_offset_ns=worst.clock_offset_ns,
        clock_drift_ppm=worst.clock_drift_ppm,
        clock_bound_ns=worst.clock_bound_ns,
    )


def machine_warnings(
    machines: Sequence[Machine], parts: Sequence[PointMeasurement], start_delay: Distribution | None
) -> Iterator[MeasurementWarning]:
    """The warnings `machine_unlike`: the machine whose median is farthest from the others', if by more than 20 % and than by chance; and `clock_bound`."""
    apart = [one for name in _farthest(machines) if (one := _apart(name, parts)) is not None]
    if apart:
        name, own_ns, others_ns = max(apart, key=lambda one: abs(math.log(max(one[1], 1) / max(one[2], 1))))
        yield MeasurementWarning(
            "machine_unlike",
            f"{name} saw a {'slower' if own_ns > others_ns else 'faster'} target than the other machines: p50 {format_duration_ns(own_ns)}, and "
            f"{format_duration_ns(others_ns)} there. Its way to the target, or the machine itself, differs.",
        )
    worst = max(machines, key=lambda one: one.clock_bound_ns, default=None)
    if worst is not None and start_delay is not None and start_delay.p99 is not None and worst.clock_bound_ns > start_delay.p99:
        yield MeasurementWarning(
            "clock_bound",
            f"The clock of {worst.name} is known to {format_duration_ns(worst.clock_bound_ns)}, and the start delay is {format_duration_ns(start_delay.p99)} at p99: "
            "arrivals of different machines may be apart from the schedule by more than that. Times of single requests are not touched.",
        )


def _farthest(machines: Sequence[Machine]) -> list[str]:
    """The machines whose medians are farthest from the middle one: comparing each of a thousand with all others would take minutes."""
    medians_ns = {one.name: max(one.times_ns.p50, 1) for one in machines if one.times_ns.p50 is not None}
    middle_ns = statistics.median_low(medians_ns.values()) if medians_ns else 1
    return sorted(medians_ns, key=lambda name: abs(math.log(medians_ns[name] / middle_ns)))[-_MOST_COMPARED:]


def _apart(name: str, parts: Sequence[PointMeasurement]) -> tuple[str, int, int] | None:
    """A machine's median and that of all others together, in nanoseconds, if they differ by more than 20 % and their intervals do not meet."""
    own, others = (
        percentile_intervals(
            [
                batch
                for part in parts
                for batch in _batches_together([one for one in part.machines if (one.recorded.name == name) is is_own])
            ],
            [0.5],
        )
        for is_own in (True, False)
    )
    if not own or not others:
        return None
    mine, rest = own[0.5], others[0.5]
    is_above, is_below = rest.high_ns is not None and mine.low_ns > rest.high_ns, mine.high_ns is not None and mine.high_ns < rest.low_ns
    if not (is_above or is_below) or abs(mine.value_ns - rest.value_ns) <= _LEAST_DEVIATION * rest.value_ns:
        return None
    return name, mine.value_ns, rest.value_ns


def _times(window: Window, *, is_open: bool) -> BucketCounts:
    return window.times["response_time" if is_open else "service_time"]


def _batches_together(machines: Sequence[MachineMeasurement]) -> list[BucketCounts]:
    """The equal parts of the window of several machines together; recordings of different lengths in batches begin together."""
    windows = [one.window for one in machines if one.window is not None]
    longest_ns = max((one.batch_ns for one in windows), default=1)
    together: dict[int, list[BucketCounts]] = {}
    for window in windows:
        for number, batch in enumerate(window.batches):
            together.setdefault(number * window.batch_ns // longest_ns, []).append(batch)
    return [BucketCounts.merged(together.get(number, [EMPTY])) for number in range(max(together, default=-1) + 1)]
