"""Performance models: the scalability law of closed loops, and queueing models, used only if they predict held-out measurements."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.plan.capacity import ClosedPoint
from perfkit.plan.evidence import KEPT_UP, Evidence
from perfkit.plan.exceedances import cluster_length_s
from perfkit.plan.model import RatePoint, WhatIf
from perfkit.plan.queueing import BatchFamily, BatchQueue, HeldOut, MgcFamily, MgcQueue, Validation, judge_model, split_points
from perfkit.plan.rate_points import figure_ns, points_by_rate
from perfkit.plan.slo_capacity import Capacity
from perfkit.plan.usl import UslFit, UslRefusal, fit_usl
from perfkit.result.distribution import QUANTILES
from perfkit.stats.buckets import BucketCounts
from perfkit.units import NS_PER_S

_MAXIMUM_SERVERS, _FEWEST_SERVICE_TIMES, _SERVICE_VALUES, _PER_VALUE = 8, 40, 200, 20
_FASTER, _SLOWER = 0.8, 1.25
_DRAWS, _THROUGHPUT_MARGIN, _FEWEST_REPETITIONS = 200, 0.05, 3
_BATCHES_FROM = 1.01  # requests in a batch on average; one after the other they are 1, as shown with two decimals
_STEADY_BELOW = 0.98  # of the saturation; windows nearer to it are too short for a steady state
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
    evidence: Evidence, points: Sequence[RatePoint], capacity: Capacity | None, random: np.random.Generator
) -> tuple[tuple[Validation, ...], tuple[MgcQueue | BatchQueue, ...]]:
    """Fit both queueing models to the lower rates, and validate them on the others; returns the verdicts and the accepted models.

    A model that cannot be validated, since there are too few points, is rejected as well. So is batch service for a server that was not seen
    to form batches: its two times can be fitted to the means of a server without any.
    """
    kept_up = [point for point in points if point.state == KEPT_UP and point.mean_ns]
    if capacity is None or not kept_up:
        return (), ()
    split = split_points([point.rate_per_s for point in kept_up], capacity.per_s)
    if split.sentence:
        return tuple(_rejected(f"{model} cannot be validated. {split.sentence}") for model in (MGC, BATCH)), ()
    fitted, held_out = ([kept_up[index] for index in indices] for indices in (split.fitted, split.held_out))
    throughputs, scatter = _throughputs(points), _scatter(evidence)
    judged = list[tuple[Validation, MgcQueue | BatchQueue | None]]()
    rates = [point.rate_per_s for point in fitted]
    if service_times := _service_times_s(evidence, kept_up[0]):
        judged.append(
            _judge(MGC, lambda: MgcFamily(rates, service_times, _MAXIMUM_SERVERS, throughputs), fitted, held_out, scatter, random)
        )
    fastest_s = min(point.mean_ns or 0 for point in fitted) / NS_PER_S
    if without_batches := _without_batches(evidence):
        judged.append((_rejected(without_batches), None))
    else:
        judged.append(_judge(BATCH, lambda: BatchFamily(rates, fastest_s, throughputs), fitted, held_out, scatter, random))
    accepted = tuple(model for validation, model in judged if validation.is_accepted and model is not None)
    return tuple(validation for validation, _ in judged), accepted


def _without_batches(evidence: Evidence) -> str:
    """Why the server is not known to form batches, as a sentence; empty if it does."""
    servers = [point.measured.server for point in evidence.open_points if point.measured.server is not None]
    means = [size for server in servers for size in (server.mean_batch, *(step.mean_batch for step in server.composing_models))]
    sizes = [size / evidence.batch_size for size in means if size is not None]
    if not sizes:
        return f"{BATCH} cannot be validated without the sizes of the batches, which the server's v2 statistics give."
    if max(sizes) < _BATCHES_FROM:
        return f"{BATCH} cannot apply: the server forms no batches; a batch is of {max(sizes):.2f} requests on average at most."
    return ""


def _throughputs(points: Sequence[RatePoint]) -> tuple[float, float]:
    """The range in which the target's saturation lies, with a margin of 5 %.

    At least the highest throughput at which it kept up; at most its throughput under overload, infinite without an overload.
    """
    answered = max(point.throughput_per_s for point in points if point.state == KEPT_UP)
    overloaded = [point.throughput_per_s for point in points if point.state == "overloaded"]
    most = max(min(overloaded), answered) if overloaded else math.inf
    return (1 - _THROUGHPUT_MARGIN) * answered, (1 + _THROUGHPUT_MARGIN) * most


def _judge(
    model: str,
    family_of: Callable[[], MgcFamily | BatchFamily],
    fitted: Sequence[RatePoint],
    held_out: Sequence[RatePoint],
    scatter: Mapping[tuple[str, float], float],
    random: np.random.Generator,
) -> tuple[Validation, MgcQueue | BatchQueue | None]:
    try:
        family = family_of()
    except ValueError as error:
        return _rejected(f"{model}: {error}."), None
    means_s = np.array([(point.mean_ns or 0) / NS_PER_S for point in fitted])
    queue = family.best(means_s)
    held_out = [point for point in held_out if point.rate_per_s < _STEADY_BELOW * queue.saturation]
    errors = _errors("mean", held_out, queue.mean_response_time)
    if isinstance(queue, MgcQueue):
        p99_errors = _errors("p99", held_out, lambda rate: queue.response_time(0.99, rate))
        if not p99_errors:
            return _rejected(f"{model} cannot be validated without a p99 at the held-out points."), None
        errors += p99_errors
        described = f"{model}, c = {queue.servers}, C_s² = {queue.service_scv:.2f}"
    else:
        described = f"{model}, {queue.per_request * 1e3:.3g} ms per request + {queue.fixed * 1e3:.3g} ms"
    noise = _noise(family, queue, fitted, held_out, errors, scatter, random)
    return judge_model(described, errors, noise), queue


def _noise(
    family: MgcFamily | BatchFamily, queue: MgcQueue | BatchQueue, fitted: Sequence[RatePoint], held_out: Sequence[RatePoint],
    errors: Sequence[HeldOut], scatter: Mapping[tuple[str, float], float], random: np.random.Generator,
) -> npt.NDArray[np.float64]:  # fmt: skip
    """Draws of the errors ln(predicted ÷ measured), one row each, under the hypothesis that the queue is the true model.

    Each draw adds random errors to the fitted means and fits the family again, and adds random errors to the held-out figures. The mean and
    the p99 at one rate share their random error. A refitted queue that saturates below a held-out rate predicts ten times the time there.
    """
    means_s = np.array([queue.mean_response_time(point.rate_per_s) for point in fitted])

    def sd_of(figure: str, point: RatePoint) -> float:
        return max(_relative_sd(figure, point, queue), scatter.get((figure, point.rate_per_s), 0.0))

    fit_sd = np.array([sd_of("mean", point) for point in fitted])
    by_rate = {point.rate_per_s: point for point in held_out}
    sd = np.array([sd_of(one.figure, by_rate[one.rate_per_s]) for one in errors])
    columns = {rate: place for place, rate in enumerate(by_rate)}
    chance = random.standard_normal((_DRAWS, len(columns)))[:, [columns[one.rate_per_s] for one in errors]] * sd
    expected = np.array([one.predicted / NS_PER_S for one in errors])
    known = dict[MgcQueue | BatchQueue, npt.NDArray[np.float64]]()
    shifts = []
    for varied in means_s * np.exp(random.standard_normal((_DRAWS, means_s.size)) * fit_sd):
        other = family.best(varied)
        if other not in known:
            known[other] = np.log([_predicted_s(other, one) for one in errors] / expected)
        shifts.append(known[other])
    return np.asarray(np.array(shifts) - chance, dtype=np.float64)


def _predicted_s(queue: MgcQueue | BatchQueue, one: HeldOut) -> float:
    if one.rate_per_s >= queue.saturation:
        return 10 * one.predicted / NS_PER_S
    if one.figure == "p99" and isinstance(queue, MgcQueue):
        return queue.response_time(0.99, one.rate_per_s)
    return queue.mean_response_time(one.rate_per_s)


def _relative_sd(figure: str, point: RatePoint, queue: MgcQueue | BatchQueue) -> float:
    """The relative standard error of a measured mean or p99, if the queue is the true model.

    In the Brownian approximation of `cluster_length_s`, the mean wait W has the variance W²·τ/T: τ is the length of a cluster, T the measured
    time. The share p of requests above the p99 has the variance p·τ/T. A relative change of that share changes the p99 by 1/ln(1/p) times as much.
    """
    mean_ns, p99_ns, seconds = point.mean_ns or 0.0, point.percentiles_ns.get("p99"), point.samples / point.rate_per_s
    percentile_s = (p99_ns or mean_ns * math.log(100)) / NS_PER_S
    cluster_s = float(cluster_length_s(np.array([percentile_s]), 0.01, np.array([1 - point.rate_per_s / queue.saturation]))[0])
    if figure == "p99":
        return math.sqrt(cluster_s / (0.01 * seconds)) / math.log(100)
    alone = queue.mean_response_time(0.0)
    waiting = 1 - alone / queue.mean_response_time(point.rate_per_s)
    return math.sqrt(1 / point.samples + waiting**2 * cluster_s / seconds)


def _scatter(evidence: Evidence) -> dict[tuple[str, float], float]:
    """The relative standard errors of the mean and the p99, by figure and rate, where there are three repetitions or more.

    The scatter between repetitions includes differences between restarts, and the variation that long-tailed service times add to
    the Brownian approximation.
    """
    errors = {}
    for rate, (_, points) in points_by_rate(evidence).items():
        for figure in ("mean", "p99"):
            logs = [math.log(value) for point in points if point.state == KEPT_UP and (value := figure_ns(point, figure))]
            if len(logs) >= _FEWEST_REPETITIONS:
                errors[figure, rate] = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    return errors


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
            mean_ns = changed.mean_response_time(operating_per_s) * NS_PER_S
        return WhatIf(BATCH, change, changed.saturation, None, mean_ns, None)

    return (
        row("unchanged", queue),
        row("time per request 20 % less", BatchQueue(_FASTER * queue.per_request, queue.fixed)),
        row("fixed time per batch 20 % less", BatchQueue(queue.per_request, _FASTER * queue.fixed)),
        row("both 25 % more", BatchQueue(_SLOWER * queue.per_request, _SLOWER * queue.fixed)),
    )


def _service_times_s(evidence: Evidence, lowest: RatePoint) -> tuple[float, ...]:
    """Equally likely service times, measured at concurrency 1, otherwise at the lowest rate; empty with too few requests.

    Each value is the mean of an equal share of the requests: quantiles would leave out the slowest requests, which delay the others.
    """
    batches: Sequence[BucketCounts] = evidence.single_request_batches or [
        batch for point in evidence.open_points if point.rate_per_s == lowest.rate_per_s for batch in point.batches
    ]
    times = BucketCounts.merged(batches)
    if times.count < _FEWEST_SERVICE_TIMES:
        return ()
    number = _SERVICE_VALUES * _PER_VALUE
    values_ns = np.array(times.values_at([(index + 0.5) / number for index in range(number)]), dtype=np.float64)
    return tuple((values_ns.reshape(_SERVICE_VALUES, _PER_VALUE).mean(axis=1) / NS_PER_S).tolist())


def _rejected(why: str) -> Validation:
    return Validation(why.partition(" cannot")[0], (), "rejected", f"Model rejected: {why}")


def _errors(figure: str, held_out: Sequence[RatePoint], predict: Callable[[float], float]) -> list[HeldOut]:
    errors = []
    for point in held_out:
        measured_ns = point.mean_ns if figure == "mean" else point.percentiles_ns.get(figure)
        if measured_ns:
            errors.append(HeldOut(point.rate_per_s, figure, measured_ns, predict(point.rate_per_s) * NS_PER_S))
    return errors
