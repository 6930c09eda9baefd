import sys

import numpy as np
import pytest

from benchmarks.processes import running_server
from benchmarks.record_replay import RATE, Deviation, delay_table, record_and_replay, scheduled_ns


def test_a_constant_difference_of_the_clocks_is_no_deviation():
    expected = np.arange(0, 10_000_000, 1000)
    found = expected + 5_000_000_000
    assert Deviation.of(found, expected) == Deviation(10_000, 0, 0, 0)
    found[17] += 30_000
    found[:200] += 7000
    assert Deviation.of(found, expected) == Deviation(10_000, 0, 7, 37)


def test_the_schedule_has_its_rate():
    instants = scheduled_ns(6000)
    assert instants.size == 6000
    assert (np.diff(instants) >= 0).all()
    assert instants[-1] == pytest.approx(6000 / RATE * 1e9, rel=0.1)


@pytest.mark.parametrize(("p99", "is_met"), [((900_000, 1), True), ((3_000_000, 2_500_000), True), ((3_000_000, 1_000_000), False)])
def test_a_replay_is_on_time_or_no_later_than_an_open_loop(p99, is_met):
    delays = ({"p50": 1, "p99": value, "p99_9": None, "max": value} for value in p99)
    points = {str(number): {"start_delay_ns": one, "requests": {"sent": 5, "dropped": 0}} for number, one in enumerate(delays)}
    assert delay_table(points)[1] is is_met


@pytest.mark.skipif(sys.platform != "linux", reason="perfkit's children end with it on Linux alone")
@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_what_passes_through_the_proxy_is_replayed_request_by_request(tmp_path, protocol):
    with running_server("--model", "simple") as server:
        found = record_and_replay(server.url(protocol), 1, (), tmp_path)
    assert [one.requests for one, _ in found.values()] == [RATE, RATE + 1]  # with the trial request of the first recording
