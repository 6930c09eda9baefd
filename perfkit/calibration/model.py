"""The calibration of a machine, schema `perfkit.calibration/1`: its file in the cache, and the number of workers that follows from it."""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from perfkit.errors import ResultError, UsageError
from perfkit.installation import cache_folder
from perfkit.result.distribution import Distribution
from perfkit.result.json_file import read_json
from perfkit.result.model import Protocol
from perfkit.result.part import Part
from perfkit.units import NS_PER_S

if TYPE_CHECKING:
    from perfkit.load.load_plan import LoadPlan

SCHEMA = "perfkit.calibration/1"
_NEAR_SIZES = 10
_LARGEST_FIGURE = 1e12
MAX_BUSY_SHARE = 0.7
"""The planned share of a core: below the 0.85 at which a point is invalid, since actual costs differ from the calibrated ones."""
_IDENTITY = {
    "perfkit": "perfkit",
    "python": "Python",
    "system": "system",
    "kernel": "kernel",
    "machine": "machine",
    "cpu_model": "CPU",
    "usable_cpus": "set of usable CPUs",
}


class Cost(Part):
    """The cost of requests of one protocol and tensor size to one worker: medians of several rounds."""

    protocol: Protocol
    tensor_bytes: int
    cpu_ns_per_request: float
    """User and system time, including the kernel's time in sockets."""
    ceiling_per_s: float
    """The closed-loop rate at which a worker's core reaches the busy share that a valid point allows; an open loop also spins."""
    service_time_p50_ns: int
    """With one request in flight."""
    bare_p50_ns: int
    """The same bytes sent to the same server through a blocking socket."""
    overhead_p50_ns: int
    """The median of the difference of those two in each round."""


class Calibration(Part):
    """What this machine can do as a load generator."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    measured_at: str
    host: dict[str, Any]
    """The facts that must not change for the calibration to be valid: see `identity`."""
    server_cpus: tuple[int, ...]
    """The CPUs of the server that it measured against."""
    driver_cpus: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    rounds: int
    costs: tuple[Cost, ...]
    start_delay_rate_per_s: float
    """The rate of the open loop that start delays were measured in."""
    start_delay_ns: Distribution
    """In an open loop of small HTTP requests at that rate."""
    timer_late_ns: Distribution
    """How late the pacer wakes when nothing else runs."""
    clock_resolution_ns: float
    """As the operating system reports it."""


def parse_calibration(document: object) -> Calibration:
    """Reads a calibration document; raises ValueError for anything else, also for another schema."""
    calibration = Calibration.model_validate(document)
    if calibration.schema_version != SCHEMA:
        raise ValueError(f"this perfkit reads {SCHEMA}, found {calibration.schema_version!r}")
    figures = [("start_delay_rate_per_s", calibration.start_delay_rate_per_s), ("clock_resolution_ns", calibration.clock_resolution_ns)]
    figures += [(f"costs.{name}", value) for cost in calibration.costs for name, value in cost if isinstance(value, int | float)]
    for distribution in (calibration.start_delay_ns, calibration.timer_late_ns):
        figures += [(name, value) for name, value in distribution if value is not None]
    for name, value in figures:
        lowest = -_LARGEST_FIGURE if name == "costs.overhead_p50_ns" else 0  # a difference of two measurements
        if not lowest <= value <= _LARGEST_FIGURE:
            raise ValueError(f"{name}: {value} is no figure of a calibration")
    return calibration


def nearest_cost(costs: Sequence[Cost], protocol: Protocol, tensor_bytes: int) -> Cost | None:
    """The cost of a protocol at the nearest calibrated tensor size, by the sizes' ratio; None for a protocol without costs."""
    known = [cost for cost in costs if cost.protocol == protocol]
    return min(known, key=lambda cost: _size_ratio(cost, tensor_bytes), default=None)


def transport_ns(costs: Sequence[Cost], protocol: Protocol, tensor_bytes: int) -> int | None:
    """What transport and wake-up of both sides take of a service time on this machine: the median service time of a server that answers at once.

    None unless tensors of up to ten times or as little as a tenth of the size were calibrated. With many requests in flight, or on
    a busy machine, it takes longer.
    """
    nearest = nearest_cost(costs, protocol, tensor_bytes)
    return None if nearest is None or _size_ratio(nearest, tensor_bytes) > math.log(_NEAR_SIZES) else nearest.service_time_p50_ns


def _size_ratio(cost: Cost, tensor_bytes: int) -> float:
    """The logarithm of the ratio of the sizes, at least 0."""
    return abs(math.log(max(cost.tensor_bytes, 1) / max(tensor_bytes, 1)))


def workers_needed(
    costs: Sequence[Cost], *, protocol: Protocol, tensor_bytes: int, rate_per_s: float, max_workers: int, spin_ns: int = 0
) -> int:
    """The number of workers that keeps each core's busy share below 0.7; 1 for a protocol without calibrated costs.

    The cost is that of the nearest calibrated tensor size, by their ratio, plus `spin_ns`: see `spin_ns_per_request`.
    """
    nearest = nearest_cost(costs, protocol, tensor_bytes)
    if nearest is None:
        return 1
    return max(1, min(max_workers, math.ceil(rate_per_s * (nearest.cpu_ns_per_request + spin_ns) / NS_PER_S / MAX_BUSY_SHARE)))


def highest_rate_per_s(load: "LoadPlan", answer_ns: int) -> float:
    """The peak rate of a load; that of a closed loop if every answer takes `answer_ns`."""
    from perfkit.load.load_plan import ClosedPlan  # only here, as below: reports read calibrations, and send nothing

    if isinstance(load, ClosedPlan):
        return load.concurrency * NS_PER_S / max(answer_ns + load.think_time_ns, 1)
    return load.peak_rate_per_s


def spin_ns_per_request(load: "LoadPlan") -> int:
    """The time that an open loop spins before each arrival; 0 for a closed loop, such as those of the calibration."""
    from perfkit.load.load_plan import ClosedPlan
    from perfkit.load.open_loop import SPIN_NS

    return 0 if isinstance(load, ClosedPlan) else SPIN_NS


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
    return cache_folder() / "calibration.json"


def read_calibration(path: pathlib.Path, host: Mapping[str, Any]) -> CachedCalibration:
    """Reads the cache if it is of `host`, as `describe_host` returns it. Never raises: a run does not depend on it."""
    try:
        calibration = parse_calibration(read_json(path))
    except (FileNotFoundError, NotADirectoryError):
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
        partial.write_text(json.dumps(calibration.document(), indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"the calibration cannot be stored in {path} ({error}): set PERFKIT_CACHE_DIR to a writable folder") from None
