"""Queueing models: M/G/c by Allen and Cunneen, and a server that takes batches.

All assume Poisson arrivals, first come first served, and a steady state. Times are in any one unit, rates per that unit.
`perfkit.stats.validation` checks a model against measured points to which it was not fitted.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np


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

    def share_longer(self, time: float) -> float:
        """P[W > time] ≈ P_w exp(-P_w·time / W_q): exact for M/M/c, otherwise an exponential tail with the right mean."""
        if time < 0 or not self.mean:
            return 1.0 if time < 0 else 0.0
        return self.chance * math.exp(-self.chance * time / self.mean)


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
        chance = erlang_c(self.servers, rate * self.mean_service_time)
        alone = chance * self.mean_service_time / (self.servers - rate * self.mean_service_time)
        return Wait(chance, alone * (1 + self.service_scv) / 2)

    def mean_response_time(self, rate: float) -> float:
        """E[R] = E[S] + W_q."""
        return self.mean_service_time + self.wait(rate).mean

    def response_time(self, quantile: float, rate: float) -> float:
        """A quantile, in (0, 1), of the response time R = W + S; W and S are independent, so P[R > t] is the mean of P[W > t-S] over S."""
        wait = self.wait(rate)
        low, high = 0.0, max(self.service_times)
        while self._share_longer(wait, high) > 1 - quantile:
            low, high = high, 2 * high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self._share_longer(wait, middle) > 1 - quantile else (low, middle)
        return high

    def _share_longer(self, wait: Wait, time: float) -> float:
        return sum(wait.share_longer(time - service) for service in self.service_times) / len(self.service_times)

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

    def mean_response_time_bound(self, rate: float) -> float:
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
        alpha, tau = self.per_request, self.fixed
        first = 3 * tau / (2 * (1 - load)) + alpha * (load + 2) / (2 * (1 - load * load))
        other = (alpha + tau) / (2 * (1 - load)) * (1 + 2 * rate * tau + (1 - rate * tau) / (1 + load))
        return min(first, other)


def fit_mgc(rates: Sequence[float], mean_response_times: Sequence[float], service_times: Sequence[float], maximum_servers: int) -> MgcQueue:
    """Fits the number of servers and a factor of the service times to mean response times.

    The distribution of `service_times` is as measured without queueing. Least squares of ln E[R] over a fine grid of factors, for each
    number of servers up to `maximum_servers`. Raises ValueError without rates, and if every such queue saturates below them.
    """
    if not rates:
        raise ValueError("a queueing model needs at least one rate")
    shape = np.asarray(service_times, dtype=np.float64)
    best: tuple[float, MgcQueue] | None = None
    for servers in range(1, maximum_servers + 1):
        for factor in np.geomspace(0.5, 2.0, 121):
            queue = MgcQueue(servers, tuple(float(time) for time in shape * factor))
            if max(rates) >= queue.saturation:
                continue
            misses = [math.log(queue.mean_response_time(rate) / time) ** 2 for rate, time in zip(rates, mean_response_times, strict=True)]
            if best is None or sum(misses) < best[0]:
                best = sum(misses), queue
    if best is None:
        raise ValueError(f"the measured rates saturate every queue of up to {maximum_servers} servers")
    return best[1]


def fit_batch_queue(rates: Sequence[float], mean_response_times: Sequence[float]) -> BatchQueue:
    """Fits α and τ₀ to mean response times, by least squares of ln E[R] on a grid.

    Raises ValueError without rates.
    """
    if not rates:
        raise ValueError("a queueing model needs at least one rate")
    fastest, highest = min(mean_response_times), max(rates)
    best = (math.inf, BatchQueue(fastest, 0.0))
    for alpha in np.geomspace(0.01, 0.995, 80) / highest:
        for fixed in np.concatenate([[0.0], np.geomspace(0.02, 1.2, 60) * fastest]):
            queue = BatchQueue(float(alpha), float(fixed))
            misses = [
                math.log(queue.mean_response_time_bound(rate) / time) ** 2 for rate, time in zip(rates, mean_response_times, strict=True)
            ]
            best = min(best, (sum(misses), queue), key=lambda one: one[0])
    return best[1]
