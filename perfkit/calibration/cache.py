"""The calibration that is kept in the user's cache, for as long as it is of this machine and this perfkit."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import platformdirs

from perfkit.calibration.model import Calibration, calibration_document, parse_calibration
from perfkit.errors import UsageError

_IDENTITY = {
    "perfkit": "perfkit",
    "python": "Python",
    "system": "system",
    "kernel": "kernel",
    "machine": "machine",
    "cpu_model": "CPU",
    "usable_cpus": "usable CPUs",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """The calibration that holds here, None without one; `unusable` says why one that is there does not."""

    calibration: Calibration | None = None
    unusable: str = ""


def identity(host: Mapping[str, Any]) -> dict[str, Any]:
    """What of `describe_host` a calibration stands and falls with."""
    return {name: host[name] for name in _IDENTITY}


def calibration_path() -> pathlib.Path:
    """Where it is kept; PERFKIT_CACHE_DIR moves it."""
    return pathlib.Path(os.environ.get("PERFKIT_CACHE_DIR") or platformdirs.user_cache_dir("perfkit")) / "calibration.json"


def read_calibration(path: pathlib.Path, host: Mapping[str, Any]) -> Kept:
    """What is kept there, if it is of `host`, as `describe_host` gives it. Never raises: a run goes on without."""
    try:
        found = parse_calibration(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Kept()
    except (OSError, ValueError, RecursionError) as error:
        return Kept(unusable=f"{path} cannot be read as a calibration: {str(error).splitlines()[0]}")
    here = identity(host)
    for name, title in _IDENTITY.items():
        if (there := found.host.get(name)) != here[name]:
            return Kept(unusable=f"{path} is of another {title}: {there}, here {here[name]}")
    return Kept(found)


def write_calibration(path: pathlib.Path, calibration: Calibration) -> None:
    """Keeps it there, whole or not at all; raises UsageError where that cannot be."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(calibration_document(calibration), indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"the calibration cannot be kept in {path} ({error}): set PERFKIT_CACHE_DIR to a writable folder.") from None
