"""What server and GPUs said of each load point, as columns of a table."""

from collections.abc import Sequence

from perfkit.report.markdown import WITHHELD, Cell, Column, load_columns
from perfkit.result.model import Point
from perfkit.units import format_duration_ns

_GIB = 2.0**30


def server_columns(points: Sequence[Point]) -> tuple[Column, ...]:
    """The server's own figures, means per request; none where it told nothing."""
    if all(point.server is None for point in points):
        return ()
    names = {"queue": "queue_ns", "input": "compute_input_ns", "infer": "compute_infer_ns", "output": "compute_output_ns"}
    return (
        *load_columns(points),
        Column("requests", _requests),
        *(_time(heading, name) for heading, name in names.items()),
        _time("server, whole", "success_ns"),
        _time("client", "client_mean_ns"),
        Column("mean batch", lambda point: Cell(_number(point.server.mean_batch if point.server else None, "{:.2f}"))),
    )


def gpu_rows(points: Sequence[Point]) -> list[list[str]]:
    """A row a GPU and load point: the load point, the GPU, where it is known from, and its figures; see `GPU_HEADINGS`."""
    return [
        [
            f"{point.protocol}, {point.load.title}",
            f"{gpu.name or 'GPU'} {gpu.uuid[:12]}",
            {"nvml": "driver", "metrics": "metrics"}[gpu.source],
            _number(gpu.utilization_mean, "{:.0%}"),
            _number(None if gpu.memory_used_max_bytes is None else gpu.memory_used_max_bytes / _GIB, "{:.1f} GiB"),
            _number(gpu.power_mean_w, "{:.0f} W"),
            _number(gpu.energy_j, "{:,.0f} J") + (" (from power)" if gpu.energy_source == "power" else ""),
            _number(gpu.sm_clock_mean_mhz, "{:,.0f} MHz"),
            _number(gpu.throttled_share, "{:.0%}"),
            _number(point.energy_per_inference_j, "{:.3g} J"),
        ]
        for point in points
        for gpu in point.gpus
    ]


GPU_HEADINGS = ("load point", "GPU", "source", "busy", "memory", "power", "energy", "SM clock", "throttled", "energy an inference")


def _requests(point: Point) -> Cell:
    server = point.server
    if server is None:
        return Cell(WITHHELD, "the server told nothing of this load point: the warnings say why")
    return Cell(f"{server.requests:,}", f"perfkit counted {server.client_requests:,} answers, the warm-up's among them")


def _time(heading: str, name: str) -> Column:
    def cell(point: Point) -> Cell:
        value = getattr(point.server, name, None)
        return Cell(WITHHELD if value is None else format_duration_ns(value) if value else "0")

    return Column(heading, cell)


def _number(value: float | None, form: str) -> str:
    return WITHHELD if value is None else form.format(value)
