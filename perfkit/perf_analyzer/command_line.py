"""perf_analyzer's command line, read as its own parser reads it: the same lines are accepted and refused, with the same exit codes."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

from perfkit.perf_analyzer.checks import check
from perfkit.perf_analyzer.draft import ABORTED_EXIT_CODE, CommandLineError, Draft, Mode, UnsupportedError, refusal
from perfkit.perf_analyzer.getopt import Option, OptionError, read_options
from perfkit.perf_analyzer.number_text import NotANumberError, OutOfRangeError, read_int
from perfkit.perf_analyzer.option_table import DEPRECATED, FLAGS, LONG, MODES, SHORT, WITH_VALUE
from perfkit.perf_analyzer.options import LoadMode, LoadRange, Options

__all__ = ["CommandLineError", "UnsupportedError", "parse"]

_METRICS_PORT_AND_PATH = ":8002/metrics"
_LOAD_MODES: Mapping[Mode, LoadMode] = {
    "Concurrency": "concurrency",
    "RequestRate": "request_rate",
    "CustomIntervals": "request_intervals",
    "FixedSchedule": "fixed_schedule",
}


def parse(arguments: Sequence[str]) -> Options:
    """The options that the arguments stand for; the program's name is not among them. Looks whether files exist.

    Raises CommandLineError with what to write to stderr and the exit code: 99 where perf_analyzer explains its usage, 134 where it aborts, 0
    for `--version`; UnsupportedError for a line that perf_analyzer accepts and perfkit cannot run.
    """
    draft = Draft()
    try:
        for option in read_options(arguments, SHORT, LONG):
            _set(draft, option)
    except OptionError as error:
        raise CommandLineError(f"Error: {error}") from None
    if draft.options.protocol == "grpc" and not draft.has_url:
        draft.set(url="localhost:8001")
    check(draft)
    _check_support(draft)
    return _finished(draft)


def _set(draft: Draft, option: Option) -> None:
    flag = f"-{option.name}" if len(option.name) == 1 else f"--{option.name}"
    if advice := DEPRECATED.get(option.name):
        draft.warn(f"Warning: {flag} is deprecated and will be removed in an upcoming version. Use {advice} instead.")
    if mode := MODES.get(option.name):
        _choose_mode(draft, mode, aborts=option.value is None)
    if option.value is None:
        FLAGS[option.name](draft)
        return
    try:
        WITH_VALUE[option.name](draft, option.value)
    except NotANumberError:
        raise refusal(f"Failed to parse {flag}. Invalid value provided: {option.value}") from None
    except OutOfRangeError:
        raise CommandLineError(f"Error: Failed to parse {flag}. Value out of range: {option.value}", ABORTED_EXIT_CODE) from None


def _choose_mode(draft: Draft, mode: Mode, *, aborts: bool) -> None:
    """Changes the mode, of which only a deprecated one may precede another.

    perf_analyzer has no name for the mode of a rate: it aborts in its complaint about another option after it if that one has no value.
    """
    if draft.mode not in (None, "DeprecatedConcurrency"):
        complaint = refusal(f"Cannot use both {draft.mode} and {mode} inference load modes.")
        if aborts and draft.mode == "RequestRate":
            complaint.exit_code = ABORTED_EXIT_CODE
        raise complaint
    draft.mode = mode
    draft.has_deprecated_load |= mode == "DeprecatedConcurrency"


def _check_support(draft: Draft) -> None:
    options, mode = draft.options, draft.final_mode
    if draft.service_kind == "triton_c_api":
        raise UnsupportedError(
            "perfkit sends requests to a server: --service-kind=triton_c_api loads the server's library into the process"
        )
    if draft.service_kind != "triton":
        raise UnsupportedError(f"perfkit speaks v2: --service-kind={draft.service_kind} is for servers with another protocol")
    if mode not in _LOAD_MODES:
        raise UnsupportedError("perfkit speaks v2 with closed and open loads: --periodic-concurrency-range has no counterpart")
    if options.is_streaming and options.is_sync:
        raise UnsupportedError("can not use streaming with synchronous API")
    if draft.der_files and options.protocol == "http":
        raise UnsupportedError(f"perfkit reads PEM files: {min(draft.der_files)}=DER is not supported; openssl converts the file")


def _finished(draft: Draft) -> Options:
    options, mode, parameters = draft.options, draft.final_mode, _parameters(draft.parameters)
    load_range = {"Concurrency": draft.concurrency, "RequestRate": draft.rate}.get(mode, LoadRange())
    if mode == "CustomIntervals":
        mean_rate_per_s = _mean_rate_per_s(options.intervals_file)
        load_range = LoadRange(mean_rate_per_s, mean_rate_per_s)
    if options.request_count:
        draft.set(measurement_mode="count_windows", measurement_request_count=options.request_count)
    if options.collects_metrics and not draft.has_metrics_url:
        host, colon, _ = options.url.partition(":")
        draft.set(metrics_url=(host if colon else "localhost") + _METRICS_PORT_AND_PATH)
    if options.protocol == "grpc":
        tls = dataclasses.replace(draft.grpc_tls, is_used=draft.uses_grpc_tls)
    else:
        is_used = options.url.lower().startswith("https://")
        tls = dataclasses.replace(draft.http_tls, is_used=is_used, verify=draft.verifies_peer and draft.verifies_host)
    draft.set(
        load_mode=_LOAD_MODES[mode],
        load_range=load_range,
        is_binary_search=options.is_binary_search and mode in ("Concurrency", "RequestRate"),
        tls=tls,
        parameters=parameters,
        ignored_parameters=tuple(name for name in draft.parameters if name not in parameters),
    )
    return draft.options


def _mean_rate_per_s(file: str) -> int:
    """The mean rate of a file of intervals, in whole requests per second; 1 if it cannot be read, which its use will say."""
    try:
        intervals_us = [int(line) for line in pathlib.Path(file).read_text().split()]
        return len(intervals_us) * 1_000_000 // sum(intervals_us)
    except (OSError, ValueError, ZeroDivisionError):
        return 1


def _parameters(given: Mapping[str, tuple[str, str]]) -> dict[str, bool | int | str]:
    """The parameters that are sent: those of the types that perf_analyzer knows, of which it reads a bool as true only if it is `true`."""
    parameters: dict[str, bool | int | str] = {}
    for name, (value, kind) in given.items():
        if kind == "string":
            parameters[name] = value
        elif kind == "bool":
            parameters[name] = value == "true"
        elif kind == "int":
            try:
                parameters[name] = read_int(value)
            except ValueError:
                message = f"Error: Failed to parse --request-parameter {name}: expected a whole number of 32 bits, found {value!r}"
                raise UnsupportedError(message, ABORTED_EXIT_CODE) from None
    return parameters
