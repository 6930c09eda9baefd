"""Writes and reads result folders: written beside their final place during a run, and moved there in one step.

docs/reference/results.md says what is in a folder, and what is checked when it is read.
"""

import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import pydantic

from perfkit.errors import MeasurementError, ResultError, StorageError
from perfkit.result.checksums import CHECKSUM_FILE, discard_checksums, verify, write_checksums
from perfkit.result.json_file import as_list, as_mapping, parse_json, read_bytes
from perfkit.result.output_folder import ensure_writable, put_in_place, write_whole
from perfkit.result.rotating_log import LARGEST_PART_BYTES, LOG_FILE, RotatingLog, cut_log, log_files
from perfkit.result.telemetry_file import CSV_FILE, PARQUET_FILE, SampledPoint, TelemetryLog
from perfkit.result.traces_file import TRACES_FILE, write_traces
from perfkit.result.whole_points import (
    POINTS_FOLDER,
    UnfinishedResult,
    forget_points_from,
    has_point_log,
    point_log_file,
    remove_point_logs,
    store_point,
    write_begun,
)

if TYPE_CHECKING:
    from perfkit.result.model import Result
    from perfkit.telemetry.series import Series

_Model = TypeVar("_Model", bound=pydantic.BaseModel)
RESULT_FILE = "result.json"
_DATA_FILES = (RESULT_FILE, CSV_FILE, PARQUET_FILE, TRACES_FILE)
SERVER_LOG = "server.log"
_LATER_LOG = re.compile(r"latency-[1-9]\d*\.hlog")
_RESULT_ENTRIES = {*_DATA_FILES, LOG_FILE, CHECKSUM_FILE, SERVER_LOG, "report.html", "report.md", "plots", POINTS_FOLDER}


