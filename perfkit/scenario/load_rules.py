"""What a scenario may have beside each kind of load."""

from typing import NamedTuple

from perfkit.scenario.load import ClosedLoadSpec, ColdStartLoadSpec, LoadSpec, OpenLoadSpec, SearchLoadSpec, SurgeLoadSpec, is_scan
from perfkit.scenario.measure import Measure
from perfkit.scenario.retry import Retry
from perfkit.scenario.sequences import Sequences, Stream
from perfkit.scenario.slo import Slo
from perfkit.scenario.target import Target
from perfkit.scenario.telemetry import Traces
from perfkit.scenario.workload import SharedMemorySpec


class Beside(NamedTuple):
    """The sections of a scenario that its load has to fit."""

    slo: Slo | None
    measure: Measure
    target: Target
    sequences: Sequences | None
    stream: Stream | None
    shared_memory: SharedMemorySpec
    traces: Traces | None


def retry_of(load: LoadSpec) -> Retry | None:
    """Which failed requests of a load are sent again; None for none."""
    return load.retry if isinstance(load, ClosedLoadSpec | OpenLoadSpec | SurgeLoadSpec) else None


def check_load(load: LoadSpec, beside: Beside, *, is_mix: bool) -> None:
    """Raises ValueError if a load does not fit the rest of its scenario; what clients do is checked of each workload of a mix by itself."""
    if isinstance(load, SearchLoadSpec):
        _check_search(load, beside)
    elif isinstance(load, ColdStartLoadSpec):
        _check_cold_start(load, beside)
    elif isinstance(load, SurgeLoadSpec):
        _check_surge(beside)
    elif is_scan(load):
        _check_scan(beside)
    if not is_mix:
        _check_abandon(load, beside)
        _check_retry(load, beside)
    if beside.measure.warmup.load is not None and (is_mix or beside.sequences is not None):
        raise ValueError("measure.warmup.load sends plain requests of one workload: remove it, or workloads and sequences")


def _check_search(load: SearchLoadSpec, beside: Beside) -> None:
    measure, target = beside.measure, beside.target
    if (load.search.slo is None) == (beside.slo is None):
        raise ValueError("load.search needs exactly one SLO: give either load.search.slo, such as {p99: 50ms}, or slo")
    if measure.requests is not None:
        raise ValueError("load.search measures for measure.duration: remove measure.requests")
    if "repetitions" in measure.model_fields_set and measure.repetitions > 1:
        raise ValueError("load.search decides itself how often it measures: remove measure.repetitions")
    if len(target.load_protocols) > 1:
        keys = "target.urls: [{http: URL}, {grpc: URL}]" if target.urls else "target.protocols: [[http], [grpc]]"
        raise ValueError(f"load.search takes one protocol; to search over each in turn, use sweep: {{{keys}}}")


def _check_cold_start(load: ColdStartLoadSpec, beside: Beside) -> None:
    measure, defaults = beside.measure, Measure()
    if given := [key for key in ("duration_ns", "requests", "warmup_ns") if getattr(measure, key) != getattr(defaults, key)]:
        key = given[0].removesuffix("_ns")
        raise ValueError(f"load.cold_start sends load.cold_start.requests after each start, from the first on: remove measure.{key}")
    if beside.sequences is not None or beside.stream is not None or beside.shared_memory is not None:
        raise ValueError("load.cold_start sends plain requests: remove sequences, stream and shared_memory")
    if load.cold_start.by == "restart":
        if not beside.target.is_started:
            raise ValueError(
                "load.cold_start.by: perfkit restarts only a server that it has started: give target.command, such as "
                "'my-server --port {port}', in place of the URL, or use by: reload"
            )
        if "timeout_ns" in load.cold_start.model_fields_set:
            raise ValueError("load.cold_start.timeout is for by: reload: remove it, and give target.ready_within for a command")
    if any(len(urls) > 1 for urls in beside.target.urls_by_protocol.values()):
        raise ValueError("load.cold_start starts one server: give target.url without replicas")


def _check_surge(beside: Beside) -> None:
    if beside.slo is None or not beside.slo.good_within_ns:
        raise ValueError("load.surge tells when the target meets its SLO again: give slo with a limit on a time, such as {p99: 50ms}")
    if _has_own_window(beside.measure):
        raise ValueError(
            "load.surge: its window lasts before + for + after, and its SLO is not judged as a whole: remove measure.duration, "
            "measure.requests and measure.until_decided"
        )
    if beside.sequences is not None:
        raise ValueError("load.surge sends plain requests: remove sequences")


def _check_scan(beside: Beside) -> None:
    where = "load.closed.concurrency: a scan"
    if _has_own_window(beside.measure):
        raise ValueError(f"{where} lasts as long as `over` says: remove measure.duration, measure.requests and measure.until_decided")
    if beside.slo is not None or beside.sequences is not None or beside.traces is not None:
        raise ValueError(f"{where} is no load point, which an SLO could judge, and sends plain requests: remove slo, sequences and traces")


def _has_own_window(measure: Measure) -> bool:
    return measure.duration_ns is not None or measure.requests is not None or bool(measure.until_decided)


def _check_abandon(load: LoadSpec, beside: Beside) -> None:
    if not isinstance(load, ClosedLoadSpec | OpenLoadSpec) or (given := load.abandon) is None:
        return
    if given.after.events is not None and beside.stream is None:
        raise ValueError("load.abandon.after.events: only streams have several responses: add stream: {}, or give a time")
    if beside.stream is not None and beside.stream.requests_per_stream > 1:
        raise ValueError("load.abandon: a request that shares a stream cannot be cancelled by itself: set stream.requests_per_stream to 1")
    if beside.sequences is not None or beside.traces is not None:
        raise ValueError(f"load.abandon gives up plain requests: remove it, or {'sequences' if beside.sequences else 'traces'}")


def _check_retry(load: LoadSpec, beside: Beside) -> None:
    if retry_of(load) is None:
        return
    if isinstance(load, ClosedLoadSpec | OpenLoadSpec) and load.abandon is not None:
        raise ValueError("load.retry: a client that gives a request up does not send it again: measure one without the other")
    if beside.stream is not None and beside.stream.requests_per_stream > 1:
        raise ValueError("load.retry: a request that shares a stream cannot be sent again: set stream.requests_per_stream to 1")
    if beside.sequences is not None:
        raise ValueError(
            "load.retry: a step that the server had executed before it failed would change its sequence twice: remove retry, or sequences"
        )
    if beside.traces is not None:
        raise ValueError("load.retry: a trace shows a request that is sent once: remove retry, or traces")
