"""Rules that end a load point early, instead of measuring a failing or overloaded target for its whole length."""

import math

from perfkit.clock import Clock
from perfkit.load.load_plan import LoadPlan, OpenPlan
from perfkit.load.loop import Loop, Phases, StopCause
from perfkit.load.open_loop import OpenLoop
from perfkit.recorder.mix_recorder import MixRecorder
from perfkit.recorder.recorder import Recorder
from perfkit.units import NS_PER_S

_CHECK_EVERY_NS = NS_PER_S // 10
_MIN_REPLIES = 20
_BACKLOG_Z = 4.5
_BACKLOG_LIMITS = 3


async def stop_on_errors(loop: Loop, recorder: Recorder | MixRecorder, clock: Clock, max_error_rate: float | None) -> None:
    """Stops a loop when more than that share of its requests has failed, of 20 or more."""
    while max_error_rate is not None and not loop.ending.stopped_ns:
        await clock.sleep_until_ns(clock.now_ns() + _CHECK_EVERY_NS)
        replies = recorder.replies
        if replies >= _MIN_REPLIES and recorder.failed > max_error_rate * replies:
            rate = f"{recorder.failed / replies:.0%} of {replies:,} requests failed"
            loop.stop(f"{rate}, above measure.abort_error_rate: {max_error_rate:.0%}", StopCause.TOO_MANY_ERRORS)


async def stop_on_overload(
    loop: Loop, recorder: Recorder | MixRecorder, phases: Phases, clock: Clock, load: LoadPlan, limit_ns: int | None
) -> None:
    """Stops an open loop whose backlog only grows; see `is_overloaded`."""
    if limit_ns is None or not isinstance(load, OpenPlan) or not isinstance(loop, OpenLoop):
        return
    dispersion = 1 + (load.burstiness or 1.0) ** 2
    await clock.sleep_until_ns(phases.window_start_ns + NS_PER_S)
    while not loop.ending.stopped_ns:
        elapsed_ns = clock.now_ns() - phases.start_ns
        if is_overloaded(recorder.replies + loop.in_flight, loop.in_flight, elapsed_ns, limit_ns, dispersion):
            seconds = f"after {elapsed_ns / NS_PER_S:.1f} s of load"
            loop.stop(f"{seconds} {loop.in_flight:,} requests were queued and the backlog grew", StopCause.OVERLOADED)
            return
        await clock.sleep_until_ns(clock.now_ns() + _CHECK_EVERY_NS)


def is_overloaded(sent: int, in_flight: int, elapsed_ns: int, limit_ns: int, dispersion: float = 2.0) -> bool:
    """Whether the backlog is beyond chance, and a new request would wait for more than three times the longest limit of the SLO.

    `sent` requests since the load began `elapsed_ns` ago, of which `in_flight` are not answered. Beyond chance, as in
    `stats.overload.judge_overload`: a queue that starts empty, at a utilisation of up to 1, holds more than z √(D·N) requests
    after N arrivals with a probability of at most 2Φ(-z), 7 in a million for z = 4.5; D is `dispersion`. The wait follows
    from Little's law: the requests in flight over the answers per second. A target that is slow but keeps up has as many in
    flight from the start; it passes, since nothing is judged before three times the limit has elapsed.
    """
    answered = sent - in_flight
    if elapsed_ns <= _BACKLOG_LIMITS * limit_ns or in_flight <= _BACKLOG_Z * math.sqrt(dispersion * sent):
        return False
    return in_flight * elapsed_ns > _BACKLOG_LIMITS * limit_ns * answered
