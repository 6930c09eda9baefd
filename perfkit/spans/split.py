"""Traced requests joined with the server's times, and the time of each split into parts that add up to it."""

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from perfkit.spans.server_times import ServerTimes
from perfkit.spans.span import SampledRequest
from perfkit.stats.buckets import LONGEST_TIME_NS
from perfkit.stats.clock_offset import ClockOffset, NoOffset, fit_offset

PARTS = (
    "start_delay", "connection_wait", "request_way", "queue", "compute_input", "compute_infer", "compute_output", "response_way", "remainder",
)  # fmt: skip
_STAGES = ("queue", "compute_input", "compute_infer", "compute_output")
_WAYS = ("request_way", "response_way")
_REMAINDER = PARTS.index("remainder")

Integers = npt.NDArray[np.int64]


@dataclasses.dataclass(frozen=True, slots=True)
class SplitRequests:
    """The ok requests whose spans came, in the order of their start, repetition by repetition, each with its parts."""

    trace_ids: tuple[str, ...]
    variants: Integers
    at_ns: Integers
    """When they were intended, since the start of their window."""
    repetitions: Integers
    parts_ns: Integers
    """One row each, one column for each of `PARTS`; 0 for a part that is not known. A row adds up to the request's time."""
    is_known: npt.NDArray[np.bool_]
    """Which parts were known of any request; the time of the others is in the remainder."""
    without_spans: int
    """Ok requests whose spans did not come, or make a part longer than a request can last."""
    failed: int
    """Sampled requests that were not answered ok; they are not split."""
    clock_bound_ns: int | None
    """How far the ways to and from the server may each be wrong, because the server's clock is another; None if they are not known."""
    clock_problem: str = ""
    """Why the ways are not known."""

    @classmethod
    def merged(cls, several: Sequence[Self]) -> Self:
        """The split requests of several load points or repetitions, in their order. Raises ValueError for none.

        Ways that are not known of some requests are in the remainder of all: means would take them for shorter than they are.
        """
        if not several:
            raise ValueError("there are no requests to merge")
        traced = [one for one in several if one.trace_ids]
        if any(one.clock_bound_ns is None for one in traced):
            several = [one.without_ways() for one in several]
        bounds = [one.clock_bound_ns for one in several if one.clock_bound_ns is not None]
        return cls(
            trace_ids=tuple(trace_id for one in several for trace_id in one.trace_ids),
            variants=np.concatenate([one.variants for one in several]),
            at_ns=np.concatenate([one.at_ns for one in several]),
            repetitions=np.concatenate([one.repetitions for one in several]),
            parts_ns=np.concatenate([one.parts_ns for one in several]),
            is_known=np.logical_or.reduce([one.is_known for one in several]),
            without_spans=sum(one.without_spans for one in several),
            failed=sum(one.failed for one in several),
            clock_bound_ns=max(bounds, default=None),
            clock_problem=next((one.clock_problem for one in traced or several if one.clock_problem), ""),
        )

    def without_ways(self) -> Self:
        """The same requests as without a clock: the ways are in the remainder."""
        places = [PARTS.index(name) for name in _WAYS]
        parts_ns, is_known = self.parts_ns.copy(), self.is_known.copy()
        parts_ns[:, _REMAINDER] += parts_ns[:, places].sum(axis=1)
        parts_ns[:, places], is_known[places] = 0, False
        return dataclasses.replace(self, parts_ns=parts_ns, is_known=is_known, clock_bound_ns=None)


def fit_server_clock(requests: Sequence[SampledRequest], times: Mapping[str, ServerTimes]) -> ClockOffset | NoOffset:
    """The clock of a server on another machine minus the load generator's, from the requests whose spans came, by trace id."""
    pairs = _joined(requests, times)
    starts = np.array([(one.started_ns, one.finished_ns) for one, _ in pairs], np.int64).reshape(-1, 2)
    server = np.array([(one.received_ns, one.answered_ns) for _, one in pairs], np.int64).reshape(-1, 2)
    return fit_offset(starts[:, 0], starts[:, 1], server[:, 0], server[:, 1])


def split(
    requests: Sequence[SampledRequest],
    times: Mapping[str, ServerTimes],
    clock: ClockOffset | NoOffset,
    window_start_ns: int,
    repetition: int = 0,
) -> SplitRequests:
    """The time of each sampled request in parts; `times` are the server's by trace id, `clock` its clock minus the load generator's.

    The parts of the response time, in a closed loop of the service time: the start delay (until the load generator came to send it), the
    wait for a connection, the way to the server (until the request entered a queue, or the server had received it), the server's queue,
    compute input, infer and output, the way back (from the end of the work, or the start of the answer), and the remainder: what is in
    none of them, such as the server's front end. Without a clock offset the ways are not known and part of the remainder.
    """
    pairs = sorted(_joined(requests, times), key=lambda pair: pair[0].intended_ns)
    rows = np.array([one[1:6] for one, _ in pairs], np.int64).reshape(-1, 5)
    intended, paced, started, finished, variants = rows.T
    server = [(one.received_ns if one.work_began_ns is None else one.work_began_ns) for _, one in pairs]
    began = np.array(server, np.int64)
    ended = np.array([(one.answered_ns if one.work_ended_ns is None else one.work_ended_ns) for _, one in pairs], np.int64)
    stages_of = operator.attrgetter(*(f"{name}_ns" for name in _STAGES))
    stages = [stages_of(one) for _, one in pairs]
    is_known = np.ones(len(PARTS), np.bool_)
    parts = np.zeros((len(pairs), len(PARTS)), np.int64)
    is_open = paced != 0
    parts[:, 0], parts[:, 1] = np.where(is_open, paced - intended, 0), np.where(is_open, started - paced, 0)
    for place, name in enumerate(_STAGES):
        column = [one[place] for one in stages]
        is_known[PARTS.index(name)] = any(one is not None for one in column)
        parts[:, PARTS.index(name)] = [one or 0 for one in column]
    if isinstance(clock, ClockOffset):
        # the offset is taken at the instant whose place on the server's clock is wanted
        parts[:, PARTS.index("request_way")] = began - clock.at(started) - started
        parts[:, PARTS.index("response_way")] = finished - (ended - clock.at(finished))
    else:
        is_known[[PARTS.index(name) for name in _WAYS]] = False
    parts[:, _REMAINDER] = finished - np.where(is_open, intended, started) - parts.sum(axis=1)
    # otherwise the span has a damaged instant
    kept = np.flatnonzero((np.abs(parts) <= LONGEST_TIME_NS).all(axis=1))
    ok = sum(one.is_ok for one in requests)
    return SplitRequests(
        trace_ids=tuple(pairs[place][0].trace_id for place in kept.tolist()),
        variants=variants[kept],
        at_ns=(intended - window_start_ns)[kept],
        repetitions=np.full(kept.size, repetition, np.int64),
        parts_ns=parts[kept],
        is_known=is_known,
        without_spans=ok - kept.size,
        failed=len(requests) - ok,
        clock_bound_ns=clock.bound_ns if isinstance(clock, ClockOffset) else None,
        clock_problem=clock.reason if isinstance(clock, NoOffset) else "",
    )


def _joined(requests: Sequence[SampledRequest], times: Mapping[str, ServerTimes]) -> list[tuple[SampledRequest, ServerTimes]]:
    return [(one, times[one.trace_id]) for one in requests if one.is_ok and one.trace_id in times]
