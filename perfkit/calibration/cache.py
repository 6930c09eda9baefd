"""The calibration stored in the user's cache, used while machine and perfkit are those that were calibrated."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

import platformdirs

from perfkit.calibration.model import Calibration, calibration_document, parse_calibration
from perfkit.errors import ResultError, UsageError
from perfkit.result.json_file import read_json

_IDENTITY = {
    "perfkit": "perfkit",
    "python": "Python",
    "system": "system",
    "kernel": "kernel",
    "machine": "machine",
    "cpu_model": "CPU",
    "usable_cpus": "set of usable CPUs",
}


@dataclasses.dataclass(frozen=True, slots=True)
class CachedCalibration:
    """The calibration that is valid here; None if there is none, with the reason in `unusable` if one is stored."""

    calibration: Calibration | None = None
    unusable: str = ""


def identity(host: Mapping[str, Any]) -> dict[str, Any]:
    """The part of `describe_host` that must not change for a calibration to stay valid."""
    return {name: host[name] for name in _IDENTITY}


def calibration_path() -> pathlib.Path:
    """The file of the cache; PERFKIT_CACHE_DIR sets its folder."""
    return pathlib.Path(os.environ.get("PERFKIT_CACHE_DIR") or platformdirs.user_cache_dir("perfkit")) / "calibration.json"


def read_calibration(path: pathlib.Path, host: Mapping[str, Any]) -> CachedCalibration:
    """Reads the cache if it is of `host`, as `describe_host` returns it. Never raises: a run does not depend on it."""
    try:
        calibration = parse_calibration(read_json(path))
    except FileNotFoundError:
        return CachedCalibration()
    except (ResultError, ValueError) as error:
        reason = str(error).splitlines()[0].removeprefix(f"{path}: ").removeprefix("cannot be read: ")
        return CachedCalibration(unusable=f"{path} cannot be read as a calibration: {reason}")
    for name, title in _IDENTITY.items():
        if (calibrated := calibration.host.get(name)) != host[name]:
            return CachedCalibration(unusable=f"{path} was made with another {title}: {calibrated}, now {host[name]}")
    return CachedCalibration(calibration)


def write_calibration(path: pathlib.Path, calibration: Calibration) -> None:
    """Writes the cache atomically; raises UsageError if that fails."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(calibration_document(calibration), indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"the calibration cannot be stored in {path} ({error}): set PERFKIT_CACHE_DIR to a writable folder") from None
