"""Warnings about what the target did, and about what its answers are enough for."""

import dataclasses

import numpy as np

from benchmarks.cold_targets import closed_loop
from benchmarks.cold_targets import measured as recorded_series
from perfkit.points.behaviour import find_incidents, idle_gpu_warnings, incident_warnings, target_warnings
from perfkit.points.judgement import idle_warnings, token_warnings
from perfkit.points.measured import MachineMeasurement
from perfkit.points.point import point
from perfkit.points.retry_storm import retry_storm_warnings
from perfkit.points.shares import machine_figures, machine_warnings
from perfkit.recorder.failures import FailureKind
from perfkit.result.counts import Tokens
from perfkit.result.distribution import distribution
from perfkit.result.load import ClosedLoad
from perfkit.result.point_parts import Estimated, IdleGaps
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome
from perfkit.workers.point_recording import MachineRecording
from tests.points.made_measurement import WINDOW_S, measurement, open_measurement
from tests.points.test_idle_gpu import cold_measurement
from tests.points.test_incidents import closed_window, failing
from tests.points.test_replicas import addressed
from tests.points.test_retry_storm import stormy
from tests.warning_examples.example import Case, changes, informs, limits

MS, S = 1_000_000, 1_000_000_000
HOUR_NS = 3600 * S
_QUEUE_IS_FULL = FailureKind(Outcome.REJECTED, "503", "the queue is full")


def _measured(*values, **options) -> Case:
    return lambda _: point(measurement(*values, **options)).warnings


def _closed_loop(cold_s: float, warm_s: float, cold_until_s: float, window_s=3.0) -> Case:
    """One request in flight on a server that is slow at first."""

    def warnings(_):
        requests = closed_loop(np.random.default_rng(2), "parallel", 1, cold_s, warm_s, cold_until_s, window_s, 0.0)
        return target_warnings(recorded_series(requests, 0.0, window_s, ClosedLoad(concurrency=1)))

    return warnings


def _answered_after(respond) -> Case:
    """An open loop of a minute; `respond` gives the response time in ns of a request from its instant in s."""
    return lambda _: target_warnings(open_measurement(respond))


def _incidents(**options) -> Case:
    """Four requests in flight for ten seconds, each answered after about 10 ms."""
    load = ClosedLoad(concurrency=4)
    return lambda _: incident_warnings(find_incidents(closed_window(4, 10, **options), load, 0), is_pooled=False)


def _gaps(number: int) -> Case:
    idle = IdleGaps(gaps=number, reconnected=0, penalty_ns=Estimated(value=4e7, low=3e7, high=5e7))
    return lambda _: idle_warnings(idle, 30.0, 2)


def _addressed(*arguments, **options) -> Case:
    return lambda _: point(addressed(measurement, *arguments, **options)).warnings


def _tokens(*, reported=10, several=0, without_time=0) -> Case:
    """Ten answers of which so many report their tokens, have several in an event, or have no known time per token."""
    tokens = Tokens(input=70, output=40, reported=reported, several_in_event=several)
    return lambda _: token_warnings(tokens, 10 - reported, without_time)


def _fleet(*service_ms: int, clock_bound_ns=0) -> Case:
    """A machine for each service time; the start delay is 1 ms at p99."""

    def warnings(_):
        machines = [
            MachineMeasurement(MachineRecording(f"m{number}", 1, None, None, 0, 0.0, clock_bound_ns), closed_window(4, ms, seed=number))
            for number, ms in enumerate(service_ms)
        ]
        parts = [dataclasses.replace(measurement([10 * MS] * 100), machines=tuple(machines))]
        return machine_warnings(machine_figures(parts) or (), parts, distribution(BucketCounts.of([MS] * 1000)))

    return warnings


def _gpu(busy: float) -> Case:
    return lambda _: idle_gpu_warnings(cold_measurement(busy=busy))


