"""The load points of a result, made from measured windows: one per repetition, and all repetitions pooled."""

import collections
import dataclasses
import os
import pickle
import statistics
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from perfkit.errors import MeasurementWarning
from perfkit.figures.declaration import declared
from perfkit.points.behaviour import (
    cold_in_doubt,
    cold_repetition_warning,
    incident_warnings,
)
from perfkit.points.influence import judge_influence, stop_counts
from perfkit.points.judgement import (
    busy_machine_warnings,
    idle_warnings,
    network_warnings,
    outcome_warnings,
    sample_warnings,
    schedule_warnings,
    token_warnings,
)
from perfkit.points.measured import (
    PointMeasurement,
    ends_by_name,
    energy_per_inference_j,
    generator_figures,
    pooled_gpus,
    pooled_metrics,
    server_cpu_figures,
    server_figures,
)
from perfkit.points.median_difference import compare_medians
from perfkit.points.pool import Pool
from perfkit.points.scan import pooled_scan
from perfkit.points.shares import imbalance_warnings, machine_figures, machine_warnings, replica_figures, slower_replica_warnings
from perfkit.points.surge import pooled_surges
from perfkit.recorder.attempts import RETRIED_AFTER
from perfkit.recorder.failures import most_frequent
from perfkit.recorder.window import Window
from perfkit.result.cold_start import ColdStart, ColdStarts, Spread
from perfkit.result.counts import Abandonment, Connections, Requests, Responses, Retries, SequenceCounts, Tokens
from perfkit.result.distribution import QUANTILES, distribution
from perfkit.result.generator import Generator
from perfkit.result.load import ColdStartLoad, IdleLoad, RampLoad
from perfkit.result.model import Point
from perfkit.result.point_parts import Estimated, Failure, IdleGaps, SloJudgement
from perfkit.stats.batch_means import reach_of_total
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentiles import PercentileInterval, mean_interval, percentile_intervals
from perfkit.stats.slo import CheckedAnswers, JudgedTimes, SloLimits, judge_slo
from perfkit.stats.validity import COLD, DISTURBED_BY_OTHERS, INVALIDATING
from perfkit.telemetry.server.statistics import ServerCounts
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_START_FIGURES = tuple(name for name in ColdStart.model_fields if name not in ("repetition", "failed_before_answer", "times_ns"))
_TIMED_STREAMS = 0.9  # of the client's time; that of a server which counts a stream as done while it is being sent is far below
_TOLD_OF_STREAMS = 0.02  # of the client's time; a server's times of a stream may end a little after its client's
_FURTHER = [one.figure.recorded for one in declared(Point) if one.figure.log_tag and not one.figure.is_of_all]
"""The times whose intervals are in `further_intervals`."""


def point(measured: PointMeasurement) -> Point:
    """The point of one repetition."""
    pool = Pool.of(measured)
    return _make_point(pool, pool.percentile_intervals(), measured.repetition, measured.window)


