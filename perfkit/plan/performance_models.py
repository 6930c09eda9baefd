"""Performance models: the scalability law of closed loops, and queueing models, used only if they predict held-out measurements."""

from collections.abc import Callable, Mapping, Sequence

from perfkit.plan.evidence import KEPT_UP, Evidence
from perfkit.plan.model import RatePoint, WhatIf
from perfkit.result.distribution import QUANTILES
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.capacity import ClosedPoint
from perfkit.stats.queueing import BatchQueue, MgcQueue, fit_batch_queue, fit_mgc
from perfkit.stats.slo_capacity import Capacity
from perfkit.stats.usl import UslFit, UslRefusal, fit_usl
from perfkit.stats.validation import HeldOut, Validation, judge_model, split_points
from perfkit.units import NS_PER_S

_MAXIMUM_SERVERS, _SERVICE_QUANTILES = 8, 40
_FASTER, _SLOWER = 0.8, 1.25
MGC, BATCH = "M/G/c after Allen and Cunneen", "batch service after Inoue"


def closed_loop_points(evidence: Evidence) -> tuple[ClosedPoint, ...]:
    """The valid repetitions of the closed loops, by ascending concurrency."""
    points = [
        ClosedPoint(point.load.level, point.throughput_per_s, point.service_time_ns.mean / NS_PER_S)
        for point in evidence.closed_points
        if point.valid and point.throughput_per_s > 0 and point.service_time_ns.count
    ]
    return tuple(sorted(points, key=lambda point: point.concurrency))


def fit_scalability(points: Sequence[ClosedPoint]) -> UslFit | UslRefusal | None:
    """Fit the universal scalability law; None without closed loops."""
    if not points:
        return None
    return fit_usl([point.concurrency for point in points], [point.throughput_per_s for point in points])


def validate_models(
    evidence: Evidence, points: Sequence[RatePoint], capacity: Capacity | None
) -> tuple[tuple[Validation, ...], tuple[MgcQueue | BatchQueue, ...]]:
    """Fit both queueing models to the lower rates, and validate them on the others; returns the verdicts and the accepted models.

    A model that cannot be validated, since there are too few points, is rejected as well.
    """
    kept_up = [point for point in points if point.state == KEPT_UP and point.mean_ns]
    if capacity is None or not kept_up:
        return (), ()
    rates = [point.rate_per_s for point in kept_up]
    split = split_points(rates, capacity.per_s)
    if split.sentence:
        return tuple(_rejected(model, f"it cannot be validated. {split.sentence}") for model in (MGC, BATCH)), ()
    low_rates, low_means = [rates[index] for index in split.fitted], [(kept_up[index].mean_ns or 0) / NS_PER_S for index in split.fitted]
    held_out = [kept_up[index] for index in split.held_out]
    judged = list[tuple[Validation, MgcQueue | BatchQueue | None]]()
    if service_times := _service_times_s(evidence, kept_up[0]):
        try:
            queue = fit_mgc(low_rates, low_means, service_times, _MAXIMUM_SERVERS)
        except ValueError as error:
            judged.append((_rejected(MGC, f"{error}."), None))
        else:
            judged.append((_validate_mgc(queue, held_out), queue))
    batches = fit_batch_queue(low_rates, low_means)
    judged.append((_validate_batch(batches, held_out), batches))
    accepted = tuple(model for validation, model in judged if validation.is_accepted and model is not None)
    return tuple(validation for validation, _ in judged), accepted


def what_if(queue: MgcQueue | BatchQueue, limits_ns: Mapping[str, int], operating_per_s: float | None) -> tuple[WhatIf, ...]:
    """The predictions of an accepted model for other numbers of servers and service times, or other costs of a request and a batch."""
    return _other_servers(queue, limits_ns, operating_per_s) if isinstance(queue, MgcQueue) else _other_batches(queue, operating_per_s)


