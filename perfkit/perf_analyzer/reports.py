"""What perf_analyzer prints to stdout, and its CSV reports: a row for each load, a file of its own for each composing model. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from perfkit.figures.resources import ComposingModelFigures, GpuFigures, ServerFigures
from perfkit.perf_analyzer.measured_load import GPU_FIGURES, MeasuredLoad, stages_us, whole_us
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.windows import Window

_GPU_UNITS = {"utilization_mean": "%", "power_mean_w": " watts", "memory_used_max_bytes": " bytes", "memory_total_bytes": " bytes"}
_DELAYED_SHARE = 0.01


class Report:
    """The lines of one command.

    Numbers have six significant digits, as C++'s stream prints them; after the first warning about delayed requests they have two decimals,
    since that warning changes the stream for good.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._has_two_decimals = False

    @property
    def is_verbose(self) -> bool:
        """Whether each window has a line."""
        return self._options.is_verbose

    def settings(self, *, is_decoupled: bool = False) -> Iterator[str]:
        """The lines before the first load."""
        options, load = self._options, self._options.load_range
        yield from ("*** Measurement Settings ***", f"  Batch size: {options.batch_size}", "  Service Kind: TRITON")
        if options.warmup_request_count:
            yield f"  Sending {_counted(options.warmup_request_count, 'warmup request')}"
        if options.request_count:
            yield f"  Sending {_counted(options.request_count, 'benchmark request')}"
        else:
            yield f'  Using "{options.measurement_mode}" mode for stabilization'
            metric = "throughput" if options.is_async else "latency and throughput"
            # perf_analyzer has no space after a percentile
            yield f"  Stabilizing using {'average ' if options.percentile is None else f'p{options.percentile}'}{metric}"
            if options.measurement_mode == "time_windows":
                yield f"  Measurement window: {options.interval_ms} msec"
            else:
                yield f"  Minimum number of samples in each window: {options.measurement_request_count}"
        is_concurrency, is_rate = options.load_mode == "concurrency", options.load_mode == "request_rate"
        if (is_concurrency or is_rate) and load.end != 1:
            yield f"  Latency limit: {options.latency_threshold_ms} msec"
            if load.end:
                limit = self._number(max(load.start, load.end))
                yield (
                    f"  Concurrency limit: {limit} concurrent requests"
                    if is_concurrency
                    else f"  Request Rate limit: {limit} requests per seconds"
                )
        if is_rate:
            yield f"  Using {'poisson' if options.distribution == 'poisson' else 'uniform'} distribution on request generation"
        if options.is_binary_search:
            yield "  Using Binary Search algorithm"
        yield f"  Using {'asynchronous' if options.is_async else 'synchronous'} calls for inference"
        if is_decoupled:
            yield "  Detected decoupled model, using the first response for measuring latency"
        yield ""

    def load_begins(self, value: float) -> Iterator[str]:
        """The line before a load, for the modes that have one."""
        if self._options.load_mode == "concurrency":
            yield f"Request concurrency: {value:.0f}"
        elif self._options.load_mode == "request_rate":
            yield f"Request Rate: {self._number(value)} inference requests per second"

    def window_passes(self, windows: Sequence[Window], before: int = 0) -> Iterator[str]:
        """With `-v`, a line for each window, counted on from those before."""
        percentile = self._options.percentile
        for number, window in enumerate(windows, before + 1):
            if not window.requests:
                yield f"  Pass [{number}] cb::Error: No valid requests recorded within time interval. Please use a larger time window."
                continue
            latency = f"{whole_us(window.latency_ns(percentile))} usec"
            if percentile is None:
                latency = f"Avg latency: {latency} (std {whole_us(window.times.mean_and_stddev_ns()[1])} usec). "
            else:
                latency = f"p{percentile} latency: {latency}"
            yield f"  Pass [{number}] throughput: {self._number(window.inferences_per_s)} infer/sec. {latency}"

    def load(self, load: MeasuredLoad) -> Iterator[str]:
        """The figures of a load."""
        yield from ("  Client: ", f"    Request count: {load.requests}")
        if load.delayed_share > _DELAYED_SHARE:
            self._has_two_decimals = True
            yield f"    Avg send request rate: {load.requests_per_s:.2f} infer/sec"
            yield (
                "    [WARNING] Perf Analyzer was not able to keep up with the desired request rate. "
                f"{100 * load.delayed_share:.2f}% of the requests were delayed. "
            )
        if load.sequences is not None:
            yield f"    Sequence count: {load.sequences} ({self._number(load.sequences_per_s)} seq/sec)"
        yield f"    Throughput: {self._number(load.inferences_per_s)} infer/sec"
        if load.responses_per_s is not None:
            yield f"    Response Throughput: {self._number(load.responses_per_s)} infer/sec"
        if self.is_verbose:
            yield f"    Avg client overhead: {100 * load.cpu_share:.2f}%"
        if self._options.percentile is None:
            yield f"    Avg latency: {whole_us(load.latency_mean_ns)} usec (standard deviation {whole_us(load.latency_stddev_ns)} usec)"
        for percentile, value_ns in load.percentiles_ns.items():
            yield f"    p{percentile} latency: {whole_us(value_ns)} usec"
        if load.responses_per_s is None:
            yield self._client_library_time(load)
        else:
            yield "    "
        if load.server is not None:
            yield from ("  Server: ", *self._server(load.server))
        if self._options.collects_metrics:
            yield from ("  Server Prometheus Metrics: ", *self._gpus(load.gpus))

    def _client_library_time(self, load: MeasuredLoad) -> str:
        average = whole_us(load.latency_mean_ns)
        if load.protocol == "http":
            name, together, sent, received = "HTTP", "send/recv", "send", "receive"
        else:
            name, together, sent, received = "gRPC", "(un)marshal request/response", "marshal", "unmarshal"
        if self.is_verbose:
            return f"    Avg {name} time: {average} usec ({sent} 0 usec + response wait {average} usec + {received} 0 usec)"
        return f"    Avg {name} time: {average} usec ({together} 0 usec + response wait {average} usec)"

    def summary(self, loads: Sequence[MeasuredLoad]) -> Iterator[str]:
        """The lines after the last load; none if none is reported."""
        if loads:
            latency = "Average" if self._options.percentile is None else f"p{self._options.percentile}"
            yield f"Inferences/Second vs. Client {latency} Batch Latency"
        for load in loads:
            named = (
                f"Concurrency: {load.value:.0f}"
                if self._options.load_mode == "concurrency"
                else f"Request Rate: {self._number(load.value)}"
            )
            throughput, latency_us = self._number(load.inferences_per_s), whole_us(load.stabilizing_latency_ns)
            yield f"{named}, throughput: {throughput} infer/sec, latency {latency_us} usec"

    def _server(self, server: ServerFigures) -> Iterator[str]:
        if not server.requests:
            yield "    Request count: 0"
            return
        yield f"    Inference count: {server.inferences}"
        yield f"    Execution count: {server.executions}"
        if server.cache_hits or server.cache_misses:
            yield f"    Cache hit count: {server.cache_hits}"
            yield f"    Cache miss count: {server.cache_misses}"
        yield f"    Successful request count: {server.requests}"
        models = sorted(server.composing_models, key=lambda model: model.name)
        yield _server_latency("    ", server, _sums_us(models) if models else stages_us(server))
        if models:
            yield from ("", "  Composing models: ")
        for model in models:
            yield f"  {model.name}, version: {', '.join(model.versions)}"
            inferences = round(model.executions * (model.mean_batch or 1.0))
            yield f"      Inference count: {inferences}"
            yield f"      Execution count: {model.executions}"
            yield f"      Successful request count: {model.requests}"
            yield _server_latency("      ", model, stages_us(model))

    def _gpus(self, gpus: Sequence[GpuFigures]) -> Iterator[str]:
        for name, figure in GPU_FIGURES.items():
            yield f"    {name}:"
            for gpu in gpus:
                if (value := getattr(gpu, figure)) is not None:
                    unit = _GPU_UNITS[figure]
                    shown = str(value) if isinstance(value, int) else self._number(100 * value if unit == "%" else value)
                    yield f"      {gpu.uuid} : {shown}{unit}"

    def _number(self, value: float) -> str:
        return f"{value:.2f}" if self._has_two_decimals else f"{value:.6g}"


def _sums_us(models: Sequence[ComposingModelFigures]) -> dict[str, int]:
    """Queue and computation of all composing models together, which stand for those of the model that calls them."""
    stages = [stages_us(model) for model in models]
    queue_us = sum(one["queue"] for one in stages)
    return {"queue": queue_us, "compute": sum(sum(one.values()) for one in stages) - queue_us}


def _server_latency(indent: str, figures: ServerFigures | ComposingModelFigures, parts_us: Mapping[str, int]) -> str:
    total_us = whole_us(figures.success_ns)
    parts = " + ".join(f"{name} {value_us} usec" for name, value_us in parts_us.items())
    return f"{indent}Avg request latency: {total_us} usec (overhead {max(total_us - sum(parts_us.values()), 0)} usec + {parts})"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number > 1)}"


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
