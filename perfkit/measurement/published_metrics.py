"""A run as Prometheus sees it while it goes on: which load point is under way, and the figures of those that are finished."""

from perfkit.result.distribution import QUANTILES
from perfkit.result.model import Point
from perfkit.telemetry.messages import Metric
from perfkit.units import NS_PER_S


def started_metrics(name: str, number: int, total: int, protocol: str, load: str, repetition: int) -> list[Metric]:
    """Load point `number` of `total` has begun, counted from 1; `name` is the scenario's."""
    labels = {"scenario": name, "protocol": protocol, "load": load, "repetition": str(repetition + 1)}
    return [
        Metric("points", "Load points of the run, repetitions counted.", "gauge", {"scenario": name}, total),
        Metric("point_number", "The load point that is under way, from 1 on.", "gauge", {"scenario": name}, number),
        Metric("point_info", "1 for the load point that is under way.", "gauge", labels, 1),
    ]


def finished_metrics(name: str, point: Point) -> list[Metric]:
    """The figures of a finished load point; times in seconds, as Prometheus has them."""
    labels = {"scenario": name, "protocol": point.protocol, "load": point.load.title, "repetition": str((point.repetition or 0) + 1)}
    kind = point.times_name.replace(" ", "_")
    metrics = [
        Metric("point_throughput_per_second", "Ok answers a second.", "gauge", labels, point.throughput_per_s),
        Metric("point_error_ratio", "1 - ok / scheduled requests.", "gauge", labels, point.error_rate),
        Metric("point_valid", "Whether the figures are the target's, not the generator's.", "gauge", labels, int(point.valid)),
    ]
    for quantile_name, quantile in QUANTILES.items():
        value = getattr(point.times, quantile_name)
        if value is not None and point.times.count:
            quantile_labels = {**labels, "quantile": f"{quantile:g}"}
            text = f"Percentiles of the {point.times_name}, as far as the samples carry them."
            metrics.append(Metric(f"point_{kind}_seconds", text, "gauge", quantile_labels, value / NS_PER_S))
    return metrics
