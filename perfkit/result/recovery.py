"""Makes a result of the folder that a killed run left: its complete load points, and the last checkpoint of the one under way."""

import contextlib
import csv
import dataclasses
import io
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping

from perfkit.errors import ResultError
from perfkit.result.atomic_write import write_whole
from perfkit.result.checkpoint import Checkpoint, read_checkpoint
from perfkit.result.checksums import CHECKSUM_FILE
from perfkit.result.file import RESULT_FILE, SERVER_LOG, add_checksums, read_result, write_result
from perfkit.result.interval_log import check_log, log_files
from perfkit.result.interval_spool import spooled_lines
from perfkit.result.model import Result
from perfkit.result.output_folder import locked
from perfkit.result.rotating_log import RotatingLog
from perfkit.result.telemetry_file import COLUMNS, CSV_FILE

_PARTIAL = re.compile(r"(?P<name>.+)\.partial(-\d+)?")
_START_TIME = re.compile(r"#\[StartTime: (?P<seconds>\d{1,12}\.\d{1,9}) ")
_POINT = re.compile(r"(?:Tag=|#\[Window )p(?P<point>\d{1,9})\.r(?P<repetition>\d{1,9})[ .]")


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
    place = out or partial.with_name(of_run.name)
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
    result, checkpoint = _newest(partial)
    lost = list(_losses(result, checkpoint))
    new = place.with_name(f"{place.name}.recovering")
    try:
        shutil.rmtree(new, ignore_errors=True)  # of a recovery that was cut off
        new.mkdir(parents=True)
        is_logged = _write_log(partial, new, result, checkpoint)
        result = _as_recovered(result, checkpoint, lost if is_logged else [*lost, _WITHOUT_LOG])
        if not is_logged:
            lost.append(_WITHOUT_LOG)
        write_result(new, result)
        _copy_telemetry(partial, new, result)
        if (partial / SERVER_LOG).is_file():
            shutil.copyfile(partial / SERVER_LOG, new / SERVER_LOG)
        add_checksums(new)
        new.rename(place)
    except OSError as error:
        raise ResultError(f"{place}: cannot be written: {error.strerror}") from None
    return Recovered(result, place, tuple(lost))


_WITHOUT_LOG = "latency.hlog: it was not on the disk as far as the figures go, so the result has no distributions by second."


def _newest(partial: pathlib.Path) -> tuple[Result, Checkpoint | None]:
    """The checkpoint's result, or that of the complete load points if it has as many; raises ResultError if there is neither."""
    complete, reasons = None, []
    checkpoint = None
    try:
        checkpoint = read_checkpoint(partial)
    except ResultError as error:
        reasons.append(str(error))
    if (partial / RESULT_FILE).exists():
        try:
            complete = read_result(partial)[0]
        except ResultError as error:
            reasons.append(str(error))
    if checkpoint is not None and (complete is None or len(complete.points) < len(checkpoint[1].points)):
        return checkpoint[1], checkpoint[0]
    if complete is not None:
        return complete, None
    found = f" ({'; '.join(reasons)})" if reasons else ""
    raise ResultError(f"{partial}: no load point was complete and there is no checkpoint, so there is nothing to recover{found}")


def _losses(result: Result, checkpoint: Checkpoint | None) -> Iterator[str]:
    if checkpoint is not None:
        yield f"What came after the checkpoint of {checkpoint.taken_at}, {checkpoint.where}."
        yield "What was sampled in that load point: the server's own figures, GPUs, metrics, and the generator's machine."
        if result.scenario.get("fleet"):
            yield "The part of each machine of the fleet."
        if result.scenario.get("traces"):
            yield "Where the time of traced requests went."
    else:
        yield "The load point that was being measured, if there was one: it was shorter than a checkpoint, or had none yet."


def _as_recovered(result: Result, checkpoint: Checkpoint | None, lost: list[str]) -> Result:
    until = f"its last checkpoint, {checkpoint.where}" if checkpoint else f"its last complete load point, number {len(result.points):,}"
    recovered = {"until": until, "checkpoint_at": checkpoint.taken_at if checkpoint else None, "lost": lost}
    return result.model_copy(
        update={
            "status": "incomplete",
            "status_reason": f"the run was killed, and recovered until {until}",
            "environment": {**result.environment, "recovered": recovered},
        }
    )


def _write_log(partial: pathlib.Path, new: pathlib.Path, result: Result, checkpoint: Checkpoint | None) -> bool:
    """Writes the part of the log that the figures hold; False, without a log, if it is not all there."""
    log: RotatingLog | None = None
    try:
        for line in _log_lines(partial, result, checkpoint):
            if log is None:
                log = RotatingLog(new, float(match["seconds"]) if (match := _START_TIME.match(line)) else 0.0)
            if line[0] not in '"#' or line.startswith("#[Window"):
                log.write(line)
        if log is not None:
            log.close()
        check_log(new, result)
    except (ResultError, UnicodeDecodeError, ValueError, IndexError):
        for file in log_files(new):
            file.unlink(missing_ok=True)
        return False
    return True


def _log_lines(partial: pathlib.Path, result: Result, checkpoint: Checkpoint | None) -> Iterator[str]:
    """The lines of the load points that the result holds, the start time before them, without what a crash cut off."""
    known = _known_points(result)
    sizes: Mapping[str, int] = {} if checkpoint is None else checkpoint.log
    for number, file in enumerate(log_files(partial)):
        if checkpoint is not None and file.name not in sizes:
            break
        read = 0
        with file.open(encoding="ascii") as stream:
            for line in stream:
                read += len(line)
                if not line.endswith("\n") or read > sizes.get(file.name, read):
                    break
                if match := _POINT.match(line):
                    if (int(match["point"]), int(match["repetition"])) in known:
                        yield line
                elif not number and line.startswith("#[StartTime"):
                    yield line
    if checkpoint is not None:
        for name, size in checkpoint.spools.items():
            if (partial / name).exists():
                is_lost = size < 0
                last_s, end = (None, None) if is_lost else (checkpoint.last_s, size)
                yield from spooled_lines(partial / name, checkpoint.first_s, last_s, is_lost=is_lost, size=end)
        yield from checkpoint.window_lines.splitlines(keepends=True)


def _known_points(result: Result) -> set[tuple[int, int]]:
    """The load points as the log numbers them."""
    if result.search is not None:  # whose probes are numbered, since it may probe a rate twice
        return {(number, 0) for number in range(len(result.points))}
    index_of = {point.key: index for index, point in enumerate(result.summary)}
    return {(index_of[point.key], point.repetition or 0) for point in result.points}


def _copy_telemetry(partial: pathlib.Path, new: pathlib.Path, result: Result) -> None:
    """Copies the samples of the result's load points, without a row that a crash cut off."""
    known = _known_points(result)
    try:
        with (partial / CSV_FILE).open(encoding="utf-8", newline="") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError):
        return
    rows = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    kept = [row for row in rows[1:] if len(row) == len(COLUMNS) and row[0].isdecimal() and row[1].isdecimal()]
    kept = [row for row in kept if (int(row[0]), int(row[1])) in known]
    if kept:
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([COLUMNS, *kept])
        write_whole(new / CSV_FILE, written.getvalue())
