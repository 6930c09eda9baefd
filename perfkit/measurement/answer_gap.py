"""How often a target answers before a search: the rate of a short closed loop, near which the search begins."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from perfkit.clock import Clock
from perfkit.errors import ModelMismatchError, TargetError
from perfkit.measurement.connections import max_connections
from perfkit.scenario.load import SearchLoadSpec
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S

_MOST_IN_FLIGHT, _SLOW_NS = 8, NS_PER_S // 2


async def answer_gap_ns(send: Callable[[], Awaitable[tuple[int, int]]], scenario: Scenario, clock: Clock, first_ns: int) -> int:
    """The mean time between answers with eight requests in flight for a second; without a search, the time of the first request.

    `send` sends one and returns its time first. The first request may have been slow because the target was cold. One that is as slow when
    sent again is not sent eight times at once, and neither are sequences, streams, and requests with slots of shared memory.
    """
    is_plain = scenario.shared_memory is None and scenario.stream is None and scenario.sequences is None
    if not is_plain or not isinstance(scenario.load, SearchLoadSpec) or scenario.load.search.start_rate_per_s is not None:
        return first_ns
    gap_ns = first_ns
    with contextlib.suppress(ModelMismatchError, TargetError):  # the search says what fails
        gap_ns, _ = await send()
    if gap_ns > _SLOW_NS:
        return gap_ns
    began_ns, answers = clock.now_ns(), 0

    async def send_in_turn() -> None:
        nonlocal answers
        with contextlib.suppress(ModelMismatchError, TargetError):
            while clock.now_ns() < began_ns + NS_PER_S:
                await send()
                answers += 1

    try:
        async with asyncio.TaskGroup() as group:  # an error ends all loops
            for _ in range(min(_MOST_IN_FLIGHT, max_connections(scenario))):
                group.create_task(send_in_turn())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return (clock.now_ns() - began_ns) // answers if answers else gap_ns
