"""Queueing models, M/G/c by Allen and Cunneen and a server that takes batches, and their validation on measured points that they were not fitted to.

All models assume Poisson arrivals, first come first served, and a steady state. Times are in any one unit, rates per that unit.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from perfkit.units import format_percent

FIT_SHARE, FEWEST_ABOVE, FEWEST_BELOW, MEAN_WITHIN, P99_WITHIN = 0.7, 3, 3, 0.10, 0.15
FALSE_REJECTIONS = 0.05
MEAN_AT_MOST, P99_AT_MOST = 0.25, 0.50
"""The largest errors with which a model is used, whatever the noise allows; see `judge_model`."""
_POWER = 0.95
_LEAST_SD = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The indices of the fitted and of the held-out points; `sentence` names the points that a validation lacks, empty if none."""

    fitted: tuple[int, ...]
    held_out: tuple[int, ...]
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class HeldOut:
    """The measured and the predicted figure of a held-out point, in one unit."""

    rate_per_s: float
    figure: str
    """`mean` or `p99`."""
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """The signed error as a share of the measured figure."""
        return self.predicted / self.measured - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a model, as a sentence too. It is used only if it is accepted."""

    model: str
    errors: tuple[HeldOut, ...]
    verdict: Literal["accepted", "not validated", "rejected"]
    """`rejected`: the data contradict it, or it cannot be judged; `not validated`: they are too noisy to tell."""
    sentence: str

    @property
    def is_accepted(self) -> bool:
        """Whether the model may be used."""
        return self.verdict == "accepted"


def split_points(rates_per_s: Sequence[float], capacity_per_s: float) -> Split:
    """Splits points for validation: those up to 70 % of the capacity are fitted, except the middle one; the rest are held out.

    Validation needs at least 3 points above 70 %, and 3 below: 2 to fit, and the middle one.
    """
    order = sorted(range(len(rates_per_s)), key=lambda place: rates_per_s[place])
    low = [place for place in order if rates_per_s[place] <= FIT_SHARE * capacity_per_s]
    above = [place for place in order if rates_per_s[place] > FIT_SHARE * capacity_per_s]
    inside = [low[len(low) // 2]] if len(low) >= FEWEST_BELOW else []
    fitted = [place for place in low if place not in inside]
    missing = []
    if len(above) < FEWEST_ABOVE:
        missing.append(f"at least {FEWEST_ABOVE} above {format_percent(FIT_SHARE)} of the capacity (found {len(above)})")
    if not inside:
        missing.append(f"at least {FEWEST_BELOW} up to {format_percent(FIT_SHARE)} of the capacity (found {len(low)})")
    sentence = f"Validation needs rates at which the target kept up: {' and '.join(missing)}." if missing else ""
    return Split(tuple(fitted), tuple(sorted(inside + above)), sentence)


def judge_model(model: str, errors: Sequence[HeldOut], noise: npt.NDArray[np.float64]) -> Validation:
    """Accept a model whose errors are small enough to be useful, and that noise alone could not make look so.

    `noise` holds draws of ln(predicted ÷ measured) for a correct model (draws × errors). It contains the variation of the held-out
    measurements and of those that the model was fitted to.

    Rejected is a model whose errors exceed 10 % of a mean or 15 % of a p99 by more than chance explains. The test statistic is the largest
    excess of |ln(predicted ÷ measured)| over these, in standard deviations of the noise. Its critical value is the 95 % quantile of the
    noise's own largest deviation. So a model within 10 % and 15 % is rejected with a probability of at most about 5 % (`FALSE_REJECTIONS`),
    whatever the number of points.

    The noisier the measurements, the larger the errors that this allows. Not validated is therefore a model that is not rejected, but is off
    by more than a factor of 1.25 in a mean or 1.5 in a p99, or for which larger errors than these would pass at every held-out point. What-ifs
    are about changes of a fifth to a quarter (`perfkit.plan.performance_models`), which a mean that is off by more would hide. A p99 has about
    twice the relative standard error of a mean, √100 ÷ ln 100 = 2.2 (see there), hence twice the limit.

    The sentence names the errors that are detected with a power of 95 %.
    """
    least, most = {"mean": MEAN_WITHIN, "p99": P99_WITHIN}, {"mean": MEAN_AT_MOST, "p99": P99_AT_MOST}
    if not errors:
        return Validation(model, (), "rejected", f"Model rejected: {model} has no held-out points.")
    sd = np.maximum(noise.std(axis=0), _LEAST_SD)
    largest = float(np.quantile((np.abs(noise) / sd).max(axis=1), 1 - FALSE_REJECTIONS))
    off = np.abs([math.log(one.predicted / one.measured) for one in errors])
    margins, useful = (np.log1p([shares[one.figure] for one in errors]) for shares in (least, most))
    by_chance = margins + largest * sd
    excess = (off - margins) / sd
    is_rejected = float(excess.max()) > largest + 1e-9
    detectable = np.expm1(margins + (largest + float(np.quantile(noise / sd, _POWER))) * sd)
    shown, told, untold = [], [], []
    for figure in dict.fromkeys(one.figure for one in errors):
        places = [place for place, one in enumerate(errors) if one.figure == figure]
        worst = places[int(np.argmax(excess[places]))]
        if not is_rejected and ((off > useful)[places].any() or (by_chance > useful)[places].all()):
            worst = places[int(np.argmax(off[places]))]
            untold.append(f"up to {_reach(by_chance[worst], errors[worst])} of a {figure}")
        allowed = _reach(min(by_chance[worst], useful[worst]), errors[worst])
        shown.append(f"{figure} off by {format_percent(abs(errors[worst].error))} at {errors[worst].rate_per_s:.4g}/s (allowed {allowed})")
        told.append(f"{_percent(float(detectable[places].min()))} of a {figure}")
    found = f"{model}, {', '.join(shown)} on points it was not fitted to"
    if is_rejected:
        return Validation(model, tuple(errors), "rejected", f"Model rejected: {found}.")
    if untold:
        noisy = f"the measurements are too noisy to tell (errors {' and '.join(untold)} would pass); measure longer"
        return Validation(model, tuple(errors), "not validated", f"Model not validated, and not used: {found}; {noisy}.")
    return Validation(
        model, tuple(errors), "accepted", f"Model accepted: {found}; the data could not tell errors below {' and '.join(told)}."
    )


def _reach(ln_factor: float, error: HeldOut) -> str:
    """The error by this factor to the side of a point's error."""
    return _percent(abs(math.expm1(math.copysign(ln_factor, error.error))))


