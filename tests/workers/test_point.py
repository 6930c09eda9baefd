"""Workers share a load point: together they offer what one would, and record what one would."""

import asyncio
import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.clock import ManualClock
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule, count_worker_arrivals
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.recorder.histogram import encode
from perfkit.recorder.window import cut
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.options import TransportOptions
from perfkit.transport.scripted import ScriptedTransport
from perfkit.units import part
from perfkit.workers.point_recording import merge_points
from tests.measured_points import point_spec, run_point, workload_spec

MS, S = 1_000_000, 1_000_000_000


def spec(load, **changes):
    fields = {"load": load, "warmup_ns": S, "window_ns": 10 * S, "requests": None, "drain_ns": S, "connections": 5, **changes}
    return point_spec(**fields)


def poisson(rate=100.0, max_in_flight=None):
    return OpenPlan(rate, "poisson", Schedule("poisson", arrivals.constant_rate(rate), (4,)), None, max_in_flight)


class RecordingTransport(ScriptedTransport):
    """Notes which request was sent when."""

    def __init__(self, clock, sent, service_ns):
        super().__init__(clock, lambda _: (service_ns, Outcome.OK))
        self._noted, self._virtual = sent, clock

    def send(self, prepared):
        self._noted.append((self._virtual.now_ns(), prepared.buffers[0]))
        return super().send(prepared)


def measure(whole, workers, *, service_ns=20 * MS, variants=3):
    """The merged point of so many workers in one virtual time, and what was sent when."""
    clock, sent = ManualClock(5 * S), list[tuple[int, bytes]]()

    async def main():
        async def begin_at():
            return 6 * S

        points = [
            run_point(
                one, RecordingTransport(clock, sent, service_ns), [Prepared((bytes([variant]),)) for variant in range(variants)], clock=clock,
                address=Address("http", "h", 1), on_loop=lambda _: None, begin_at=begin_at,
            )
            for one in whole.split(workers)
        ]  # fmt: skip
        return merge_points(await asyncio.gather(*points))

    point = clock.run(main())
    return point, cut(point.recording, 0, is_open=whole.workloads[0].is_open), sorted(sent)


@pytest.mark.parametrize("workers", [2, 5])
@pytest.mark.parametrize(
    ("load", "requests"), [(poisson(), None), (poisson(), 287), (ClosedPlan(7, 0), None), (ClosedPlan(7, 0), 287), (ClosedPlan(5, 30 * MS), None)]
)  # fmt: skip
def test_several_workers_send_and_record_exactly_what_one_does(load, requests, workers):
    whole = spec(load, requests=requests, window_ns=None if requests else 4 * S)
    _, expected, sent_by_one = measure(whole, 1)
    point, found, sent = measure(whole, workers)
    assert sent == sent_by_one, "the same requests at the same instants"
    assert point.connections.opened == 5
    for field in ("start_ns", "end_ns", "outcomes", "counts", "finished_per_s"):
        assert getattr(found, field) == getattr(expected, field), field
    for name, packed in expected.times.items():
        assert encode(found.times[name]) == encode(packed), name


def test_the_limit_in_flight_is_divided_among_workers():
    _, window, sent = measure(spec(poisson(1000.0, max_in_flight=7)), 2, service_ns=20 * S)
    assert len(sent) == 7, "none of them is answered before the end"
    assert window.count("dropped") == pytest.approx(10_000, abs=300)


def worker_spec(**changes):
    own = workload_spec(ClosedPlan(9, 0))
    options = TransportOptions(max_connections=8, timeout_ns=S)
    return dataclasses.replace(
        spec(ClosedPlan(9, 0)), workloads=(dataclasses.replace(own, transport=options, check_at_most_per_s=20.0, seed=3),), **changes
    )


def test_the_specs_of_workers_add_up_to_the_whole():
    shared = worker_spec().split(3, (4, 5))
    workloads = [one.workloads[0] for one in shared]
    assert [one.transport.max_connections for one in workloads] == [3, 3, 2]
    assert sum(one.check_at_most_per_s for one in workloads) == pytest.approx(20)
    assert len({one.seed for one in workloads}) == 3
    assert [one.cpus for one in shared] == [(4,), (5,), (4,)]
    assert [one.worker for one in shared] == [0, 1, 2]


@given(st.integers(0, 10**6), st.integers(1, 64))
def test_parts_add_up_and_differ_by_one_at_most(whole, workers):
    parts = [part(whole, worker, workers) for worker in range(workers)]
    assert sum(parts) == whole
    assert max(parts) - min(parts) <= 1


@given(st.integers(0, 500), st.integers(1, 300), st.integers(1, 7), st.integers(1, 50))
def test_each_worker_knows_its_share_of_a_count(from_index, count, workers, chunk):
    instants = np.arange(2000, dtype=np.int64) * 10

    def chunks():
        return iter(np.split(instants, range(chunk, 2000, chunk)))

    of_all = [index % workers for index in range(from_index, from_index + count)]
    for worker in range(workers):
        assert count_worker_arrivals(chunks(), from_index * 10, count, worker, workers) == of_all.count(worker)


def test_a_loop_of_few_slots_has_work_for_few_workers():
    assert spec(ClosedPlan(3, 0)).max_workers == 3
    assert spec(poisson(max_in_flight=2)).max_workers == 2
    assert spec(poisson()).max_workers == 1024, "the connections that it may open"
