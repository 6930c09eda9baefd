"""The time series of a result: each load point's times in slices of its window, and its telemetry."""

import collections
import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.recorder.histogram import decode, encode
from perfkit.result.distribution import QUANTILES
from perfkit.result.interval_log import read_all_times, read_window_starts
from perfkit.result.model import Result
from perfkit.result.telemetry_file import read_telemetry
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentiles import is_withheld
from perfkit.telemetry.series import Series

_SLICES = 720  # of a whole run: about as many as a screen can show
HEAT_BINS_PER_DECADE = 20
"""Bin k of a slice covers the times from 10^(k/20) to 10^((k+1)/20) nanoseconds."""


@dataclasses.dataclass(frozen=True, slots=True)
class Slice:
    """The times of the requests in one slice of a repetition's window."""

    start_s: float
    """Since the window's start."""
    length_s: float
    times_ns: Mapping[str, int]
    """By name: `p50`, `p90` and `p99` where there are enough samples, and `max`."""
    bins: Mapping[int, int] = dataclasses.field(default_factory=dict)
    """The number of requests in each non-empty bin of the heat map, by the bin's number."""

    @property
    def middle_s(self) -> float:
        """The middle of the slice, since the window's start."""
        return self.start_s + self.length_s / 2


@dataclasses.dataclass(frozen=True, slots=True)
class Timeline:
    """A result's time series; points are numbered as in its summary."""

    histograms: tuple[BucketCounts, ...]
    """One per point, over all its repetitions."""
    slices: Mapping[tuple[int, int], tuple[Slice, ...]]
    """By point and repetition, ascending."""
    slice_s: int
    """The length of a slice; a window's last one may be shorter."""
    telemetry: Mapping[tuple[int, int], Sequence[Series]]
    """By point and repetition; times are nanoseconds since the window's start."""
    service_slices: Mapping[tuple[int, int], tuple[Slice, ...]] = dataclasses.field(default_factory=dict)
    """The service times of open loops, whose `slices` are response times."""
    delay_slices: Mapping[tuple[int, int], tuple[Slice, ...]] = dataclasses.field(default_factory=dict)
    """The start delays of open loops."""


def read_timeline(folder: pathlib.Path, result: Result) -> Timeline:
    """Reads the time series in a result folder; raises ResultError.

    Seconds stay encoded until they are added up into slices, so that a long run fits into memory.
    """
    index_of = {point.key: index for index, point in enumerate(result.summary)}
    window_s = {(index_of[one.key], one.repetition or 0): one.duration_s for one in result.points if one.key in index_of}
    histograms = [EMPTY for _ in result.summary]
    seconds: dict[str, dict[tuple[int, int], dict[float, list[str]]]] = {kind: {} for kind in ("", "service time", "start delay")}
    telemetry = {key: series for key, series in read_telemetry(folder).items() if key in window_s}
    starts_s = read_window_starts(folder)
    for key, name, start_s, times in read_all_times(folder, result):
        if key in window_s:  # a point that was cut short is in the log, but not in the result
            kind = "" if name == result.summary[key[0]].times_name else name
            if not kind:
                histograms[key[0]] = BucketCounts.merged([histograms[key[0]], times])
            if kind in seconds:
                seconds[kind].setdefault(key, {}).setdefault(start_s, []).append(encode(times))
    slice_s = max(1, math.ceil(sum(window_s.values()) / _SLICES))
    main = {key: seconds[""].get(key, {}) for key in window_s}
    slices, service, delays = (
        {key: _slices(texts, slice_s, starts_s.get(key, 0.0), window_s[key]) for key, texts in by_key.items()}
        for by_key in (main, seconds["service time"], seconds["start delay"])
    )
    return Timeline(tuple(histograms), slices, slice_s, telemetry, service, delays)


def _slices(seconds: Mapping[float, Sequence[str]], slice_s: int, window_start_s: float, window_s: float) -> tuple[Slice, ...]:
    """Slices from the encoded histograms of each second; seconds and the window's start are counted from the log's start."""
    parts: dict[int, list[str]] = {}
    for start_s, texts in seconds.items():
        parts.setdefault(round(start_s - window_start_s) // slice_s * slice_s, []).extend(texts)
    return tuple(_slice(start_s, max(min(slice_s, window_s - start_s), 0.0), texts) for start_s, texts in sorted(parts.items()))


def _slice(start_s: float, length_s: float, texts: Sequence[str]) -> Slice:
    times = BucketCounts.merged(map(decode, texts))
    names = [name for name in ("p50", "p90", "p99") if not is_withheld(QUANTILES[name], times.count)]
    values_ns = times.values_at([QUANTILES[name] for name in names])
    times_ns = {name: min(value_ns, times.max_ns) for name, value_ns in zip(names, values_ns, strict=True)}
    numbers = np.floor(np.log10(times.middles_ns()) * HEAT_BINS_PER_DECADE).astype(int)
    bins: collections.Counter[int] = collections.Counter()
    for number, count in zip(numbers.tolist(), times.counts.tolist(), strict=True):
        bins[number] += count
    return Slice(start_s, length_s, {**times_ns, "max": times.max_ns}, bins)