def _percent(share: float) -> str:
    return format_percent(share) if share < 10 else f"{share:.0f} times"


_Numbers = npt.NDArray[np.float64]


def erlang_c(servers: int, offered: float) -> float:
    """The probability that an arrival to M/M/c waits; `offered` is the offered load λ·E[S] in Erlang.

    Source: A. K. Erlang 1917, by the recursion of Erlang B, which does not overflow. Raises ValueError for less than one server, and for
    a load that is negative or not below the number of servers.
    """
    if servers < 1 or not 0 <= offered < servers:
        raise ValueError(f"a queue of {servers} servers needs an offered load from 0 to below {servers} Erlang, found {offered:g}")
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    return blocked / (1 - offered / servers * (1 - blocked))


@dataclasses.dataclass(frozen=True, slots=True)
class Wait:
    """The wait for a server: its probability, and its mean over all arrivals."""

    chance: float
    mean: float

    def share_longer(self, times: _Numbers) -> float:
        """The mean of P[W > t] over times, where P[W > t] ≈ P_w exp(-P_w·t / W_q): exact for M/M/c, else an exponential tail with the right mean."""
        if not self.mean:
            return float(np.mean(times < 0))
        return float(np.mean(np.where(times < 0, 1.0, self.chance * np.exp(-self.chance * np.maximum(times, 0) / self.mean))))


