"""The load points of a result, made from measured windows: one per repetition, and all repetitions pooled."""

import copy
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.measurement.cold_start import pooled_starts
from perfkit.measurement.generator_influence import judge_influence, stop_counts
from perfkit.measurement.idle_gaps import idle_gaps, idle_warnings
from perfkit.measurement.idle_gpu import idle_gpu_warnings
from perfkit.measurement.incidents import find_incidents, incident_warnings
from perfkit.measurement.machine_summary import machine_figures, machine_warnings
from perfkit.measurement.point_measurement import PointMeasurement
from perfkit.measurement.replica_summary import imbalance_warnings, replica_figures, slower_replica_warnings
from perfkit.measurement.resource_summary import (
    busy_machine_warnings,
    energy_per_inference_j,
    generator_figures,
    network_warnings,
    pooled_gpus,
    pooled_metrics,
    server_cpu_figures,
    server_figures,
)
from perfkit.measurement.steady_state import target_warnings
from perfkit.recorder.failures import FailureKind, most_frequent
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES, distribution
from perfkit.result.generator import Generator
from perfkit.result.load import ColdStartLoad, IdleLoad, OpenLoad
from perfkit.result.model import Connections, Failure, Incident, Point, Requests, Responses, SequenceCounts, SloJudgement
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentile_interval import PercentileInterval, percentile_intervals
from perfkit.stats.sample_size import is_withheld, minimum_samples
from perfkit.stats.slo import CheckedAnswers, FirstResponses, SloLimits, judge_slo
from perfkit.stats.validity import DISTURBED_BY_OTHERS, INVALIDATING
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S, format_duration_ns

_STALL_NS = 50_000_000
_TOLD_MESSAGES = 3


def point(measured: PointMeasurement) -> Point:
    """The point of one repetition."""
    pool = _Pool.of(measured)
    return _make_point(pool, pool.percentile_intervals(), measured.repetition, measured.window)


class LoadSummary:
    """The repetitions of one load, pooled: counts and histograms are added, percentiles never averaged.

    The point of a single repetition is computed once, when it is added.
    """

    def __init__(self, repetitions: Iterable[PointMeasurement] = (), slo: SloLimits | None = None) -> None:
        self._slo, self._are_all_valid = slo, True
        self._reasons: dict[str, MeasurementWarning] = {}
        self._pool: _Pool | None = None
        self._pooled: Point | None = None
        for repetition in repetitions:
            self.add(repetition)

    def branch(self) -> "LoadSummary":
        """A copy, to which repetitions can be added without adding them here."""
        branch = copy.copy(self)
        vars(branch).update(_reasons=dict(self._reasons))
        return branch

    def add(self, measured: PointMeasurement) -> Point:
        """Adds a repetition, and returns its own point."""
        own = point(measured)
        self._pool = _Pool.of(measured) if self._pool is None else self._pool + _Pool.of(measured)
        self._are_all_valid &= own.valid
        for warning in own.warnings:
            if warning.code in INVALIDATING:
                self._reasons.setdefault(warning.code, warning)
        self._pooled = None
        return own

    def pooled(self) -> Point:
        """The point of all repetitions, judged by the SLO; valid only if each repetition is, or else with their reasons. Needs a repetition."""
        if self._pooled is None:
            assert self._pool is not None
            intervals = self._pool.percentile_intervals()
            pooled = _make_point(self._pool, intervals, None, None)
            known = {warning.code for warning in pooled.warnings}
            reasons = (warning for code, warning in self._reasons.items() if code not in known)
            changes = {
                "valid": pooled.valid and self._are_all_valid,
                "warnings": (*reasons, *pooled.warnings),
                "slo": self._judge(self._pool, pooled, intervals),
            }
            self._pooled = pooled.model_copy(update=changes)
        return self._pooled

    def _judge(self, pool: "_Pool", pooled: Point, intervals: Mapping[float, PercentileInterval]) -> SloJudgement | None:
        if self._slo is None:
            return None
        codes = {warning.code for warning in pooled.warnings}
        causes = {"is_overloaded": "overloaded" in codes, "is_not_steady": "not_steady" in codes}
        name = "first_response_time"
        first = FirstResponses(pool.times.get(name, EMPTY), percentile_intervals(pool.batches_of(name), tuple(self._slo.first_response_ns)))
        judged = judge_slo(
            self._slo,
            pool.waiting_times,
            intervals,
            pooled.error_rate,
            answers=_checked_answers(pooled.requests, pooled.checked),
            first_response=first,
            **causes,
        )
        return SloJudgement(verdict=judged.verdict, reason=judged.reason)


