"""The times of the requests of the last seconds, for who watches the run: made where it costs the load nothing."""

from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.messages import IntervalTimes, Metric
from perfkit.units import NS_PER_S

_QUANTILES = (0.5, 0.9, 0.99)


class LiveTimes:
    """Takes seconds as workers close them; a second's parts add up, and the newest one is shown."""

    def __init__(self) -> None:
        self._timed = 0
        self._point, self._index = -1, -1
        self._parts: dict[str, list[BucketCounts]] = {}

    def add(self, second: IntervalTimes) -> None:
        """Takes a second, or a worker's part of one."""
        self._timed += second.times["service_time"].count
        if (second.point, second.index) > (self._point, self._index):
            self._point, self._index, self._parts = second.point, second.index, {}
        if (second.point, second.index) == (self._point, self._index):
            for name, packed in second.times.items():
                self._parts.setdefault(name, []).append(packed)

    def metrics(self) -> list[Metric]:
        """How many requests were timed in all, and the percentiles of the newest second."""
        found = [Metric("requests_timed_total", "Requests of the measured windows whose times are recorded.", "counter", {}, self._timed)]
        for name, parts in self._parts.items():
            histogram = BucketCounts.merged(parts)
            if histogram.count:
                text = f"Percentiles of the {name.replace('_', ' ')} over the newest second that is complete."
                values = zip(_QUANTILES, histogram.values_at(_QUANTILES), strict=True)
                found += [Metric(f"{name}_seconds", text, "gauge", {"quantile": f"{q:g}"}, value / NS_PER_S) for q, value in values]
        return found
