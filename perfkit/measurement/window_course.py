"""How a window went on: where its warm-up ends, whether the target drifted, and whether it was overloaded."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from perfkit.errors import MeasurementWarning
from perfkit.recorder.series import Series
from perfkit.stats.overload import judge_overload
from perfkit.stats.steady_state import SteadyState, judge

_REQUESTS_AN_INTERVAL, _FEWEST_INTERVALS = 10, 60  # below that many no verdict on a series is reliable


@dataclasses.dataclass(frozen=True, slots=True)
class Course:
    """One repetition's series from the window's start, and what its load was."""

    series: Series
    is_open: bool
    burstiness: float = 1.0


def warm_up_ns(series: Series, *, is_open: bool) -> int:
    """How much of a series' beginning is warm-up, in nanoseconds from its origin; 0 where that cannot be told.

    MSER-5 with a test for initial bias on the series of `judge_course`; see `steady_state.mser5`. A warm-up that does not
    end within a third of the series is not cut: what is left would not be steady either, and is judged so.
    """
    judged = judge_course(series, is_open=is_open)
    return 0 if judged is None else judged[0].warm_up_intervals * judged[1]


def judge_course(series: Series, *, is_open: bool) -> tuple[SteadyState, int] | None:
    """The verdict on intervals of ten requests or more, and their length in nanoseconds; None for fewer than 60 of them.

    Judged are the throughput and the mean time of the requests that belong to an interval. What is in flight is their
    product (Little's law), and nothing of its own; the throughput of an open loop is its schedule's, which may well move,
    so that its times alone are judged. An interval without requests, while a target answers nothing, goes on with the mean
    time of the one before.
    """
    timed = int(series.timed.sum())
    factor = max(1, math.ceil(_REQUESTS_AN_INTERVAL * series.timed.size / max(timed, 1)))
    coarse = series.coarser(factor)
    if coarse.timed.size < _FEWEST_INTERVALS or not timed:
        return None
    filled = np.flatnonzero(coarse.timed)
    latest = filled[np.maximum(np.searchsorted(filled, np.arange(coarse.timed.size), side="right") - 1, 0)]
    mean_time = {"mean time": coarse.time_sum_ns[latest] / coarse.timed[latest]}
    judged = judge(mean_time if is_open else {"throughput": coarse.answered.astype(float), **mean_time})
    return judged, coarse.interval_ns


def course_warnings(courses: Sequence[Course]) -> list[MeasurementWarning]:
    """What became of the target in the course of the windows: a backlog that grew, a drift; each is said once."""
    warnings: dict[str, str] = {}
    for course in courses:
        # a window that a number of requests ends goes on until their answers: its backlog is none by then
        series = course.series.offered() if course.is_open else course.series
        if not series.timed.size:
            continue
        if course.is_open:
            overload = judge_overload(series.scheduled, series.answered, dispersion=1 + course.burstiness**2)
            if overload.is_overloaded:
                warnings.setdefault("overloaded", overload.sentence)
                continue
        judged = judge_course(series, is_open=course.is_open)
        if judged is not None and judged[0].verdict == "not_steady":
            warnings.setdefault("not_steady", judged[0].reason)
    return [MeasurementWarning(code=code, message=message) for code, message in warnings.items()]
