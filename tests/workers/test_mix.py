"""Several workloads in one load point: exact shares, parts that add up to the whole, and loads side by side that end together."""

import asyncio
import collections

import pytest

from perfkit.clock import ManualClock
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.load.loop import StopCause
from perfkit.recorder.histogram import encode
from perfkit.recorder.window import cut
from perfkit.stats.buckets import BucketCounts
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers.messages import WorkerSpec
from perfkit.workers.point_recording import PointSum
from perfkit.workers.prepared_workload import PreparedWorkload
from perfkit.workers.worker import run_workloads
from tests.measured_points import workload_spec

MS, S = 1_000_000, 1_000_000_000
WEIGHTS, SERVICE_NS = (70, 20, 10), (5 * MS, 20 * MS, 80 * MS)
SUMS = ("ended", "finished", "good", "dropped", "unsent", "checked", "touched")


def spec(*loads, weights=(), **changes):
    """A load for each workload, or one that they share."""
    workloads = tuple(workload_spec(load) for load in (loads * len(weights) or loads))
    shared = loads[0] if weights else None
    fields = {"warmup_ns": S, "window_ns": 10 * S, "requests": None, "drain_ns": S, "choices_seed": (0,), **changes}
    return WorkerSpec(workloads, shared=shared, weights=weights, **fields)


def poisson(rate=300.0, max_in_flight=None, seed=4):
    return OpenPlan(rate, "poisson", Schedule("poisson", arrivals.constant_rate(rate), (seed,)), None, max_in_flight)


class HaltedClock(ManualClock):
    """Stands in for a process that does not run for some time."""

    def pass_unnoticed(self, length_ns):
        self._now_ns += length_ns

    def jump(self):
        now_ns = self._now_ns
        has_jumped = super().jump()
        self._now_ns = max(self._now_ns, now_ns)  # those who slept meanwhile wake late
        return has_jumped


class NotingTransport(ScriptedTransport):
    """Notes the requests of one workload."""

    def __init__(self, clock, service_ns, sent, outcome=Outcome.OK):
        super().__init__(clock, lambda _: (service_ns, outcome))
        self._sent = sent

    def send(self, prepared):
        self._sent.append(prepared.buffers[0])
        return super().send(prepared)


def measure(whole, *, workers=1, variants=3, outcomes=(Outcome.OK,) * 3, halt_at_ns=()):
    """The merged point of a mix, and the requests of each workload in the order of sending; the workers halt for 200 ms at some instants."""
    clock, sent, total = HaltedClock(5 * S), [list[bytes]() for _ in whole.workloads], PointSum()

    async def halt():
        for instant_ns in halt_at_ns:
            await clock.sleep_until_ns(instant_ns)
            clock.pass_unnoticed(200 * MS)

    async def one(worker):
        async def begin_at():
            return 6 * S

        own = whole.share(worker, workers)
        workloads = [
            PreparedWorkload(
                one, NotingTransport(clock, SERVICE_NS[number], sent[number], outcomes[number]),
                [Prepared((bytes([number, variant]),)) for variant in range(variants)], Address("http", "h", 1),
            )
            for number, one in enumerate(own.workloads)
        ]  # fmt: skip
        rest = await run_workloads(
            own, workloads, clock=clock, on_loop=lambda _: None, begin_at=begin_at, on_piece=lambda piece: total.add(worker, piece.point)
        )
        total.add(worker, rest)

    async def main():
        await asyncio.gather(halt(), *map(one, range(workers)))
        return total.take()

    return clock.run(main()), sent


