"""Measurements made by hand."""

import dataclasses

import numpy as np

from perfkit.points.measured import PointMeasurement
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.series import Series
from perfkit.recorder.stops import Stop
from perfkit.recorder.window import Window, cut
from perfkit.result.counts import Connections
from perfkit.result.generator import Generator
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.stats.buckets import EMPTY, HIGHEST_NS, BucketCounts
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
WINDOW_S = 60
"""The length of an open loop's window."""


def measurement(ok_ns=(), *, others=(), cpu_share=0.2, steal_share=0.0, failures=(), finished=None, series=(), window_s=2.0, batch_size=1,
         repetition=0, concurrency=4, connections=(4, 0), warnings=(), ended=None, good=0, has_slo=False, checked=0, wrong=0):  # fmt: skip
    """One load point: service times of ok requests, times of others by outcome; the rest as a quiet run would have it."""
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
        series=Series(1, 20 * MS, *[nothing] * 7),
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


def stopped_measurement(*stops, touched_ns=(), touched=0, touched_failed=0, others=(), **changes):
    """A window of 10 s with requests of 9 to 11 ms that a stop touched none or some of; `changes` are those of the generator."""
    quiet_ns = np.linspace(9 * MS, 11 * MS, 4000).astype(int)
    made = measurement([*quiet_ns, *touched_ns], window_s=10, others=others)
    late = {name: BucketCounts.of(touched_ns) if touched_ns else EMPTY for name in ("touched_time", "touched_most")}
    late["touched_least"] = BucketCounts.of([1] * len(touched_ns))
    parts = tuple(BucketCounts.of(part) for part in np.array_split(np.random.default_rng(1).permutation(quiet_ns), 40))
    window = dataclasses.replace(
        made.window, times={**made.window.times, **late}, stops=tuple(Stop(*stop) for stop in stops),
        counts={**made.window.counts, "touched": touched, "touched_failed": touched_failed}, untouched=parts, batches=parts, batch_ns=S // 4,
    )  # fmt: skip
    return dataclasses.replace(made, window=window, generator=made.generator.model_copy(update=changes))


def open_measurement(respond, repetition=0):
    """A repetition of an open loop at 100/s; `respond` gives the response time in ns of a request from its instant in s."""
    recorder = Recorder(window_start_ns=0, window_end_ns=WINDOW_S * S, is_open=True)
    random = np.random.default_rng(repetition)
    for instant_ns in np.cumsum(random.exponential(S / 100, 100 * WINDOW_S)).astype(np.int64).tolist():
        if instant_ns < WINDOW_S * S:
            reply = Reply(Outcome.OK, instant_ns, instant_ns + int(respond(instant_ns / S) * random.uniform(0.9, 1.1)))
            reply.intended_ns = reply.paced_ns = instant_ns
            recorder.add(reply)
    return PointMeasurement(
        protocol="http",
        load=OpenLoad(rate_per_s=100.0, arrivals="poisson"),
        batch_size=1,
        repetition=repetition,
        window=cut(recorder.finish(WINDOW_S * S), 0, is_open=True),
        warmup_ns=0,
        connections=Connections(opened=1, reconnects=0),
        generator=Generator(cpu_share=0.1, steal_share=0.0),
        warnings=(),
    )
