"""The time series of a result: each load point's times in slices of its window, and what telemetry sampled beside them."""

import dataclasses
import itertools
import math
import pathlib
from collections.abc import Mapping, Sequence

from perfkit.recorder.histogram import decode, encode
from perfkit.result.distribution import QUANTILES
from perfkit.result.interval_log import read_times, read_window_starts
from perfkit.result.model import Point, Result
from perfkit.result.telemetry_file import read_sampled_window_starts, read_telemetry
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.sample_size import is_withheld
from perfkit.telemetry.series import Series

_SLICES = 240  # about as many as a panel of the timeline can show


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """The times of the requests in one slice of a repetition's window."""

    start_s: float
    """Since the window's start."""
    length_s: float
    times_ns: Mapping[str, int]
    """By name: `p50`, `p90` and `p99` where there are enough samples, and `max`."""

    @property
    def middle_s(self) -> float:
        """The middle of the slice, since the window's start."""
        return self.start_s + self.length_s / 2


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """A result's time series; points are numbered as in its summary."""

    histograms: tuple[BucketCounts, ...]
    """One a point, over all its repetitions."""
    slices: Mapping[tuple[int, int], tuple[Slice, ...]]
    """By point and repetition, ascending."""
    slice_s: int
    """The length of a slice; a window's last one may be shorter."""
    telemetry: Mapping[tuple[int, int], Sequence[Series]]
    """By point and repetition; times are nanoseconds since the window's start."""

    def times_ms(self, key: tuple[int, int], name: str, start_s: float) -> list[tuple[float, float]]:
        """A percentile of a repetition that starts at `start_s`: the middle of each slice in seconds, and the value there."""
        slices = self.slices.get(key, ())
        return [(start_s + part.middle_s, part.times_ns[name] / 1e6) for part in slices if name in part.times_ns]


def repetitions_of(result: Result, point: Point) -> list[tuple[Point, float]]:
    """The repetitions of a point of the summary in order, each with its start in seconds when one follows the other."""
    repetitions = [one for one in result.points if (one.protocol, one.load) == (point.protocol, point.load)]
    repetitions.sort(key=lambda one: one.repetition or 0)
    starts_s = itertools.accumulate((one.duration_s for one in repetitions), initial=0.0)
    return list(zip(repetitions, starts_s, strict=False))


def read_timeline(folder: pathlib.Path, result: Result) -> Timeline:
    """Reads the time series in a result folder; raises ResultError.

    Seconds stay encoded until they are added up into slices, so that a long run fits into memory. Earlier logs do not hold the start of
    a window: then the telemetry does, and without any the window starts with the first second that has samples.
    """
    index_of = {(point.protocol, point.load): index for index, point in enumerate(result.summary)}
    window_s = {
        (index_of[load], one.repetition or 0): one.duration_s for one in result.points if (load := (one.protocol, one.load)) in index_of
    }
    histograms = [EMPTY for _ in result.summary]
    seconds: dict[tuple[int, int], dict[float, list[str]]] = {key: {} for key in window_s}
    telemetry = {key: series for key, series in read_telemetry(folder).items() if key in window_s}
    starts_s = read_window_starts(folder) or read_sampled_window_starts(folder)
    for key, start_s, times in read_times(folder, result):
        if key in window_s:  # a point that was cut short is in the log, but not in the result
            histograms[key[0]] = BucketCounts.merged([histograms[key[0]], times])
            seconds[key].setdefault(start_s, []).append(encode(times))
    longest_s = max((sum(length for key, length in window_s.items() if key[0] == index) for index in range(len(histograms))), default=0.0)
    slice_s = max(1, math.ceil(longest_s / _SLICES))
    slices = {key: _slices(texts, slice_s, starts_s.get(key, min(texts, default=0.0)), window_s[key]) for key, texts in seconds.items()}
    return Timeline(tuple(histograms), slices, slice_s, telemetry)


def _slices(seconds: Mapping[float, Sequence[str]], slice_s: int, window_start_s: float, window_s: float) -> tuple[Slice, ...]:
    """Slices from the encoded histograms of each second; seconds and the window's start are counted from the log's start."""
    parts: dict[int, list[str]] = {}
    for start_s, texts in seconds.items():
        parts.setdefault(round(start_s - window_start_s) // slice_s * slice_s, []).extend(texts)
    return tuple(Slice(start_s, max(min(slice_s, window_s - start_s), 0.0), _times_ns(texts)) for start_s, texts in sorted(parts.items()))


def _times_ns(texts: Sequence[str]) -> dict[str, int]:
    times = BucketCounts.merged(map(decode, texts))
    names = [name for name in ("p50", "p90", "p99") if not is_withheld(QUANTILES[name], times.count)]
    values_ns = times.values_at([QUANTILES[name] for name in names])
    times_ns = {name: min(value_ns, times.max_ns) for name, value_ns in zip(names, values_ns, strict=True)}
    return {**times_ns, "max": times.max_ns}