class ResultWriter:
    """Writes a result into `<folder>.partial` after every load point, and moves it to `<folder>` in `commit`.

    If a crash left such a folder, it is `<folder>.partial-2` and so on. With `continued` it adds to the files of an unfinished result
    after the last load point that was measured as a whole. Raises ResultError if the place has something that is not a result.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        started_at_s: float,
        continued: UnfinishedResult | None = None,
        *,
        largest_log_bytes: int = LARGEST_PART_BYTES,
    ) -> None:
        self.folder, self.continued = folder, continued
        try:
            self._place = folder.resolve()  # a link stays, and points to the new result
            partial = self._place.with_name(self._place.name + ".partial")
            if folder.exists() and not _may_be_replaced(folder):
                raise ResultError(f"--out {folder}: this exists and is not a result folder; give another one")
            if os.path.ismount(self._place):
                inside = folder / "result"
                raise ResultError(
                    f"--out {folder}: this is a mount point, which a result cannot replace; give a folder in it, such as {inside}"
                )
            self._place.parent.mkdir(parents=True, exist_ok=True)
            self.partial = _new_folder(partial) if continued is None else _continue_in(continued, folder)
            try:
                ensure_writable(self.partial, folder)
            except ResultError:
                self._remove()
                raise
            self._log = RotatingLog(self.partial, started_at_s, largest_log_bytes, continues=continued is not None)
        except OSError as error:
            raise ResultError(f"--out {folder}: cannot be written: {error.strerror}") from None
        except ValueError:
            raise ResultError(f"--out {folder}: this cannot be a result folder; give another one") from None
        self._log.flush()
        self._sizes = (sum(self._log.sizes().values()), 0) if continued is None else continued.points[-1].sizes
        self._telemetry = TelemetryLog(self.partial)
        self._failure: OSError | None = None

    def begin(self, result: "Result") -> None:
        """Writes what is known of a run before its first load point, for `recover_result`."""
        with self._writing():
            write_begun(self.partial, result)

    def begin_point(self, number: int) -> tuple[pathlib.Path, int, int]:
        """The file for the log of load point `number`, counted from 0, and the sizes of interval log and telemetry before it."""
        return point_log_file(self.partial, number), *self._sizes

    def log_point(self, lines: Iterable[str], failure: OSError | None = None) -> None:
        """Adds a load point's lines, made by `PointLines`, unless its own log has failed; a failure is raised by the next `save`."""
        self._failure = self._failure or failure
        try:
            for line in lines if self._failure is None else ():
                self._log.write(line)
        except OSError as error:
            self._failure = error

    def log_series(self, point: SampledPoint, started_ns: int, series: "tuple[Series, ...]") -> None:
        """Adds the telemetry of a load point; `started_ns` as for `PointLines`, and failures as in `log_point`."""
        try:
            self._telemetry.add(point, started_ns, series)
        except OSError as error:
            self._failure = error

    def write_traces(self, parts: Sequence[str], rows: Iterable[tuple[str | int | float, ...]]) -> None:
        """Writes the traced requests; see `write_traces`."""
        with self._writing():
            write_traces(self.partial, parts, rows)

    def save(self, result: "Result", *, goes_on: bool = False) -> None:
        """Writes `result.json` with the result so far, so that a crash does not lose it; on one line if more load points follow, which is faster."""
        with self._writing():
            if self._failure is not None:
                raise self._failure
            self._log.flush()
            write_result(self.partial, result, is_indented=not goes_on)

    def store_point(self, number: int, content: bytes) -> None:
        """Stores load point `number`, counted from 0, so that a run can continue after it; call it after `save`, once the point is complete."""
        with self._writing():
            os.fsync(self._log.flush())  # what a stored point needs must not be lost in a power cut
            self._sizes = sum(self._log.sizes().values()), self._telemetry.sync()
            store_point(self.partial, number, content, *self._sizes)
            point_log_file(self.partial, number).unlink(missing_ok=True)

    def commit(self, *, in_haste: bool = False, is_finished: bool = True) -> pathlib.Path:
        """Adds the checksums, and moves the folder to its place in one step, replacing an existing result.

        In haste, telemetry stays a CSV file; so it does in a result that is not finished, which also keeps what another run needs to
        continue it.
        """
        with self._writing():
            self._log.close()
            if is_finished:
                forget_points_from(self.partial, 0)
            else:
                remove_point_logs(self.partial)
            if is_finished and not in_haste:
                self._telemetry.finish()
            add_checksums(self.partial)
            if self._place.exists() and not _may_be_replaced(self._place):
                raise MeasurementError(
                    f"{self._place} is no longer a result folder, so it was not replaced; the result is in {self.partial}"
                )
            put_in_place(self.partial, self._place)
        return self.folder

    def abort(self) -> pathlib.Path | None:
        """Ends a failed run: returns the folder with what was measured, or removes it if nothing was."""
        with contextlib.suppress(OSError):
            self._log.close()
        if (self.partial / RESULT_FILE).exists() or has_point_log(self.partial):
            return self.partial
        self._remove()
        return None

    def discard(self) -> None:
        """Removes the folder of a run that measured nothing, but not that of a run that it continues."""
        with contextlib.suppress(OSError):
            self._log.close()
        self._remove()

    def _remove(self) -> None:
        if self.continued is None or self.continued.folder != self.partial:
            shutil.rmtree(self.partial, ignore_errors=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(f"{self.partial} cannot be written: {error.strerror}") from None


def read_result(path: pathlib.Path) -> "tuple[Result, pathlib.Path]":
    """The result in a folder, or in a `result.json`, and its folder; raises ResultError, also for figures that no run could have written."""
    from perfkit.result.checks import check_result  # only now, as below: runs write before they read
    from perfkit.result.model import SCHEMA, Point, Result
    from perfkit.result.perf_analyzer_files import kind_of

    is_folder = path.is_dir()
    file = path / RESULT_FILE if is_folder else path
    try:
        data = read_bytes(file)
    except FileNotFoundError:
        missing = f"there is no {RESULT_FILE}" if is_folder else "no such file or folder"
        within = next(iter(sorted([*path.glob(f"*/{RESULT_FILE}"), *path.glob(f"runs/*/{RESULT_FILE}")])), None)  # of a sweep, a gate
        example = "" if within is None else f", such as {within.parent}"
        raise ResultError(f"{path}: {missing}; give a folder that `perfkit run` wrote{example}") from None
    if (kind := kind_of(data)) is not None:
        raise ResultError(f"{file}: this is a {kind} of perf_analyzer, which only `perfkit compare` and `perfkit report` read")
    if file.name != RESULT_FILE and not data.lstrip().startswith((b"{", b"[")):
        raise ResultError(f"{file}: cannot be read: expected a result of perfkit, or a profile export or CSV report of perf_analyzer")
    if file.name == RESULT_FILE:
        verify(file, hashlib.sha256(data).hexdigest())
    document = parse_json(file, data)
    del data
    result = parse_document(file, document, Result, SCHEMA, {"points": Point, "summary": Point})
    check_result(file, result)
    return result, file.parent


def replace_result(folder: pathlib.Path, result: "Result") -> None:
    """Replaces the `result.json` of a finished folder, and its checksums; raises MeasurementError."""
    try:
        discard_checksums(folder)  # a crash in between leaves a folder that is read unverified, not one that is refused
        write_result(folder, result)
        add_checksums(folder)
    except OSError as error:
        raise MeasurementError(f"{folder} cannot be written: {error.strerror}") from None


def add_checksums(folder: pathlib.Path) -> None:
    """Writes the checksums of a result folder's data; raises OSError."""
    write_checksums(folder, (RESULT_FILE, *(file.name for file in log_files(folder)), *_DATA_FILES[1:]))


def write_result(folder: pathlib.Path, result: "Result", *, is_indented: bool = True) -> None:
    """Writes `result.json` into a folder in one step; raises OSError."""
    from perfkit.result.model import result_document

    write_whole(folder / RESULT_FILE, json.dumps(result_document(result), indent=1 if is_indented else None) + "\n")


def parse_document(
    file: pathlib.Path,
    document: object,
    model: type[_Model],
    schema: str,
    parts: Mapping[str, type[pydantic.BaseModel]] = MappingProxyType({}),
) -> _Model:
    """A file's JSON document as a model; raises ResultError if it has another schema or does not fit the model.

    Lists under the keys of `parts` are converted in place one by one, so that no long one is in memory as both.
    """
    found = document.get("schema") if isinstance(document, dict) else None
    if found != schema:
        raise ResultError(
            f"{file}: this perfkit reads {schema}, found {found if found is None else str(found)[:50]!r}: a newer perfkit may read it"
        )
    place = list[str | int]()
    try:
        for key, part in parts.items():
            for number, one in enumerate(values := as_list(as_mapping(document).get(key))):
                place = [key, number]
                values[number] = part.model_validate(one)
        place = []
        return model.model_validate(document)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ResultError(f"{file}: {'.'.join(map(str, (*place, *first['loc'])))}: {first['msg']}") from None


def _may_be_replaced(folder: pathlib.Path) -> bool:
    """Whether a folder is empty, or has a result and nothing else."""
    names = {entry.name for entry in folder.iterdir()} if folder.is_dir() else {""}
    return not names or (RESULT_FILE in names and all(name in _RESULT_ENTRIES or _LATER_LOG.fullmatch(name) for name in names))


def _continue_in(unfinished: UnfinishedResult, folder: pathlib.Path) -> pathlib.Path:
    """The folder in which a run continues, with its files cut after the last whole load point; raises OSError.

    It is that of a run that was killed, or a copy of an interrupted result, which stays in its place.
    """
    place, partial, last = folder.resolve(), unfinished.folder, unfinished.points[-1]
    if partial == place:
        partial = _new_folder(place.with_name(place.name + ".partial"))
        copy_begun(place, partial)
        shutil.copytree(place / POINTS_FOLDER, partial / POINTS_FOLDER)
        shutil.copyfile(place / RESULT_FILE, partial / RESULT_FILE)  # last: without it the copy is not complete
    discard_checksums(partial)
    forget_points_from(partial, len(unfinished.points))
    remove_point_logs(partial)  # of a load point that is measured again
    cut_begun(partial, *last.sizes)
    return partial


def copy_begun(folder: pathlib.Path, to: pathlib.Path) -> None:
    """Copies what an unfinished run had logged to another folder; raises OSError."""
    for name in (*(file.name for file in log_files(folder)), CSV_FILE, SERVER_LOG):
        if (folder / name).exists():
            shutil.copyfile(folder / name, to / name)


def cut_begun(folder: pathlib.Path, log_bytes: int, telemetry_bytes: int) -> None:
    """Cuts interval log and telemetry to sizes that they had earlier; raises OSError."""
    cut_log(folder, log_bytes)
    if not telemetry_bytes:
        (folder / CSV_FILE).unlink(missing_ok=True)  # an empty file would be one without its first line
    elif (folder / CSV_FILE).exists():
        os.truncate(folder / CSV_FILE, telemetry_bytes)


def _new_folder(path: pathlib.Path) -> pathlib.Path:
    """Creates a new folder: an existing one may be left from a crash, or in use by another run."""
    for number in itertools.count(1):
        new = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with contextlib.suppress(FileExistsError):
            new.mkdir()
            return new
    raise AssertionError  # the count has no end
