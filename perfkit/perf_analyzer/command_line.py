"""perf_analyzer's command line, read as its own parser reads it: the same options, prefixes, repetitions and load modes; and the line of `mpiexec` that has several of them."""

import dataclasses
import getopt
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import perfkit
from perfkit.digits import whole_number
from perfkit.input_file import read_bounded
from perfkit.perf_analyzer.option_table import BY_NAME, Fields, Option, is_file
from perfkit.perf_analyzer.options import (
    CommandLineError,
    LoadMode,
    LoadRange,
    Options,
    SequenceOptions,
    TlsFiles,
    TraceOptions,
    UnsupportedError,
)

LARGEST_DATA_BYTES = 2**28
"""The largest size of a file of input data, or of intervals."""
_SHORT = "".join(f"{name[1]}{':' * (option.read is not None)}" for name, option in BY_NAME.items() if len(name) == 2)
_LONG = [f"{name[2:]}{'=' * (option.read is not None)}" for name, option in BY_NAME.items() if len(name) > 2]
_LOAD_MODES: Mapping[str, LoadMode] = {
    "": "concurrency",
    "deprecated": "concurrency",
    "--concurrency-range": "concurrency",
    "--request-rate-range": "request_rate",
    "--request-intervals": "request_intervals",
    "--fixed-schedule": "fixed_schedule",
}
_METRICS_PORT_AND_PATH = ":8002/metrics"


def parse(arguments: Sequence[str]) -> Options:
    """The options that the arguments stand for; the program's name is not among them. Looks whether files exist.

    Raises CommandLineError with what to write to stderr, and UnsupportedError for a line that perf_analyzer accepts and perfkit cannot run.
    """
    given = dict[str, Any]()
    modes = list[str]()
    for name, option, value in read_options(arguments):
        if option.replacement:
            warning = f"Warning: {name} is deprecated and will be removed in an upcoming version. Use {option.replacement} instead."
            _add(given, {"warnings": (warning,)})
        if option.mode:
            if modes and modes[-1] != "deprecated":
                raise CommandLineError(f"Error: {name}: {modes[-1]} has already chosen the load mode: there is one")
            modes.append(option.mode)
        try:
            _add(given, option.fields if option.read is None else option.read(value))
        except ValueError as error:
            raise CommandLineError(f"Error: {name}: {error}, found '{value}'") from None
        if "prints_version" in given:
            raise CommandLineError(f"Perf Analyzer Version {perfkit.__version__} (perfkit)", 0)
    mode = "deprecated" if "deprecated" in modes else modes[-1] if modes else ""
    if (kind := given.get("service_kind", "triton")) != "triton":
        raise UnsupportedError(f"perfkit sends v2 requests to a server: --service-kind={kind} is for another protocol, or for no server")
    if mode not in _LOAD_MODES:
        raise UnsupportedError(f"perfkit has closed and open loads: {mode} has no counterpart")
    options = _options(given, _LOAD_MODES[mode])
    for complaint in _complaints(options, given):
        raise CommandLineError(f"Error: {complaint}")
    _check_support(options, given)
    return options


def read_options(arguments: Sequence[str]) -> Iterator[tuple[str, Option, str]]:
    """Each option by a name in the table, with its value; words that belong to no option are ignored, as getopt_long ignores them."""
    try:
        found, _ = getopt.gnu_getopt(list(arguments), _SHORT, _LONG)
    except getopt.GetoptError as error:
        raise CommandLineError(f"Error: {error}") from None
    for name, value in found:
        yield name, BY_NAME[name], value


def _add(given: dict[str, Any], fields: Fields) -> None:
    """Adds an option's fields: repeated lists and mappings add up; otherwise the last value counts, but the first number of requests."""
    for field, value in fields.items():
        before = given.get(field)
        if isinstance(value, Mapping):
            given[field] = {**(before or {}), **value}
        elif isinstance(value, tuple):
            given[field] = (*(before or ()), *value)
        elif field != "request_count" or before is None:
            given[field] = value


def _part(given: Mapping[str, Any], part: str) -> dict[str, Any]:
    return {field.removeprefix(f"{part}."): value for field, value in given.items() if field.startswith(f"{part}.")}


