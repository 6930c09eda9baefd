"""A calibration is complete and consistent; the speed of this machine is not judged."""

import asyncio

import pytest

from perfkit.calibration.measurement import Lengths, calibrate, cost
from perfkit.clock import MonotonicClock
from perfkit.machine.description import describe_host


def test_a_cost_is_the_median_of_its_rounds():
    calibrated = cost("http", 128, [(20_000.0, 70_000, 50_000), (10_000.0, 90_000, 40_000), (30_000.0, 60_000, 55_000)])
    assert calibrated.cpu_ns_per_request == 20_000.0
    assert calibrated.ceiling_per_s == pytest.approx(42_500.0)
    assert (calibrated.service_time_p50_ns, calibrated.bare_p50_ns, calibrated.overhead_p50_ns) == (70_000, 50_000, 20_000)


def test_the_overhead_is_taken_within_rounds():
    assert cost("http", 1, [(1.0, 100, 90), (1.0, 200, 120), (1.0, 300, 270)]).overhead_p50_ns == 30


def test_everything_is_measured_once_a_round():
    lines: list[str] = []
    lengths = Lengths(rounds=2, warmup_ns=10_000_000, window_ns=60_000_000, timer_waits=100, requests=200)
    calibrated = asyncio.run(calibrate(lengths, MonotonicClock(), lines.append))
    kinds = [(protocol, size) for protocol in ("http", "grpc") for size in (128, 602_112)]
    assert [(cost_of_kind.protocol, cost_of_kind.tensor_bytes) for cost_of_kind in calibrated.costs] == kinds
    for cost_of_kind in calibrated.costs:
        assert cost_of_kind.cpu_ns_per_request > 0
        assert cost_of_kind.ceiling_per_s == pytest.approx(0.85e9 / cost_of_kind.cpu_ns_per_request)
        assert min(cost_of_kind.service_time_p50_ns, cost_of_kind.bare_p50_ns) > 0
    assert calibrated.start_delay_ns.count == 200
    assert calibrated.timer_late_ns.count == 100
    assert calibrated.timer_late_ns.min >= 0
    assert calibrated.host.items() <= describe_host().items()
    assert set(calibrated.server_cpus).isdisjoint(calibrated.driver_cpus) or calibrated.warnings
    assert lines == [
        *(f"round {number} of 2: {protocol}, tensors of {size:,} bytes" for number in (1, 2) for protocol, size in kinds),
        "start delays at 1,000/s",
        "the timer alone",
    ]
