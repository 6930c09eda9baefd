"""perf_analyzer's CSV reports: a row for each load, and a file of its own for each composing model. Pure."""

from collections.abc import Sequence

from perfkit.perf_analyzer.measured_load import MeasuredLoad
from perfkit.perf_analyzer.options import Options
from perfkit.telemetry.figures import ComposingModelFigures, GpuFigures, ServerFigures

_NS_PER_US = 1000
_STAGES = {
    "Server Queue": "queue_ns",
    "Server Compute Input": "compute_input_ns",
    "Server Compute Infer": "compute_infer_ns",
    "Server Compute Output": "compute_output_ns",
}
_GPU_COLUMNS = {
    "Avg GPU Utilization": "utilization_mean",
    "Avg GPU Power Usage": "power_mean_w",
    "Max GPU Memory Usage": "memory_used_max_bytes",
    "Total GPU Memory": "memory_total_bytes",
}


def csv_text(options: Options, loads: Sequence[MeasuredLoad]) -> str:
    """The report; rows ascend by throughput, as perf_analyzer sorts them. Perfkit does not time sending and receiving: they are 0."""
    has_cache = any(load.server is not None and (load.server.cache_hits or load.server.cache_misses) for load in loads)
    rows = [_row(options, load, has_cache=has_cache) for load in sorted(loads, key=lambda load: load.inferences_per_s)]
    return _text([list(rows[0]), *(list(row.values()) for row in rows)]) if rows else ""


def composing_csv_files(options: Options, loads: Sequence[MeasuredLoad]) -> dict[str, str]:
    """The reports of composing models by their names and versions, `NAME_vVERSION`."""
    files: dict[str, list[list[str]]] = {}
    for load in sorted(loads, key=lambda load: load.inferences_per_s):
        for model in load.server.composing_models if load.server is not None else ():
            row = _composing_row(options, load, model)
            name = f"{model.name}_v{model.versions[0] if model.versions else ''}"
            files.setdefault(name, [list(row)]).append(list(row.values()))
    return {name: _text(rows) for name, rows in files.items()}


def _row(options: Options, load: MeasuredLoad, *, has_cache: bool) -> dict[str, str]:
    row = _load_columns(options, load)
    if load.responses_per_s is not None:
        row["Response Throughput"] = f"{load.responses_per_s:.6g}"
    row["Client Send"] = "0"
    if load.server is not None:
        stages_us = _stages_us(load.server)
        if has_cache:
            stages_us |= {
                "Server Cache Hit": _us(load.server.cache_hit_ns or 0.0),
                "Server Cache Miss": _us(load.server.cache_miss_ns or 0.0),
            }
        row["Network+Server Send/Recv"] = str(max(_us(load.latency_mean_ns) - sum(stages_us.values()), 0))
        row |= {name: str(value_us) for name, value_us in stages_us.items()}
    row["Client Recv"] = "0"
    row |= {f"p{percentile} latency": str(_us(value_ns)) for percentile, value_ns in load.percentiles_ns.items()}
    if options.is_verbose_csv:
        if options.percentile is None:
            row["Avg latency"] = str(_us(load.latency_mean_ns))
        row |= {"request/response": "0", "response wait": str(_us(load.latency_mean_ns)) if load.responses_per_s is None else "0"}
        if options.collects_metrics:
            row |= {name: _gpu_cell(load.gpus, figure) for name, figure in _GPU_COLUMNS.items()}
    return row


def _composing_row(options: Options, load: MeasuredLoad, model: ComposingModelFigures) -> dict[str, str]:
    """Its inferences are those of the whole, by the ratio of the requests; what its stages leave of its time is overhead."""
    ratio = model.requests / load.server.requests if load.server is not None and load.server.requests else 0.0
    stages_us = _stages_us(model)
    row = _load_columns(options, load) | {"Inferences/Second": f"{ratio * load.inferences_per_s:.6g}", "Client Send": "0"}
    row["Network+Server Send/Recv"] = str(max(_us(model.success_ns or 0.0) - sum(stages_us.values()), 0))
    return row | {name: str(value_us) for name, value_us in stages_us.items()} | {"Client Recv": "0"}


def _load_columns(options: Options, load: MeasuredLoad) -> dict[str, str]:
    is_concurrency = options.load_mode == "concurrency"
    value = f"{load.value:.0f}" if is_concurrency else f"{load.value:.6g}"
    return {"Concurrency" if is_concurrency else "Request Rate": value, "Inferences/Second": f"{load.inferences_per_s:.6g}"}


def _stages_us(figures: ServerFigures | ComposingModelFigures) -> dict[str, int]:
    return {name: _us(getattr(figures, figure) or 0.0) for name, figure in _STAGES.items()}


def _gpu_cell(gpus: Sequence[GpuFigures], figure: str) -> str:
    values = {gpu.uuid: getattr(gpu, figure) for gpu in gpus}
    return "".join(
        f"{uuid}:{value if isinstance(value, int) else format(value, '.6g')};" for uuid, value in values.items() if value is not None
    )


def _us(value_ns: float) -> int:
    return int(value_ns / _NS_PER_US)


def _text(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"{','.join(row)}\n" for row in rows)
