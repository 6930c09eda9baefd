"""The scripted transport: its answers, its times, and abandoned requests."""

import asyncio

import pytest

from perfkit.clock import ManualClock
from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.transport.base import Outcome, Transport
from perfkit.transport.scripted import ScriptedTransport

MS = 1_000_000


async def _reply(transport):
    return await transport.send(transport.prepare(InferRequest("m", ())))


def test_answers_follow_the_script_on_the_given_clock():
    clock = ManualClock(7)
    script = [(3 * MS, Outcome.OK), (MS, Outcome.REJECTED), (0, Outcome.CONNECT_FAILED)]

    async def main():
        scripted: Transport = ScriptedTransport(clock, script.__getitem__)
        await scripted.open(2)
        return await asyncio.gather(*(_reply(scripted) for _ in script)), scripted

    replies, scripted = clock.run(main())
    assert [(reply.outcome, reply.started_ns, reply.finished_ns) for reply in replies] == [
        (outcome, 7, 7 + time_ns) for time_ns, outcome in script
    ]
    assert [reply.error for reply in replies] == ["", "rejected", "connect_failed"]
    assert (scripted.sent, scripted.in_flight_max, scripted.counts.opened) == (3, 3, 2)
    with pytest.raises(ProtocolError, match="rejected"):
        scripted.answer(replies[1])


@pytest.mark.parametrize("outcome", [Outcome.OK, Outcome.REJECTED])
def test_abandoned_requests_are_unfinished_at_once_whatever_the_script_says(outcome):
    clock = ManualClock()

    async def main():
        scripted = ScriptedTransport(clock, lambda _: (100 * MS, outcome))
        sending = [asyncio.ensure_future(_reply(scripted)) for _ in range(3)]
        await clock.sleep_until_ns(40 * MS)
        scripted.abandon()
        return await asyncio.gather(*sending)

    replies = clock.run(main())
    assert [(reply.outcome, reply.finished_ns, reply.error) for reply in replies] == [(Outcome.UNFINISHED, 40 * MS, "")] * 3
    assert clock.now_ns() == 40 * MS
