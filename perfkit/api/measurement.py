"""Measures a scenario from Python: `run` blocks, `arun` is awaited."""

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
from perfkit.measurement.lifecycle import MeasuredScenario, measure_scenario
from perfkit.process.standard_files import open_standard_files
from perfkit.report.run import write_reports
from perfkit.result.file import replace_result
from perfkit.scenario.file import LoadedScenario, read_document, read_scenario
from perfkit.scenario.model import Scenario

ScenarioSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | Scenario | LoadedScenario
"""The path of a scenario file, a mapping with a file's keys, the model, or what `load_scenario` returned."""


def load_scenario(scenario: ScenarioSource, settings: Sequence[str] = ()) -> LoadedScenario:
    """Reads and checks a scenario; `settings` such as `load.closed.concurrency=[1,8]` override keys of a file or a mapping.

    Relative paths in a mapping or a model refer to the current folder. Raises ScenarioError.
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
    """Measures a scenario and returns the result, which is what `perfkit run` writes to `result.json`.

    `settings` override keys of a scenario file or a mapping. With `out`, the result folder is written there, with its report unless
    `report` is false; a run that fails leaves what it measured in `<out>.partial`. The call blocks until everything is measured. Where
    an event loop runs in this thread, as in a notebook, a thread of its own measures, and calls the observer. One Ctrl-C ends the
    run at once.

    Raises UsageError, TargetError or MeasurementError, all of them PerfkitError. Where the command would end with an exit code of
    its own, read the result's `status` and the `valid` of its points. A file with `sweep`, which is several scenarios, is refused.
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
    """Measures like `run`, in a thread of its own, while the event loop that awaits it goes on.

    Cancelled, it stops the run, awaits its end, and raises CancelledError; what was measured is in `<out>.partial`. What else runs in
    this process takes turns with the load generator: set `measure.workers` to measure from other processes.
    """
    work = _make_work(scenario, settings, out, report=report, observer=observer)
    return await WorkThread(lambda runner: work(runner.run)).end()


_RunCoroutine: TypeAlias = Callable[[Coroutine[Any, Any, MeasuredScenario]], MeasuredScenario]


def _make_work(
    scenario: ScenarioSource, settings: Sequence[str], out: str | os.PathLike[str] | None, *, report: bool, observer: RunObserver | None
) -> Callable[[_RunCoroutine], Result]:
    """What measures when it is called with that which runs a coroutine; the scenario is read here, so that its errors come at once."""
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
    """Writes the reports; a result without them, which is already written, gets the warning `report_missing`."""
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
