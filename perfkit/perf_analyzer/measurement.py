"""Loads of a perf_analyzer command, measured as scenarios by perfkit's engine."""

import dataclasses
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfkit.errors import MeasurementError, TargetError
from perfkit.measurement.scenario_run import MeasuredScenario
from perfkit.perf_analyzer.measured_load import MeasuredLoad, measured_loads
from perfkit.perf_analyzer.options import Options, TraceOptions
from perfkit.perf_analyzer.profile import Interrupted
from perfkit.perf_analyzer.scenario import scenario_for
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, read_document


class ScenarioMeasurement:
    """Measures each load in a run of its own, whose result folder is removed afterwards."""

    def __init__(
        self,
        options: Sequence[Options],
        run: Callable[[LoadedScenario, pathlib.Path], MeasuredScenario],
        change_traces: Callable[[LoadedScenario, TraceOptions], None],
        note: Callable[[str], None],
    ) -> None:
        self._options, self._run, self._change_traces, self._note = options, run, change_traces, note
        self._is_first = True
        self._noted: set[str] = set()
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="perfkit-"))

    def close(self) -> None:
        """Removes what it stored."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def warm_up(self, value: float, requests: int) -> None:
        """See `Measurement.warm_up`."""
        options = [dataclasses.replace(one, request_count=requests, warmup_request_count=0) for one in self._options]
        self._result(scenario_for(options, value))

    def measure(self, value: float) -> list[MeasuredLoad]:
        """See `Measurement.measure`."""
        result, folder = self._result(scenario_for(self._options, value))
        self._note_warnings(result)
        return measured_loads(result, folder, self._options, value)

    def _result(self, document: Mapping[str, Any]) -> tuple[Result, pathlib.Path]:
        folder = self._folder / "result"
        shutil.rmtree(folder, ignore_errors=True)
        loaded = read_document(document, environ={})
        if self._is_first and self._options[0].trace.is_given:
            self._change_traces(loaded, self._options[0].trace)
        self._is_first = False
        measured = self._run(loaded, folder)
        result = measured.result
        if result.status == "interrupted":
            raise Interrupted
        if measured.folder is None or not result.summary:
            raise MeasurementError(measured.not_stored or result.status_reason or "nothing was measured")
        if result.status == "incomplete" and not any(point.requests.sent - point.requests.ok for point in result.summary):
            raise TargetError(result.status_reason)
        return result, measured.folder

    def _note_warnings(self, result: Result) -> None:
        """Says what perfkit found wrong with a measurement, once for each kind."""
        for point in result.summary:
            for warning in point.warnings:
                if warning.code not in self._noted:
                    self._noted.add(warning.code)
                    self._note(f"{warning.code}: {warning.message}")
