"""Loops that are run to their end in virtual time."""

import asyncio

from perfkit.clock import ManualClock
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.loop import Phases
from perfkit.load.open_loop import OpenLoop, Pacer
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.scripted import ScriptedTransport

MS, S = 1_000_000, 1_000_000_000
POOL = [Prepared(())]


class Measured:
    """A loop that was run, open if it has a schedule, over the transport that `connect` makes of its clock.

    `during` runs beside it, with the loop and the clock; `kinds` are the classes of closed and open loops.
    """

    def __init__(
        self, connect, schedule=None, *, on_reply=None, on_drop=None, requests=POOL, pacer=Pacer, start_ns=0, warmup_ns=0, window_ns=10 * S,
        count=None, drain_ns=S, during=None, kinds=(ClosedLoop, OpenLoop), **options,
    ):  # fmt: skip
        self.clock, self.replies, self.drops = ManualClock(start_ns), list[Reply](), list[tuple[int, bool]]()
        self.transport = connect(self.clock)
        self.phases = Phases.plan(start_ns, warmup_ns=warmup_ns, window_ns=window_ns, requests=count, drain_ns=drain_ns)

        async def main():
            arguments = (self.transport, requests, on_reply or self.replies.append)
            options.update(phases=self.phases, clock=self.clock)
            loop = kinds[0](*arguments, **options) if schedule is None else kinds[1](
                *arguments, on_drop or self._drop, arrivals=schedule.chunks(), origin_ns=start_ns, pacer=pacer(self.clock), **options
            )  # fmt: skip
            interference = asyncio.ensure_future(during(loop, self.clock)) if during else None
            self.ending = await loop.run()
            self.ended_ns = self.clock.now_ns()
            if interference:
                await interference

        self.clock.run(main())

    def outcomes(self):
        return [reply.outcome for reply in self.replies]

    def _drop(self, instants_ns, _, is_late):
        self.drops += [(instant_ns, is_late) for instant_ns in instants_ns.tolist()]


def closed(script, *, concurrency=1, **options):
    """A closed loop over a transport with a script, from 7 s on."""
    return Measured(lambda clock: ScriptedTransport(clock, script), start_ns=7 * S, concurrency=concurrency, **options)


def opened(schedule, make_script, **options):
    """An open loop over a transport with the script that is made of its clock."""
    return Measured(lambda clock: ScriptedTransport(clock, make_script(clock)), schedule, **options)


def constant(service_time_ns, outcome=Outcome.OK):
    return lambda _: (service_time_ns, outcome)
