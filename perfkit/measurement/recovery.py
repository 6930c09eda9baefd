"""Makes a result of the folder that a killed run left: its whole load points, and what its log has of the one under way."""

import contextlib
import dataclasses
import pathlib
import re
import shutil
from collections.abc import Iterator, Sequence

import perfkit
from perfkit.errors import ResultError
from perfkit.load.point import LoadPoint
from perfkit.measurement.continuation import Continuation
from perfkit.measurement.load_points import LoadPointSource, load_point_source
from perfkit.measurement.point_log import PointHead, log_lines, read_point_log, recorded_so_far
from perfkit.measurement.point_measurement import cut_window, is_open, measurements_of, point_lines, title_of
from perfkit.measurement.point_telemetry import PointObservation
from perfkit.measurement.run_result import RunResult
from perfkit.points.measured import PointMeasurement, Resources
from perfkit.recorder.window import Window
from perfkit.result.checksums import CHECKSUM_FILE
from perfkit.result.file import RESULT_FILE, add_checksums, copy_begun, cut_begun, read_result, write_result
from perfkit.result.model import Result
from perfkit.result.output_folder import locked
from perfkit.result.rotating_log import RotatingLog
from perfkit.result.unfinished import read_unfinished
from perfkit.result.whole_points import point_log_file, read_begun
from perfkit.scenario.file import LoadedScenario, read_document
from perfkit.units import NS_PER_S
from perfkit.workers.point_recording import PointRecording

