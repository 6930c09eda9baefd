"""The part of each address or machine in a load point, and warnings about uneven parts, slower ones, and machines' clocks."""

import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from perfkit.errors import MeasurementWarning
from perfkit.points.measured import MachineMeasurement, PointMeasurement, ends_by_name
from perfkit.recorder.recording import AddressWindow
from perfkit.result.distribution import QUANTILES, Distribution, distribution
from perfkit.result.model import Protocol
from perfkit.result.point_parts import Machine, Replica
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentiles import PercentileInterval, percentile_intervals
from perfkit.stats.probability import binomial_cdf
from perfkit.transport.base import Outcome
from perfkit.transport.options import Balance
from perfkit.units import NS_PER_S, format_duration_ns, format_percent

_WITH_INTERVAL = ("p50", "p99")
# smaller differences are in the table only
_LEAST_DEVIATION = 0.05
_LEAST_SLOWER = 0.05
_LEAST_UNLIKE = 0.2
_MOST_COMPARED = 8
ERROR_RATE = 0.001
"""The largest probability with which even choices are called uneven."""


def replica_figures(parts: Sequence[PointMeasurement]) -> tuple[Replica, ...] | None:
    """The addresses of a load point, repetitions pooled; None if there is only one."""
    labels = dict.fromkeys(label for part in parts for label in part.window.by_address)
    figures = tuple(
        Replica(
            address=label,
            connections=sum(part.connections_by_address.get(label, 0) for part in parts),
            **_share([part.window.by_address[label] for part in parts if label in part.window.by_address], parts),
        )
        for label in labels
    )
    # requests that reached none of a name's addresses have a line of their own
    return tuple(one for number, one in enumerate(figures) if number or one.requests or parts[0].balance) or None


def machine_figures(parts: Sequence[PointMeasurement]) -> tuple[Machine, ...] | None:
    """The machines of a load point, repetitions pooled; None without a fleet."""
    names = dict.fromkeys(one.recorded.name for part in parts for one in part.machines)
    return tuple(_machine(name, parts) for name in names) or None


def _machine(name: str, parts: Sequence[PointMeasurement]) -> Machine:
    of_machine = [one for part in parts for one in part.machines if one.recorded.name == name]
    windows = [one.window for one in of_machine if one.window is not None]
    is_open, worst = parts[0].is_open, max(of_machine, key=lambda one: one.recorded.clock_bound_ns).recorded
    delays = distribution(BucketCounts.merged(one.times["start_delay"] for one in windows)) if is_open else None
    waited = "response_time" if is_open else "service_time"
    return Machine(
        name=name,
        workers=max(one.recorded.workers for one in of_machine),
        lost=tuple(lost for one in of_machine for lost in one.recorded.lost),
        start_delay_p99_ns=None if delays is None else delays.p99,
        cpu_share=max((one.recorded.shares.cpu for one in of_machine if one.recorded.shares is not None), default=0.0),
        clock_offset_ns=worst.clock_offset_ns,
        clock_drift_ppm=worst.clock_drift_ppm,
        clock_bound_ns=worst.clock_bound_ns,
        **_share([AddressWindow(one.outcomes, one.count("finished"), one.times[waited], one.batches) for one in windows], parts),
    )


def _share(windows: Sequence[AddressWindow], parts: Sequence[PointMeasurement]) -> dict[str, Any]:
    """The figures that a part of a load point has in common with others, in the window of the whole."""
    window_s = sum(part.window.length_ns for part in parts) / NS_PER_S
    requests, ok = sum(sum(one.outcomes.values()) for one in windows), sum(one.outcomes[Outcome.OK] for one in windows)
    intervals = percentile_intervals([batch for one in windows for batch in one.batches], [QUANTILES[name] for name in _WITH_INTERVAL])
    return {
        "requests": requests,
        "ok": ok,
        "errors": requests - ok - sum(one.outcomes[Outcome.ABANDONED] for one in windows),
        "throughput_per_s": sum(one.finished for one in windows) / window_s if window_s else 0.0,
        "times_ns": distribution(BucketCounts.merged(one.times for one in windows)),
        "intervals": ends_by_name(intervals),
    }


def imbalance_p_value(counts: Sequence[int]) -> float:
    """An upper bound of the probability that choices with equal probabilities differ as much as these counts; 1 for fewer than two.

    The exact two-sided binomial test of each count, with the smallest p-value multiplied by the number of counts (Bonferroni): for
    independent choices it is below p with a probability of at most p, whatever their number. Round-robin choices, and
    choices of the address with the fewest requests in flight, vary less, so that they are called uneven even more rarely.
    """
    total, addresses = sum(counts), len(counts)
    if addresses < 2 or not total:
        return 1.0
    share = 1 / addresses
    tails = [min(binomial_cdf(count, total, share), binomial_cdf(total - count, total, 1 - share)) for count in counts]
    return min(2 * addresses * min(tails), 1.0)


