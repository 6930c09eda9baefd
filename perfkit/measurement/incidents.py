"""Stalls and error bursts of the target: spans of a window without any answer, and spans with most of its failures. Pure."""

from collections.abc import Iterator, Sequence

import numpy as np

from perfkit.errors import MeasurementWarning
from perfkit.recorder.window import Window
from perfkit.result.load import ClosedLoad, ColdStartLoad, IdleLoad, Load
from perfkit.result.model import Incident
from perfkit.units import NS_PER_S

_SHORTEST_STALL_S, _MISSING_ANSWERS, _MISSING_CYCLES = 0.5, 20, 3
_ARRIVALS_IN_STALL = 10
_FEWEST_FAILURES, _BURST_RATIO = 10, 5
_LISTED = 3


def find_incidents(window: Window, load: Load, repetition: int) -> tuple[Incident, ...]:
    """The stalls and error bursts of one window, in the order of time."""
    found = [*_stalls(window, load, repetition), *_error_bursts(window, repetition)]
    return tuple(sorted(found, key=lambda incident: incident.start_s))


def incident_warnings(incidents: Sequence[Incident], *, is_pooled: bool) -> Iterator[MeasurementWarning]:
    """A warning for each kind, with the seconds of the window; `is_pooled` adds the repetition."""
    stalls = [one for one in incidents if one.kind == "stall"]
    bursts = [one for one in incidents if one.kind == "error_burst"]
    if stalls:
        spans = _spans(stalls, digits=1, is_pooled=is_pooled)
        yield MeasurementWarning("stall", f"The target answered nothing {spans}, although requests were waiting.")
    if bursts:
        failed = sum(one.failed for one in bursts)
        yield MeasurementWarning(
            "error_burst", f"{failed:,} requests failed close together, {_spans(bursts, digits=0, is_pooled=is_pooled)}."
        )


def _spans(incidents: Sequence[Incident], *, digits: int, is_pooled: bool) -> str:
    """The incidents' seconds in words: `from 5.0 to 7.0 s of the window`."""
    places = [f"of repetition {one.repetition + 1}" if is_pooled else "of the window" for one in incidents]
    spans = [f"from {one.start_s:.{digits}f} to {one.end_s:.{digits}f} s {place}" for one, place in zip(incidents, places, strict=True)]
    others = len(spans) - _LISTED
    return ", ".join(spans[:_LISTED]) + (f" and {others} more time{'s' * (others > 1)}" if others > 0 else "")


def _stalls(window: Window, load: Load, repetition: int) -> Iterator[Incident]:
    """Spans without any answer while requests were due.

    A stall lasts at least half a second, and long enough for 20 answers at the window's mean rate; in a closed loop also for three
    answers to each connection, because batches are answered together, with gaps between them. In an open loop, at least 10 requests
    were due in it; idle gaps and starts are no stalls. Spans during most of which the load generator was stopped are left out.
    """
    if isinstance(load, IdleLoad | ColdStartLoad):
        return
    is_closed = isinstance(load, ClosedLoad)
    series = window.series if is_closed else window.series.offered()
    interval_s = series.interval_ns / NS_PER_S
    answered_per_s = int(series.answered.sum()) / (series.answered.size * interval_s) if series.answered.size else 0.0
    if not answered_per_s:
        return
    missing = max(_MISSING_ANSWERS, _MISSING_CYCLES * load.concurrency if isinstance(load, ClosedLoad) else 0)
    least_s = max(_SHORTEST_STALL_S, missing / answered_per_s)
    for first, end in _runs((series.answered == 0).tolist()):
        if (end - first) * interval_s < least_s or (not is_closed and int(series.scheduled[first:end].sum()) < _ARRIVALS_IN_STALL):
            continue
        start_ns, end_ns = (series.origin_ns + number * series.interval_ns for number in (first, end))
        stopped_ns = sum(max(min(stop.end_ns, end_ns) - max(stop.start_ns, start_ns), 0) for stop in window.stops)
        if 2 * stopped_ns <= end_ns - start_ns:
            start_s = (start_ns - window.start_ns) / NS_PER_S
            yield Incident(kind="stall", repetition=repetition, start_s=start_s, length_s=(end_ns - start_ns) / NS_PER_S)


def _error_bursts(window: Window, repetition: int) -> Iterator[Incident]:
    """Runs of seconds with most of the window's failures.

    A burst has ten failures or more, takes at most half of the window, and has five times as many failures a second as the rest of it.
    Bursts are reported if together they have more than half of the failures.
    """
    failed, seconds = window.failed_per_s, len(window.failed_per_s)
    total, found = sum(failed), list[Incident]()
    for first, end in _runs([total > 0 and count * seconds > total for count in failed]):
        count, length = sum(failed[first:end]), end - first
        rest_per_s = (total - count) / max(seconds - length, 1)
        if count >= _FEWEST_FAILURES and 2 * length <= seconds and count / length >= _BURST_RATIO * rest_per_s:
            length_s = min(float(end), window.length_ns / NS_PER_S) - first
            found.append(Incident(kind="error_burst", repetition=repetition, start_s=float(first), length_s=length_s, failed=count))
    if 2 * sum(one.failed for one in found) > total:
        yield from found


def _runs(flags: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """The first index and the end of each run of true flags."""
    edges = np.flatnonzero(np.diff(np.array([False, *flags, False], dtype=np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
