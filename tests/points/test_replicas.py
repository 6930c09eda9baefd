"""The figures of each address, and the verdict on their shares."""

import dataclasses

import pytest

from perfkit.points.point import LoadSummary, point
from perfkit.recorder.recording import AddressWindow
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome

MS = 1_000_000
OWN = "http://pods:80"


def addressed(measured, counts, *, balance="round_robin", connections=None, protocol="http", times_ms=None, failed=(), repetition=0):
    """A measurement of addresses with so many OK requests each; `failed` are the further requests of each that were refused."""
    failed = failed or [0] * len(counts)
    times_ms = times_ms or [1] * len(counts)
    others = {"connect_failed": [MS] * sum(failed)} if sum(failed) else {}
    whole = measured(
        ok_ns=[ms * MS for ms, count in zip(times_ms, counts, strict=True) for _ in range(count)], others=others, repetition=repetition
    )
    labels = [f"{OWN} (10.0.0.{number})" for number in range(1, len(counts) + 1)]
    by_address = {}
    for label, count, refused, ms in zip(labels, counts, failed, times_ms, strict=True):
        outcomes = {**dict.fromkeys(Outcome, 0), Outcome.OK: count, Outcome.CONNECT_FAILED: refused}
        by_address[label] = AddressWindow(outcomes, count, BucketCounts.of([ms * MS] * count), (BucketCounts.of([ms * MS] * count),) * 10)
    opened = dict(zip(labels, connections or [1] * len(counts), strict=True))
    if balance is None:
        by_address = {OWN: AddressWindow(dict.fromkeys(Outcome, 0), 0, BucketCounts.of([]), (BucketCounts.of([]),) * 10), **by_address}
        opened = {OWN: 0, **opened}
    window = dataclasses.replace(whole.window, by_address=by_address)
    return dataclasses.replace(whole, window=window, connections_by_address=opened, balance=balance, protocol=protocol)


def verdicts(measurement, code="imbalanced"):
    return [warning.message for warning in point(measurement).warnings if warning.code == code]


def test_a_target_with_one_address_has_no_figures_by_address(measured):
    assert point(measured(ok_ns=[MS] * 5)).replicas is None


def test_the_figures_of_each_address_add_up_also_over_repetitions(measured):
    summary = LoadSummary()
    for repetition, counts in enumerate([(100, 99), (101, 100)]):
        own = summary.add(addressed(measured, counts, failed=(0, 2), repetition=repetition))
        assert sum([one.requests for one in own.replicas or ()]) == own.requests.sent
    pooled = summary.pooled()
    first, second = pooled.replicas or ()
    assert (first.requests, first.ok, first.errors, first.connections) == (201, 201, 0, 2)
    assert (second.requests, second.ok, second.errors, second.connections) == (203, 199, 4, 2)
    assert first.throughput_per_s + second.throughput_per_s == pytest.approx(pooled.throughput_per_s)
    assert first.times_ns.count + second.times_ns.count == pooled.times.count
    assert (first.times_ns.p50, first.times_ns.p99_9) == (pooled.times.p50, None)
    assert set(first.intervals) == {"p50", "p99"}


@pytest.mark.parametrize("balance", ["round_robin", "random", "least_in_flight"])
def test_even_shares_give_no_verdict(measured, balance):
    assert verdicts(addressed(measured, (500, 502, 498), balance=balance)) == []


def test_a_difference_that_chance_explains_gives_none_and_one_that_it_does_not_gives_one_with_its_figures(measured):
    assert verdicts(addressed(measured, (60, 40), balance="random")) == []
    (message,) = verdicts(addressed(measured, (600, 400), balance="random"))
    assert f"{OWN} (10.0.0.1) got 600 of 1,000 requests (60%), and {OWN} (10.0.0.2) 400 (40%), where an equal share is 50%" in message


def test_a_small_difference_is_told_by_the_figures_alone(measured):
    assert verdicts(addressed(measured, (51_000, 49_000), balance="least_in_flight")) == []


def test_the_fewest_in_flight_avoid_a_slow_address(measured):
    (message,) = verdicts(addressed(measured, (800, 200), balance="least_in_flight", times_ms=(1, 4)))
    assert "least_in_flight sends less to slower addresses" in message


@pytest.mark.parametrize(
    ("protocol", "cause"), [("grpc", "an HTTP/2 connection carries all its requests"), ("http", "a connection carries all its requests")]
)
def test_one_long_lived_connection_is_named_as_the_cause(measured, protocol, cause):
    (message,) = verdicts(addressed(measured, (300, 0, 0), balance=None, connections=(1, 0, 0), protocol=protocol))
    assert message.startswith(f"All 300 requests went to {OWN} (10.0.0.1), one of 3 addresses.")
    assert cause in message
    assert "target.connections, or use each address with target.resolve: all" in message


def test_where_connections_choose_chance_is_about_connections(measured):
    """Three of four connections lead to one address: 3,000 requests of 4,000 are no evidence against even chances."""
    assert verdicts(addressed(measured, (3000, 1000), balance=None, connections=(3, 1))) == []
    assert len(verdicts(addressed(measured, (3000, 1000), balance=None, connections=(60, 20)))) == 1


def test_requests_that_reached_no_address_have_a_line_only_if_there_are_any(measured):
    measurement = addressed(measured, (10, 10), balance=None)
    assert [one.address for one in point(measurement).replicas or ()] == [f"{OWN} (10.0.0.1)", f"{OWN} (10.0.0.2)"]
    lost = dict.fromkeys(Outcome, 0) | {Outcome.CONNECT_FAILED: 3}
    window = measurement.window
    by_address = {**window.by_address, OWN: dataclasses.replace(window.by_address[OWN], outcomes=lost)}
    measurement = dataclasses.replace(measurement, window=dataclasses.replace(window, by_address=by_address))
    assert next((one.address, one.requests, one.errors) for one in point(measurement).replicas or ()) == (OWN, 3, 3)


def test_an_address_whose_median_is_a_fifth_above_another_is_named(measured):
    (message,) = verdicts(addressed(measured, (300, 300, 300), times_ms=(10, 12, 11)), "slower_replica")
    assert message.startswith(f"{OWN} (10.0.0.2) is slower than {OWN} (10.0.0.1): its median is 12.0 ms, 20 % above 10.0 ms")


def test_addresses_are_not_compared_where_requests_are_sent_again(measured):
    """A request counts at the address of its last attempt: the healthy one has the requests, and the times, that failed elsewhere."""
    measurement = addressed(measured, (600, 400), balance="random", times_ms=(12, 10))
    retried = dataclasses.replace(measurement, has_retries=True)
    for code in ("imbalanced", "slower_replica"):
        assert (len(verdicts(measurement, code)), verdicts(retried, code)) == (1, [])


@pytest.mark.parametrize(("times_ms", "counts"), [((100, 104), (300, 300)), ((10, 12), (300, 0))])
def test_no_address_is_called_slower_for_a_small_difference_or_without_requests(measured, times_ms, counts):
    assert verdicts(addressed(measured, counts, times_ms=times_ms), "slower_replica") == []
