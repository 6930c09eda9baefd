"""Reads stored JSON files, which may have been damaged or written by others: bounded in size and depth, numbers finite, keys unique."""

import errno
import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from perfkit.errors import ResultError
from perfkit.input_file import read_bounded

# a result of 10,000 load points, the most that a scenario may have, takes 70 MB and three million values, and more with failures and GPUs
LARGEST_BYTES, DEEPEST, MOST_VALUES = 256 * 2**20, 100, 8_000_000
_LONGEST_INTEGER = 20
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_bytes(file: pathlib.Path, largest_bytes: int = LARGEST_BYTES) -> bytes:
    """The contents of a regular file; raises FileNotFoundError if it is missing, ResultError if it is too large or unreadable."""
    try:
        return read_bounded(file, largest_bytes)
    except FileNotFoundError:
        raise
    except OSError as error:
        what = repr(str(file)) if error.errno == errno.EINVAL else file
        end = "; perfkit writes no such file" if error.errno == errno.EFBIG else ""
        raise ResultError(f"{what}: cannot be read: {error.strerror}{end}") from None


def parse_json(file: pathlib.Path, data: bytes) -> Any:
    """The JSON document of a file; raises ResultError.

    Refused are documents of more than 8 million values or 100 levels, keys that occur twice, numbers that are not finite, and integers of more than 20 digits.
    """
    if (values := sum(map(data.count, (b",", b"[", b"{")))) > MOST_VALUES:
        raise ResultError(f"{file}: cannot be read: it has about {values:,} values; perfkit writes no such file")
    try:
        document = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_int=_integer)
    except _RepeatedKeyError as error:
        raise ResultError(f"{file}: {error}: this key occurs twice in one object; the file was damaged or edited") from None
    except RecursionError:
        raise ResultError(f"{file}: cannot be read: it is nested more than {DEEPEST} levels deep") from None
    except ValueError as error:
        raise ResultError(f"{file}: cannot be read: {error}") from None
    _check_values(file, document)
    return _without_surrogates(document) if _SURROGATE.search(data) else document


def read_json(file: pathlib.Path) -> Any:
    """The JSON document of a file, as `parse_json`; raises ResultError, and FileNotFoundError."""
    return parse_json(file, read_bytes(file))


class _RepeatedKeyError(Exception):
    pass


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1)[:100])
    return document


def _integer(text: str) -> float:
    return int(text) if len(text) <= _LONGEST_INTEGER else math.inf


def _check_values(file: pathlib.Path, document: Any) -> None:
    """Raises ResultError for the first number that is not finite or too large, and for too deep a document. Without recursion."""
    waiting: list[tuple[Any, tuple[Any, ...]]] = [(document, ())] if isinstance(document, dict | list) else []
    while waiting:
        value, path = waiting.pop()
        if len(path) >= DEEPEST:
            raise ResultError(f"{file}: cannot be read: it is nested more than {DEEPEST} levels deep")
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(part, dict | list):
                waiting.append((part, (*path, key)))
            elif isinstance(part, float) and not math.isfinite(part):
                place = ".".join(map(str, (*path, key)))
                raise ResultError(f"{file}: {place}: {part} is not a finite number; the file was damaged or edited")


def _without_surrogates(value: Any) -> Any:
    """The value with halves of surrogate pairs replaced, which no file could hold."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(part) for part in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(part) for key, part in value.items()}
    return value


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping; otherwise an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: object) -> list[Any]:
    """The value if it is a list; otherwise an empty one."""
    return value if isinstance(value, list) else []