_PARTIAL = re.compile(r"(?P<name>.+)\.partial(-\d+)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Recovered:
    """A recovered result, its folder, and a sentence for each thing that is missing in it."""

    result: Result
    folder: pathlib.Path
    lost: tuple[str, ...]


def recover_result(partial: pathlib.Path, out: pathlib.Path | None = None) -> Recovered:
    """Writes the result of the folder `<name>.partial` to `<name>`, or to `out`, and leaves the folder as it is.

    Raises ResultError for a folder that is no such folder, whose run goes on, or which has nothing to recover, and if the place is taken.
    """
    name = _PARTIAL.fullmatch(partial.resolve().name)
    if not partial.is_dir():
        raise ResultError(f"{partial}: there is no such folder; give the DIR.partial that a killed run left")
    if (partial / CHECKSUM_FILE).exists():
        raise ResultError(f"{partial}: this is a complete result; there is nothing to recover")
    if name is None:
        raise ResultError(f"{partial}: a killed run leaves a folder whose name ends with .partial; give that one")
    of_run = partial.resolve().with_name(name["name"])
    place = out or of_run
    with contextlib.ExitStack() as locks:
        try:
            locks.enter_context(locked(of_run))
        except ResultError as error:
            holder = str(error).partition("another perfkit writes there: ")[2].partition(";")[0]
            raise ResultError(f"{partial}: its run still goes on ({holder}); wait for its end" if holder else str(error)) from None
        if place.resolve() != of_run:
            locks.enter_context(locked(place))
        if place.exists():
            raise ResultError(f"{place}: this exists already, perhaps because the run was recovered before; give another --out")
        return _recover(partial, place)


def _recover(partial: pathlib.Path, place: pathlib.Path) -> Recovered:
    try:
        stored = read_result(partial)[0] if (partial / RESULT_FILE).exists() else read_begun(partial)
    except ResultError as error:
        raise ResultError(f"{partial}: there is nothing to recover: {error}") from None
    unfinished = read_unfinished(partial, stored)
    number = len(unfinished.points)
    log = point_log_file(partial, number)
    if not number and unfinished.problem:
        raise ResultError(f"{partial}: there is nothing to recover: {unfinished.problem}")
    head, problem = _head(log)
    if problem and not number:
        raise ResultError(problem)
    problem = problem or unfinished.problem
    loaded = read_document(stored.scenario, environ={})
    if head is not None:
        loaded = dataclasses.replace(loaded, folder=pathlib.Path(head.folder))
    source = load_point_source(loaded)
    so_far = RunResult(loaded, loaded.by_workload(), stored.environment, is_search=source.outcome() is not None)
    if unfinished.points:
        Continuation(unfinished).restore(source, so_far)
    under_way = None if head is None else _UnderWay.read(log, head, loaded, source, so_far)
    if under_way is not None:
        so_far.add(under_way.measurements)
        until = under_way.where
        losses = [f"What came later than {until}.", *_not_sampled(stored)]
    elif number:
        until = f"its last whole load point, number {number:,}"
        losses = ["The load point that was being measured, if there was one: no second of it was complete."]
    else:
        raise ResultError(f"{partial}: no second of the first load point was complete, so there is nothing to recover")
    if problem:
        losses.append(f"The load points from number {number + 1:,} on: {problem}.")
    document = so_far.document(source.outcome(), {})
    result = stored.model_copy(
        update={
            "points": document.points,
            "summary": document.summary,
            "search": document.search,
            "status": "incomplete",
            "status_reason": f"the run was killed, and recovered until {until}",
            "environment": {**stored.environment, "recovered": {"until": until, "lost": losses}},
        }
    )
    new = place.with_name(f"{place.name}.recovering")
    try:
        shutil.rmtree(new, ignore_errors=True)  # of a recovery that was cut off
        new.mkdir(parents=True)
        copy_begun(partial, new)
        cut_begun(new, *(unfinished.points[-1].sizes if head is None else (head.log_bytes, head.telemetry_bytes)))
        if under_way is not None:
            with contextlib.closing(RotatingLog(new, unfinished.log_started_at_s, continues=True)) as lines:
                for line in under_way.lines():
                    lines.write(line)
        write_result(new, result)
        add_checksums(new)
        new.rename(place)
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        raise ResultError(f"{place}: cannot be written: {error.strerror}") from None
    return Recovered(result, place, tuple(losses))


def _head(log: pathlib.Path) -> tuple[PointHead | None, str]:
    """The head of a load point's log, and why it cannot be read."""
    if not log.exists():
        return None, ""
    try:
        head, _ = read_point_log(log)
    except ResultError as error:
        return None, str(error)
    if head.version != perfkit.__version__:
        return None, f"{log}: this is of perfkit {head.version}; recover it with that version"
    return head, ""


@dataclasses.dataclass(frozen=True)
class _UnderWay:
    """What the log has of the load point that was being measured."""

    log: pathlib.Path
    point: LoadPoint
    recorded: PointRecording
    window: Window
    measurements: Sequence[PointMeasurement]
    where: str
    """How far into its window it is known."""
    log_started_ns: int

    @classmethod
    def read(
        cls, log: pathlib.Path, head: PointHead, loaded: LoadedScenario, source: LoadPointSource, so_far: RunResult
    ) -> "_UnderWay | None":
        """None if the log has nothing of the window."""
        (point, _), recorded = so_far.next_point(source, head.probe_time_ns), recorded_so_far(log)
        if point is None or recorded is None:
            return None
        window = cut_window(loaded.scenario, recorded, is_open=is_open(point))
        if not window.length_ns:
            return None
        plain = loaded.by_workload()
        workloads = [(plain[part.workload].scenario, facts) for part, facts in zip(point.parts, head.workloads, strict=True)]
        observed = PointObservation(Resources(), (), ())
        measurements = measurements_of(loaded.scenario, point, workloads, recorded, window, observed, head.workers, head.warnings)
        seconds = f"{window.length_ns / NS_PER_S:,.0f} s into the window of load point {point.number + 1:,} of {source.total():,}"
        return cls(log, point, recorded, window, measurements, f"{seconds} ({title_of(point)})", head.log_started_ns)

    def lines(self) -> Iterator[str]:
        """The lines of the interval log."""
        origin_ns = self.recorded.recording.origin_ns
        first_s, last_s = ((instant_ns - origin_ns) // NS_PER_S for instant_ns in (self.window.start_ns, self.window.end_ns))
        return log_lines(self.log, point_lines(self.point, self.log_started_ns), first_s, last_s)


def _not_sampled(stored: Result) -> Iterator[str]:
    yield "What was sampled in that load point: the server's own figures, GPUs, metrics, and the generator's machine."
    if stored.scenario.get("fleet"):
        yield "The part of each machine of the fleet."
    if stored.scenario.get("traces"):
        yield "Where the time of traced requests went."