@dataclasses.dataclass(frozen=True, slots=True)
class _Pool:
    parts: tuple[PointMeasurement, ...]
    times: Mapping[str, BucketCounts]
    batches: tuple[BucketCounts, ...]
    """The batches of all windows, one window after the other."""
    further_batches: Mapping[str, tuple[BucketCounts, ...]]
    """The same parts with the times of streams or sequences."""
    event_loop_lag: BucketCounts
    target_warnings: Mapping[str, MeasurementWarning]
    """By code, each once."""
    incidents: tuple[Incident, ...]

    @classmethod
    def of(cls, measured: PointMeasurement) -> "_Pool":
        window, load = measured.window, measured.load
        burstiness = (load.burstiness or 1.0) if isinstance(load, OpenLoad) else 1.0
        varies = isinstance(load, IdleLoad | ColdStartLoad)
        steadiness = [] if varies else target_warnings(window.series, is_open=measured.is_open, burstiness=burstiness)
        warnings = (*idle_gpu_warnings(measured), *steadiness)
        incidents = find_incidents(window, load, measured.repetition)
        lag = measured.resources.event_loop_lag
        by_code = {one.code: one for one in warnings}
        return cls((measured,), window.times, window.batches, window.further_batches, lag, by_code, incidents)

    def __add__(self, other: "_Pool") -> "_Pool":
        return _Pool(
            self.parts + other.parts,
            {
                name: BucketCounts.merged((self.times.get(name, EMPTY), other.times.get(name, EMPTY)))
                for name in dict.fromkeys((*self.times, *other.times))
            },
            self.batches + other.batches,
            {
                name: self.batches_of(name) + other.batches_of(name)
                for name in dict.fromkeys((*self.further_batches, *other.further_batches))
            },
            BucketCounts.merged((self.event_loop_lag, other.event_loop_lag)),
            {**self.target_warnings, **other.target_warnings, **self.target_warnings},  # of two with one code, the earlier
            self.incidents + other.incidents,
        )

    @property
    def waiting_times(self) -> BucketCounts:
        """How long a user waited: the response times; in a closed loop, which has none, the service times."""
        return self.times.get("response_time", self.times["service_time"])

    def percentile_intervals(self) -> dict[float, PercentileInterval]:
        """95 % intervals of the percentiles."""
        return percentile_intervals(self.batches, tuple(QUANTILES.values()))

    def batches_of(self, name: str) -> tuple[BucketCounts, ...]:
        """The batches with one of the times of streams or sequences; empty ones where it is missing."""
        return self.further_batches.get(name, (EMPTY,) * len(self.batches))


