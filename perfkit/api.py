"""perfkit from Python, as `perfkit run` is from a shell: a scenario read, measured, and its result kept and given."""

import asyncio
import pathlib
import tempfile
from collections.abc import Sequence

import uvloop

from perfkit.calibration.cache import calibration_path, read_calibration
from perfkit.clock import utc_now
from perfkit.errors import MeasurementError, ResultError, UsageError
from perfkit.machine.host import describe_host
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import run_scenario
from perfkit.report.folder import write_reports
from perfkit.result.file import ResultWriter
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, read_scenario

__all__ = ["Result", "load_scenario", "run"]


def load_scenario(path: str | pathlib.Path, settings: Sequence[str] = ()) -> LoadedScenario:
    """A scenario file, with settings such as `load.closed.concurrency=[1,8]` over it; raises ScenarioError."""
    return read_scenario(pathlib.Path(path), settings)


def run(
    scenario: str | pathlib.Path | LoadedScenario,
    settings: Sequence[str] = (),
    *,
    out: str | pathlib.Path | None = None,
    observer: RunObserver | None = None,
) -> Result:
    """Measures a scenario, and gives the result: what `perfkit run` writes into `result.json`, as an object.

    With `out` the result folder is kept there, with its report; a run that breaks off leaves what it measured in
    `<out>.partial`. `settings` go over a file's values, and are for a path alone. This blocks until all is measured; call it in
    the main thread, and where no event loop runs. One Ctrl-C ends it at once.

    Raises UsageError, TargetError and MeasurementError, all of them PerfkitError; look at the result's `status` and the points'
    `valid` for what a command would say by its exit code. A file with `sweep` is several scenarios, and is refused.
    """
    if isinstance(scenario, LoadedScenario) and settings:
        raise UsageError("settings go over a file's values: give them to load_scenario, or a path here")
    _refuse_running_loop()
    loaded = scenario if isinstance(scenario, LoadedScenario) else load_scenario(scenario, settings)
    told = RunObserver() if observer is None else observer
    if out is not None:
        return _measure(loaded, pathlib.Path(out), told, is_kept=True)
    with tempfile.TemporaryDirectory() as folder:
        return _measure(loaded, pathlib.Path(folder) / "result", told, is_kept=False)


def _refuse_running_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise UsageError("perfkit.run blocks, and an event loop runs here: call it in a process of its own")


def _measure(loaded: LoadedScenario, folder: pathlib.Path, observer: RunObserver, *, is_kept: bool) -> Result:
    calibration = read_calibration(calibration_path(), describe_host()).calibration
    writer = ResultWriter(folder, utc_now().timestamp())
    try:
        result = uvloop.run(run_scenario(loaded, writer, observer, Interruption(), calibration=calibration))
    except BaseException:
        writer.abort()
        raise
    if not result.points:
        writer.discard()
        raise MeasurementError(f"nothing was measured: {result.status_reason or result.status}")
    if not is_kept:
        writer.discard()
        return result
    folder = writer.commit()
    try:
        write_reports(folder)
    except ResultError as error:  # the result is safe already
        observer.note_added(f"the report was not drawn: {error}")
    return result
