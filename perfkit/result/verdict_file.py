"""The file of a verdict, read back."""

import json
import pathlib

import pydantic

from perfkit.errors import ResultError
from perfkit.result.verdict import SCHEMA, Verdict


def read_verdict(path: pathlib.Path) -> Verdict:
    """What `perfkit gate` wrote as JSON; raises ResultError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ResultError(f"{path}: there is no such file; give the JSON that `perfkit gate` wrote") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ResultError(f"{path}: cannot be read: {error}") from None
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise ResultError(f"{path}: this perfkit reads {SCHEMA}, found {schema!r}: a newer perfkit may read it")
    try:
        return Verdict.model_validate(document)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        raise ResultError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
