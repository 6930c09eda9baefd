"""The scenario that a perf_analyzer command line stands for, as the keys and values of a scenario file."""

import contextlib
import dataclasses
import itertools
import math
import mmap
import pathlib
from collections.abc import Sequence
from typing import Any, TypeAlias

from perfkit.perf_analyzer.notes import notes
from perfkit.perf_analyzer.options import LoadRange, Options, UnsupportedError
from perfkit.perf_analyzer.windows import STABILITY_WINDOWS, THREADS, has_one_run, linear_values
from perfkit.scenario.credentials import escaped
from perfkit.scenario.file import scenario_name, scenario_text

__all__ = ["print_scenario", "scenario_for", "scenario_of"]

_Section: TypeAlias = dict[str, Any]
_REPETITIONS = 3
_WARM_UP = "1s"
"""The warm-up of a single load: a fixed time, since an end that is detected would shorten the windows."""
_OPEN_ENDED = 10
"""How many values stand for a range without an end."""
_MOST_VALUES = 10_000
_SLO_PERCENTILES = (50, 90, 95, 99)
_REQUESTS_PER_STREAM = 1_000_000_000
_DEFAULT_OUTPUT_BYTES = 102_400
_EVERY_ANSWER = {"share": "100%", "at_most": "10000000/s", "tolerance": 0}
_DEFAULT_METRICS_INTERVAL_MS, _SHORTEST_METRICS_INTERVAL_MS = 1000, 10


def scenario_of(commands: Sequence[Options]) -> _Section:
    """The scenario of a whole command, with all its loads; several commands are a mix.

    Its requests belong to sequences where a sequence option is given. Raises UnsupportedError for what a scenario does not have.
    """
    if len(commands) > 1:
        return _mix(commands)
    [options] = commands
    return _document(options, _whole_load(options))


def scenario_for(commands: Sequence[Options], value: float, windows: int = STABILITY_WINDOWS) -> _Section:
    """The scenario that measures one load of a command, a concurrency or a rate, for this many windows.

    In a mix each workload has the load of its own command.
    """
    if len(commands) > 1:
        document = _mix(commands)
    else:
        [options] = commands
        document = _document(options, _load(options, [value]))
    measure = dict(document["measure"])
    load = document.get("load", {})
    if "trace" in load.get("open", {}):
        measure["warmup"] = "0s"  # whose arrivals the file does not have
    elif "replay" not in load:
        measure.setdefault("warmup", _WARM_UP)
    if has_one_run(commands[0]):
        measure |= {"duration": f"{windows * commands[0].interval_ms}ms", "repetitions": 1}
    elif measure.get("repetitions") != 1:
        measure["repetitions"] = windows
    document = {**document, "measure": measure}
    return {**document, "gpu": {"idle": "0s"}}


def print_scenario(commands: Sequence[Options]) -> str:
    """The scenario of a whole command as YAML, for a file in any folder; before it, as comments, what changes in meaning.

    Raises UnsupportedError for what a scenario does not have.
    """
    comments = dict.fromkeys(note for options in commands for note in notes(options))
    return scenario_text(scenario_of([_with_absolute_paths(options) for options in commands]), tuple(comments))


def _with_absolute_paths(options: Options) -> Options:
    tls = options.tls
    return dataclasses.replace(
        options,
        input_data=tuple(map(_absolute, options.input_data)),
        intervals_file=_absolute(options.intervals_file),
        tls=dataclasses.replace(tls, ca=_absolute(tls.ca), cert=_absolute(tls.cert), key=_absolute(tls.key)),
    )


def _absolute(path: str) -> str:
    """A path from the root; an empty one stays empty."""
    return str(pathlib.Path(path).absolute()) if path else ""


def _document(options: Options, load: _Section) -> _Section:
    if options.sequences.is_given and "replay" in load:
        raise UnsupportedError(
            "perfkit: a replay (--request-intervals, --fixed-schedule) sends single requests: sequences need another load mode"
        )
    document = {"name": scenario_name(options.model), "target": target_of(options), **_sections(options, load)}
    document |= {"load": load, "measure": _measure(options, load)}
    if slo := _slo(options):
        if "search" in load:
            load["search"] = {"slo": slo, **load["search"]}
        else:
            document["slo"] = slo
    if options.collects_metrics and options.metrics_interval_ms != _DEFAULT_METRICS_INTERVAL_MS:
        document["metrics"] = {"interval": f"{max(options.metrics_interval_ms, _SHORTEST_METRICS_INTERVAL_MS)}ms"}
    return document


