"""A measurement made by hand."""

import numpy as np
import pytest

from perfkit.points.measured import PointMeasurement
from perfkit.recorder.series import Series
from perfkit.recorder.window import Window
from perfkit.result.generator import Generator
from perfkit.result.load import ClosedLoad
from perfkit.result.model import Connections
from perfkit.stats.buckets import HIGHEST_NS, BucketCounts
from perfkit.transport.base import Outcome
from tests.stats.conftest import queue_response_times

MS = 1_000_000


@pytest.fixture(scope="session")
def queue():
    return queue_response_times


@pytest.fixture
def measured():
    """One load point: service times of ok requests, times of others by outcome; the rest as a quiet run would have it."""

    def make(ok_ns=(), *, others=(), cpu_share=0.2, steal_share=0.0, failures=(), finished=None, series=(), window_s=2.0, batch_size=1,
             repetition=0, concurrency=4, connections=(4, 0), warnings=(), ended=None, good=0, has_slo=False, checked=0, wrong=0):  # fmt: skip
        others = {Outcome(name): values for name, values in dict(others).items()}
        outcomes = {**dict.fromkeys(Outcome, 0), Outcome.OK: len(ok_ns), **{outcome: len(values) for outcome, values in others.items()}}
        failed = [outcome for outcome in others if outcome in (Outcome.REJECTED, Outcome.CONNECT_FAILED, Outcome.BROKEN)]
        service = BucketCounts.of([*ok_ns, *(value for outcome, values in others.items() if outcome not in failed for value in values)])
        nothing = np.zeros(0, dtype=np.int64)
        window_ns, finished = round(window_s * 1e9), len(ok_ns) if finished is None else finished
        all_ns = [*ok_ns, *(value for values in others.values() for value in values)]
        quiet = concurrency * window_ns / float(np.mean(np.minimum(all_ns, HIGHEST_NS))) if all_ns else 0.0  # as Little's law has it
        window = Window(
            start_ns=1,
            end_ns=1 + window_ns,
            outcomes=outcomes,
            times={"service_time": service, "failure_time": BucketCounts.of([value for outcome in failed for value in others[outcome]])},
            failures=dict(failures),
            # requests that ended may be a share of one, so that the law holds exactly
            counts={"checked": checked, "checked_wrong": wrong, "ended": ended or quiet, "finished": finished, "good": good},  # type: ignore[dict-item]
            finished_per_s=tuple(dict(series).get(second, 0) for second in range(-(-window_ns // 10**9))),
            failed_per_s=(0,) * -(-window_ns // 10**9),
            series=Series(1, 20 * MS, nothing, nothing, nothing, nothing),
            batches=(),
        )
        return PointMeasurement(
            protocol="http",
            load=ClosedLoad(concurrency=concurrency),
            batch_size=batch_size,
            repetition=repetition,
            window=window,
            warmup_ns=10**9,
            connections=Connections(opened=connections[0], reconnects=connections[1]),
            generator=Generator(cpu_share=cpu_share, steal_share=steal_share),
            warnings=warnings,
            has_slo=has_slo,
        )

    return make
