"""`checkpoint.json` in the folder of a run under way: the result until an instant within a load point, and what of the log belongs to it.

It has another name and schema than a result, so that it is never taken for one; `perfkit recover` makes a result of it.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import pydantic
import pydantic.dataclasses

from perfkit.errors import ResultError
from perfkit.result.atomic_write import write_whole
from perfkit.result.checks import check_result
from perfkit.result.json_file import parse_json, read_bytes
from perfkit.result.model import Result, result_document

CHECKPOINT_FILE = "checkpoint.json"
_LogName = Annotated[str, pydantic.StringConstraints(pattern=r"^latency(-[1-9][0-9]{0,6})?\.hlog$")]
_SpoolName = Annotated[str, pydantic.StringConstraints(pattern=r"^intervals-p[0-9]{1,9}\.r[0-9]{1,9}-[0-9]{1,9}(\.lost)?\.spool$")]
_Bytes = Annotated[int, pydantic.Field(ge=-1, le=2**60)]
_Seconds = Annotated[int, pydantic.Field(ge=0, le=10**9)]


@pydantic.dataclasses.dataclass(frozen=True, config=pydantic.ConfigDict(extra="forbid"))
class Checkpoint:
    """What a checkpoint says besides the result."""

    taken_at: str
    where: str
    """The instant in words: how far into the window of which load point."""
    first_s: _Seconds
    """The second of the recording in which the window starts; the checkpoint ends before `last_s`."""
    last_s: _Seconds
    window_lines: Annotated[str, pydantic.StringConstraints(pattern=r"^(#\[Window p\d+\.r\d+ starts at [\d.]+ s\]\n)*$")]
    """The lines of the log that say where the window starts."""
    log: Mapping[_LogName, _Bytes] = pydantic.Field(default_factory=dict)
    """The bytes of the log's files that belong to the load points before."""
    spools: Mapping[_SpoolName, _Bytes] = pydantic.Field(default_factory=dict)
    """The bytes of each worker's intervals that the checkpoint counts; -1 for what lost workers sent and no figure counts."""
    schema: Literal["perfkit.checkpoint/1"] = "perfkit.checkpoint/1"


def write_checkpoint(folder: pathlib.Path, checkpoint: Checkpoint, result: Result) -> None:
    """Writes the file in one step, so that it survives a power cut; raises OSError."""
    document = pydantic.TypeAdapter(Checkpoint).dump_python(checkpoint, mode="json") | {"result": result_document(result)}
    write_whole(folder / CHECKPOINT_FILE, json.dumps(document, indent=1) + "\n", survives_power_cut=True)


def read_checkpoint(folder: pathlib.Path) -> tuple[Checkpoint, Result] | None:
    """The checkpoint in a folder, None without one; raises ResultError."""
    file = folder / CHECKPOINT_FILE
    try:
        document: Any = parse_json(file, read_bytes(file))
    except FileNotFoundError:
        return None
    if not isinstance(document, dict):
        raise ResultError(f"{file}: expected a JSON object")
    result_part = document.pop("result", None)
    try:
        checkpoint = pydantic.TypeAdapter(Checkpoint).validate_python(document)
        result = Result.model_validate(result_part)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ResultError(f"{file}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    check_result(file, result)
    return checkpoint, result
