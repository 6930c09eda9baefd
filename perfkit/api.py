"""The Python interface: `load_scenario` reads a scenario, `run` measures it and returns the result."""

import asyncio
import contextlib
import pathlib
import tempfile
from collections.abc import Sequence

import uvloop

from perfkit.errors import MeasurementError, MeasurementWarning, ResultError, StorageError, UsageError
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.process.standard_files import open_standard_files
from perfkit.report.run import write_reports
from perfkit.result.file import replace_result
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, read_scenario

__all__ = ["Result", "load_scenario", "run"]


def load_scenario(path: str | pathlib.Path, settings: Sequence[str] = ()) -> LoadedScenario:
    """Reads a scenario file; `settings` such as `load.closed.concurrency=[1,8]` override its keys. Raises ScenarioError."""
    return read_scenario(pathlib.Path(path), settings)


def run(
    scenario: str | pathlib.Path | LoadedScenario,
    settings: Sequence[str] = (),
    *,
    out: str | pathlib.Path | None = None,
    observer: RunObserver | None = None,
) -> Result:
    """Measures a scenario and returns the result, which is what `perfkit run` writes to `result.json`.

    `settings` override keys of a scenario file. With `out`, the result folder and its report are written there; a run that fails
    leaves what it measured in `<out>.partial`. The call blocks until everything is measured; call it in the main thread, outside
    of any event loop. One Ctrl-C ends the run at once.

    Raises UsageError, TargetError or MeasurementError, all of them PerfkitError. Where the command would end with an exit code of
    its own, read the result's `status` and the `valid` of its points. A file with `sweep`, which is several scenarios, is refused.
    """
    if isinstance(scenario, LoadedScenario) and settings:
        raise UsageError("settings override keys of a scenario file: pass them to load_scenario, or pass run the path of the file")
    _refuse_running_loop()
    open_standard_files()
    loaded = scenario if isinstance(scenario, LoadedScenario) else load_scenario(scenario, settings)
    observer = RunObserver() if observer is None else observer
    if out is None:
        with tempfile.TemporaryDirectory() as folder:
            return _measure(loaded, pathlib.Path(folder) / "result", observer)
    result = _measure(loaded, pathlib.Path(out), observer)
    try:
        write_reports(pathlib.Path(out))
    except ResultError as error:  # the result itself is already written
        warning = MeasurementWarning("report_missing", f"The report was not drawn: {error}")
        observer.note_added(warning.message)
        result = result.model_copy(update={"warnings": (*result.warnings, warning)})
        with contextlib.suppress(MeasurementError):
            replace_result(pathlib.Path(out), result)
    return result


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("perfkit.run blocks, but an event loop is running in this thread: call it in a process of its own")


def _measure(loaded: LoadedScenario, folder: pathlib.Path, observer: RunObserver) -> Result:
    measured = uvloop.run(measure_scenario(loaded, folder, observer, Interruption()))
    if measured.folder is None:
        if measured.not_stored:
            raise StorageError(measured.not_stored)
        raise MeasurementError(f"nothing was measured: {measured.result.status_reason or measured.result.status}")
    return measured.result
