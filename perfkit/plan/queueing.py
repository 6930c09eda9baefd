"""Queueing models: M/G/c by Allen and Cunneen, and a server that takes batches.

All assume Poisson arrivals, first come first served, and a steady state. Times are in any one unit, rates per that unit.
`perfkit.plan.validation` checks a model against measured points to which it was not fitted.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

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
        low, high = 0.0, self.saturation * (1 - 1e-9)
        if self.response_time(quantile, 0.0) > limit:
            return 0.0
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (middle, high) if self.response_time(quantile, middle) <= limit else (low, middle)
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
