"""Surges from replies to figures and a verdict: a queue of one server with constant times, whose backlog has a closed form."""

import numpy as np
import pytest

from perfkit.points.point import LoadSummary
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.window import cut
from perfkit.result.load import OpenLoad, SurgeLoad
from perfkit.stats.slo import SloLimits
from perfkit.transport.base import Outcome, Reply
from tests.queue_results import measured_point

S, MS = 1_000_000_000, 1_000_000
BASE, CAPACITY, BEFORE_S, FOR_S, AFTER_S, LIMIT_S = 100, 200, 2.0, 3.0, 10.0, 0.05
WINDOW_S = round(BEFORE_S + FOR_S + AFTER_S)


def _starts_s(surge_per_s):
    pieces = ((-1.0, BEFORE_S, BASE), (BEFORE_S, BEFORE_S + FOR_S, surge_per_s), (BEFORE_S + FOR_S, WINDOW_S, BASE))
    return np.concatenate([np.arange(start, end, 1 / rate) for start, end, rate in pieces])


def _summary(surge_per_s, *, most_waiting=None, repetitions=3):
    """Requests to a queue of one server, whose full queue of `most_waiting` rejects at once; the first second is the warm-up."""
    load = OpenLoad(
        rate_per_s=BASE, arrivals="constant", surge=SurgeLoad(rate_per_s=surge_per_s, start_s=BEFORE_S, end_s=BEFORE_S + FOR_S)
    )
    summary = LoadSummary(slo=None)
    for repetition in range(repetitions):
        recorder = Recorder(
            window_start_ns=0, window_end_ns=WINDOW_S * S, is_open=True, good_within_ns={"waited": round(LIMIT_S * S)}, surge_slot_ns=100 * MS
        )
        free_s = 0.0
        for start_s in _starts_s(surge_per_s):
            intended_ns, is_full = round(start_s * S), most_waiting is not None and (free_s - start_s) * CAPACITY >= most_waiting
            if is_full:
                finished_ns, outcome = intended_ns + MS, Outcome.REJECTED
            else:
                free_s = max(free_s, start_s) + 1 / CAPACITY
                finished_ns, outcome = round(free_s * S), Outcome.OK
            reply = Reply(outcome, intended_ns, finished_ns)
            reply.intended_ns = reply.paced_ns = intended_ns
            recorder.add(reply)
        window = cut(recorder.finish(WINDOW_S * S), 0, is_open=True)
        measured = measured_point(
            load, repetition, seconds=WINDOW_S, outcomes={}, times={}, ended=0, finished=0, protocol="http", warnings=(), has_slo=True,
            beyond_share=0.01,
        )  # fmt: skip
        object.__setattr__(measured, "window", window)
        summary.add(measured)
    return summary.pooled()