def _sections(options: Options, load: _Section) -> _Section:
    """What the requests are: the sections that a workload of a mix has, too."""
    sections: _Section = {"workload": _workload(options)}
    if any(map(_has_expected_outputs, options.input_data)):
        sections["check"] = _EVERY_ANSWER
    if options.sequences.is_given:
        sections["sequences"] = _sequences(options, load)
    if options.is_streaming:
        sections["stream"] = _stream(options, load)
    if options.shared_memory != "none":
        sections["shared_memory"] = _shared_memory(options)
    return {name: section for name, section in sections.items() if section or name in ("sequences", "stream")}


def _workload(options: Options) -> _Section:
    workload: _Section = {"batch_size": options.batch_size} if options.batch_size > 1 else {}
    generated: _Section = {"generate": "zeros" if options.is_zero_data else "random"}
    generated |= {"text": options.string_data} if options.string_data else {"text_length": options.string_length}
    inputs = {name: {**generated, "shape": list(shape)} for name, shape in options.shapes.items()}
    if options.load_mode == "fixed_schedule" or options.input_data:
        if options.load_mode != "fixed_schedule":
            workload["data"] = list(options.input_data)
        inputs = {name: {"generate": "random", "shape": list(shape)} for name, shape in options.shapes.items()}
    else:
        inputs = {"*": generated, **inputs}
    if inputs:
        workload["inputs"] = inputs
    if options.input_format == "json":
        workload["encoding"] = "json"
    if options.parameters:
        workload["parameters"] = dict(options.parameters)
    return workload


def _has_expected_outputs(name: str) -> bool:
    """Whether a file of input data has the member `validation_data`; those of a folder are known with the model only."""
    path = pathlib.Path(name)
    with contextlib.suppress(OSError, ValueError):  # ValueError: an empty file
        if path.is_file():
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return content.find(b'"validation_data"') >= 0
    return False


def _sequences(options: Options, load: _Section) -> _Section:
    given = options.sequences
    section: _Section = {}
    if given.is_length_given or not options.input_data:  # otherwise a sequence is as long as its stream of data
        spread = given.length * given.length_variation_percent / 100
        if not math.isfinite(spread):
            raise UnsupportedError(f"perfkit: --sequence-length-variation: expected a number, found {given.length_variation_percent}")
        # what is added to the length is cut to a whole number towards 0, so that neither end is ever reached
        shortest, longest = max(math.floor(given.length - spread) + 1, 1), max(math.ceil(given.length + spread) - 1, 1)
        section["length"] = {"uniform": [shortest, longest]} if shortest < longest else given.length
    if "closed" not in load:
        section["live"] = given.live
    if given.first_id is not None:
        section["first_id"] = given.first_id
        if given.end_id is not None:
            section["end_id"] = given.end_id
    return section


def _stream(options: Options, load: _Section) -> _Section:
    if options.compression != "none":
        return {}  # perfkit compresses whole streams only
    highest = max(load["closed"]["concurrency"]) if "closed" in load else 1
    threads = options.max_threads or max(THREADS, int(options.load_range.end))
    return {"requests_per_stream": _REQUESTS_PER_STREAM, "in_flight": max(math.ceil(highest / threads), 1)}


def _shared_memory(options: Options) -> _Section:
    section: _Section = {"kind": options.shared_memory}
    if options.sequences.is_given:
        section["outputs"] = False
    elif options.output_shared_memory_bytes not in (0, _DEFAULT_OUTPUT_BYTES):
        section["output_bytes"] = options.output_shared_memory_bytes
    return section


def _whole_load(options: Options) -> _Section:
    given = options.load_range
    is_search = options.is_binary_search or given.end == 0
    if options.load_mode == "request_rate" and is_search and _slo(options) and not options.request_count:
        search: _Section = {"arrivals": options.distribution, "min_rate": _rate(given.start)}
        return {"search": search | ({"max_rate": _rate(given.end)} if given.end > given.start else {})}
    return _load(options, _values(given))


def _load(options: Options, values: Sequence[float]) -> _Section:
    match options.load_mode:
        case "concurrency":
            return {"closed": {"concurrency": [int(value) for value in values]}}
        case "request_rate":
            return {"open": {"rate": [_rate(value) for value in values], "arrivals": options.distribution}}
        case "request_intervals" if options.looped_intervals_file:
            return {"open": {"arrivals": "trace", "trace": options.looped_intervals_file, "trace_holds": "intervals"}}
        case "request_intervals":
            return {"replay": {"trace": options.intervals_file, "format": "request_intervals", "loop": True}}
        case "fixed_schedule":
            if len(options.input_data) > 1:
                raise UnsupportedError(
                    "perfkit: a scenario replays one file, and --fixed-schedule has several of --input-data: join their data"
                )
            return {"replay": {"trace": options.input_data[0], "format": "fixed_schedule"}}