def imbalance_warnings(replicas: Sequence[Replica], protocol: Protocol, balance: Balance | None) -> Iterator[MeasurementWarning]:
    """The warning `imbalanced`: one address got all requests, or shares differ from an equal one by more than 5 % of it and than by chance.

    The test is of requests, each of which chose an address; where `balance` is None, of connections, since only those did.
    """
    addresses = [one for one in replicas if balance or one.connections or not one.requests]
    total = sum(one.requests for one in addresses)
    if len(addresses) < 2 or not total:
        return
    most, least = max(addresses, key=lambda one: one.requests), min(addresses, key=lambda one: one.requests)
    has_all, equal = most.requests == total, total / len(addresses)
    p_value = imbalance_p_value([one.requests if balance else one.connections for one in addresses])
    is_uneven = p_value < ERROR_RATE and max(most.requests - equal, equal - least.requests) > _LEAST_DEVIATION * equal
    if not (is_uneven or (has_all and (balance is None or p_value < ERROR_RATE))):
        return
    if has_all:
        figures = f"All {total:,} requests went to {most.address}, one of {len(addresses)} addresses"
    else:
        shares = f"{most.address} got {most.requests:,} of {total:,} requests ({most.requests / total:.0%}), and {least.address} {least.requests:,}"
        figures = f"{shares} ({least.requests / total:.0%}), where an equal share is {1 / len(addresses):.0%}: more than chance explains"
    yield MeasurementWarning("imbalanced", f"{figures}. {_cause(most, least, protocol, balance)}".rstrip())


def slower_replica_warnings(replicas: Sequence[Replica]) -> Iterator[MeasurementWarning]:
    """The warning `slower_replica`: the median of one address is above that of another by more than 5 %, and so are their 95 % intervals."""
    timed = [(one, one.times_ns.p50, *one.intervals["p50"]) for one in replicas if one.times_ns.p50 and "p50" in one.intervals]
    bounded = [(one, median_ns, low_ns, high_ns) for one, median_ns, low_ns, high_ns in timed if high_ns is not None]
    if len(timed) < 2 or not bounded:
        return
    slower, slower_ns, low_ns, _ = max(timed, key=lambda item: item[2])
    faster, faster_ns, _, high_ns = min(bounded, key=lambda item: item[3])
    if low_ns > (1 + _LEAST_SLOWER) * high_ns:
        yield MeasurementWarning(
            "slower_replica",
            f"{slower.address} is slower than {faster.address}: its median is {format_duration_ns(slower_ns)}, "
            f"{format_percent(slower_ns / faster_ns - 1)} above {format_duration_ns(faster_ns)}, and their 95 % intervals are apart.",
        )


def _cause(most: Replica, least: Replica, protocol: Protocol, balance: Balance | None) -> str:
    if balance is None:
        lasting = "an HTTP/2 connection carries all its requests" if protocol == "grpc" else "a connection carries all its requests"
        opened = f"the {most.connections:,} connections there" if most.connections > 1 else "the one connection"
        return (
            f"As long as it is open, {lasting} to the address it was opened to, and {opened} took most of the load: open connections anew "
            "with target.connections, or use each address with target.resolve: all."
        )
    if balance == "least_in_flight" and most.times_ns.count and least.times_ns.count and least.times_ns.mean > most.times_ns.mean:
        return "least_in_flight sends less to slower addresses: compare their times."
    return ""


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
    if not (_is_below(rest, mine) or _is_below(mine, rest)) or abs(mine.value_ns - rest.value_ns) <= _LEAST_UNLIKE * rest.value_ns:
        return None
    return name, mine.value_ns, rest.value_ns


def _is_below(one: PercentileInterval, other: PercentileInterval) -> bool:
    return one.high_ns is not None and other.low_ns is not None and one.high_ns < other.low_ns


def _batches_together(machines: Sequence[MachineMeasurement]) -> list[BucketCounts]:
    """The equal parts of the window of several machines together; recordings of different lengths in batches begin together."""
    windows = [one.window for one in machines if one.window is not None]
    longest_ns = max((one.batch_ns for one in windows), default=1)
    together: dict[int, list[BucketCounts]] = {}
    for window in windows:
        for number, batch in enumerate(window.batches):
            together.setdefault(number * window.batch_ns // longest_ns, []).append(batch)
    return [BucketCounts.merged(together.get(number, [EMPTY])) for number in range(max(together, default=-1) + 1)]
