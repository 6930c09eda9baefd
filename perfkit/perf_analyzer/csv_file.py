"""perf_analyzer's CSV reports: a row for each load, and a file of its own for each composing model. Pure."""

from collections.abc import Sequence

from perfkit.figures.resources import ComposingModelFigures, GpuFigures, ServerFigures
from perfkit.perf_analyzer.measured_load import GPU_FIGURES, MeasuredLoad, stages_us, whole_us
from perfkit.perf_analyzer.options import Options


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
        columns_us = _server_columns(load.server)
        if has_cache:
            columns_us |= {
                "Server Cache Hit": whole_us(load.server.cache_hit_ns),
                "Server Cache Miss": whole_us(load.server.cache_miss_ns),
            }
        row["Network+Server Send/Recv"] = str(max(whole_us(load.latency_mean_ns) - sum(columns_us.values()), 0))
        row |= {name: str(value_us) for name, value_us in columns_us.items()}
    row["Client Recv"] = "0"
    row |= {f"p{percentile} latency": str(whole_us(value_ns)) for percentile, value_ns in load.percentiles_ns.items()}
    if options.is_verbose_csv:
        if options.percentile is None:
            row["Avg latency"] = str(whole_us(load.latency_mean_ns))
        row |= {"request/response": "0", "response wait": str(whole_us(load.latency_mean_ns)) if load.responses_per_s is None else "0"}
        if options.collects_metrics:
            row |= {name: _gpu_cell(load.gpus, figure) for name, figure in GPU_FIGURES.items()}
    return row


def _composing_row(options: Options, load: MeasuredLoad, model: ComposingModelFigures) -> dict[str, str]:
    """Its inferences are those of the whole, by the ratio of the requests; what its stages leave of its time is overhead."""
    ratio = model.requests / load.server.requests if load.server is not None and load.server.requests else 0.0
    columns_us = _server_columns(model)
    row = _load_columns(options, load) | {"Inferences/Second": f"{ratio * load.inferences_per_s:.6g}", "Client Send": "0"}
    row["Network+Server Send/Recv"] = str(max(whole_us(model.success_ns) - sum(columns_us.values()), 0))
    return row | {name: str(value_us) for name, value_us in columns_us.items()} | {"Client Recv": "0"}


def _load_columns(options: Options, load: MeasuredLoad) -> dict[str, str]:
    is_concurrency = options.load_mode == "concurrency"
    value = f"{load.value:.0f}" if is_concurrency else f"{load.value:.6g}"
    return {"Concurrency" if is_concurrency else "Request Rate": value, "Inferences/Second": f"{load.inferences_per_s:.6g}"}


def _server_columns(figures: ServerFigures | ComposingModelFigures) -> dict[str, int]:
    return {f"Server {name.title()}": value_us for name, value_us in stages_us(figures).items()}


def _gpu_cell(gpus: Sequence[GpuFigures], figure: str) -> str:
    values = {gpu.uuid: getattr(gpu, figure) for gpu in gpus}
    return "".join(
        f"{uuid}:{value if isinstance(value, int) else format(value, '.6g')};" for uuid, value in values.items() if value is not None
    )


def _text(rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"{','.join(row)}\n" for row in rows)