class LoadSummary:
    """The repetitions of one load, pooled: counts and histograms are added, percentiles never averaged.

    The point of a single repetition is computed once, when it is added. Once the pooled point is made, the windows are kept compressed: the
    histograms of their parts take a megabyte or two each.
    """

    def __init__(self, repetitions: Iterable[PointMeasurement] = (), slo: SloLimits | None = None) -> None:
        self._slo, self._are_all_valid = slo, True
        self._reasons: dict[str, MeasurementWarning] = {}
        self._pool: Pool | bytes | None = None
        self._pooled: tuple[int, Point] | None = None
        for repetition in repetitions:
            self.add(repetition)

    def add(self, measured: PointMeasurement) -> Point:
        """Adds a repetition, and returns its own point."""
        pool = Pool.of(measured)
        own = _make_point(pool, pool.percentile_intervals(), measured.repetition, measured.window)
        self._pool = pool if self._pool is None else self._whole_pool() + pool
        self._are_all_valid &= own.valid
        for warning in own.warnings:
            if warning.code in INVALIDATING:
                self._reasons.setdefault(warning.code, warning)
        self._pooled = None
        return own

    @property
    def is_judged(self) -> bool:
        """Whether there is an SLO for it."""
        return self._slo is not None

    def pooled(self, load_points: int = 1) -> Point:
        """The point of all repetitions, judged by the SLO; valid only if each repetition is, or else with their reasons. Needs a repetition.

        So many load points of the run share the error of the SLO's verdicts.
        """
        if self._pooled is None or self._pooled[0] != load_points:
            pool = self._whole_pool()
            intervals = pool.percentile_intervals()
            if COLD not in pool.target_warnings and (cold := cold_repetition_warning(pool.parts)) is not None:
                pool = dataclasses.replace(pool, target_warnings={**pool.target_warnings, COLD: cold})
            pooled = _make_point(pool, intervals, None, None)
            known = {warning.code for warning in pooled.warnings}
            reasons = (warning for code, warning in self._reasons.items() if code not in known)
            changes = {
                "valid": pooled.valid and self._are_all_valid,
                "warnings": (*reasons, *pooled.warnings),
                "slo": self._judge(pool, pooled, intervals, load_points),
            }
            self._pooled = load_points, pooled.model_copy(update=changes)
            if isinstance(self._pool, Pool):
                self._pool = zlib.compress(pickle.dumps(self._pool, pickle.HIGHEST_PROTOCOL), level=1)
        return self._pooled[1]

    def _whole_pool(self) -> Pool:
        assert self._pool is not None
        if isinstance(self._pool, Pool):
            return self._pool
        pool: Pool = pickle.loads(zlib.decompress(self._pool))  # noqa: S301 - made by this object
        return pool

    def _judge(self, pool: "Pool", pooled: Point, intervals: Mapping[float, PercentileInterval], load_points: int) -> SloJudgement | None:
        if self._slo is None:
            return None
        codes = {warning.code for warning in pooled.warnings}
        further = {
            name: JudgedTimes(
                pool.times.get(name, EMPTY),
                [window.further_batches.get(name, ()) for window in pool.windows],
                percentile_intervals(pool.batches_of(name), tuple(limits_ns)),
                sum(window.count_unknown(name) for window in pool.windows),
            )
            for name, limits_ns in self._slo.further_ns.items()
        }
        judged = judge_slo(
            self._slo,
            JudgedTimes(pool.waiting_times, [window.batches for window in pool.windows], intervals),
            pooled.error_rate,
            answers=pooled.checked_answers,
            further=further,
            load_points=load_points,
            is_overloaded="overloaded" in codes,
            is_not_steady="not_steady" in codes,
        )
        return SloJudgement(verdict=judged.verdict, reason=judged.reason, is_beyond=judged.is_beyond)