def _make_point(pool: _Pool, intervals: Mapping[float, PercentileInterval], repetition: int | None, own: Window | None) -> Point:
    """A load point; `repetition` and its `own` window are None for pooled repetitions."""
    parts, waited, pacing_delay = pool.parts, pool.waiting_times, pool.times.get("pacing_delay")
    first, windows = parts[0], [part.window for part in parts]
    outcomes = {outcome: sum(window.outcomes[outcome] for window in windows) for outcome in Outcome}
    dropped, unsent = _sum(windows, "dropped"), _sum(windows, "unsent")
    sent, window_s = sum(outcomes.values()), _sum(windows, "length_ns") / NS_PER_S
    scheduled, checked, without_slot = sent + dropped, _sum(windows, "checked"), dropped - unsent
    throughput = _rate(_sum(windows, "finished"), window_s)
    resources = [(part.resources, part.window.length_ns) for part in parts]
    generator = Generator(
        workers=max(part.generator.workers for part in parts),
        cpu_share=_weighted_mean(parts, "cpu_share"),
        event_loop_lag_ns=distribution(pool.event_loop_lag) if pool.event_loop_lag.count else None,
        pacing_delay_ns=distribution(pacing_delay) if pacing_delay is not None and pacing_delay.count else None,
        steal_share=_weighted_mean(parts, "steal_share"),
        throttled_share=_weighted_mean(parts, "throttled_share"),
        stops=stop_counts(windows),
        transport_ns=first.generator.transport_ns,
        suspended_ns=_sum([part.generator for part in parts], "suspended_ns"),
        **generator_figures(resources),
    )
    inferences, gpus = sum(part.window.finished * part.batch_size for part in parts), pooled_gpus(resources)
    judged = judge_influence(parts, pool.times, generator, scheduled=scheduled, without_slot=without_slot, unsent=unsent)
    codes = {warning.code for warning in (*judged.invalid, *judged.warnings)}
    failures = most_frequent(window.failures for window in windows)
    faults = tuple(dict.fromkeys(fault for part in parts for fault in part.faults))
    distributions = {name: distribution(times) for name, times in pool.times.items()}
    requests = Requests(scheduled=scheduled, dropped=dropped, sent=sent, **{outcome.value: count for outcome, count in outcomes.items()})
    answers = _checked_answers(requests, checked)
    replicas, machines = replica_figures(parts), machine_figures(parts)
    connect_times = BucketCounts.merged(part.connect_times for part in parts)
    is_cold_start = isinstance(first.load, ColdStartLoad)
    idle = (
        idle_gaps(pool.times, pool.batches_of("following_time"), _sum(windows, "gaps_reconnected"))
        if isinstance(first.load, IdleLoad)
        else None
    )
    return Point(
        workload=first.workload,
        alone=first.is_alone,
        protocol=first.protocol,
        load=first.load,
        repetition=repetition,
        valid=judged.is_valid and sent > 0 and not faults,
        warnings=(
            *dict.fromkeys(warning for part in parts for warning in part.warnings),
            *faults,
            *busy_machine_warnings(generator, os.cpu_count() or 1, has_disturbed=bool(codes & DISTURBED_BY_OTHERS)),
            *judged.invalid,
            *judged.warnings,
            *network_warnings(generator, max(pool.times[name].max_ns for name in ("service_time", "failure_time"))),
            *imbalance_warnings(replicas or (), first.protocol, first.balance),
            *machine_warnings(machines or (), parts, distributions.get("start_delay")),
            *slower_replica_warnings(replicas or ()),
            *_schedule_warnings(without_slot, scheduled, pacing_delay),
            *(idle_warnings(idle, window_s, len(parts)) if idle and repetition is None else ()),
            *incident_warnings(pool.incidents, is_pooled=len(parts) > 1),
            *(pool.target_warnings.values() if judged.is_valid else ()),
            *_outcome_warnings(outcomes, failures, answers),
            # a start has the number of requests that the scenario gives
            *(one for one in _sample_warnings(waited, outcomes, intervals) if one.code != "few_samples" or not is_cold_start),
        ),
        warmup_s=max(part.warmup_ns for part in parts) / NS_PER_S,
        duration_s=window_s,
        requests=requests,
        rejected_by_status={
            status: sum(window.statuses.get(status, 0) for window in windows)
            for status in sorted({status for window in windows for status in window.statuses})
        },
        checked=checked,
        wrong_answer_rate=answers.rate,
        wrong_answer_interval=answers.interval,
        error_rate=1 - outcomes[Outcome.OK] / scheduled if scheduled else 0.0,
        throughput_per_s=throughput,
        inferences_per_s=_rate(inferences, window_s),
        goodput_per_s=_rate(_sum(windows, "good"), window_s) if first.has_slo else None,
        service_time_ns=distributions["service_time"],
        response_time_ns=distributions.get("response_time"),
        start_delay_ns=distributions.get("start_delay"),
        failure_time_ns=distributions["failure_time"] if distributions["failure_time"].count else None,
        first_response_time_ns=distributions.get("first_response_time"),
        response_gap_ns=distributions.get("response_gap"),
        stream_time_ns=distributions.get("stream_time"),
        sequence_time_ns=distributions.get("sequence_time"),
        after_gap_time_ns=distributions.get("after_gap_time"),
        following_time_ns=distributions.get("following_time"),
        idle=idle,
        cold_start=pooled_starts([part.cold_start for part in parts if part.cold_start is not None]),
        responses=_responses(windows, window_s) if first.is_streamed else None,
        sequences=_sequences(windows) if first.has_sequences else None,
        intervals=_named_intervals(intervals),
        further_intervals={
            name: _named_intervals(percentile_intervals(batches, tuple(QUANTILES.values())))
            for name, batches in pool.further_batches.items()
        },
        effective_samples={
            name: round(one.effective_samples, 1) for name, quantile in QUANTILES.items() if (one := intervals.get(quantile))
        },
        connections=Connections(
            **{name: _sum([part.connections for part in parts], name) for name in ("opened", "reconnects", "retried", "rotated")},
            connect_time_ns=distribution(connect_times) if connect_times.count else None,
        ),
        replicas=replicas,
        machines=machines,
        generator=generator,
        server=server_figures(resources),
        server_cpu=server_cpu_figures(resources, [window.finished for window in windows]),
        gpus=gpus,
        energy_per_inference_j=energy_per_inference_j(inferences, gpus, "energy_j"),
        energy_above_idle_per_inference_j=energy_per_inference_j(inferences, gpus, "energy_above_idle_j"),
        metrics=pooled_metrics(resources),
        throughput_series_per_s=None if own is None else own.finished_per_s,
        failed_series_per_s=None if own is None else own.failed_per_s,
        incidents=pool.incidents,
        failures=tuple(
            Failure(outcome=kind.outcome.value, status=kind.status or None, message=kind.message, cause=kind.cause, count=count)
            for kind, count in failures
        ),
    )


