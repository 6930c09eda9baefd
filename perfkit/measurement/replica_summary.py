"""The figures of each address of a target with several, and warnings if they got uneven shares of the requests or one is slower."""

from collections.abc import Iterator, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.measurement.point_measurement import PointMeasurement
from perfkit.result.distribution import QUANTILES, distribution
from perfkit.result.model import Protocol, Replica
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.imbalance import ERROR_RATE, imbalance_p_value
from perfkit.stats.percentile_interval import percentile_intervals
from perfkit.transport.base import Outcome
from perfkit.transport.options import Balance
from perfkit.units import NS_PER_S, format_duration_ns, format_percent

_WITH_INTERVAL = ("p50", "p99")
# smaller differences are in the table only
_LEAST_DEVIATION = 0.05
_LEAST_SLOWER = 0.05


def replica_figures(parts: Sequence[PointMeasurement]) -> tuple[Replica, ...] | None:
    """The addresses of a load point, repetitions pooled; None if there is only one."""
    labels = dict.fromkeys(label for part in parts for label in part.window.by_address)
    window_s = sum(part.window.length_ns for part in parts) / NS_PER_S
    figures = tuple(_figures(label, parts, window_s) for label in labels)
    # requests that reached none of a name's addresses have a line of their own
    return tuple(one for number, one in enumerate(figures) if number or one.requests or parts[0].balance) or None


def _figures(label: str, parts: Sequence[PointMeasurement], window_s: float) -> Replica:
    windows = [part.window.by_address[label] for part in parts if label in part.window.by_address]
    requests, ok = sum(sum(one.outcomes.values()) for one in windows), sum(one.outcomes[Outcome.OK] for one in windows)
    intervals = percentile_intervals([batch for one in windows for batch in one.batches], [QUANTILES[name] for name in _WITH_INTERVAL])
    return Replica(
        address=label,
        requests=requests,
        ok=ok,
        errors=requests - ok,
        throughput_per_s=sum(one.finished for one in windows) / window_s if window_s else 0.0,
        times_ns=distribution(BucketCounts.merged(one.times for one in windows)),
        intervals={name: (one.low_ns, one.high_ns) for name in _WITH_INTERVAL if (one := intervals.get(QUANTILES[name]))},
        connections=sum(part.connections_by_address.get(label, 0) for part in parts),
    )


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
