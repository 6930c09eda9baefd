"""Measurement of a scenario from Python: `run` blocks, and `arun` is awaited."""

import asyncio
import contextlib
import os
import pathlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

import uvloop

from perfkit.api.result import Result, TemporaryFolder
from perfkit.api.thread import WorkThread
from perfkit.errors import MeasurementError, MeasurementWarning, ResultError, ScenarioError, StorageError, UsageError
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.scenario_run import MeasuredScenario
from perfkit.report.run import write_reports
from perfkit.result.file import replace_result
from perfkit.scenario.file import LoadedScenario, read_document, read_scenario
from perfkit.scenario.model import Scenario
from perfkit.text import open_standard_files

ScenarioSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Scenario | LoadedScenario
"""A scenario: the path of a file, a mapping with the keys of a file, a `Scenario`, or a `LoadedScenario`."""


def load_scenario(scenario: ScenarioSource, settings: Sequence[str] = ()) -> LoadedScenario:
    """Reads and checks a scenario.

    `settings`, such as `load.closed.concurrency=[1,8]`, override keys of a file or a mapping. Relative paths in a mapping or a
    `Scenario` refer to the current folder. Raises ScenarioError, and UsageError if settings come with a `Scenario` or `LoadedScenario`.
    """
    if isinstance(scenario, Mapping):
        return read_document(scenario, settings)
    if not isinstance(scenario, Scenario | LoadedScenario):
        return read_scenario(pathlib.Path(scenario), settings)
    if settings:
        raise UsageError("settings override keys of a scenario file or a mapping: pass them to load_scenario with the path of the file")
    if isinstance(scenario, LoadedScenario):
        return scenario
    if scenario.sweep or scenario.rank:
        raise ScenarioError("scenario: sweep: a sweep is several scenarios, but one scenario is needed: remove sweep and rank")
    return LoadedScenario(scenario, pathlib.Path(), ())


def run(
    scenario: ScenarioSource,
    settings: Sequence[str] = (),
    *,
    out: str | os.PathLike[str] | None = None,
    report: bool = True,
    observer: RunObserver | None = None,
) -> Result:
    """Measures a scenario and returns the result, which `perfkit run` would write to `result.json`. Blocks until the run has ended.

    `settings` override keys of a scenario file or a mapping. With `out`, the result folder is written there, with its report unless
    `report` is false. A run that fails leaves what it measured in `<out>.partial`. If an event loop runs in this thread, as in a
    notebook, a separate thread measures, and the observer is called from that thread. One Ctrl-C ends the run at once.

    Raises UsageError, TargetError or MeasurementError, all subclasses of PerfkitError. A sweep raises ScenarioError, because it is
    several scenarios. A missed SLO or an invalid measurement raises nothing: read the result's `status`, and `valid` and `slo` of its
    points.
    """
    work = _make_work(scenario, settings, out, report=report, observer=observer)
    return WorkThread(lambda runner: work(runner.run)).wait() if _is_loop_running() else work(uvloop.run)


async def arun(
    scenario: ScenarioSource,
    settings: Sequence[str] = (),
    *,
    out: str | os.PathLike[str] | None = None,
    report: bool = True,
    observer: RunObserver | None = None,
) -> Result:
    """Measures like `run`, in a separate thread, while the caller's event loop keeps running.

    If cancelled, stops the run, waits for its end and raises CancelledError; what was measured is in `<out>.partial`. Other Python code
    of this process delays the load generator, because only one thread runs at a time: if CPUs are free for them, set `measure.workers` to
    2 or more to measure from other processes.
    """
    work = _make_work(scenario, settings, out, report=report, observer=observer)
    return await WorkThread(lambda runner: work(runner.run)).end()


_RunCoroutine: TypeAlias = Callable[[Coroutine[Any, Any, MeasuredScenario]], MeasuredScenario]


def _make_work(
    scenario: ScenarioSource, settings: Sequence[str], out: str | os.PathLike[str] | None, *, report: bool, observer: RunObserver | None
) -> Callable[[_RunCoroutine], Result]:
    """Returns the function that measures the scenario; its argument is a function that runs a coroutine.

    The scenario is read here, not in the returned function, so that its errors are raised at once.
    """
    loaded, told = load_scenario(scenario, settings), RunObserver() if observer is None else observer
    open_standard_files()

    def work(run_coroutine: _RunCoroutine) -> Result:
        if out is None:
            place = TemporaryFolder()
            try:
                result = _measure(loaded, place.path / "result", told, run_coroutine)
            except BaseException:
                place.remove()
                raise
            return result.stored_in(place.path / "result", place)
        folder = pathlib.Path(out)
        result = _measure(loaded, folder, told, run_coroutine)
        return (_with_reports(result, folder, told) if report else result).stored_in(folder.absolute())

    return work


def _measure(loaded: LoadedScenario, folder: pathlib.Path, observer: RunObserver, run_coroutine: _RunCoroutine) -> Result:
    measured = run_coroutine(measure_scenario(loaded, folder, observer, Interruption()))
    if measured.folder is None:
        if measured.not_stored:
            raise StorageError(measured.not_stored)
        raise MeasurementError(f"nothing was measured: {measured.result.status_reason or measured.result.status}")
    return Result.of(measured.result)


def _with_reports(result: Result, folder: pathlib.Path, observer: RunObserver) -> Result:
    """Writes the reports; if that fails, adds the warning `report_missing` to the result, also in its file."""
    try:
        write_reports(folder)
    except ResultError as error:
        warning = MeasurementWarning("report_missing", f"The report was not drawn: {error}")
        observer.note_added(warning.message)
        result = result.model_copy(update={"warnings": (*result.warnings, warning)})
        with contextlib.suppress(MeasurementError):
            replace_result(folder, result)
    return result


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
