"""The load points of an unfinished run that were measured as a whole: a file for each in its folder, from which `--resume` continues."""

import dataclasses
import json
import os
import pathlib
import shutil
import zlib
from typing import TYPE_CHECKING

import pydantic

import perfkit
from perfkit.errors import ResultError
from perfkit.result.json_file import LARGEST_BYTES, parse_json, read_bytes
from perfkit.result.output_folder import write_whole

if TYPE_CHECKING:
    from perfkit.result.model import Result

SCHEMA, POINTS_FOLDER = "perfkit.measured-point/2", "measured"
_BEGUN_FILE = "begun.json"


@dataclasses.dataclass(frozen=True, slots=True)
class StoredPoint:
    """A stored load point: its bytes, and the sizes that the log and the telemetry file had after it."""

    content: bytes
    sizes: tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class UnfinishedResult:
    """A result that a run can continue: its folder, and the load points that were measured as a whole."""

    folder: pathlib.Path
    result: "Result"
    log_started_at_s: float
    """The wall-clock time at which its log starts."""
    points: tuple[StoredPoint, ...]
    problem: str = ""
    """Why later load points of the folder cannot be read; empty if there are none."""


def store_point(folder: pathlib.Path, number: int, content: bytes, log_bytes: int, telemetry_bytes: int) -> None:
    """Stores load point `number`, counted from 0, in a result folder, and waits until the disk has it; raises OSError."""
    file = _file(folder, number)
    head = {"schema": SCHEMA, "version": perfkit.__version__, "log_bytes": log_bytes, "telemetry_bytes": telemetry_bytes}
    file.parent.mkdir(exist_ok=True)
    new = file.with_suffix(".new")
    with new.open("wb") as stream:
        stream.write(json.dumps(head).encode() + b"\n" + zlib.compress(content))
        stream.flush()
        os.fsync(stream.fileno())
    new.replace(file)


def read_points(folder: pathlib.Path, log_bytes: int, telemetry_bytes: int) -> tuple[list[StoredPoint], str]:
    """The load points from the first to the last that can be read, and why those after it cannot; empty if none is missing.

    `log_bytes` and `telemetry_bytes` are the sizes of the two files: after a power cut they may lack the end that a point has.
    """
    points: list[StoredPoint] = []
    while (file := _file(folder, len(points))).exists():
        try:
            point = _read_point(file)
        except ResultError as error:
            return points, str(error)
        if point.sizes[0] > log_bytes or point.sizes[1] > telemetry_bytes:
            return points, f"{file}: the log or the telemetry file lacks the end of this load point"
        points.append(point)
    return points, ""


def forget_points_from(folder: pathlib.Path, number: int) -> None:
    """Removes the stored load points from `number` on; raises OSError."""
    while number and (file := _file(folder, number)).exists():
        file.unlink()
        number += 1
    if not number and (folder / POINTS_FOLDER).exists():
        shutil.rmtree(folder / POINTS_FOLDER)


def point_log_file(folder: pathlib.Path, number: int) -> pathlib.Path:
    """The log of load point `number` while it is measured."""
    return _file(folder, number).with_suffix(".log")


def remove_point_logs(folder: pathlib.Path) -> None:
    """Removes the logs of load points that were not measured as a whole; raises OSError."""
    for file in (folder / POINTS_FOLDER).glob("*.log"):
        file.unlink()
    if not has_points(folder):
        forget_points_from(folder, 0)


def has_point_log(folder: pathlib.Path) -> bool:
    """Whether a folder has the log of a load point that was not measured as a whole."""
    return any((folder / POINTS_FOLDER).glob("*.log"))


def write_begun(folder: pathlib.Path, result: "Result") -> None:
    """Writes what is known of a run before its first load point; raises OSError."""
    from perfkit.result.model import result_document  # only now, as below: the first request leaves earlier

    (folder / POINTS_FOLDER).mkdir(exist_ok=True)
    write_whole(folder / POINTS_FOLDER / _BEGUN_FILE, json.dumps(result_document(result)))


def read_begun(folder: pathlib.Path) -> "Result":
    """What `write_begun` wrote; raises ResultError."""
    from perfkit.result.model import Result

    file = folder / POINTS_FOLDER / _BEGUN_FILE
    try:
        return Result.model_validate(parse_json(file, read_bytes(file)))
    except (FileNotFoundError, pydantic.ValidationError):
        raise ResultError(f"{folder}: no load point was begun") from None


def has_points(folder: pathlib.Path) -> bool:
    """Whether a folder has a stored load point."""
    return _file(folder, 0).is_file()


def _file(folder: pathlib.Path, number: int) -> pathlib.Path:
    return folder / POINTS_FOLDER / f"{number:05}.point"


def _read_point(file: pathlib.Path) -> StoredPoint:
    head, _, packed = read_bytes(file).partition(b"\n")
    match parse_json(file, head):
        case {"schema": "perfkit.measured-point/2", "version": str(version), "log_bytes": int(log), "telemetry_bytes": int(telemetry)}:
            pass
        case _:
            raise ResultError(f"{file}: this is no load point that this perfkit can read")
    if version != perfkit.__version__:
        raise ResultError(f"{file}: this is of perfkit {version[:50]}: continue with that version")
    unpacker = zlib.decompressobj()
    try:
        content = unpacker.decompress(packed, LARGEST_BYTES)
    except zlib.error as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None
    if not unpacker.eof:
        raise ResultError(f"{file}: cannot be read: its end is missing, or it is larger than any that perfkit writes")
    return StoredPoint(content, (log, telemetry))
