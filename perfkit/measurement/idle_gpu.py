"""The finding that a GPU was idle although its server had requests to answer all the time. Pure."""

import math

from perfkit.errors import MeasurementWarning
from perfkit.measurement.point_measurement import PointMeasurement
from perfkit.result.load import ClosedLoad, ColdStartLoad, IdleLoad
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.figures import IDLE_GPU_SHARE
from perfkit.units import NS_PER_S, format_duration_ns

_LONG_NS = NS_PER_S // 2
_LARGEST_EMPTY_SHARE = 0.05


def idle_gpu_warnings(measured: PointMeasurement) -> list[MeasurementWarning]:
    """A warning if each GPU of the target was idle in the window, requests were in flight nearly all the time, and took half a second or more.

    Nothing is said of a target that is not known to have a GPU, without samples of the utilisation of each GPU that it may use, and of loads
    with gaps or starts. The time is that of an execution by the server's statistics; without them, the median service time.
    """
    resources, window = measured.resources, measured.window
    gpus = [gpu for gpu in resources.gpus if gpu.may_serve]
    busy = [gpu.utilization_mean for gpu in gpus if gpu.utilization_mean is not None]
    if not resources.server_has_gpu or not busy or len(busy) < len(gpus) or max(busy) >= IDLE_GPU_SHARE:
        return []
    in_flight = _mean_in_flight(measured)
    if isinstance(measured.load, IdleLoad | ColdStartLoad) or _empty_share(in_flight, measured) > _LARGEST_EMPTY_SHARE:
        return []
    took = _time_taken(measured)
    if took is None or took[0] < _LONG_NS:
        return []
    if len(gpus) > 1:
        idle = f"The GPUs were idle: none of the {len(gpus)} was busy for more than {max(busy):.1%} of the window"
    else:
        idle = f"The GPU was idle: {gpus[0].name or gpus[0].uuid} was busy for {busy[0]:.1%} of the window"
    cpus = ""
    if resources.server_cpu is not None and window.length_ns:
        cpus = f", while the server kept {resources.server_cpu.cpu_ns / window.length_ns:.1f} CPUs busy"
    message = (
        f"{idle}, although {in_flight:.3g} requests were in flight on average and {took[1]}{cpus}. Perhaps the server "
        "prepared batch sizes that it had not had before: have each prepared by a longer warm-up or by CUDA graphs, or fix the batch size. "
        "Otherwise check that the model runs on the GPU."
    )
    return [MeasurementWarning("gpu_idle", message)]


def _mean_in_flight(measured: PointMeasurement) -> float:
    """The requests in flight, as a mean over the window.

    A closed loop keeps its concurrency, less the share of think time; otherwise by Little's law.
    """
    window = measured.window
    times = BucketCounts.merged(window.times[name] for name in ("service_time", "failure_time"))
    if not times.count or not window.length_ns:
        return 0.0
    mean_ns = times.mean_and_stddev_ns()[0]
    if isinstance(measured.load, ClosedLoad):
        return measured.load.concurrency * mean_ns / (mean_ns + measured.think_time_ns)
    return window.ended * mean_ns / window.length_ns


def _empty_share(in_flight: float, measured: PointMeasurement) -> float:
    """The share of the time without any request in flight, if requests come independently of each other.

    Each of a closed loop's slots is empty for the same share of the time; without a limit of them, the number in flight is that of a Poisson
    distribution.
    """
    if isinstance(measured.load, ClosedLoad):
        slots = measured.load.concurrency
        return (1 - in_flight / slots) ** slots
    return math.exp(-in_flight)


def _time_taken(measured: PointMeasurement) -> tuple[float, str] | None:
    """How long the server took, in nanoseconds and in words; None without any answer."""
    if measured.resources.server is not None:
        figures = measured.resources.server.figures()
        parts = (figures.compute_input_ns, figures.compute_infer_ns, figures.compute_output_ns)
        took_ns = sum(part for part in parts if part is not None)
        return took_ns, f"an execution took the server {format_duration_ns(took_ns)} (the mean of its own statistics)"
    service_time = measured.window.times["service_time"]
    if not service_time.count:
        return None
    median_ns = service_time.values_at([0.5])[0]
    return median_ns, f"a request took {format_duration_ns(median_ns)} (the median)"
