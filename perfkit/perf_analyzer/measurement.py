"""Loads of a perf_analyzer command, measured as scenarios by perfkit's engine."""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

import perfkit
from perfkit.errors import MeasurementError, TargetError
from perfkit.measurement.reply_spool import ReplySpool
from perfkit.measurement.scenario_run import MeasuredScenario
from perfkit.perf_analyzer.export_file import ExportFile
from perfkit.perf_analyzer.measured_load import MeasuredLoad, measured_loads
from perfkit.perf_analyzer.mix import load_values
from perfkit.perf_analyzer.options import Options, TraceOptions
from perfkit.perf_analyzer.profile import Interrupted
from perfkit.perf_analyzer.scenario import scenario_for
from perfkit.perf_analyzer.server_calls import ModelTraits
from perfkit.perf_analyzer.sweep import STABILITY_WINDOWS, has_one_run
from perfkit.perf_analyzer.warm_up import warm_up_and_rest
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, read_document

_VERSION = f"2.60.0 (perfkit {perfkit.__version__})"
"""The perf_analyzer whose export is written, and what wrote it."""


class Engine(Protocol):
    """What runs scenarios."""

    def run(self, loaded: LoadedScenario, folder: pathlib.Path, spool: ReplySpool | None) -> MeasuredScenario:
        """Measures a scenario; raises PerfkitError."""

    def model_traits(self, loaded: LoadedScenario) -> ModelTraits:
        """What the server says of the scenario's model; raises PerfkitError."""

    def change_trace_settings(self, loaded: LoadedScenario, options: TraceOptions) -> None:
        """Changes the trace settings of the scenario's server; raises PerfkitError."""


class ScenarioMeasurement:
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
        """Those of each command's model; none before the first load."""
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

    def warm_up(self, value: float) -> None:
        """See `Measurement.warm_up`; one model after the other."""
        self._ask_servers(value)
        for one, own_value in zip(self._warm_ups, load_values(self._options, value), strict=True):
            if one.warmup_request_count:
                self._result(read_document(scenario_for([one], own_value), environ={}), None)

    def measure(self, value: float) -> list[MeasuredLoad]:
        """See `Measurement.measure`."""
        if self._export is not None and value != self._spooled:
            self._end_spool()
            self._spool, self._spooled = self._ending.enter_context(ReplySpool(self._folder)), value
        self._ask_servers(value)
        result, folder = self._result(read_document(scenario_for(self._options, value), environ={}), self._spool)
        self._note_warnings(result)
        loads = measured_loads(result, folder, self._options, load_values(self._options, value))
        return [self._reported(load, traits) for load, traits in zip(loads, self._traits, strict=True)]

    def _reported(self, load: MeasuredLoad, traits: ModelTraits) -> MeasuredLoad:
        """The load without responses of a model that is not decoupled, and without composing models that were not called."""
        if not traits.is_decoupled:
            load = dataclasses.replace(load, responses_per_s=None)
        if load.server is None:
            return load
        models = load.server.composing_models
        for name in (model.name for model in models if not model.requests and model.name not in self._noted):
            self._noted.add(name)
            self._note(f"composing model {name}: it answered no request during the load, and is left out of the report and of the files")
        called = tuple(model for model in models if model.requests)
        return dataclasses.replace(load, server=dataclasses.replace(load.server, composing_models=called))

    def _end_spool(self) -> None:
        """Writes the load that is spooled into the export."""
        spool, value = self._spool, self._spooled
        self._spool = self._spooled = None  # if this fails, it is not done again
        if self._export is not None and spool is not None and value is not None:
            windows = STABILITY_WINDOWS if has_one_run(self._options[0]) else 1
            with spool:
                if self._options[0].load_mode == "concurrency":
                    self._export.add("concurrency", int(value), spool, windows)
                else:
                    rate = 0.0 if self._options[0].load_mode == "fixed_schedule" else float(value)
                    self._export.add("request_rate", rate, spool, windows)

    def _ask_servers(self, value: float) -> None:
        """Before the first load, asks each command's server about its model, and tells it about traces."""
        if self._traits:
            return
        for number, (one, own_value) in enumerate(zip(self._options, load_values(self._options, value), strict=True)):
            loaded = read_document(scenario_for([one], own_value), environ={})
            traits = self._engine.model_traits(loaded)
            if one.trace.is_given:
                self._engine.change_trace_settings(loaded, one.trace)
            self._traits.append(traits)
            known = dataclasses.replace(one, sequences=dataclasses.replace(one.sequences, is_given=traits.has_sequences))
            warm_up, self._options[number] = warm_up_and_rest(known, self._folder / f"schedule-{number}")
            self._warm_ups.append(warm_up)

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
            if warning.code not in self._noted:
                self._noted.add(warning.code)
                self._note(f"{warning.code}: {warning.message}")
