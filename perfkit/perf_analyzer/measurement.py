"""Loads of a perf_analyzer command, measured as scenarios by perfkit's engine.

Schedules become files: the requests of `--warmup-request-count`, the rest of a replay, and intervals repeated for a whole run.
"""

import contextlib
import dataclasses
import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

import perfkit
from perfkit.errors import MeasurementError, MeasurementWarning, TargetError, UsageError
from perfkit.input_file import read_bounded
from perfkit.measurement.reply_spool import ReplySpool
from perfkit.measurement.scenario_run import MeasuredScenario
from perfkit.override import override
from perfkit.perf_analyzer.command_line import LARGEST_DATA_BYTES, load_values, read_intervals_us
from perfkit.perf_analyzer.export_file import ExportFile
from perfkit.perf_analyzer.notes import warning_in_options
from perfkit.perf_analyzer.options import Options, SequenceOptions, TraceOptions
from perfkit.perf_analyzer.profile import Interrupted, Measurement
from perfkit.perf_analyzer.scenario import scenario_for
from perfkit.perf_analyzer.server_calls import ModelTraits, known_options
from perfkit.perf_analyzer.windows import STABILITY_WINDOWS, RunFigures, Window, has_one_run, measured_windows
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, read_document


def warm_up_and_rest(options: Options, folder: pathlib.Path) -> tuple[Options, Options]:
    """The command whose requests are the warm-up, and the one that is measured after it.

    Of a fixed schedule the first entries are the warm-up, and those of several files are joined by their times. All entries keep their times
    since the start, and become files in the folder.
    """
    first = options.warmup_request_count
    warm_up = dataclasses.replace(options, request_count=first)
    if options.load_mode != "fixed_schedule" or (not first and len(options.input_data) == 1):
        return warm_up, options
    folder.mkdir(parents=True)
    entries = [entry for name in options.input_data for entry in json.loads(read_bounded(pathlib.Path(name), LARGEST_DATA_BYTES))["data"]]
    if len(options.input_data) > 1:
        entries.sort(key=_time_ms)
    parts = {folder / "warm_up.json": (warm_up, entries[:first]), folder / "rest.json": (options, entries[first:])}
    for file, (_, part) in parts.items():
        file.write_text(json.dumps({"data": part}))
    made = [dataclasses.replace(one, input_data=(str(file),)) for file, (one, _) in parts.items()]
    return made[0], made[1]


def _time_ms(entry: object) -> float:
    """The time of an entry; one without a time comes first, where reading it as a schedule complains."""
    match entry:
        case {"timestamp": [int() | float() as time_ms]} | {"timestamp": int() | float() as time_ms}:
            return time_ms
    return -1.0


_MOST_ARRIVALS = 10_000_000
_US_PER_S = 1_000_000


