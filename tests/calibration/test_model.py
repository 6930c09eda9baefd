"""How many workers a load needs, by hand-made costs."""

import pytest

from perfkit.calibration.model import Cost, highest_rate_per_s, spin_ns_per_request, transport_ns, workers_needed
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule, from_timestamps
from perfkit.load.load_plan import ClosedPlan, OpenPlan


def cost(protocol, tensor_bytes, cpu_us):
    times = {"service_time_p50_ns": 1, "bare_p50_ns": 1, "overhead_p50_ns": 0}
    return Cost(protocol=protocol, tensor_bytes=tensor_bytes, cpu_ns_per_request=cpu_us * 1000.0, ceiling_per_s=1.0, **times)


COSTS = (cost("http", 128, 20), cost("http", 602_112, 200), cost("grpc", 128, 25), cost("grpc", 602_112, 280))


@pytest.mark.parametrize(
    ("protocol", "tensor_bytes", "rate_per_s", "most", "workers"),
    [
        ("http", 128, 34_999, 8, 1),  # 34,999 × 20 µs = 0.69998 cores
        ("http", 128, 35_001, 8, 2),
        ("http", 128, 70_001, 8, 3),
        ("http", 128, 1e9, 8, 8),
        ("http", 128, 1e9, 1, 1),
        ("grpc", 128, 28_001, 8, 2),
        ("grpc", 602_112, 5_001, 8, 3),
        ("http", 0, 35_001, 8, 2),
        ("http", 8_700, 35_001, 8, 2),  # the middle of 128 and 602,112 as ratios is 8,779
        ("http", 8_900, 35_001, 16, 11),
        ("http", 50_000_000, 3_501, 8, 2),
        ("http", 128, 0.0, 8, 1),
    ],
)
def test_the_number_of_workers_follows_from_cost_and_rate(protocol, tensor_bytes, rate_per_s, most, workers):
    assert workers_needed(COSTS, protocol=protocol, tensor_bytes=tensor_bytes, rate_per_s=rate_per_s, max_workers=most) == workers


@pytest.mark.parametrize(
    ("rate_per_s", "workers"), [(11_600, 1), (11_700, 2), (23_400, 3)]
)  # 20 µs and 40 µs of spinning: 11,667/s a worker
def test_an_open_loop_spins_before_each_arrival_and_a_closed_one_does_not(rate_per_s, workers):
    assert spin_ns_per_request(ClosedPlan(16, 0)) == 0
    spin_ns = spin_ns_per_request(open_plan(arrivals.constant_rate(rate_per_s)))
    assert workers_needed(COSTS, protocol="http", tensor_bytes=128, rate_per_s=rate_per_s, max_workers=8, spin_ns=spin_ns) == workers


def test_a_protocol_that_was_not_calibrated_gets_one_worker():
    assert workers_needed(COSTS[:2], protocol="grpc", tensor_bytes=128, rate_per_s=1e9, max_workers=8) == 1


def open_plan(segments):
    return OpenPlan(100.0, "constant", Schedule("constant", segments), None, None)


@pytest.mark.parametrize(
    ("load", "rate_per_s"),
    [
        (ClosedPlan(16, 0), 16 / 0.002),
        (ClosedPlan(16, 6_000_000), 16 / 0.008),
        (open_plan(arrivals.constant_rate(100.0)), 100.0),
        (open_plan(arrivals.ramp(100.0, 3.0, 10.0)), 300.0),
        (open_plan(arrivals.spike(100.0, 5.0, 1.0, 1.0)), 500.0),
        (open_plan(arrivals.steps(100.0, (1.0, 4.0, 2.0), 1.0)), 400.0),
        (open_plan(arrivals.sine(100.0, 0.5, 60.0, 60.0)), 150.0),
        (OpenPlan(40.0, "trace", from_timestamps([0.0, 0.05, 0.1]), None, None), 40.0),
    ],
)
def test_the_highest_rate_of_a_load(load, rate_per_s):
    assert highest_rate_per_s(load, 2_000_000) == pytest.approx(rate_per_s)


@pytest.mark.parametrize(
    ("protocol", "tensor_bytes", "expected"),
    [("http", 128, 100), ("http", 1280, 100), ("http", 1300, None), ("http", 12, None), ("http", 602_112, 900), ("grpc", 200_000, 900), ("grpc", 0, None)],
)  # fmt: skip
def test_transport_takes_as_long_as_with_a_server_that_answers_at_once_if_the_size_is_near(protocol, tensor_bytes, expected):
    costs = [one.model_copy(update={"service_time_p50_ns": 100 if one.tensor_bytes == 128 else 900}) for one in COSTS]
    assert transport_ns(costs, protocol, tensor_bytes) == expected
    assert transport_ns((), protocol, tensor_bytes) is None
