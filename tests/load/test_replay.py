"""The replay of a trace: its instants at another speed, once or in a loop, and which request each of them sends."""

import numpy as np
import pytest

from perfkit.errors import ScenarioError
from perfkit.load.arrivals import worker_arrivals
from perfkit.load.load_plan import OpenPlan
from perfkit.load.point import load_points
from perfkit.scenario.file import read_document
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers.loops import ReplayedRequests
from tests.load.loops import MS, Measured, S

POOL = [Prepared((name,)) for name in (b"a", b"b", b"c")]


@pytest.fixture
def plan(tmp_path):
    """The load points of a scenario that replays these instants, in milliseconds."""

    def plan(times_ms, measure=None, **replay):
        file = tmp_path / "t.csv"
        file.write_text("timestamp_ms\n" + "".join(f"{time_ms}\n" for time_ms in times_ms))
        document = {
            "target": {"model": "m"},
            "load": {"replay": {"trace": str(file), **replay}},
            "measure": {"repetitions": 1, **(measure or {})},
        }
        (point,) = load_points(read_document(document, environ={}))
        assert isinstance(point.loads[0], OpenPlan)
        return point

    return plan


def first_instants(point, count):
    chunks = worker_arrivals(point.loads[0].schedule.chunks(), 0, 1)
    instants: list[int] = []
    for chunk in chunks:
        instants += chunk.tolist()
        if len(instants) >= count:
            break
    return instants[:count]


def test_a_trace_is_sent_once_as_recorded_and_its_length_is_the_window(plan):
    point = plan([5000, 5100, 5300, 5900])
    assert first_instants(point, 9) == [0, 100 * MS, 300 * MS, 900 * MS]
    assert point.window_ns == 1200 * MS  # the last request, and a mean gap
    assert point.loads[0].rate_per_s == pytest.approx(4 / 1.2)


@pytest.mark.parametrize(("speed", "factor"), [(10, 10), (0.5, 0.5), (3, 3)])
def test_speed_divides_every_instant_and_the_window(plan, speed, factor):
    point = plan([0, 100, 300, 900], speed=speed)
    assert first_instants(point, 4) == [round(time * MS / factor) for time in (0, 100, 300, 900)]
    assert point.window_ns == round(1200 * MS / factor)
    assert (point.loads[0].speed, point.loads[0].rate_per_s) == (speed, pytest.approx(factor * 4 / 1.2))


def test_a_looped_trace_begins_anew_after_a_mean_gap(plan):
    point = plan([0, 100, 300, 900], {"duration": "3s"}, speed=2, loop=True)
    assert first_instants(point, 6) == [0, 50 * MS, 150 * MS, 450 * MS, 600 * MS, 650 * MS]
    assert point.window_ns is None


def test_a_given_window_is_kept(plan):
    assert plan([0, 100], {"duration": "50ms"}).window_ns is None
    assert plan([0, 100], {"requests": 2}).window_ns is None


def test_more_requests_than_the_trace_holds_are_refused_unless_it_is_looped(plan):
    with pytest.raises(ScenarioError, match=r"measure\.requests: 3 requests need as many arrivals, and .*t\.csv contains 2"):
        plan([0, 100], {"requests": 3})
    assert plan([0, 100], {"requests": 3}, loop=True).loads[0].schedule.repeat_ns == 200 * MS


def test_a_warm_up_has_no_arrivals(plan):
    with pytest.raises(ScenarioError, match=r"load\.replay: a trace has no arrivals for a warm-up: set measure\.warmup to 0s or auto"):
        plan([0, 100], {"warmup": "1s"})


def test_a_single_request_has_a_window(plan):
    point = plan([7])
    assert (first_instants(point, 2), point.window_ns) == ([0], S)


def test_a_replay_that_takes_too_long_is_refused(plan):
    with pytest.raises(ScenarioError, match=r"load\.replay\.speed: at 1e-12 times its speed the trace takes more than 30 years"):
        plan([0, 1000], speed=1e-12)


class Noting(ScriptedTransport):
    """Notes what is sent, and when."""

    def __init__(self, clock):
        super().__init__(clock, lambda _: (MS, Outcome.OK))
        self.log: list[tuple[int, bytes]] = []
        self.clock = clock

    def send(self, prepared):
        self.log.append((self.clock.now_ns(), prepared.buffers[0]))
        return super().send(prepared)


@pytest.mark.parametrize("workers", [1, 3])
def test_each_arrival_sends_its_own_request_whichever_worker_has_it_and_again_in_each_round(plan, workers):
    point = plan([0, 10, 20, 30, 40], loop=True)
    indices, log = np.array([2, 0, 0, 1, 2], dtype=np.int32), list[tuple[int, bytes]]()

    class Schedule:
        def __init__(self, worker):
            self.worker = worker

        def chunks(self):
            return worker_arrivals(point.loads[0].schedule.chunks(), self.worker, workers)

    for worker in range(workers):
        measured = Measured(
            Noting, Schedule(worker), requests=ReplayedRequests(POOL, indices), worker=worker, workers=workers, window_ns=100 * MS
        )
        assert {indices[reply.variant] for reply in measured.replies} <= {0, 1, 2}
        log += measured.transport.log
    assert sorted(log) == [(number * 10 * MS, b"caabc"[number % 5 : number % 5 + 1]) for number in range(10)]


def test_items_by_their_indices():
    places = ReplayedRequests("xyz", np.array([2, 0, 2], dtype=np.int32))
    assert (list(places), len(places), list(places[1:])) == (["z", "x", "z"], 3, ["x", "z"])
