"""Which files perf_analyzer wrote, by their beginning."""

import pathlib
import re
from typing import Literal

Kind = Literal["profile export", "CSV report"]

NOT_RECORDED = "no response time from the intended start, no failures: its format does not record them"
LOAD_COLUMNS = {"Concurrency": "concurrency", "Request Rate": "request_rate"}
"""The first column of a CSV report, and the mode of the load that it tells."""
_BEGINNING_BYTES = 4096
_EXPORT = re.compile(rb'\s*\{\s*"experiments"')
_CSV = re.compile(f"(?:\ufeff)?(?:{'|'.join(LOAD_COLUMNS)}),".encode())


def kind_of(beginning: bytes) -> Kind | None:
    """Which of perf_analyzer's files begins so; None for any other."""
    return "profile export" if _EXPORT.match(beginning) else "CSV report" if _CSV.match(beginning) else None


def perf_analyzer_kind(path: pathlib.Path) -> Kind | None:
    """Which of perf_analyzer's files this is; None for any other file, a folder, and what cannot be read."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            return kind_of(stream.read(_BEGINNING_BYTES))
    except (OSError, ValueError):
        return None