def with_looped_intervals(options: Options, folder: pathlib.Path) -> Options:
    """The options with a file of seconds in this folder; unchanged for other loads, and for models without sequences.

    The intervals are repeated until they last for all windows of a run, and are enough for a number of requests. Raises UsageError for a
    file that has no such intervals.
    """
    if options.load_mode != "request_intervals" or not options.sequences.is_given:
        return options
    try:
        intervals_us = read_intervals_us(options.intervals_file)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--request-intervals {options.intervals_file}: expected a whole number of microseconds on each line: {error}"
        ) from None
    if not intervals_us or min(intervals_us) < 0 or not sum(intervals_us):
        raise UsageError(f"--request-intervals {options.intervals_file}: expected intervals of 0 µs or more, and one above 0")
    # a window more than are measured, since a list that ends early would end the load
    length_us = (STABILITY_WINDOWS + 1) * options.interval_ms * 1000
    fewest = max(options.request_count, options.measurement_request_count) + 1
    loops = max(length_us // sum(intervals_us), fewest // len(intervals_us)) + 1
    if loops * len(intervals_us) > _MOST_ARRIVALS:
        raise UsageError(
            f"--request-intervals: a run would have more than {_MOST_ARRIVALS:,} arrivals: give longer intervals or a shorter -p"
        )
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"intervals-{options.request_count}.txt"
    file.write_text("".join(f"{interval_us / _US_PER_S:.6f}\n" for interval_us in intervals_us) * loops, encoding="utf-8")
    return dataclasses.replace(options, looped_intervals_file=str(file))


_VERSION = f"2.60.0 (perfkit {perfkit.__version__})"
"""The perf_analyzer whose export is written, and what wrote it."""
_MS_NS = 1_000_000


class Engine(Protocol):
    """What runs scenarios."""

    def run(self, loaded: LoadedScenario, folder: pathlib.Path, spool: ReplySpool | None) -> MeasuredScenario:
        """Measures a scenario; raises PerfkitError."""

    def model_traits(self, loaded: LoadedScenario) -> ModelTraits:
        """What the server says of the scenario's model; raises PerfkitError."""

    def change_trace_settings(self, loaded: LoadedScenario, options: TraceOptions) -> None:
        """Changes the trace settings of the scenario's server; raises PerfkitError."""


class ScenarioMeasurement(Measurement):
    """Measures each load in a run of its own, whose result is removed afterwards; a context manager, which ends the profile export."""

    def __init__(self, options: Sequence[Options], engine: Engine, note: Callable[[str], None]) -> None:
        """`note` gets what perfkit finds wrong with a measurement, each kind once. Raises UsageError if the export cannot be written."""
        self._options, self._engine, self._note = list(options), engine, note
        self._noted: set[str] = set()
        self._ending = contextlib.ExitStack()
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="perfkit-"))
        self._ending.callback(shutil.rmtree, self._folder, ignore_errors=True)
        export_file = options[0].export_file
        self._export = self._ending.enter_context(ExportFile(pathlib.Path(export_file), _VERSION)) if export_file else None
        self._spool: ReplySpool | None = None
        self._spooled: float | None = None
        """The load of the spool."""
        self._traits: list[ModelTraits] = []
        """The traits of each command's model; none before the servers are asked."""
        self._warm_ups: list[Options] = []
        """The requests before each command's own."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._end_spool()
        except BaseException as failure:
            self._ending.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._ending.__exit__(kind, error, trace)

    def remove_files(self) -> None:
        """Removes the files of a measurement that is not ended, whose export is half-written; for a process that ends at once."""
        if self._export is not None:
            self._export.remove_partial()
        shutil.rmtree(self._folder, ignore_errors=True)

    @override
    def ask_servers(self) -> Sequence[ModelTraits]:
        """Tells the servers about traces, too."""
        for number, one in enumerate(self._options):
            parts = warm_up_and_rest(one, self._folder / f"schedule-{number}")
            asking = dataclasses.replace(parts[1], sequences=SequenceOptions())  # which the model may not have
            loaded = read_document(scenario_for([asking], one.load_range.start), environ={})
            traits = self._engine.model_traits(loaded)
            if one.trace.is_given:
                self._engine.change_trace_settings(loaded, one.trace)
            self._traits.append(traits)
            known = (known_options(part, traits) for part in parts)
            warm_up, self._options[number] = (with_looped_intervals(part, self._folder / f"schedule-{number}") for part in known)
            scenario_for([self._options[number]], one.load_range.start)  # refused before anything is printed or sent
            self._warm_ups.append(warm_up)
        return self._traits

    @override
    def warm_up(self, value: float) -> None:
        """One model after the other."""
        for one, own_value in zip(self._warm_ups, load_values(self._options, value), strict=True):
            if one.warmup_request_count:
                self._result(read_document(scenario_for([one], own_value), environ={}), None)

    @override
    def measure(self, value: float, count: int) -> list[list[Window]]:
        if self._export is not None and value != self._spooled:
            self._end_spool()
            self._spool, self._spooled = self._ending.enter_context(ReplySpool(self._folder)), value
        result, folder = self._result(read_document(scenario_for(self._options, value, count), environ={}), self._spool)
        self._note_warnings(result)
        measured = measured_windows(result, folder, self._options, count)
        return [self._reported(windows, traits) for windows, traits in zip(measured, self._traits, strict=True)]

    def _reported(self, windows: Sequence[Window], traits: ModelTraits) -> list[Window]:
        """The windows without responses of a model that is not decoupled, and without composing models that were not called."""
        runs = {id(window.run): self._reported_run(window.run, traits) for window in windows}
        return [dataclasses.replace(window, run=runs[id(window.run)]) for window in windows]

    def _reported_run(self, run: RunFigures, traits: ModelTraits) -> RunFigures:
        if not traits.is_decoupled:
            run = dataclasses.replace(run, responses_per_s=None)
        if run.server is None:
            return run
        models = run.server.composing_models
        for name in (model.name for model in models if not model.requests and model.name not in self._noted):
            self._noted.add(name)
            self._note(f"composing model {name}: it answered no request during the load, and is left out of the report and of the files")
        called = tuple(model for model in models if model.requests)
        return dataclasses.replace(run, server=dataclasses.replace(run.server, composing_models=called))

    def _end_spool(self) -> None:
        """Writes the load that is spooled into the export."""
        spool, value = self._spool, self._spooled
        self._spool = self._spooled = None  # if this fails, it is not done again
        if self._export is not None and spool is not None and value is not None:
            leading = self._options[0]
            window_ns = leading.interval_ms * _MS_NS if has_one_run(leading) else None
            with spool:
                if leading.load_mode == "concurrency":
                    self._export.add("concurrency", int(value), spool, window_ns)
                else:
                    rate = 0.0 if leading.load_mode == "fixed_schedule" else float(value)
                    self._export.add("request_rate", rate, spool, window_ns)

    def _result(self, loaded: LoadedScenario, spool: ReplySpool | None) -> tuple[Result, pathlib.Path]:
        folder = self._folder / "result"
        shutil.rmtree(folder, ignore_errors=True)
        measured = self._engine.run(loaded, folder, spool)
        result = measured.result
        if result.status == "interrupted":
            raise Interrupted
        if measured.folder is None or not result.summary:
            raise MeasurementError(measured.not_stored or result.status_reason or "nothing was measured")
        if result.status == "incomplete" and not any(point.requests.sent - point.requests.ok for point in result.summary):
            raise TargetError(result.status_reason)
        return result, measured.folder

    def _note_warnings(self, result: Result) -> None:
        for warning in (warning for point in result.summary for warning in point.warnings):
            if warning.code not in self._noted and not _is_beyond_report(warning):
                self._noted.add(warning.code)
                self._note(f"{warning.code}: {warning_in_options(warning.message, self._options[0])}")


def _is_beyond_report(warning: MeasurementWarning) -> bool:
    """Whether samples are few for percentiles only that perf_analyzer does not report."""
    return warning.code == "few_samples" and "for p99." in warning.message
