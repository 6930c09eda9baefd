"""The pooled windows of the repetitions of a load point, from which its figures are computed. Pure."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from perfkit.errors import MeasurementWarning
from perfkit.figures.declaration import own_figures
from perfkit.points.behaviour import find_incidents, idle_gpu_warnings, target_warnings
from perfkit.points.measured import PointMeasurement
from perfkit.points.retry_storm import retry_storm_warnings
from perfkit.recorder.batches import merge_times
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES, distribution
from perfkit.result.part import Part
from perfkit.result.point_parts import Incident
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.percentiles import PercentileInterval, percentile_intervals
from perfkit.units import NS_PER_S


@dataclasses.dataclass(frozen=True, slots=True)
class Pool:
    """The windows of a load point's repetitions together: their times and counts, and what was judged of the target in each."""

    parts: tuple[PointMeasurement, ...]
    times: Mapping[str, BucketCounts]
    event_loop_lag: BucketCounts
    target_warnings: Mapping[str, MeasurementWarning]
    """By code, each once."""
    incidents: tuple[Incident, ...]

    @classmethod
    def of(cls, measured: PointMeasurement) -> "Pool":
        """The pool of a single repetition."""
        window = measured.window
        by_code = {one.code: one for one in (*idle_gpu_warnings(measured), *retry_storm_warnings(measured), *target_warnings(measured))}
        incidents = find_incidents(window, measured.load, measured.repetition)
        return cls((measured,), window.times, measured.resources.event_loop_lag, by_code, incidents)

    def __add__(self, other: "Pool") -> "Pool":
        by_code = {**self.target_warnings, **other.target_warnings, **self.target_warnings}  # of two with one code, the earlier
        return Pool(
            self.parts + other.parts,
            merge_times([self.times, other.times]),
            BucketCounts.merged((self.event_loop_lag, other.event_loop_lag)),
            by_code,
            self.incidents + other.incidents,
        )

    @property
    def windows(self) -> list[Window]:
        """The windows of all repetitions."""
        return [part.window for part in self.parts]

    @property
    def window_s(self) -> float:
        """Their length."""
        return sum(window.length_ns for window in self.windows) / NS_PER_S

    @property
    def waiting_times(self) -> BucketCounts:
        """How long a user waited: the response times; in a closed loop, which has none, the service times."""
        return self.times.get("response_time", self.times["service_time"])

    @property
    def batches(self) -> list[BucketCounts]:
        """The waiting times in the equal parts of all windows, one window after the other."""
        return [batch for window in self.windows for batch in window.batches]

    def percentile_intervals(self) -> dict[float, PercentileInterval]:
        """95 % intervals of the percentiles."""
        return percentile_intervals(self.batches, tuple(QUANTILES.values()))

    def count(self, name: str) -> int:
        """A count over all windows."""
        return sum(window.count(name) for window in self.windows)

    def rate(self, count: float) -> float:
        """A count per second of the windows."""
        return count / self.window_s if self.window_s else 0.0

    def batches_of(self, name: str) -> list[BucketCounts]:
        """One of the further times in the equal parts of all windows, one window after the other; empty parts where it is missing."""
        return [batch for window in self.windows for batch in window.further_batches.get(name, (EMPTY,) * len(window.batches))]

    def recorded(self, model: type[Part]) -> dict[str, Any]:
        """The figures of a model that are recorded, by their fields: see `Figure.recorded`."""
        values = dict[str, Any]()
        for name, (figure, _) in own_figures(model).items():
            if not figure.recorded:
                continue
            if figure.unit == "ns":
                times = self.times.get(figure.recorded)
                values[name] = distribution(times) if times is not None and (times.count or figure.is_of_all) else None
            else:
                count = self.count(figure.recorded)
                values[name] = self.rate(count) if figure.unit == "per_s" else count
        return values

    def weighted_mean(self, value: Callable[[PointMeasurement], float]) -> float:
        """A mean over the repetitions, weighted by the lengths of their windows."""
        total_ns = sum(window.length_ns for window in self.windows)
        return sum(value(part) * part.window.length_ns for part in self.parts) / total_ns if total_ns else 0.0
