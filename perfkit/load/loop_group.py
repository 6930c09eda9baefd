"""The loops of one load point, which run concurrently and end together."""

import asyncio
import dataclasses
from collections.abc import Sequence

from perfkit.load.loop import Ending, Loop, StopCause, Stoppable
from perfkit.load.tasks import run_with_side_tasks
from perfkit.override import override


class LoopGroup(Stoppable):
    """One loop or several; one that ends early ends the others."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = loops

    @property
    def in_flight(self) -> int:
        """The sum of `Loop.in_flight` over the loops."""
        return sum(loop.in_flight for loop in self._loops)

    @property
    def unanswered(self) -> int:
        """The sum of `Loop.unanswered` over the loops."""
        return sum(loop.unanswered for loop in self._loops)

    @property
    def stopped_ns(self) -> int:
        """The instant at which the last of the loops stopped sending; 0 before any has."""
        return max(loop.ending.stopped_ns for loop in self._loops)

    def report_drops(self) -> None:
        """Reports the arrivals dropped so far."""
        for loop in self._loops:
            loop.report_drops()

    async def run(self) -> Ending:
        """Runs all loops to their ends; the reason is that of a loop that ended early, if one did."""
        if len(self._loops) == 1:
            return await self._loops[0].run()
        endings = await run_with_side_tasks(self._run_all(), *(self._end_all_with(loop) for loop in self._loops))
        early = next((ending for ending in endings if ending.reason), endings[0])
        return dataclasses.replace(early, stopped_ns=self.stopped_ns)

    @override
    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        for loop in self._loops:
            loop.stop(reason, cause, drain=drain)

    async def stopped(self) -> None:
        """Returns when all loops have stopped sending."""
        for loop in self._loops:
            await loop.stopped()

    async def _run_all(self) -> list[Ending]:
        tasks = [asyncio.ensure_future(loop.run()) for loop in self._loops]
        try:
            return await asyncio.gather(*tasks)
        finally:  # also where one of them failed
            for task in tasks:
                task.cancel()

    async def _end_all_with(self, loop: Loop) -> None:
        await loop.stopped()
        if loop.ending.reason:
            self.stop(loop.ending.reason, loop.ending.cause or StopCause.INTERRUPTED)