def _other_servers(queue: MgcQueue, limits_ns: Mapping[str, int], operating_per_s: float | None) -> tuple[WhatIf, ...]:
    def row(change: str, changed: MgcQueue) -> WhatIf:
        capacity = min(changed.capacity(QUANTILES[name], limit_ns / NS_PER_S) for name, limit_ns in limits_ns.items())
        mean_ns = p99_ns = None
        if operating_per_s is not None and operating_per_s < changed.saturation:
            mean_ns = changed.mean_response_time(operating_per_s) * NS_PER_S
            p99_ns = changed.response_time(0.99, operating_per_s) * NS_PER_S
        return WhatIf(MGC, change, changed.saturation, capacity, mean_ns, p99_ns)

    rows = [row(f"unchanged ({queue.servers} server{'s' if queue.servers > 1 else ''} in the model)", queue)]
    rows += [row(f"{count} servers", MgcQueue(count, queue.service_times)) for count in (queue.servers + 1, 2 * queue.servers)]
    for factor, words in ((_FASTER, "service 20 % faster"), (_SLOWER, "service 25 % slower")):
        rows.append(row(words, MgcQueue(queue.servers, tuple(time * factor for time in queue.service_times))))
    return tuple({answer.change: answer for answer in rows}.values())


def _other_batches(queue: BatchQueue, operating_per_s: float | None) -> tuple[WhatIf, ...]:
    def row(change: str, changed: BatchQueue) -> WhatIf:
        mean_ns = None
        if operating_per_s is not None and operating_per_s < changed.saturation:
            mean_ns = changed.mean_response_time_bound(operating_per_s) * NS_PER_S
        return WhatIf(BATCH, change, changed.saturation, None, mean_ns, None)

    return (
        row("unchanged", queue),
        row("time per request 20 % less", BatchQueue(_FASTER * queue.per_request, queue.fixed)),
        row("fixed time per batch 20 % less", BatchQueue(queue.per_request, _FASTER * queue.fixed)),
        row("both 25 % more", BatchQueue(_SLOWER * queue.per_request, _SLOWER * queue.fixed)),
    )


def _service_times_s(evidence: Evidence, lowest: RatePoint) -> tuple[float, ...]:
    """The distribution of the service times as equally likely values: at concurrency 1, otherwise at the lowest rate."""
    batches: Sequence[BucketCounts] = evidence.single_request_batches or [
        batch for point in evidence.open_points if point.rate_per_s == lowest.rate_per_s for batch in point.batches
    ]
    times = BucketCounts.merged(batches)
    if times.count < _SERVICE_QUANTILES:
        return ()
    return tuple(value / NS_PER_S for value in times.values_at([(index + 0.5) / _SERVICE_QUANTILES for index in range(_SERVICE_QUANTILES)]))


def _rejected(model: str, why: str) -> Validation:
    return Validation(model, (), is_accepted=False, sentence=f"Model rejected: {why}")


def _validate_mgc(queue: MgcQueue, held_out: Sequence[RatePoint]) -> Validation:
    if max(point.rate_per_s for point in held_out) >= queue.saturation:
        return _rejected(MGC, f"{MGC} saturates at {queue.saturation:,.4g}/s, below rates at which the target kept up.")
    errors = _errors("mean", held_out, queue.mean_response_time)
    p99_errors = _errors("p99", held_out, lambda rate: queue.response_time(0.99, rate))
    if not p99_errors:
        return _rejected(MGC, f"{MGC} cannot be validated without a p99 at the held-out points.")
    return judge_model(f"{MGC}, c = {queue.servers}, C_s² = {queue.service_scv:.2f}", [*errors, *p99_errors])


def _validate_batch(queue: BatchQueue, held_out: Sequence[RatePoint]) -> Validation:
    if max(point.rate_per_s for point in held_out) >= queue.saturation:
        return _rejected(BATCH, f"{BATCH} saturates at {queue.saturation:,.4g}/s, below rates at which the target kept up.")
    described = f"{BATCH}, {queue.per_request * 1e3:.3g} ms per request + {queue.fixed * 1e3:.3g} ms"
    return judge_model(described, _errors("mean", held_out, queue.mean_response_time_bound))


def _errors(figure: str, held_out: Sequence[RatePoint], predict: Callable[[float], float]) -> list[HeldOut]:
    errors = []
    for point in held_out:
        measured_ns = point.mean_ns if figure == "mean" else point.percentiles_ns.get(figure)
        if measured_ns:
            errors.append(HeldOut(point.rate_per_s, figure, measured_ns, predict(point.rate_per_s) * NS_PER_S))
    return errors
