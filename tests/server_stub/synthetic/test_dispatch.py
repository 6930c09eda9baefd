"""Departures at their instants, with both alarms and both event loops."""

import asyncio
import sys
import time

import pytest
import uvloop

from server_stub.scheduling import alarm as timer
from server_stub.scheduling.alarm import LoopAlarm, TimerfdAlarm, make_alarm
from server_stub.synthetic.dispatch import SPIN_NS, DepartureTimer
from tests.conditions import until

MS = 10**6
ALARMS = [TimerfdAlarm, LoopAlarm]


class Clockwork:
    """A clock that advances a microsecond at every reading, and an alarm that the test rings."""

    def __init__(self):
        self.now_ns = 0
        self.set_to_ns = []
        self.closed = False

    def read(self):
        self.now_ns += 1000
        return self.now_ns

    def make_alarm(self, loop, ring):
        self.ring = ring
        return self

    def set(self, instant_ns):
        self.set_to_ns.append(instant_ns)

    def close(self):
        self.closed = True


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request):
    def run(coroutine):
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(coroutine)

    return run


async def until_waiting(departures, count):
    await until(lambda: len(departures._waiting) == count)


async def test_the_alarm_is_set_to_the_next_departure_and_wakes_only_due_requests():
    clockwork, gone = Clockwork(), []
    departures = DepartureTimer(clockwork.read, clockwork.make_alarm)

    async def wait(name, instant_ns):
        await departures.wait(instant_ns)
        gone.append((name, clockwork.now_ns))

    tasks = [asyncio.ensure_future(wait(*one)) for one in (("b", 20 * MS), ("c", 30 * MS), ("a", 10 * MS), ("b2", 20 * MS))]
    await until_waiting(departures, 4)
    assert clockwork.set_to_ns == [20 * MS - SPIN_NS, 10 * MS - SPIN_NS]
    clockwork.ring()  # too early: it is set again, and no request departs
    assert [future.done() for _, _, future in departures._waiting] == [False] * 4
    for instant_ns, left in ((10 * MS, 1), (20 * MS, 3), (30 * MS, 4)):
        clockwork.now_ns = instant_ns - SPIN_NS
        clockwork.ring()
        assert len(departures._waiting) == 4 - left
        await until(lambda left=left: len(gone) == left)
    assert gone == [("a", 10 * MS), ("b", 20 * MS), ("b2", 20 * MS), ("c", 30 * MS)]
    assert clockwork.set_to_ns[2:] == [10 * MS - SPIN_NS, 20 * MS - SPIN_NS, 30 * MS - SPIN_NS]
    await asyncio.gather(*tasks)


async def test_cancelled_requests_are_skipped():
    clockwork = Clockwork()
    departures = DepartureTimer(clockwork.read, clockwork.make_alarm)
    left, stays = (asyncio.ensure_future(departures.wait(MS)) for _ in range(2))
    await until_waiting(departures, 2)
    left.cancel()
    clockwork.now_ns = MS
    clockwork.ring()
    await stays
    assert left.cancelled()


async def test_closing_releases_the_alarm_and_cancels_waiting_requests():
    clockwork = Clockwork()
    departures = DepartureTimer(clockwork.read, clockwork.make_alarm)
    waiting = asyncio.ensure_future(departures.wait(MS))
    await until_waiting(departures, 1)
    departures.close()
    assert clockwork.closed
    with pytest.raises(asyncio.CancelledError):
        await waiting


@pytest.mark.parametrize("alarm", ALARMS)
def test_requests_depart_in_order_and_never_early(run, alarm):
    async def main():
        departures, gone = DepartureTimer(make_alarm=alarm), []
        begin_ns = time.monotonic_ns()

        async def wait(instant_ns):
            await departures.wait(instant_ns)
            gone.append((instant_ns, time.monotonic_ns()))

        instants_ns = [begin_ns + offset_us * 1000 for offset_us in (4000, 300, 2000, -500, 2000, 2050, 9000, 0)]
        await asyncio.gather(*(wait(instant_ns) for instant_ns in instants_ns))
        departures.close()
        assert [instant_ns for instant_ns, _ in gone] == sorted(instants_ns)
        assert all(instant_ns <= gone_ns for instant_ns, gone_ns in gone)

    run(main())


@pytest.mark.parametrize("alarm", ALARMS)
def test_an_alarm_set_again_rings_only_for_the_latest_instant(run, alarm):
    async def main():
        rung: asyncio.Queue[int] = asyncio.Queue()
        one = alarm(asyncio.get_running_loop(), lambda: rung.put_nowait(time.monotonic_ns()))
        begin_ns = time.monotonic_ns()
        one.set(begin_ns + 3600 * 1000 * MS)
        one.set(begin_ns + 3 * MS)
        await rung.get()
        one.set(1)  # in the past: rings now
        await rung.get()
        one.set(begin_ns + 3600 * 1000 * MS)
        one.close()
        assert rung.empty()

    run(main())


def test_this_machine_has_the_precise_alarm(run):
    async def main():
        alarm = make_alarm(asyncio.get_running_loop(), lambda: None)
        alarm.close()
        return alarm

    assert isinstance(run(main()), TimerfdAlarm)


@pytest.mark.parametrize("lack", ["platform", "timerfd", "readers"])
def test_without_timerfd_the_loop_timer_is_used(monkeypatch, lack):
    def refuse(*_):
        raise NotImplementedError

    async def main():
        loop = asyncio.get_running_loop()
        if lack == "platform":
            monkeypatch.setattr(sys, "platform", "darwin")
        elif lack == "timerfd":
            monkeypatch.setattr(timer, "_CLOCK_MONOTONIC", 9999)  # no such clock
        else:
            monkeypatch.setattr(loop, "add_reader", refuse)
        return make_alarm(loop, lambda: None)

    assert isinstance(asyncio.run(main()), LoopAlarm)


def test_an_alarm_can_be_closed_after_its_loop():
    async def main():
        return TimerfdAlarm(asyncio.get_running_loop(), lambda: None)

    asyncio.run(main()).close()
