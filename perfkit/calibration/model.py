"""`perfkit.calibration/1` as frozen values; the JSON keys are the field names. Times are nanoseconds, rates per second."""

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from perfkit.result.model import Distribution, Part, Protocol

SCHEMA = "perfkit.calibration/1"


class Cost(Part):
    """What requests of one protocol and tensor size cost one worker: the medians of some rounds."""

    protocol: Protocol
    tensor_bytes: int
    cpu_ns_per_request: float
    """User and system time, the kernel's part in the sockets among it."""
    ceiling_per_s: float
    """The rate at which a worker's core is as busy as a valid point allows, in a closed loop; an open one spins as well."""
    service_time_p50_ns: int
    """With one request in flight."""
    bare_p50_ns: int
    """The same bytes to the same server from a blocking socket, which does nothing else."""
    overhead_p50_ns: int
    """The median of what lay between those two in each round."""


class Calibration(Part):
    """A machine as a load generator."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    measured_at: str
    host: dict[str, Any]
    """What must be the same for the figures to hold: see `perfkit.calibration.cache.identity`."""
    server_cpus: tuple[int, ...]
    driver_cpus: tuple[int, ...]
    warnings: tuple[str, ...] = ()
    rounds: int
    costs: tuple[Cost, ...]
    start_delay_rate_per_s: float
    start_delay_ns: Distribution
    """In an open loop of small requests over HTTP, at that rate."""
    timer_late_ns: Distribution
    """How late the pacer wakes, with nothing else to do."""
    clock_resolution_ns: float
    """As the system says."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


def calibration_document(calibration: Calibration) -> dict[str, Any]:
    """The calibration as plain values, in the order of the schema."""
    return calibration.model_dump(mode="json", by_alias=True)


def parse_calibration(document: object) -> Calibration:
    """Reads such a document; raises ValueError for anything else, also for another schema."""
    found = Calibration.model_validate(document)
    if found.schema_version != SCHEMA:
        raise ValueError(f"this perfkit reads {SCHEMA}, found {found.schema_version!r}")
    return found
