"""The traced requests of a run, joined with the spans that the server reports of them."""

import asyncio
import dataclasses
import hashlib
import pathlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np

from perfkit.clock import Clock, wall_ns
from perfkit.errors import UsageError
from perfkit.measurement.observation import Observation
from perfkit.points.measured import PointMeasurement
from perfkit.result.model import PointKey
from perfkit.scenario.telemetry import Traces
from perfkit.spans.breakdown import Breakdown, break_down
from perfkit.spans.server_times import ServerTimes, server_times
from perfkit.spans.span import SampledRequest, Span
from perfkit.spans.split import SplitRequests, fit_server_clock, split
from perfkit.stats.clock_offset import ClockOffset, ClockReading, NoOffset, tie_clocks
from perfkit.target.address import Address
from perfkit.target.started_server import free_ports
from perfkit.telemetry.messages import SpansConfig
from perfkit.units import NS_PER_S
from perfkit.workers.request_sampler import MOST_TRACED, TraceIds

SPANS_WITHIN_S, SPANS_IN_HASTE_WITHIN_S = 10.0, 1.0
"""How long the end of a run waits for spans, of which a server sends a batch every 5 s by default, and that of an interrupted run."""
_LATEST_NS = 8 * NS_PER_S
_READINGS = 5
# of one machine's clocks, a reading may be interrupted; the share of requests that it may be wrong for
_TOLERANCE_NS, _TOLERATED_SHARE = 1_000_000, 0.01


class SpanSource:
    """Where the spans of a run come from, and the ids by which they are known. Interleaved scenarios share it."""

    def __init__(self, spec: Traces, seed: int, folder: pathlib.Path) -> None:
        self.folder, self.files = folder, spec.files
        """Patterns of files to read, in place of receiving spans; relative ones refer to the folder."""
        # with the time, because spans of an earlier run with the same seed may still come
        self.prefix = hashlib.blake2b(f"{seed} {wall_ns()}".encode(), digest_size=8).hexdigest()
        """The first 16 digits of all trace ids of the run."""
        self.host, self.port = spec.listen_at or ("127.0.0.1", free_ports(1)[0])
        """Where spans are received."""

    @property
    def config(self) -> SpansConfig | None:
        """How spans are received; None if they are read from files."""
        return None if self.files else SpansConfig(self.host, self.port, self.prefix, MOST_TRACED * 3)

    @property
    def url(self) -> str | None:
        """The URL to which a server sends its spans; None if they are read from files."""
        return None if self.files else f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/v1/traces"


class _TracedPoint(NamedTuple):
    key: PointKey
    repetition: int
    window_start_ns: int
    ended_ns: int
    sampled: tuple[SampledRequest, ...]
    machines_bound_ns: int
    """The largest error of a fleet's machine's clock beside this one's; 0 without a fleet."""


