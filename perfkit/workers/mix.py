"""One loop that several workloads share: which workload each request belongs to, the transport that sends it, and where its reply is recorded."""

import dataclasses
import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import numpy as np

from perfkit.override import override
from perfkit.recorder.batches import tally
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.series import Instants
from perfkit.transport.base import Prepared, Reply, Sender

Choice: TypeAlias = tuple[int, int]
"""The number of a workload, and that of one of its requests (its variant)."""

# the list of choices is repeated: a server would notice a short one, and a long one takes memory
_FEWEST, _MOST = 4096, 1 << 20


def workload_choices(weights: Sequence[int], variants: Sequence[int], seed: Sequence[int]) -> list[Choice]:
    """The choices for successive requests, to be repeated; the same for the same seed.

    Each block of as many requests as the reduced weights add up to is shuffled and has exactly their shares. Each workload uses its
    variants in turn, all of them unless there would be more than a million choices.
    """
    parts = [weight // math.gcd(*weights) for weight in weights]
    block = np.repeat(np.arange(len(parts)), parts)
    wanted = max(_FEWEST, *(-(-count // part) * block.size for count, part in zip(variants, parts, strict=True)))
    blocks = max(1, min(-(-wanted // block.size), _MOST // block.size))
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(tuple(seed))))
    next_variant = [itertools.cycle(range(count)) for count in variants]
    return [(workload, next(next_variant[workload])) for _ in range(blocks) for workload in random.permutation(block).tolist()]


def choices_of_worker(choices: Sequence[Choice], workers: int) -> list[Choice]:
    """The list for one of several workers: it sends every n-th request of the list, and these are then exactly the choices."""
    return [choice for choice in choices for _ in range(workers)]


@dataclasses.dataclass(slots=True)
class RoutedRequest(Prepared):
    """A request prepared by one of several transports, and that transport."""

    transport: Sender | None = None
    request: Prepared | None = None

    @classmethod
    def of(cls, transport: Sender, request: Prepared) -> "RoutedRequest":
        """The request of a transport."""
        return cls(request.buffers, request.headers, transport, request)


class MixedSender(Sender):
    """Sends each request over the transport that prepared it."""

    def __init__(self, transports: Sequence[Sender]) -> None:
        self._transports = transports

    @override
    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        return prepared.transport.send(prepared.request)  # type: ignore[attr-defined, no-any-return] # a RoutedRequest; a check would cost time in each request

    @override
    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        assert isinstance(prepared, RoutedRequest)
        assert prepared.transport is not None
        assert prepared.request is not None
        return RoutedRequest.of(prepared.transport, prepared.transport.with_traceparent(prepared.request, traceparent))

    @override
    def abandon(self) -> None:
        for transport in self._transports:
            transport.abandon()


class MixRecorder:
    """Passes each reply to the recorder of its workload; `choices` gives, for each variant of the loop, the workload and its own variant."""

    def __init__(self, recorders: Sequence[Recorder], choices: Sequence[tuple[int, int]]) -> None:
        self._recorders = recorders
        self._places: list[tuple[Callable[[Reply], None], int]] = [(recorders[workload].add, variant) for workload, variant in choices]
        self._workloads = np.array([workload for workload, _ in choices], dtype=np.int64)

    @property
    def replies(self) -> int:
        """See `Recorder.replies`."""
        return sum(recorder.replies for recorder in self._recorders)

    @property
    def failed(self) -> int:
        """The number of failed replies so far."""
        return sum(recorder.failed for recorder in self._recorders)

    def add(self, reply: Reply) -> None:
        """See `Recorder.add`; the reply's variant becomes that of its workload."""
        add, reply.variant = self._places[reply.variant]
        add(reply)

    def drop(self, intended_ns: Instants, variants: Instants, is_late: bool) -> None:
        """See `Recorder.drop`; `variants` are those of the loop."""
        workloads = self._workloads[variants]
        for workload, _ in tally(workloads):
            self._recorders[workload].drop(intended_ns[workloads == workload], is_late)