def _rate(value: float) -> float:
    return int(value) if math.isfinite(value) and value == int(value) else value


def _values(given: LoadRange) -> list[float]:
    """The values of a sweep from the start by steps to its end; the first ones where it has none."""
    if given.end and not given.end > given.start:
        return [given.start]
    if not given.step > 0:
        raise UnsupportedError(f"perfkit: the step of a range must be above 0, found {given.step}")
    values = list(itertools.islice(linear_values(given), _MOST_VALUES + 1 if given.end else _OPEN_ENDED))
    if len(values) > _MOST_VALUES:
        raise UnsupportedError(f"perfkit: the range has more than {_MOST_VALUES:,} loads, the most of a scenario: give a larger step")
    return values


def _measure(options: Options, load: _Section) -> _Section:
    if "search" in load:
        return {"duration": f"{options.interval_ms}ms"}
    if options.load_mode == "fixed_schedule":
        return {"repetitions": 1}
    if options.request_count:
        # requests for a warm-up are sent before, in a run of their own
        return {"requests": options.request_count, "warmup": "0s", "repetitions": 1}
    if options.measurement_mode == "count_windows":
        return {"requests": options.measurement_request_count, "repetitions": _REPETITIONS}
    return {"duration": f"{options.interval_ms}ms", "repetitions": _REPETITIONS}


def _slo(options: Options) -> _Section:
    """The latency threshold, where a scenario has such a limit."""
    if not options.latency_threshold_ms or options.percentile not in _SLO_PERCENTILES:
        return {}
    return {f"p{options.percentile}": f"{options.latency_threshold_ms}ms"}


def _mix(commands: Sequence[Options]) -> _Section:
    """All commands at once, each with one load of its own."""
    targets = [target_of(options) for options in commands]
    common = {key: value for key, value in targets[0].items() if all(target.get(key) == value for target in targets)}
    names: list[str] = []
    workloads = []
    for options, target in zip(commands, targets, strict=True):
        if options.load_range.end not in (1, options.load_range.start) or options.load_range.step != 1:
            mode = "--request-rate-range" if options.load_mode == "request_rate" else "--concurrency-range"
            raise UnsupportedError(f"Error: Cannot specify {mode} when in multi-model mode.")
        name = scenario_name(options.model)
        names.append(name if name not in names else f"{name}-{len(names) + 1}")
        load = _load(options, [options.load_range.start])
        sections = _sections(options, load)
        own = {key: value for key, value in target.items() if key not in common}
        workloads.append({"name": names[-1], **sections.pop("workload", {}), **({"target": own} if own else {}), **sections, "load": load})
    duration_ms = max(options.interval_ms for options in commands)
    document: _Section = {"name": "-".join(names)[:64], "target": common, "workloads": workloads}
    return document | {"measure": {"duration": f"{duration_ms}ms", "repetitions": _REPETITIONS}}


_GRPC_PORT_WITHOUT_ONE = 443
_TIMEOUT = "10m"
"""perf_analyzer waits without an end."""


def target_of(options: Options) -> dict[str, Any]:
    """The keys and values of `target`. Raises UnsupportedError for a URL that the protocol does not take."""
    target: dict[str, Any] = {"url": _url(options), "model": options.model, "timeout": _TIMEOUT}
    if options.version:
        target["version"] = options.version
    if options.headers:
        target["headers"] = {name: escaped(value.strip()) for name, value in options.headers.items()}
    tls = options.tls
    given: dict[str, Any] = {key: value for key, value in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)) if value}
    if not tls.verify:
        given["verify"] = False
    if tls.is_used and given:
        target["tls"] = given
    if options.compression != "none":
        target["compression"] = options.compression
    if options.collects_metrics:
        url = options.metrics_url
        target["metrics_url"] = url if "://" in url else f"http://{url}"
    if options.bls_composing_models:
        target["composing_models"] = list(options.bls_composing_models)
    return target


def _url(options: Options) -> str:
    url = options.url
    if options.protocol == "http":
        return url if "://" in url else f"http://{url}"
    if url.startswith("unix:"):
        return url
    scheme, separator, rest = url.partition("://")
    if separator and scheme not in ("grpc", "grpcs", "dns"):
        raise UnsupportedError(f"perfkit: -u {url}: over gRPC give host and port without {scheme}://")
    place = rest.lstrip("/") if separator else url
    host = place.rpartition("]")[2] if place.startswith("[") else place
    has_port = ":" in host
    return f"{'grpcs' if options.tls.is_used else 'grpc'}://{place}{'' if has_port else f':{_GRPC_PORT_WITHOUT_ONE}'}"