def _named_intervals(intervals: Mapping[float, PercentileInterval]) -> dict[str, tuple[float, float | None]]:
    return {name: (one.low_ns, one.high_ns) for name, quantile in QUANTILES.items() if (one := intervals.get(quantile))}


def _responses(windows: Sequence[Window], window_s: float) -> Responses:
    return Responses(
        count=_sum(windows, "responses"),
        per_s=_rate(_sum(windows, "responses_ended"), window_s),
        without_response=_sum(windows, "without_response"),
        cancelled=_sum(windows, "cancelled"),
    )


def _checked_answers(requests: Requests, checked: int) -> CheckedAnswers:
    return CheckedAnswers(requests.ok + requests.invalid_output, checked, requests.invalid_output)


def _sequences(windows: Sequence[Window]) -> SequenceCounts:
    return SequenceCounts(**{name: _sum(windows, f"sequences_{name}") for name in SequenceCounts.model_fields})


def _sum(values: Iterable[object], name: str) -> int:
    return sum(getattr(value, name) for value in values)


def _rate(count: float, seconds: float) -> float:
    return count / seconds if seconds else 0.0


def _weighted_mean(parts: Sequence[PointMeasurement], share: str) -> float:
    total_ns = sum(part.window.length_ns for part in parts)
    return sum(float(getattr(part.generator, share)) * part.window.length_ns for part in parts) / total_ns if total_ns else 0.0


def _schedule_warnings(without_slot: int, scheduled: int, pacing_delay: BucketCounts | None) -> Iterator[MeasurementWarning]:
    if without_slot:
        dropped = f"{without_slot:,} of {scheduled:,} arrivals were dropped because max_in_flight requests were in flight"
        yield MeasurementWarning("dropped", f"{dropped}. Raise max_in_flight, or lower the rate.")
    if pacing_delay is not None and pacing_delay.count and pacing_delay.max_ns > _STALL_NS:
        stall = format_duration_ns(pacing_delay.max_ns)
        yield MeasurementWarning("burst", f"The load generator stalled for up to {stall}, and then sent the overdue requests in a burst.")


def _outcome_warnings(
    outcomes: Mapping[Outcome, int], failures: Sequence[tuple[FailureKind, int]], answers: CheckedAnswers
) -> Iterator[MeasurementWarning]:
    failed = {outcome.value: number for outcome, number in outcomes.items() if number and outcome is not Outcome.OK}
    if failed:
        listed = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in failed.items())
        told = [(kind, count) for kind, count in failures if kind.message][:_TOLD_MESSAGES]
        messages = "; ".join(f"{count:,} × {f'{kind.status}: ' if kind.status else ''}{kind.message}" for kind, count in told)
        yield MeasurementWarning("failed_requests", f"Some requests failed: {listed}{f' ({messages})' if messages else ''}.")
    if answers.wrong and answers.interval is not None and answers.checked < answers.answers:
        low, high = answers.interval
        others = (
            f"the other {answers.answers - answers.checked:,} were not checked and count as ok, so {low:.2%} to {high:.2%} of all are wrong"
        )
        yield MeasurementWarning("invalid_output", f"{answers.wrong:,} of the {answers.checked:,} checked answers are wrong; {others}.")


def _sample_warnings(
    times: BucketCounts, outcomes: Mapping[Outcome, int], intervals: Mapping[float, PercentileInterval]
) -> Iterator[MeasurementWarning]:
    count, censored = times.count, outcomes[Outcome.TIMED_OUT] + outcomes[Outcome.UNFINISHED]
    if not count:
        yield MeasurementWarning("no_samples", "No request of this point succeeded.")
        return
    shown = {name: quantile for name, quantile in QUANTILES.items() if not is_withheld(quantile, count)}
    needed = {
        name: one.needed_samples if (one := intervals.get(quantile)) else minimum_samples(quantile) for name, quantile in shown.items()
    }
    few = [name for name in shown if count < needed[name]]
    if few:
        samples = f"at least {needed[few[-1]]:,} are needed; measure longer"
        yield MeasurementWarning("few_samples", f"Too few samples for {few[-1].replace('_', '.')}: {samples}.")
    bounds = [name for name, quantile in shown.items() if int(quantile * count + 0.5) > count - censored]
    if bounds:
        unanswered = f"they fall among the {censored} requests that were not answered in time"
        yield MeasurementWarning("censored", f"{bounds[0].replace('_', '.')} and higher percentiles are lower bounds: {unanswered}.")
    if times.clamped:
        yield MeasurementWarning("clamped", f"{times.clamped} times are above one hour, and count as one hour.")
