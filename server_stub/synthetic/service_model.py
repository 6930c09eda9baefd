"""The service model of `synthetic`: service times, batching, stalls and failures."""

import dataclasses
import functools
import hashlib
import math
import statistics
from typing import Literal, Protocol

from perfkit.errors import ErrorKind
from perfkit.override import override

NS_PER_S = 1_000_000_000


class ServiceTime(Protocol):
    """A distribution of service times, in nanoseconds."""

    def quantile_ns(self, share: float, batch_size: int) -> float:
        """The quantile for a share above 0 and below 1. With a uniform random share, it is a random service time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Linear(ServiceTime):
    """Constant for a batch size: a fixed time, plus `row_ns` for each row."""

    fixed_ns: int
    row_ns: int = 0

    @override
    def quantile_ns(self, share: float, batch_size: int) -> float:
        return self.fixed_ns + self.row_ns * batch_size


@dataclasses.dataclass(frozen=True, slots=True)
class Exponential(ServiceTime):
    """Exponentially distributed, independent of the batch size."""

    average_ns: int

    @override
    def quantile_ns(self, share: float, batch_size: int) -> float:
        return -math.log1p(-share) * self.average_ns


@dataclasses.dataclass(frozen=True)
class Lognormal(ServiceTime):
    """Lognormally distributed, independent of the batch size. `sigma` is the standard deviation of the logarithm."""

    average_ns: int
    sigma: float

    @functools.cached_property
    def _logarithm(self) -> statistics.NormalDist:
        return statistics.NormalDist(math.log(self.average_ns) - self.sigma**2 / 2, self.sigma)

    @override
    def quantile_ns(self, share: float, batch_size: int) -> float:
        return math.exp(self._logarithm.inv_cdf(share))


@dataclasses.dataclass(frozen=True, slots=True)
class Stall:
    """No request departs during the last `duration_ns` of every `period_ns`.

    If it `drains_at_once`, all requests present depart at its end, however long their service would take. Otherwise
    service pauses, and continues after the stall.
    """

    duration_ns: int
    period_ns: int
    drains_at_once: bool = True


@dataclasses.dataclass(frozen=True, slots=True)
class Failures:
    """The share of requests that end with an error, after the usual service time."""

    share: float
    kind: ErrorKind


@dataclasses.dataclass(frozen=True, slots=True)
class SlowStart:
    """Service takes `factor` times as long at first. The excess decays exponentially, to 1/e in `decay_ns`."""

    factor: float
    decay_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class SlowFirst:
    """The first executions of each batch size take `factor` times as long."""

    factor: float
    executions: int


@dataclasses.dataclass(frozen=True, slots=True)
class SlowShare:
    """The service of a random share of the executions takes `factor` times as long."""

    factor: float
    share: float


@dataclasses.dataclass(frozen=True, slots=True)
class AfterGap:
    """Service takes `extra_ns` longer for a request that arrives `gap_ns` or more after the latest departure."""

    extra_ns: int
    gap_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """Batches of up to `size` rows. If `is_awaited`, a batch starts only when it is full."""

    size: int
    is_awaited: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class TextForm:
    """The texts that the OpenAI front end answers with. The instants of their events are those of a decoupled model's responses."""

    tokens: int = 16
    """Output tokens of a request that does not set its own number."""
    tokens_per_event: int = 1
    """Tokens that an event carries; the last one of the reasoning, and of the text, carries what is left."""
    reasoning: int = 0
    """How many of a chat's first output tokens are reasoning."""
    usage: Literal["final", "chunks", "off"] = "final"
    """Where a stream states its numbers of tokens if the request asks for them: at its end, in all events, or nowhere, as then single answers."""
    error_after: int | None = None
    """The number of events after which a stream ends with an error. None for no error."""
    sends_done: bool = True
    """Whether a stream ends with `data: [DONE]`."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServiceModel:
    """The whole service model. Stall periods, slow start and drift begin with the first request."""

    service: ServiceTime = Linear(5_000_000)
    servers: int = 1
    batch: Batch | None = None
    """None serves requests one by one, whatever their batch sizes."""
    queue: int | None = None
    """The requests that may wait; those that find as many waiting are refused at once. None for any number."""
    stall: Stall | None = None
    failures: Failures | None = None
    slow_start: SlowStart | None = None
    first: SlowFirst | None = None
    slow: SlowShare | None = None
    after_gap: AfterGap | None = None
    drift_per_s: float = 0.0
    """The relative change of service times per second."""
    seed: int = 0
    lead_ns: int = 200_000
    """How long before its simulated departure a response is sent, to make up for the time in the front end and the kernel."""
    responses: int | None = None
    """The number of responses to a request, which makes the model decoupled: the first at its simulated departure. None means one."""
    gap_ns: int = 0
    """The time between responses, and between the events of a text."""
    text: TextForm = TextForm()
    counts_left: bool = False
    """Whether the statistics count requests whose client has left; they keep their place in the queue, and their service, in any case."""

    def service_ns(self, number: int, batch_size: int, of_size: int, age_ns: int) -> int:
        """The random service time of the n-th execution, the `of_size`-th of its batch size, which starts `age_ns` after the first request; all count from 0."""
        quantile_ns = self.service.quantile_ns(uniform_share(self.seed, number, b"service"), batch_size)
        is_slow = self.slow is not None and uniform_share(self.seed, number, b"slow") < self.slow.share
        slowdown = self.slowdown(age_ns) * (self.slow.factor if self.slow and is_slow else 1)
        if self.first is not None and of_size < self.first.executions:
            slowdown *= self.first.factor
        return round(quantile_ns * slowdown)

    def failure(self, number: int) -> ErrorKind | None:
        """The error that the n-th request ends with, or None."""
        if self.failures is None or uniform_share(self.seed, number, b"failure") >= self.failures.share:
            return None
        return self.failures.kind

    def slowdown(self, age_ns: int) -> float:
        """The factor on service times, from slow start and drift, `age_ns` after the first request."""
        factor = 1.0
        if self.slow_start is not None:
            factor += (self.slow_start.factor - 1) * math.exp(-age_ns / self.slow_start.decay_ns)
        if self.drift_per_s:
            factor *= max(0.0, 1 + self.drift_per_s * age_ns / NS_PER_S)
        return factor


def uniform_share(seed: int, number: int, purpose: bytes) -> float:
    """A uniform random share above 0 and below 1 that depends on the arguments only, so the n-th request's is the same in every run."""
    digest = hashlib.blake2b(number.to_bytes(8, "little"), digest_size=8, key=seed.to_bytes(8, "little"), person=purpose).digest()
    # 52 bits, so that adding a half, which avoids 0 and 1, is exact
    return ((int.from_bytes(digest, "little") >> 12) + 0.5) / 2**52