def assert_the_parts_add_up(point, *, is_open):
    whole = cut(point.recording, 8 * S, is_open=is_open)
    parts = [cut(one.recording, 8 * S, is_open=is_open) for one in point.workloads]
    assert whole.start_ns == 8 * S
    for outcome in Outcome:
        assert whole.outcomes[outcome] == sum(part.outcomes[outcome] for part in parts)
    for name in SUMS:
        assert whole.count(name) == sum(part.count(name) for part in parts), name
    for name, times in whole.times.items():
        assert encode(times) == encode(BucketCounts.merged(part.times[name] for part in parts)), name
    assert whole.outcomes[Outcome.OK] > 100


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("load", [poisson(), poisson(max_in_flight=6), ClosedPlan(7, 0), ClosedPlan(6, 3 * MS)], ids=str)
def test_a_mix_keeps_its_shares_and_the_parts_add_up_to_the_whole(load, workers):
    point, sent = measure(spec(load, weights=WEIGHTS, window_ns=4 * S), workers=workers)
    total = sum(map(len, sent))
    if getattr(load, "max_in_flight", None) is None:
        for requests, weight in zip(sent, WEIGHTS, strict=True):  # each worker may end within a block of ten
            assert len(requests) == pytest.approx(total * weight / 100, abs=7 * workers)
    dropped = [cut(one.recording, 0, is_open=True).count("dropped") for one in point.workloads]
    assert any(dropped) == (getattr(load, "max_in_flight", None) is not None)
    assert_the_parts_add_up(point, is_open=isinstance(load, OpenPlan))
    for number, requests in enumerate(sent):
        counts = collections.Counter(requests)
        assert set(counts) == {bytes([number, variant]) for variant in range(3)}, "each goes to the target of its workload"
        assert max(counts.values()) - min(counts.values()) <= 2 * workers + (total if any(dropped) else 0), "and takes its variants in turn"


def test_a_counted_window_ends_with_the_last_request_of_all_workloads():
    point, _ = measure(spec(ClosedPlan(4, 0), weights=WEIGHTS, requests=1000, window_ns=None))
    counts = [cut(one.recording, 0, is_open=False).outcomes[Outcome.OK] for one in point.workloads]
    assert sum(counts) == 1000
    assert counts == pytest.approx([700, 200, 100], abs=7)
    assert point.recording.end_ns == max(one.recording.end_ns for one in point.workloads)


def test_loads_of_their_own_run_side_by_side_in_the_same_window():
    loads = (poisson(100.0), ClosedPlan(2, 0), poisson(20.0, seed=5))
    point, sent = measure(spec(*loads))
    windows = [cut(one.recording, 0, is_open=isinstance(load, OpenPlan)) for one, load in zip(point.workloads, loads, strict=True)]
    assert {(window.start_ns, window.end_ns) for window in windows} == {(7 * S, 17 * S)}
    assert windows[0].count("finished") == pytest.approx(1000, abs=5 * 1000**0.5)
    assert windows[1].count("finished") == 2 * 10 * S // SERVICE_NS[1]
    assert sum(map(len, sent)) > 2200
    whole = cut(point.recording, 0, is_open=False)
    assert whole.outcomes[Outcome.OK] == sum(window.outcomes[Outcome.OK] for window in windows)
    merged = BucketCounts.merged(window.times["service_time"] for window in windows)
    assert encode(whole.times["service_time"]) == encode(merged), "of both kinds of loops only service times are comparable"
    assert "response_time" not in whole.times
    assert not whole.times["touched_time"].count


def test_a_workload_whose_requests_fail_ends_the_load_point_of_all():
    both = spec(poisson(50.0), poisson(50.0, seed=6), abort_error_rate=0.5)
    point, sent = measure(both, outcomes=(Outcome.REJECTED, Outcome.OK))
    assert point.ending.cause is StopCause.TOO_MANY_ERRORS
    assert len(sent[1]) < 100, "of 550"


def test_the_stops_of_a_worker_are_those_of_each_of_its_workloads_once():
    point, _ = measure(spec(poisson(), weights=WEIGHTS, window_ns=6 * S), halt_at_ns=(8 * S, 12 * S))
    stops = [[stop.start_ns // S for stop in one.recording.stops] for one in point.workloads]
    assert stops == [[8, 12]] * 3
    assert [stop.start_ns // S for stop in point.recording.stops] == [8, 12]
    assert all(sum(batch.counts["touched"] for batch in one.recording.batches.values()) for one in point.workloads)
