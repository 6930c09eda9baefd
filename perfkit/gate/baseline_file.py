"""The baseline file: written whole or not at all, and read, or made of a result that stands in its place."""

import json
import pathlib

import pydantic

from perfkit.errors import ResultError
from perfkit.gate.baseline import SCHEMA, Baseline, baseline_of
from perfkit.recorder.histogram import Histogram
from perfkit.result.atomic_write import write_whole
from perfkit.result.file import read_result
from perfkit.result.interval_log import read_times
from perfkit.result.model import Result

_FAMILY = SCHEMA.partition("/")[0] + "/"


def read_baseline(path: pathlib.Path, *, with_histograms: bool = False) -> Baseline:
    """A baseline file, or a result (folder or `result.json`) as a baseline of one run; raises ResultError.

    `with_histograms` reads a result's log as well, so that what is written of it can be drawn again.
    """
    document = _document(path)
    schema = document.get("schema") if isinstance(document, dict) else None
    if not (isinstance(schema, str) and schema.startswith(_FAMILY)):
        result, folder = read_result(path)
        return baseline_of(result, _histograms(folder, result) if with_histograms else None)
    if schema != SCHEMA:
        raise ResultError(f"{path}: this perfkit reads {SCHEMA}, found {schema!r}: a newer perfkit may read it")
    try:
        found = Baseline.model_validate(document)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ResultError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if not found.runs:
        raise ResultError(f"{path}: runs: this baseline holds none; write it anew with `perfkit baseline`")
    return found


def write_baseline(path: pathlib.Path, baseline: Baseline) -> None:
    """Writes it in one step, in an order that keeps differences between versions small; raises ResultError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(baseline.model_dump(mode="json", by_alias=True), indent=1) + "\n")
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from None


def _document(path: pathlib.Path) -> object:
    """The JSON of a file; None for a folder, and for what `read_result` says better why it cannot be read."""
    if path.is_dir():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def _histograms(folder: pathlib.Path, result: Result) -> dict[tuple[int, int], Histogram]:
    """Each repetition's times from the log, by the summary's index and the repetition."""
    found: dict[tuple[int, int], Histogram] = {}
    for key, _, histogram in read_times(folder, result):
        found.setdefault(key, Histogram()).add(histogram)
    return found