def _make_point(pool: Pool, intervals: Mapping[float, PercentileInterval], repetition: int | None, own: Window | None) -> Point:
    """A load point; `repetition` and its `own` window are None for pooled repetitions."""
    parts, windows, first = pool.parts, pool.windows, pool.parts[0]
    recorded, requests = pool.recorded(Point), _requests(pool)
    has_tokens = any(map(pool.count, ("tokens_reported", "tokens_unreported", "per_token_cut_off")))
    tokens = Tokens(**pool.recorded(Tokens)) if has_tokens else None
    has_all_tokens = tokens is not None and not pool.count("tokens_unreported")
    has_goodput = first.has_slo and not (first.has_token_slo and pool.count("per_token_unknown"))
    without_slot = requests.dropped - pool.count("unsent")
    resources = [(part.resources, part.window.length_ns) for part in parts]
    generator = _generator(pool)
    inferences, gpus = sum(part.window.count("finished") * part.batch_size for part in parts), pooled_gpus(resources)
    failures = most_frequent(window.failures for window in windows)
    wrong = pool.count("checked_wrong")
    answers = CheckedAnswers(requests.ok + wrong, recorded["checked"], wrong, requests.invalid_output - wrong)
    idle = _idle_gaps(pool) if isinstance(first.load, IdleLoad) else None
    judged = judge_influence(
        parts, pool.times, generator, scheduled=requests.scheduled, without_slot=without_slot, unsent=requests.dropped - without_slot
    )
    faults = tuple(dict.fromkeys(fault for part in parts for fault in part.faults))
    replicas, machines = replica_figures(parts), machine_figures(parts)

    codes = {warning.code for warning in (*judged.invalid, *judged.warnings)}
    busy, others = busy_machine_warnings(generator, os.cpu_count() or 1, has_disturbed=bool(codes & DISTURBED_BY_OTHERS)), generator.others
    of_target = pool.target_warnings
    if COLD in of_target and busy and others is not None and not others.may_include_target:
        of_target = {code: cold_in_doubt(warning) if code == COLD else warning for code, warning in of_target.items()}
    is_warm = all(warning.code != COLD for warning in of_target.values())

    def warnings() -> Iterator[MeasurementWarning]:
        yield from dict.fromkeys(warning for part in parts for warning in part.warnings)
        yield from faults
        yield from busy
        yield from (*judged.invalid, *judged.warnings)
        yield from network_warnings(generator, max(pool.times[name].max_ns for name in ("service_time", "failure_time")))
        # a request that was sent again counts at the address of its last attempt only: the healthy one gets those that failed elsewhere
        compared = () if first.has_retries else replicas or ()
        yield from imbalance_warnings(compared, first.protocol, first.balance)
        yield from machine_warnings(machines or (), parts, recorded["start_delay_ns"])
        yield from slower_replica_warnings(compared)
        yield from schedule_warnings(without_slot, requests.scheduled, pool.times.get("pacing_delay"))
        yield from idle_warnings(idle, pool.window_s, len(parts)) if idle and repetition is None else ()
        yield from incident_warnings(pool.incidents, is_pooled=len(parts) > 1)
        # a storm is told by sums over seconds, which no late request moves
        yield from (one for code, one in of_target.items() if judged.is_valid or code == "retry_storm")
        yield from outcome_warnings(requests, failures, answers)
        # a start has the number of requests that the scenario gives; a scan says itself where it has too few
        has_chosen_count = isinstance(first.load, ColdStartLoad | RampLoad)
        few = (one for one in sample_warnings(pool.waiting_times, requests, intervals) if one.code != "few_samples" or not has_chosen_count)
        yield from few
        if tokens is not None:
            yield from token_warnings(tokens, pool.count("tokens_unreported"), pool.count("first_tokens_unknown"))

    computed = {
        "workload": first.workload,
        "alone": first.is_alone,
        "protocol": first.protocol,
        "load": first.load,
        "repetition": repetition,
        "valid": judged.is_valid and requests.sent > 0 and not faults and is_warm,
        "warnings": tuple(warnings()),
        "warmup_s": max(part.warmup_ns for part in parts) / NS_PER_S,
        "duration_s": pool.window_s,
        "requests": requests,
        "rejected_by_status": _rejected_by_status(windows),
        "wrong_answer_rate": answers.rate,
        "wrong_answer_interval": answers.interval(),
        "error_rate": requests.error_rate,
        "inferences_per_s": pool.rate(inferences),
        "goodput_per_s": recorded["goodput_per_s"] if has_goodput else None,
        "output_tokens_per_s": recorded["output_tokens_per_s"] if has_all_tokens else None,
        "input_tokens_per_s": recorded["input_tokens_per_s"] if has_all_tokens else None,
        "tokens": tokens,
        "idle": idle,
        "surge": pooled_surges(parts),
        "scan": pooled_scan(parts),
        "cold_start": pooled_starts([part.cold_start for part in parts if part.cold_start is not None]),
        "responses": Responses(**pool.recorded(Responses)) if first.is_streamed else None,
        "sequences": SequenceCounts(**pool.recorded(SequenceCounts)) if first.has_sequences else None,
        "intervals": ends_by_name(intervals),
        "mean_interval_ns": mean_interval(pool.batches),
        "throughput_interval_per_s": throughput_interval(pool.batches, recorded["throughput_per_s"]),
        "further_intervals": {
            name: ends_by_name(percentile_intervals(pool.batches_of(name), tuple(QUANTILES.values())))
            for name in _FURTHER
            if any(name in window.further_batches for window in windows)
        },
        "effective_samples": {
            name: round(one.effective_samples, 1) for name, quantile in QUANTILES.items() if (one := intervals.get(quantile))
        },
        "abandonment": _abandonment(pool) if requests.abandoned else None,
        "retries": _retries(pool, requests.sent, own) if first.has_retries else None,
        "connections": _connections(parts),
        "replicas": replicas,
        "machines": machines,
        "generator": generator,
        "server": server_figures(resources, windows),
        "server_cpu": server_cpu_figures(resources, [window.count("finished") for window in windows]),
        "gpus": gpus,
        "energy_per_inference_j": energy_per_inference_j(inferences, gpus, "energy_j"),
        "energy_above_idle_per_inference_j": energy_per_inference_j(inferences, gpus, "energy_above_idle_j"),
        "metrics": pooled_metrics(resources),
        "throughput_series_per_s": None if own is None else own.finished_per_s,
        "failed_series_per_s": None if own is None else own.failed_per_s,
        "incidents": pool.incidents,
        "failures": tuple(
            Failure(outcome=kind.outcome.value, status=kind.status or None, message=kind.message, cause=kind.cause, count=count)
            for kind, count in failures
        ),
    }
    return Point(**recorded | computed)


