"""What theory makes of the measurements: the scalability law of closed loops, and queues that are believed only where they predict."""

from collections.abc import Callable, Mapping, Sequence

from perfkit.plan.evidence import Evidence
from perfkit.plan.model import RatePoint, WhatIf
from perfkit.plan.rate_points import KEPT_UP
from perfkit.result.distribution import QUANTILES
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.capacity import ClosedPoint
from perfkit.stats.queueing import BatchQueue, MgcQueue, fit_batch_queue, fit_mgc
from perfkit.stats.slo_capacity import Capacity
from perfkit.stats.usl import UslFit, UslRefusal, fit_usl
from perfkit.stats.validation import HeldOut, Validation, judge_model, split_points

_MOST_SERVERS, _SERVICE_QUANTILES = 8, 40
_FASTER, _SLOWER = 0.8, 1.25
MGC, BATCH = "M/G/c after Allen and Cunneen", "batch service after Inoue"


def closed_points(evidence: Evidence) -> tuple[ClosedPoint, ...]:
    """The valid points of its closed loops, ascending; each repetition its own."""
    points = [
        ClosedPoint(point.load.level, point.throughput_per_s, point.service_time_ns.mean / 1e9)
        for point in evidence.closed_points
        if point.valid and point.throughput_per_s > 0 and point.service_time_ns.count
    ]
    return tuple(sorted(points, key=lambda point: point.concurrency))


def fit_law(points: Sequence[ClosedPoint]) -> UslFit | UslRefusal | None:
    """The universal scalability law; None without closed loops."""
    if not points:
        return None
    return fit_usl([point.concurrency for point in points], [point.throughput_per_s for point in points])


def validate_models(
    evidence: Evidence, points: Sequence[RatePoint], capacity: Capacity | None
) -> tuple[tuple[Validation, ...], tuple[MgcQueue | BatchQueue, ...]]:
    """Both queues fitted to the lower rates and held against the others; and those that hold.

    A model that cannot be judged for want of points is rejected as well.
    """
    kept = [point for point in points if point.state == KEPT_UP and point.mean_ns]
    if capacity is None or not kept:
        return (), ()
    rates = [point.rate_per_s for point in kept]
    split = split_points(rates, capacity.per_s)
    if split.sentence:
        told = f"Model rejected: it cannot be judged. {split.sentence}"
        return tuple(Validation(model, (), is_accepted=False, sentence=told) for model in (MGC, BATCH)), ()
    low_rates, low_means = [rates[place] for place in split.fitted], [(kept[place].mean_ns or 0) / 1e9 for place in split.fitted]
    held = [kept[place] for place in split.held_out]
    validations, accepted = [], list[MgcQueue | BatchQueue]()
    service_times = _service_times_s(evidence, kept[0])
    if service_times:
        try:
            queue = fit_mgc(low_rates, low_means, service_times, _MOST_SERVERS)
        except ValueError as error:
            validations.append(Validation(MGC, (), is_accepted=False, sentence=f"Model rejected: {error}."))
        else:
            validations.append(_judge_mgc(queue, held))
            accepted += [queue] if validations[-1].is_accepted else []
    batches = fit_batch_queue(low_rates, low_means)
    validations.append(_judge_batch(batches, held))
    accepted += [batches] if validations[-1].is_accepted else []
    return tuple(validations), tuple(accepted)


def what_if(queue: MgcQueue | BatchQueue, limits_ns: Mapping[str, int], operating_per_s: float | None) -> tuple[WhatIf, ...]:
    """What a model that holds says of changes: other numbers of servers, faster and slower service; or cheaper rows and batches."""
    return _other_servers(queue, limits_ns, operating_per_s) if isinstance(queue, MgcQueue) else _other_batches(queue, operating_per_s)


