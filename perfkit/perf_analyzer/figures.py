"""The figures of servers and GPUs by perf_analyzer's names, and its whole microseconds. Pure."""

from perfkit.figures.resources import ComposingModelFigures, ServerFigures

_NS_PER_US = 1000
_STAGES = {
    "queue": "queue_ns",
    "compute input": "compute_input_ns",
    "compute infer": "compute_infer_ns",
    "compute output": "compute_output_ns",
}
GPU_FIGURES = {
    "Avg GPU Utilization": "utilization_mean",
    "Avg GPU Power Usage": "power_mean_w",
    "Max GPU Memory Usage": "memory_used_max_bytes",
    "Total GPU Memory": "memory_total_bytes",
}
"""The field of `GpuFigures` that each name stands for."""


def whole_us(value_ns: float | None) -> int:
    """A time in whole microseconds, cut; 0 for an unknown one."""
    return int((value_ns or 0.0) / _NS_PER_US)


def stages_us(figures: ServerFigures | ComposingModelFigures) -> dict[str, int]:
    """The mean time of each stage of a request in the server, in whole microseconds."""
    return {name: whole_us(getattr(figures, field)) for name, field in _STAGES.items()}