def _retried(executed_per_s: float) -> Case:
    """An open loop that a stall turned into three attempts a request, none of them answered in time, on a server that executes so many."""
    return lambda _: retry_storm_warnings(stormy(executed_per_s=executed_per_s))


EXAMPLES = (
    changes("cold", "the first 2.4 s of 3 were slower by a factor of 40", _closed_loop(0.4, 0.01, 2.4), _closed_loop(0.01, 0.01, 0.0)),
    informs("warmth_unknown", "cannot be told from 2 answers", _closed_loop(1.4, 1.4, 0.0), _closed_loop(0.013, 0.013, 0.0)),
    changes("overloaded", "backlog", _answered_after(lambda at_s: 10 * MS + at_s * S), _answered_after(lambda _: 10 * MS)),
    changes("retry_storm", "of 240 attempts a second in the last third of the window 160 were retries", _retried(100.0), _retried(20.0)),
    changes("not_steady", "mean time", _answered_after(lambda at_s: 10 * MS * (1 + at_s / WINDOW_S)), _answered_after(lambda _: 10 * MS)),
    changes("stall", "answered nothing from 4.0 to 6.0 s", _incidents(stalls=[(4.0, 6.0)]), _incidents(stalls=[(4.0, 4.4)])),
    changes(
        "error_burst", "close together, from 7 to 9 s", _incidents(outcome_at=failing(7, 9)), _incidents(outcome_at=failing(0, 10, 0.05))
    ),
    limits("few_samples", "Too few samples for p99: at least 662", _measured([MS] * 661), _measured([MS] * 662)),
    limits("few_gaps", "Only 19 idle gaps", _gaps(19), _gaps(20)),
    changes("several_tokens_in_event", "3 of 10 answers have more tokens than events", _tokens(several=3), _tokens()),
    informs("tokens_unreported", "1 of 10 answers do not report their tokens", _tokens(reported=9, without_time=1), _tokens()),
    informs(
        "first_tokens_unknown", "The time per output token of 2 of 10 answers is withheld", _tokens(without_time=2), _tokens(several=2)
    ),
    changes("no_samples", "No request of this point succeeded.", _measured(others={"rejected": [MS]}), _measured([MS])),
    changes(
        "censored",
        "p99 and higher percentiles are lower bounds: they fall among the 2 requests",
        _measured([MS] * 98, others={"timed_out": [MS] * 2}),
        _measured([MS] * 99, others={"timed_out": [MS]}),
    ),
    changes("clamped", "1 times are above one hour", _measured([MS] * 699 + [2 * HOUR_NS]), _measured([MS] * 699 + [HOUR_NS])),
    changes(
        "failed_requests",
        "9 × 503: the queue is full",
        _measured([MS] * 700, others={"rejected": [MS] * 9}, failures={_QUEUE_IS_FULL: 9}),
        _measured([MS] * 700),
    ),
    changes(
        "invalid_output",
        "10 of the 20 checked answers are wrong",
        _measured([MS] * 990, others={"invalid_output": [MS] * 10}, checked=20, wrong=10),
        _measured([MS] * 1000, checked=20),
    ),
    changes(
        "imbalanced", "got 600 of 1,000 requests (60%)", _addressed((600, 400), balance="random"), _addressed((60, 40), balance="random")
    ),
    changes(
        "slower_replica",
        "its median is 12.0 ms, 20 % above 10.0 ms",
        _addressed((300, 300), times_ms=(10, 12)),
        _addressed((300, 300), times_ms=(100, 104)),
    ),
    changes("machine_unlike", "m1 saw a slower target than the other machines", _fleet(10, 20, 10), _fleet(10, 10, 10)),
    informs("clock_bound", "is known to 2.00 ms, and the start delay is 1.00 ms", _fleet(10, 10, clock_bound_ns=2 * MS), _fleet(10, 10)),
    changes("gpu_idle", "H100 was busy for 0.4% of the window", _gpu(0.004), _gpu(0.05)),
)
