"""Loads of a perf_analyzer command, measured as scenarios by perfkit's engine."""

import contextlib
import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from perfkit.errors import MeasurementError, TargetError
from perfkit.measurement.reply_spool import ReplySpool
from perfkit.measurement.scenario_run import MeasuredScenario
from perfkit.perf_analyzer.export_file import ExportFile
from perfkit.perf_analyzer.measured_load import MeasuredLoad, measured_loads
from perfkit.perf_analyzer.options import Options, TraceOptions
from perfkit.perf_analyzer.profile import Interrupted
from perfkit.perf_analyzer.scenario import scenario_for
from perfkit.perf_analyzer.sweep import STABILITY_WINDOWS, has_one_run
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, read_document

_VERSION = "2.60.0"
"""The perf_analyzer whose export is written."""


class Engine(Protocol):
    """What runs scenarios."""

    def run(self, loaded: LoadedScenario, folder: pathlib.Path, spool: ReplySpool | None) -> MeasuredScenario:
        """Measures a scenario; raises PerfkitError."""

    def has_sequences(self, loaded: LoadedScenario) -> bool:
        """Whether the scenario's model takes sequences; raises PerfkitError."""

    def change_trace_settings(self, loaded: LoadedScenario, options: TraceOptions) -> None:
        """Changes the trace settings of the scenario's server; raises PerfkitError."""


class ScenarioMeasurement:
    """Measures each load in a run of its own, whose result is removed afterwards; a context manager, which ends the profile export."""

    def __init__(self, options: Sequence[Options], engine: Engine, note: Callable[[str], None]) -> None:
        """`note` gets what perfkit finds wrong with a measurement, each kind once. Raises UsageError if the export cannot be written."""
        self._options, self._engine, self._note = options, engine, note
        self._noted: set[str] = set()
        self._ending = contextlib.ExitStack()
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="perfkit-"))
        self._ending.callback(shutil.rmtree, self._folder, ignore_errors=True)
        export_file = options[0].export_file
        self._export = self._ending.enter_context(ExportFile(pathlib.Path(export_file), _VERSION)) if export_file else None
        self._spool: ReplySpool | None = None
        self._spooled: float | None = None
        """The load of the spool."""
        self._has_sequences: bool | None = None
        """Whether the model takes sequences; None before the first load."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self._end_spool()
        except BaseException as failure:
            self._ending.__exit__(type(failure), failure, failure.__traceback__)
            raise
        self._ending.__exit__(kind, error, trace)

    def warm_up(self, value: float, requests: int) -> None:
        """See `Measurement.warm_up`."""
        options = [dataclasses.replace(one, request_count=requests, warmup_request_count=0) for one in self._options]
        self._result(self._scenario(options, value), None)

    def measure(self, value: float) -> list[MeasuredLoad]:
        """See `Measurement.measure`."""
        if self._export is not None and value != self._spooled:
            self._end_spool()
            self._spool, self._spooled = self._ending.enter_context(ReplySpool(self._folder)), value
        result, folder = self._result(self._scenario(self._options, value), self._spool)
        self._note_warnings(result)
        return measured_loads(result, folder, self._options, value)

    def _end_spool(self) -> None:
        """Writes the load that is spooled into the export."""
        if self._export is not None and self._spool is not None and self._spooled is not None:
            windows = STABILITY_WINDOWS if has_one_run(self._options[0]) else 1
            with self._spool:
                if self._options[0].load_mode == "concurrency":
                    self._export.add("concurrency", int(self._spooled), self._spool, windows)
                else:
                    self._export.add("request_rate", float(self._spooled), self._spool, windows)
        self._spool = self._spooled = None

    def _scenario(self, options: Sequence[Options], value: float) -> LoadedScenario:
        """The scenario of a load, once the server has been asked about its model and told about traces."""
        leading = options[0]
        if self._has_sequences is None and len(options) == 1:
            loaded = read_document(scenario_for(options, value), environ={})
            self._has_sequences = self._engine.has_sequences(loaded)
            if leading.trace.is_given:
                self._engine.change_trace_settings(loaded, leading.trace)
        return read_document(scenario_for(options, value, has_sequences=self._has_sequences), environ={})

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