@dataclasses.dataclass(frozen=True, slots=True)
class MgcQueue:
    """c servers with one queue; each of `service_times` is equally likely."""

    servers: int
    service_times: tuple[float, ...]

    @property
    def mean_service_time(self) -> float:
        """E[S]."""
        return sum(self.service_times) / len(self.service_times)

    @property
    def service_scv(self) -> float:
        """C_s²: the variance of the service time divided by its squared mean."""
        mean = self.mean_service_time
        return sum((time - mean) ** 2 for time in self.service_times) / len(self.service_times) / mean**2

    @property
    def saturation(self) -> float:
        """The arrival rate at which all servers are always busy."""
        return self.servers / self.mean_service_time

    def wait(self, rate: float) -> Wait:
        """W_q ≈ W_q(M/M/c)·(1+C_s²)/2, and P_w of M/M/c.

        Source: A. O. Allen, *Probability, Statistics, and Queueing Theory* (1990), with J. Cunneen. Exact for M/M/c, and in the mean
        for M/G/1. Errors by simulation of 4 servers at ρ = 0.6 and 0.8, C_s² = 0 and 2: -8 to +10 % of the mean response time
        and -3 to +4 % of its p99; of the p99 of M/D/1 +13 % at ρ = 0.5 and +3 % at 0.9. Raises ValueError at and above saturation.
        """
        return _allen_cunneen(self.servers, rate, self.mean_service_time, self.service_scv)

    def mean_response_time(self, rate: float) -> float:
        """E[R] = E[S] + W_q."""
        return self.mean_service_time + self.wait(rate).mean

    def response_time(self, quantile: float, rate: float) -> float:
        """A quantile, in (0, 1), of the response time R = W + S; W and S are independent, so P[R > t] is the mean of P[W > t-S] over S."""
        wait, services = self.wait(rate), np.asarray(self.service_times)
        low, high = 0.0, max(self.service_times)
        while wait.share_longer(high - services) > 1 - quantile:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if wait.share_longer(middle - services) > 1 - quantile else (low, middle)
        return high

    def capacity(self, quantile: float, limit: float) -> float:
        """The highest rate at which the quantile of the response time is within the limit; 0 if there is none."""
        left = limit - np.asarray(self.service_times)

        def is_within(rate: float) -> bool:
            return self.wait(rate).share_longer(left) <= 1 - quantile

        low, high = 0.0, self.saturation * (1 - 1e-9)
        if not is_within(0.0):
            return 0.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if is_within(middle) else (low, middle)
        return low


@dataclasses.dataclass(frozen=True, slots=True)
class BatchQueue:
    """A server that takes all waiting requests as one batch; a batch of b takes `per_request`·b + `fixed`, that is α·b + τ₀."""

    per_request: float
    fixed: float

    @property
    def saturation(self) -> float:
        """The rate above which batches grow without end, 1/α."""
        return 1 / self.per_request

    def mean_response_time(self, rate: float) -> float:
        """A tight upper bound of E[R]: min(φ₀, φ₁).

        Source: Y. Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching: a closed-form
        characterization" (arXiv 1912.06322). φ₁ = 3τ₀/(2(1-λα)) + α(λα+2)/(2(1-λ²α²)); φ₀ = (α+τ₀)/(2(1-λα))·[1 + 2λτ₀ +
        (1-λτ₀)/(1+λα)]. By simulation it is 0.2 to 5.6 % above E[R]. It does not hold with a maximum batch size or a queue delay.
        Raises ValueError at and above saturation.
        """
        load = rate * self.per_request
        if not 0 <= load < 1:
            raise ValueError(
                f"a batching server with {self.per_request:g} per request saturates at {self.saturation:g}, found a rate of {rate:g}"
            )
        return float(_mean_response_time_bound(np.array([self.per_request]), np.array([self.fixed]), np.array([rate]))[0])


Saturations = tuple[float, float]
"""The range of the saturation of a fitted queue."""
_ANY: Saturations = (0.0, math.inf)