def _options(given: Mapping[str, Any], mode: LoadMode) -> Options:
    own = {field.name: given[field.name] for field in dataclasses.fields(Options) if field.name in given}
    protocol = given.get("protocol", "http")
    url = given.get("url", "localhost:8001" if protocol == "grpc" else "localhost:8000")
    if protocol == "grpc":
        tls = TlsFiles(**_part(given, "grpc_tls"))
    else:
        verify = given.get("verifies_peer", True) and given.get("verifies_host", True)
        tls = TlsFiles(is_used=url.lower().startswith("https://"), verify=verify, **_part(given, "http_tls"))
    if mode == "request_intervals":
        mean_rate_per_s = _mean_rate_per_s(given["intervals_file"])
        load_range = LoadRange(mean_rate_per_s, mean_rate_per_s)
    else:
        load_range = LoadRange(**given.get({"concurrency": "concurrency", "request_rate": "rate"}.get(mode, ""), {}))
    own |= {
        "model": given.get("model", ""),
        "url": url,
        "load_mode": mode,
        "load_range": load_range,
        "is_binary_search": given.get("is_binary_search", False) and mode in ("concurrency", "request_rate"),
        "sequences": SequenceOptions(**_part(given, "sequences")),
        "trace": TraceOptions(**_part(given, "trace")),
        "tls": tls,
    }
    if mode == "fixed_schedule":
        own["request_count"] = _scheduled_requests(own.get("input_data", ())) - own.get("warmup_request_count", 0)
        if "request_count" in given or own["request_count"] <= 0:
            raise CommandLineError(
                "Error: --fixed-schedule sends the requests of its data after those of --warmup-request-count: there must be some, and no --request-count"
            )
    if own.get("request_count"):
        own |= {"measurement_mode": "count_windows", "measurement_request_count": own["request_count"]}
    if own.get("collects_metrics") and "metrics_url" not in given:
        host, colon, _ = url.partition(":")
        own["metrics_url"] = (host if colon else "localhost") + _METRICS_PORT_AND_PATH
    return Options(**own)


def read_intervals_us(file: str) -> list[int]:
    """The intervals of `--request-intervals`, in microseconds; raises OSError, and ValueError for anything but whole numbers."""
    words = read_bounded(pathlib.Path(file), LARGEST_DATA_BYTES).split()
    intervals_us = [number for word in words if (number := whole_number(word)) is not None]
    if len(intervals_us) < len(words):
        raise ValueError("found something else")
    return intervals_us


def _mean_rate_per_s(file: str) -> int:
    """The mean rate of a file of intervals, in whole requests per second; 1 if it cannot be read, which its use will say."""
    try:
        intervals_us = read_intervals_us(file)
        return len(intervals_us) * 1_000_000 // sum(intervals_us)
    except (OSError, ValueError, ZeroDivisionError):
        return 1


def _scheduled_requests(files: Sequence[str]) -> int:
    """How many requests the data of a fixed schedule has. Raises CommandLineError for other data."""
    if not files or not all(map(is_file, files)):
        raise CommandLineError("Error: --fixed-schedule: give its files as --input-data")
    count = 0
    for name in files:
        try:
            document = json.loads(read_bounded(pathlib.Path(name), LARGEST_DATA_BYTES), parse_constant=_refuse_constant)
        except (OSError, ValueError) as error:
            raise CommandLineError(f"Error: --fixed-schedule: {name}: {error}") from None
        if not isinstance(document, dict) or [*document] != ["data"] or not isinstance(document["data"], list):
            raise CommandLineError(f"Error: --fixed-schedule: {name}: expected an object with the list 'data' and nothing else")
        count += len(document["data"])
    return count


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not allowed here")