def _other_servers(queue: MgcQueue, limits_ns: Mapping[str, int], operating_per_s: float | None) -> tuple[WhatIf, ...]:
    def asked(change: str, changed: MgcQueue) -> WhatIf:
        capacity = min(changed.capacity(QUANTILES[name], limit_ns / 1e9) for name, limit_ns in limits_ns.items())
        serves = operating_per_s is not None and operating_per_s < changed.saturation
        mean, p99 = None, None
        if serves and operating_per_s is not None:
            mean, p99 = changed.mean_response_time(operating_per_s) * 1e9, changed.response_time(0.99, operating_per_s) * 1e9
        return WhatIf(MGC, change, changed.saturation, capacity, mean, p99)

    rows = [asked(f"as it is ({queue.servers} server{'s' if queue.servers > 1 else ''} in the model)", queue)]
    rows += [asked(f"{count} servers", MgcQueue(count, queue.service_times)) for count in (queue.servers + 1, 2 * queue.servers)]
    for factor, words in ((_FASTER, "service 20 % faster"), (_SLOWER, "service 25 % slower")):
        rows.append(asked(words, MgcQueue(queue.servers, tuple(time * factor for time in queue.service_times))))
    return tuple({row.change: row for row in rows}.values())


def _other_batches(queue: BatchQueue, operating_per_s: float | None) -> tuple[WhatIf, ...]:
    def asked(change: str, changed: BatchQueue) -> WhatIf:
        serves = operating_per_s is not None and operating_per_s < changed.saturation
        mean = changed.mean_response_time_bound(operating_per_s) * 1e9 if serves and operating_per_s is not None else None
        return WhatIf(BATCH, change, changed.saturation, None, mean, None)

    return (
        asked("as it is", queue),
        asked("a request's share 20 % less", BatchQueue(_FASTER * queue.per_request, queue.fixed)),
        asked("a batch's fixed part 20 % less", BatchQueue(queue.per_request, _FASTER * queue.fixed)),
        asked("both 25 % more", BatchQueue(_SLOWER * queue.per_request, _SLOWER * queue.fixed)),
    )


def _service_times_s(evidence: Evidence, lowest: RatePoint) -> tuple[float, ...]:
    """The shape of the service times, as equally likely values: of one request in flight, otherwise of the lowest rate."""
    batches: Sequence[BucketCounts] = evidence.lone_batches or [
        batch for one in evidence.open_points if one.rate_per_s == lowest.rate_per_s for batch in one.batches
    ]
    times = BucketCounts.merged(batches)
    if times.count < _SERVICE_QUANTILES:
        return ()
    return tuple(value / 1e9 for value in times.values_at([(place + 0.5) / _SERVICE_QUANTILES for place in range(_SERVICE_QUANTILES)]))


def _judge_mgc(queue: MgcQueue, held: Sequence[RatePoint]) -> Validation:
    if max(point.rate_per_s for point in held) >= queue.saturation:
        return Validation(
            MGC,
            (),
            is_accepted=False,
            sentence=f"Model rejected: {MGC}, it saturates at {queue.saturation:,.4g}/s, below rates at which the target kept up.",
        )
    errors = _errors("mean", held, queue.mean_response_time)
    of_p99 = _errors("p99", held, lambda rate: queue.response_time(0.99, rate))
    if not of_p99:  # what it would be asked for
        return Validation(
            MGC, (), is_accepted=False, sentence=f"Model rejected: {MGC}, no p99 is known at the points it was not fitted to."
        )
    return judge_model(f"{MGC}, c = {queue.servers}, C_s² = {queue.service_scv:.2f}", [*errors, *of_p99])


def _judge_batch(queue: BatchQueue, held: Sequence[RatePoint]) -> Validation:
    if max(point.rate_per_s for point in held) >= queue.saturation:
        return Validation(
            BATCH,
            (),
            is_accepted=False,
            sentence=f"Model rejected: {BATCH}, it saturates at {queue.saturation:,.4g}/s, below rates at which the target kept up.",
        )
    described = f"{BATCH}, {queue.per_request * 1e3:.3g} ms a request + {queue.fixed * 1e3:.3g} ms"
    return judge_model(described, _errors("mean", held, queue.mean_response_time_bound))


def _errors(figure: str, held: Sequence[RatePoint], predict: Callable[[float], float]) -> list[HeldOut]:
    found = []
    for point in held:
        measured_ns = point.mean_ns if figure == "mean" else point.percentiles_ns.get(figure)
        if measured_ns:
            found.append(HeldOut(point.rate_per_s, figure, measured_ns, predict(point.rate_per_s) * 1e9))
    return found