class MgcFamily:
    """Candidate M/G/c queues: one to `maximum_servers` servers, and the measured service times multiplied by factors from 0.5 to 2.

    `service_times` are measured without queueing. All candidates saturate above all `rates` and within `saturations`. A measured
    saturation shows the number of servers, on which mean response times at low rates hardly depend. Raises ValueError without rates or
    candidates.
    """

    def __init__(
        self, rates: Sequence[float], service_times: Sequence[float], maximum_servers: int, saturations: Saturations = _ANY
    ) -> None:
        if not rates:
            raise ValueError("a queueing model needs at least one rate")
        shape = np.asarray(service_times, dtype=np.float64)
        mean, scv = float(shape.mean()), float(shape.var() / shape.mean() ** 2)
        lowest = max(saturations[0], max(rates) * (1 + 1e-12))
        self._shape = shape
        self._members, rows = list[tuple[int, float]](), []
        for servers in range(1, maximum_servers + 1):
            for factor in np.geomspace(0.5, 2.0, 121).tolist():
                service = mean * factor
                if lowest <= servers / service <= saturations[1]:
                    self._members.append((servers, factor))
                    rows.append([math.log(service + _allen_cunneen(servers, rate, service, scv).mean) for rate in rates])
        if not rows:
            between = (
                f" between {saturations[0]:,.4g}/s and {saturations[1]:,.4g}/s" if saturations != _ANY else " above the measured rates"
            )
            raise ValueError(f"no queue of up to {maximum_servers} servers saturates{between}")
        self._ln_means = np.array(rows)

    def best(self, mean_response_times: npt.ArrayLike) -> MgcQueue:
        """The candidate with the least squares of ln E[R]."""
        servers, factor = self._members[_nearest(self._ln_means, mean_response_times)]
        return MgcQueue(servers, tuple((self._shape * factor).tolist()))


class BatchFamily:
    """Candidate batch-serving queues: a grid of α and τ₀; all saturate above all `rates` and within `saturations`.

    `fastest` is the lowest measured mean response time. Raises ValueError without rates or candidates.
    """

    def __init__(self, rates: Sequence[float], fastest: float, saturations: Saturations = _ANY) -> None:
        if not rates:
            raise ValueError("a queueing model needs at least one rate")
        alphas = np.geomspace(0.01, 0.995, 80) / max(rates)
        alphas = alphas[(1 / alphas >= saturations[0]) & (1 / alphas <= saturations[1])]
        if not alphas.size:
            raise ValueError(f"no batching server saturates between {saturations[0]:,.4g}/s and {saturations[1]:,.4g}/s")
        fixed = np.concatenate([[0.0], np.geomspace(0.02, 1.2, 60) * fastest])
        self._alphas, self._fixed = (grid.ravel() for grid in np.meshgrid(alphas, fixed, indexing="ij"))
        self._ln_means = np.log(
            np.column_stack([_mean_response_time_bound(self._alphas, self._fixed, np.full(self._alphas.size, rate)) for rate in rates])
        )

    def best(self, mean_response_times: npt.ArrayLike) -> BatchQueue:
        """The candidate with the least squares of ln E[R]."""
        place = _nearest(self._ln_means, mean_response_times)
        return BatchQueue(float(self._alphas[place]), float(self._fixed[place]))


def _allen_cunneen(servers: int, rate: float, mean_service_time: float, service_scv: float) -> Wait:
    chance = erlang_c(servers, rate * mean_service_time)
    of_mmc = chance * mean_service_time / (servers - rate * mean_service_time)
    return Wait(chance, of_mmc * (1 + service_scv) / 2)


def _nearest(ln_means: _Numbers, mean_response_times: npt.ArrayLike) -> int:
    """The row of `ln_means` with the least squared distance from ln E[R]."""
    return int(((ln_means - np.log(np.asarray(mean_response_times, dtype=np.float64))) ** 2).sum(axis=1).argmin())


def _mean_response_time_bound(alpha: _Numbers, tau: _Numbers, rate: _Numbers) -> _Numbers:
    load = rate * alpha
    first = 3 * tau / (2 * (1 - load)) + alpha * (load + 2) / (2 * (1 - load * load))
    other = (alpha + tau) / (2 * (1 - load)) * (1 + 2 * rate * tau + (1 - rate * tau) / (1 + load))
    return np.minimum(first, other)
