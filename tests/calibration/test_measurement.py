"""What is measured is whole, and adds up; how fast this machine is, is nobody's business here."""

import asyncio

import pytest

from perfkit.calibration.measurement import Lengths, calibrate, cost
from perfkit.clock import MonotonicClock
from perfkit.machine.description import describe_host


def test_a_cost_is_the_median_of_its_rounds():
    found = cost("http", 128, [(20_000.0, 70_000, 50_000), (10_000.0, 90_000, 40_000), (30_000.0, 60_000, 55_000)])
    assert found.cpu_ns_per_request == 20_000.0
    assert found.ceiling_per_s == pytest.approx(42_500.0)
    assert (found.service_time_p50_ns, found.bare_p50_ns, found.overhead_p50_ns) == (70_000, 50_000, 20_000)


def test_the_overhead_is_taken_within_rounds():
    assert cost("http", 1, [(1.0, 100, 90), (1.0, 200, 120), (1.0, 300, 270)]).overhead_p50_ns == 30


def test_everything_is_measured_once_a_round():
    lines: list[str] = []
    lengths = Lengths(rounds=2, warmup_ns=10_000_000, window_ns=60_000_000, timer_waits=100, requests=200)
    found = asyncio.run(calibrate(lengths, MonotonicClock(), lines.append))
    kinds = [(protocol, size) for protocol in ("http", "grpc") for size in (128, 602_112)]
    assert [(one.protocol, one.tensor_bytes) for one in found.costs] == kinds
    for one in found.costs:
        assert one.cpu_ns_per_request > 0
        assert one.ceiling_per_s == pytest.approx(0.85e9 / one.cpu_ns_per_request)
        assert min(one.service_time_p50_ns, one.bare_p50_ns) > 0
    assert found.start_delay_ns.count == 200
    assert found.timer_late_ns.count == 100
    assert found.timer_late_ns.min >= 0
    assert found.host.items() <= describe_host().items()
    assert set(found.server_cpus).isdisjoint(found.driver_cpus) or found.warnings
    assert lines == [
        *(f"round {number} of 2: {protocol}, tensors of {size:,} bytes" for number in (1, 2) for protocol, size in kinds),
        "start delays at 1,000/s",
        "the timer alone",
    ]