class RequestTraces:
    """The traced requests of a scenario's load points, and what the server says of each."""

    def __init__(self, source: SpanSource, title: str, clock: Clock) -> None:
        self._clock, self._source, self.ids = clock, source, TraceIds(source.prefix, title)
        """The ids of its traces; `title` tells them from those of interleaved scenarios."""
        self._points: list[_TracedPoint] = []
        self._times: dict[str, ServerTimes] = {}
        self._asked: set[str] = set()
        self._readings: list[ClockReading] = []
        self.breakdowns: dict[tuple[PointKey, int | None], Breakdown] = {}
        """Where the time of the requests went, by load point and repetition, None for all repetitions; empty before `split`."""

    def read_clocks(self) -> None:
        """Reads both clocks of this machine; called before each load point."""
        readings = [ClockReading(self._clock.now_ns(), wall_ns(), self._clock.now_ns()) for _ in range(_READINGS)]
        self._readings.append(min(readings, key=lambda one: one.after_ns - one.before_ns))  # another may have been interrupted

    def add(self, measurements: Sequence[PointMeasurement]) -> None:
        """Adds the traced requests of a load point; in a mix, of the whole and of each workload."""
        self.read_clocks()
        machines_bound_ns = max((machine.recorded.clock_bound_ns for machine in measurements[0].machines), default=0)
        for one in measurements:
            key = PointKey(one.workload, one.is_alone, one.protocol, one.load)
            self._points.append(
                _TracedPoint(key, one.repetition, one.window.start_ns, self._clock.now_ns(), one.sampled, machines_bound_ns)
            )

    async def collect(self, observation: Observation, within_s: float | None = None) -> None:
        """Takes the spans that have come of load points that ended a while ago; with `within_s` those of all, and waits for them.

        The wait begins with the end of the last load point, so that scenarios measured interleaved do not wait one after the other.

        Raises UsageError if a file of spans cannot be read; files are read once, at the end.
        """
        if self._source.files and within_s is None:
            return
        old = [one for one in self._points if within_s is not None or one.ended_ns + _LATEST_NS <= self._clock.now_ns()]
        ended_ns = {request.trace_id: request.finished_ns for one in old for request in one.sampled if request.is_ok}
        wanted = ended_ns.keys() - self._asked
        if not wanted:
            return
        self._asked |= wanted
        waited_s = (self._clock.now_ns() - max(one.ended_ns for one in self._points)) / NS_PER_S
        left_s = max((within_s or 0.0) - waited_s, 0.0)
        if self._source.files:
            self._times |= await self._read_files(wanted, left_s)
        else:
            self._times |= await observation.spans(sorted(wanted, key=ended_ns.__getitem__), left_s)

    async def _read_files(self, wanted: AbstractSet[str], within_s: float) -> Mapping[str, ServerTimes]:
        """The server's part of these requests, as far as the files tell in this time; they may still be written."""
        until_ns = self._clock.now_ns() + round(within_s * NS_PER_S)
        while True:
            is_last = self._clock.now_ns() >= until_ns
            try:
                times = await asyncio.to_thread(_times_of_files, self._source)
            except UsageError:  # such as a file that is being written
                if is_last:
                    raise
            else:
                if is_last or wanted <= times.keys():
                    return times
            await self._clock.sleep_until_ns(self._clock.now_ns() + NS_PER_S)

    def split(self, addresses: Collection[Address]) -> Iterator[tuple[str | int | float, ...]]:
        """Splits the time of the requests whose spans were collected: sets `breakdowns`, and returns the rows of `traces.csv`."""
        splits = list(self._split(addresses))
        by_key: dict[PointKey, list[SplitRequests]] = {}
        for key, repetition, one in splits:
            self.breakdowns[key, repetition] = break_down(one)
            by_key.setdefault(key, []).append(one)
        for key, repetitions in by_key.items():
            self.breakdowns[key, None] = break_down(SplitRequests.merged(repetitions))
        return (row for key, _, one in splits for row in _traced_rows(key, one))

    def _split(self, addresses: Collection[Address]) -> Iterator[tuple[PointKey, int, SplitRequests]]:
        """The requests of each load point and repetition, with the parts of their time."""
        whole = self._server_clock([request for one in self._points for request in one.sampled], addresses)
        for one in self._points:
            clock = whole
            if isinstance(clock, NoOffset):  # one line does not fit the whole run
                clock = fit_server_clock(one.sampled, self._times)
            parts = split(one.sampled, self._times, clock, one.window_start_ns, one.repetition)
            if parts.clock_bound_ns is not None:
                parts = dataclasses.replace(parts, clock_bound_ns=parts.clock_bound_ns + one.machines_bound_ns)
            yield one.key, one.repetition, parts

    def _server_clock(self, requests: Sequence[SampledRequest], addresses: Collection[Address]) -> ClockOffset | NoOffset:
        """The server's clock minus this process's: that of this machine, if the spans agree with it."""
        if self._readings and all(address.is_local for address in addresses):
            # Triton's own trace files have times of the monotonic clock
            for clock in (tie_clocks(self._readings), ClockOffset((0,), (0,), (0,))):
                if self._agrees(requests, clock):
                    return clock
        return fit_server_clock(requests, self._times)

    def _agrees(self, requests: Sequence[SampledRequest], clock: ClockOffset) -> bool:
        """Whether the server's part of nearly every request lies within it; in a virtual machine a server may have another clock."""
        pairs = [(one, self._times[one.trace_id]) for one in requests if one.trace_id in self._times]
        if not pairs:
            return True
        started, finished = (
            np.array(column, np.int64) for column in zip(*((one.started_ns, one.finished_ns) for one, _ in pairs), strict=True)
        )
        received, answered = (
            np.array(column, np.int64) for column in zip(*((one.received_ns, one.answered_ns) for _, one in pairs), strict=True)
        )
        is_early = received - clock.at(started) < started - _TOLERANCE_NS
        is_late = answered - clock.at(finished) > finished + _TOLERANCE_NS
        return bool(np.mean(is_early | is_late) <= _TOLERATED_SHARE)


def _times_of_files(source: SpanSource) -> dict[str, ServerTimes]:
    from perfkit.spans.formats import read_spans_file  # whose formats other runs do without

    spans: dict[str, list[Span]] = {}
    for pattern in source.files:
        path = source.folder / pattern
        # a file that does not exist is named by the error
        for file in sorted(path.parent.glob(path.name)) or [path]:
            for trace_id, found in read_spans_file(file, source.prefix).spans.items():
                spans.setdefault(trace_id, []).extend(found)
    times = {trace_id: server_times(found) for trace_id, found in spans.items() if trace_id.startswith(source.prefix)}
    return {trace_id: found for trace_id, found in times.items() if found is not None}


def _traced_rows(key: PointKey, split: SplitRequests) -> Iterator[tuple[str | int | float, ...]]:
    """The rows of a load point's requests in `traces.csv`."""
    totals = split.parts_ns.sum(axis=1)
    columns = (split.trace_ids, split.repetitions.tolist(), split.at_ns.tolist(), totals.tolist(), split.parts_ns.tolist())
    for trace_id, repetition, at_ns, total_ns, parts_ns in zip(*columns, strict=True):
        yield (key.workload or "", key.protocol, key.load.title, repetition, trace_id, at_ns / NS_PER_S, total_ns, *parts_ns)