def _requests(pool: Pool) -> Requests:
    outcomes = {outcome.value: sum(window.outcomes[outcome] for window in pool.windows) for outcome in Outcome}
    recorded, sent = pool.recorded(Requests), sum(outcomes.values())
    return Requests(scheduled=sent + recorded["dropped"], sent=sent, **recorded, **outcomes)


def _abandonment(pool: Pool) -> Abandonment:
    """What the server did for requests that were given up, by its statistics of the whole load points, warm-up and drain included."""
    recorded = pool.recorded(Abandonment)
    counts = [part.resources.server for part in pool.parts]
    known = [one for one in counts if one is not None]
    if not known or len(known) < len(counts):
        return Abandonment(**recorded, unknown="the server has no v2 statistics of this load")
    added = ServerCounts.added(known)
    server, sent = added.server, added.sent
    if others := sent.perhaps_answered - sent.abandoned:
        return Abandonment(**recorded, unknown=f"the server may also have executed {others:,} requests that failed without an answer")
    executed = server.success.count - sent.answered
    if not 0 <= executed <= sent.abandoned:
        return Abandonment(**recorded, unknown="the server's counts are not of this load alone")
    compute_ns = sum(server.times[name].ns for name in ("compute_input", "compute_infer", "compute_output"))
    if pool.parts[0].is_streamed:  # counted and timed however much of it was sent
        server_ns, client_ns = server.success.ns + server.fail.ns, sent.answered_ns + sent.abandoned_ns
        if executed + server.fail.count != sent.abandoned:
            return Abandonment(**recorded, unknown="the server counts other failures or successes besides")
        if server_ns < _TIMED_STREAMS * client_ns:
            return Abandonment(**recorded, unknown="the server's times of its streams end before they do")
        if 0 < (beyond_ns := server_ns - client_ns) < _TOLD_OF_STREAMS * client_ns:
            told = f"the server's time beyond its clients' is {beyond_ns / client_ns:.1%} of theirs, too little to tell from what both time differently"
            return Abandonment(**recorded, unknown=told)
        wasted_ns = float(max(compute_ns - client_ns, 0))  # less what answered streams waited for the server and the network
        share, held_ns = wasted_ns / compute_ns if compute_ns else 0.0, max(beyond_ns, 0) / sent.abandoned
        return Abandonment(**recorded, wasted_share=share, wasted_ns=wasted_ns, held_ns=held_ns)
    share = executed / server.success.count if server.success.count else 0.0
    mean_ns, after = server.success.mean_ns or 0.0, recorded["after_ns"]
    held_ns = max(mean_ns - (after.mean or 0.0), 0.0) if executed and after is not None else 0.0
    return Abandonment(**recorded, executed=executed, wasted_share=share, wasted_ns=share * compute_ns, held_ns=held_ns)


