"""A loop with idle gaps in virtual time."""

import pytest

from perfkit.load.closed_loop import IdleLoop
from perfkit.transport.base import Outcome
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, Measured, S


class Idle:
    """The replies of a loop with gaps of `gap_ms`, and what it says about each; the transport is made by `make`."""

    def __init__(self, script, *, gap_ms=100, then=3, make=ScriptedTransport, **options):
        self.times, self.reconnects = list[tuple[str, int, int]](), list[int]()
        self.measured = Measured(
            lambda clock: make(clock, script), kinds=(IdleLoop, None), gap_ns=gap_ms * MS, then=then,
            add_time=lambda *taken: self.times.append(taken), on_reconnect=self.reconnects.append, **options,
        )  # fmt: skip

    def starts_ms(self):
        return [reply.started_ns // MS for reply in self.measured.replies]


def always(service_ms):
    return lambda _: (service_ms * MS, Outcome.OK)


def test_after_each_gap_one_request_is_sent_and_then_the_following_ones_closely():
    idle = Idle(always(10), gap_ms=100, then=3, window_ns=500 * MS)
    # 3 before the first gap, then a gap of 100 ms after each answer that ends a group of 1 + 3
    assert idle.starts_ms() == [0, 10, 20, 130, 140, 150, 160, 270, 280, 290, 300, 410, 420, 430, 440]
    assert [name for name, _, _ in idle.times] == ["following_time"] * 3 + (["after_gap_time"] + ["following_time"] * 3) * 3
    assert {time_ns for _, _, time_ns in idle.times} == {10 * MS}
    assert idle.measured.transport.in_flight_max == 1
    assert idle.reconnects == []


def test_the_window_ends_in_the_middle_of_a_gap():
    idle = Idle(always(10), gap_ms=10_000, then=2, window_ns=2 * S)
    assert idle.starts_ms() == [0, 10]
    assert idle.measured.ended_ns == 2 * S


def test_a_number_of_requests_ends_the_window():
    assert len(Idle(always(10), then=3, window_ns=None, count=9).starts_ms()) == 9


class ClosedInGaps(ScriptedTransport):
    """A server that closes the connection after 50 ms without a request; to connect again takes 7 ms."""

    def send(self, prepared):
        return self._after_connecting(super().send)(prepared)

    def _after_connecting(self, send):
        async def answer(prepared):
            now_ns, last_ns = self._clock.now_ns(), getattr(self, "_last_ns", None)
            if last_ns is not None and now_ns - last_ns > 50 * MS:
                self.counts.opened += 1
                self.counts.reconnects += 1
                await self._clock.sleep_until_ns(now_ns + 7 * MS)
            reply = await send(prepared)
            self._last_ns = reply.finished_ns
            return reply

        return answer


def test_a_connection_that_the_server_closed_in_the_gap_is_counted_and_its_time_is_part_of_the_first_requests():
    idle = Idle(always(10), gap_ms=100, then=2, make=ClosedInGaps, window_ns=400 * MS)
    after_gap = [(begun_ns, time_ns) for name, begun_ns, time_ns in idle.times if name == "after_gap_time"]
    assert {time_ns for _, time_ns in after_gap} == {17 * MS}
    assert idle.reconnects == [begun_ns for begun_ns, _ in after_gap]
    assert {time_ns for name, _, time_ns in idle.times if name == "following_time"} == {10 * MS}


@pytest.mark.parametrize(("outcome", "is_timed"), [(Outcome.TIMED_OUT, True), (Outcome.REJECTED, False), (Outcome.BROKEN, False)])
def test_requests_without_an_answer_count_with_their_age_and_refused_ones_have_no_time(outcome, is_timed):
    idle = Idle(lambda index: (10 * MS, outcome if index == 3 else Outcome.OK), gap_ms=100, then=3, window_ns=200 * MS)
    names = [name for name, _, _ in idle.times]
    assert ("after_gap_time" in names) == is_timed
    assert names.count("following_time") == len(idle.starts_ms()) - 1


def test_an_interrupt_ends_a_gap():
    async def interrupt(loop, clock):
        await clock.sleep_until_ns(40 * MS)
        loop.stop("interrupted")

    idle = Idle(always(10), gap_ms=60_000, then=1, window_ns=300 * S, during=interrupt)
    assert idle.measured.ended_ns == 40 * MS