def _complaints(options: Options, given: Mapping[str, Any]) -> Iterator[str]:
    """What perf_analyzer refuses of options together."""
    ranges = [LoadRange(**given.get(name, {})) for name in ("concurrency", "rate")]
    is_open_ended = any(one.end == 0 for one in ranges)
    load = options.load_range
    if not options.model:
        yield "-m: give the model's name"
    if any(one.start == 0 for one in ranges):
        yield "--concurrency-range, --request-rate-range: the start must be above 0"
    if options.protocol != "grpc":
        for option, is_given in (
            ("--streaming", options.is_streaming),
            ("--request-parameter", options.parameters or options.ignored_parameters),
        ):
            if is_given:
                yield f"{option} is for -i grpc"
        if "compression" in given:
            yield "--grpc-compression-algorithm is for -i grpc"
    if options.is_zero_data and options.input_data:
        yield "-z and files of input data exclude each other"
    if options.is_async and options.is_sync:
        yield "--async and --sync exclude each other"
    if is_open_ended and not options.latency_threshold_ms:
        yield "a range without an end needs --latency-threshold"
    is_unbounded = is_open_ended or not options.latency_threshold_ms or any(one.end < one.start for one in ranges)
    if is_unbounded and given.get("is_binary_search") and options.load_mode != "request_intervals":
        yield "--binary-search needs --latency-threshold, and a range whose end is not below its start"
    if options.load_mode in ("concurrency", "request_rate"):
        if load.start < load.end and (options.request_count or options.warmup_request_count):
            yield "--request-count and --warmup-request-count are for a single load"
        if options.request_count and load.start >= options.request_count + 1:
            yield "--request-count: it must not be below the load"
    if not options.collects_metrics and ("metrics_url" in given or "metrics_interval_ms" in given):
        yield "--metrics-url and --metrics-interval need --collect-metrics"


def _check_support(options: Options, given: Mapping[str, Any]) -> None:
    if options.is_streaming and options.is_sync:
        raise UnsupportedError("can not use streaming with synchronous API")
    if options.protocol == "http" and "DER" in (given.get("certificate_form"), given.get("key_form")):
        raise UnsupportedError("perfkit reads PEM files: openssl converts those in the form DER")


def load_values(commands: Sequence[Options], value: float) -> list[float]:
    """The load of each command: a single one has a value of its sweep, and those of a mix have their own."""
    return [value] if len(commands) == 1 else [options.load_range.start for options in commands]


def commands_to_run(commands: Sequence[Options]) -> tuple[list[Options], list[str]]:
    """The commands as they can be measured together, and what changes in them, in sentences.

    The models of a mix end together, so that they have windows of the longest interval, and none of a number of requests.
    """
    if len(commands) == 1:
        return list(commands), []
    interval_ms = max(options.interval_ms for options in commands)
    timed = [dataclasses.replace(one, measurement_mode="time_windows", interval_ms=interval_ms, request_count=0) for one in commands]
    counted = [_counting_option(one) for one in commands if one.measurement_mode == "count_windows" or one.request_count]
    notes = [f"{option}: several models are measured for a time instead, in windows of {interval_ms} ms" for option in counted]
    return timed, list(dict.fromkeys(notes))


def _counting_option(options: Options) -> str:
    if options.load_mode == "fixed_schedule":
        return "--fixed-schedule"
    return "--request-count" if options.request_count else "--measurement-mode count_windows"


_PROCESSES = ("-n", "-np", "-c", "--n")
_WITH_VALUE = (*_PROCESSES, "-H", "-host", "--host", "-x", "-hostfile", "--hostfile", "-wdir", "--wdir", "--bind-to", "--map-by")


def split_commands(words: Sequence[str]) -> list[list[str]]:
    """The arguments of each perf_analyzer, without its name, in order; the first word is `mpiexec`.

    Raises CommandLineError if a part names no program, or several processes of it.
    """
    parts: list[list[str]] = [[]]
    for word in words[1:]:
        if word == ":":
            parts.append([])
        else:
            parts[-1].append(word)
    return [_arguments(part) for part in parts]


def _arguments(part: Sequence[str]) -> list[str]:
    place = 0
    while place < len(part) and part[place].startswith("-"):
        option = part[place]
        if option in _PROCESSES and part[place + 1 : place + 2] != ["1"]:
            raise CommandLineError(
                f"perfkit: mpiexec {option} {' '.join(part[place + 1 : place + 2])}: each model has one process: give -n 1"
            )
        place += 2 if option in _WITH_VALUE else 1
    if place >= len(part):
        raise CommandLineError(
            "perfkit: mpiexec: a part names no program: expected -n 1 perf_analyzer, its options, and ':' before the next"
        )
    return list(part[place + 1 :])
