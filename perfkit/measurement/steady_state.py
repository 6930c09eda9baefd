"""How the target behaved during a window: where its warm-up ends, whether it drifted, and whether it was overloaded."""

import math

import numpy as np

from perfkit.errors import MeasurementWarning
from perfkit.recorder.series import Series
from perfkit.stats.overload import judge_overload
from perfkit.stats.steady_state import SteadyState, judge_steady_state

_REQUESTS_PER_INTERVAL, _FEWEST_INTERVALS = 10, 60  # with fewer, no verdict on a series is reliable


def warm_up_ns(series: Series, *, is_open: bool) -> int:
    """The length of the warm-up at the start of a series, in nanoseconds; 0 if the series is too short to tell.

    MSER-5 with a test for initial bias on the series of `judge_series`; see `stats.steady_state.mser5`. A warm-up that does not
    end within a third of the series is not cut off: the rest would not be steady either, and is judged so.
    """
    judged = judge_series(series, is_open=is_open)
    return 0 if judged is None else judged[0].warm_up_intervals * judged[1]


def judge_series(series: Series, *, is_open: bool) -> tuple[SteadyState, int] | None:
    """The steady-state verdict, and the length of the intervals that it rests on in nanoseconds; None for fewer than 60 intervals.

    Intervals have ten requests or more. The throughput and the mean time of the requests in each interval are judged. The
    number in flight is their product (Little's law) and adds nothing. In an open loop the throughput follows the schedule,
    which may well vary, so the times alone are judged. An interval without requests, because the target answered
    nothing, has the mean time of the one before it.
    """
    timed = int(series.timed.sum())
    factor = max(1, math.ceil(_REQUESTS_PER_INTERVAL * series.timed.size / max(timed, 1)))
    coarse = series.coarser(factor)
    if coarse.timed.size < _FEWEST_INTERVALS or not timed:
        return None
    filled = np.flatnonzero(coarse.timed)
    latest = filled[np.maximum(np.searchsorted(filled, np.arange(coarse.timed.size), side="right") - 1, 0)]
    mean_time = {"mean time": coarse.time_sum_ns[latest] / coarse.timed[latest]}
    verdict = judge_steady_state(mean_time if is_open else {"throughput": coarse.answered.astype(float), **mean_time})
    return verdict, coarse.interval_ns


def target_warnings(series: Series, *, is_open: bool, burstiness: float = 1.0) -> list[MeasurementWarning]:
    """A warning if the target was overloaded, or else if it was not steady; `burstiness` is that of an open loop's arrivals."""
    # after the last arrival, a window limited by a number of requests goes on until all are answered: the backlog is gone then
    offered = series.offered() if is_open else series
    if not offered.timed.size:
        return []
    if is_open:
        overload = judge_overload(offered.scheduled, offered.answered, dispersion=1 + burstiness**2)
        if overload.is_overloaded:
            return [MeasurementWarning(code="overloaded", message=overload.sentence)]
    judged = judge_series(offered, is_open=is_open)
    if judged is not None and judged[0].verdict == "not_steady":
        return [MeasurementWarning(code="not_steady", message=judged[0].reason)]
    return []
