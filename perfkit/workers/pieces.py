"""The pieces of a load point's recording, which a worker sends while load is sent, so that its end loses little."""

import asyncio
from collections.abc import Callable, Sequence

from perfkit.clock import Clock
from perfkit.load.loop import Phases
from perfkit.load.loop_group import LoopGroup
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import Recording
from perfkit.units import NS_PER_S

# an instant is taken this much later, because an open loop may be late
_SENT_WITHIN_NS = NS_PER_S
_LOOK_EVERY_NS = NS_PER_S // 10


async def send_pieces(
    timeout_ns: int,
    phases: Phases,
    clock: Clock,
    unanswered: Callable[[], int],
    loops: LoopGroup,
    recorders: Sequence[Recorder],
    send: Callable[[int, list[Recording]], None],
) -> None:
    """Calls `send` with the pieces of all recorders and the instant before which they lie, about once a second until the window's end.

    A piece is sent when all requests before its instant are answered, or after the timeout of a request, so that all pieces so far hold
    what a run that ended there would hold. Slow answers make pieces longer than a second. `unanswered` counts the requests that are sent and
    not answered.
    """
    begun_ns = at_ns = phases.window_start_ns
    while True:
        await clock.sleep_until_ns(at_ns + NS_PER_S + _SENT_WITHIN_NS)
        at_ns = begun_ns + (clock.now_ns() - _SENT_WITHIN_NS - begun_ns) // NS_PER_S * NS_PER_S
        if phases.window_end_ns is not None and at_ns >= phases.window_end_ns:
            return
        awaited = unanswered()
        for recorder in recorders:
            recorder.await_sent_until(clock.now_ns())
        latest_ns = clock.now_ns() + timeout_ns + _LOOK_EVERY_NS
        while sum(recorder.answered_awaited for recorder in recorders) < awaited and clock.now_ns() < latest_ns:
            await clock.sleep_until_ns(clock.now_ns() + _LOOK_EVERY_NS)
            for recorder in recorders:
                for _ in recorder.record_pending():
                    await asyncio.sleep(0)  # requests that are due are sent in between
        if loops.stopped_ns:
            return  # the rest is about to come
        loops.report_drops()
        send(at_ns, [recorder.take_before(at_ns) for recorder in recorders])  # at once: what is taken out must not be lost
