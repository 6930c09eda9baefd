"""Measured loads with the figures that a real perf_analyzer printed, and made windows."""

from perfkit.figures.resources import ServerFigures
from perfkit.perf_analyzer.measured_load import MeasuredLoad
from perfkit.perf_analyzer.windows import RunFigures, Window
from perfkit.stats.buckets import BucketCounts


def server(queue_us, input_us, infer_us, output_us, overhead_us=0, count=1884):
    queue_ns, input_ns, infer_ns, output_ns = (1000.0 * part for part in (queue_us, input_us, infer_us, output_us))
    total_ns = queue_ns + input_ns + infer_ns + output_ns + 1000.0 * overhead_us
    return ServerFigures(count, 0, total_ns, queue_ns, input_ns, infer_ns, output_ns, count, 1.0, inferences=count)


def measured_load(value=1, **changes):
    figures = {
        "protocol": "http", "requests": 1883, "inferences_per_s": 1727.1828, "requests_per_s": 1727.1828,
        "latency_mean_ns": 570_900.0, "latency_stddev_ns": 395_400.0,
        "percentiles_ns": {50: 485_200, 90: 770_000, 95: 1_027_999, 99: 1_937_001}, "stabilizing_latency_ns": 570_900.0,
        "server": server(13, 24, 9, 16, 1),
    }  # fmt: skip
    return MeasuredLoad(value, **{**figures, **changes})


def measured_window(inferences_per_s, latency_ns=1_000_000, run=None, **changes):
    """A window of a second, whose requests take the same time each; in a run of its own unless another is given."""
    requests = changes.pop("requests", round(inferences_per_s))
    times = changes.pop("times", None) or BucketCounts.of([round(latency_ns)] * requests)
    return Window(requests, 1.0, inferences_per_s, times, run or RunFigures(), **changes)