def _retries(pool: Pool, sent: int, own: Window | None) -> Retries:
    recorded, causes = pool.recorded(Retries), collections.Counter[str]()
    for window in pool.windows:
        causes.update({name.removeprefix(RETRIED_AFTER): count for name, count in window.counts.items() if name.startswith(RETRIED_AFTER)})
    return Retries(
        **recorded,
        amplification=recorded["attempts"] / sent if sent else None,
        by_cause=dict(sorted(causes.items())),
        attempts_series_per_s=None if own is None else own.attempts_per_s,
        retries_series_per_s=None if own is None else own.retries_per_s,
    )


def _generator(pool: Pool) -> Generator:
    parts = pool.parts
    return Generator(
        workers=max(part.generator.workers for part in parts),
        cpu_share=pool.weighted_mean(lambda part: part.generator.cpu_share),
        event_loop_lag_ns=distribution(pool.event_loop_lag) if pool.event_loop_lag.count else None,
        steal_share=pool.weighted_mean(lambda part: part.generator.steal_share),
        throttled_share=pool.weighted_mean(lambda part: part.generator.throttled_share),
        stops=stop_counts(pool.windows),
        transport_ns=parts[0].generator.transport_ns,
        suspended_ns=sum(part.generator.suspended_ns for part in parts),
        **pool.recorded(Generator),
        **generator_figures([(part.resources, part.window.length_ns) for part in parts]),
    )


def _connections(parts: Sequence[PointMeasurement]) -> Connections:
    connect_times = BucketCounts.merged(part.connect_times for part in parts)
    counts = {name: sum(getattr(part.connections, name) for part in parts) for name in ("opened", "reconnects", "retried", "rotated")}
    return Connections(**counts, connect_time_ns=distribution(connect_times) if connect_times.count else None)


def _idle_gaps(pool: Pool) -> IdleGaps:
    """The penalty of the first request after a gap, from the median difference to the following ones."""
    after_gap = pool.times.get("after_gap_time", EMPTY)
    compared = compare_medians(after_gap, pool.batches_of("following_time"))
    penalty_ns, ratio = (None, None) if compared is None else (compared.difference_ns, compared.ratio)
    return IdleGaps(
        gaps=after_gap.count,
        **pool.recorded(IdleGaps),
        penalty_ns=None if penalty_ns is None else Estimated(**dataclasses.asdict(penalty_ns)),
        penalty_ratio=None if ratio is None else Estimated(**dataclasses.asdict(ratio)),
    )


def pooled_starts(starts: Sequence[ColdStart]) -> ColdStarts | None:
    """The starts of a load point with the median and the range of each figure; None without a start."""
    if not starts:
        return None
    values = {name: [value for start in starts if (value := getattr(start, name)) is not None] for name in _START_FIGURES}
    figures = {name: Spread(median=statistics.median(known), min=min(known), max=max(known)) for name, known in values.items() if known}
    return ColdStarts(starts=tuple(starts), figures=figures)


def _rejected_by_status(windows: Sequence[Window]) -> dict[str, int]:
    statuses = sorted({status for window in windows for status in window.statuses})
    return {status: sum(window.statuses.get(status, 0) for window in windows) for status in statuses}


def throughput_interval(batches: Sequence[BucketCounts], throughput_per_s: float) -> tuple[float, float] | None:
    """The 95 % interval of a throughput, by the numbers of ok answers in equal parts of the window, taken by the starts of their requests."""
    counts = np.array([batch.count for batch in batches], dtype=np.float64)
    if not counts.any() or (reach := reach_of_total(counts)) is None:
        return None
    share = reach / float(counts.sum())
    return max(1 - share, 0.0) * throughput_per_s, (1 + share) * throughput_per_s
