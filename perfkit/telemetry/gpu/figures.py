"""What is said of one GPU over one load point's window, whoever read it."""

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True)
class GpuFigures:
    """A GPU's figures; None is what the source does not say. Shares are of one."""

    uuid: str
    name: str
    source: Literal["nvml", "metrics"]
    utilization_mean: float | None = None
    memory_used_max_bytes: int | None = None
    power_mean_w: float | None = None
    energy_j: float | None = None
    sm_clock_mean_mhz: float | None = None
    throttled_share: float | None = None
    index: int | None = None
    mig: bool = False
    """An instance of a divided GPU: the driver tells its memory alone."""
    memory_total_bytes: int | None = None
    memory_utilization_mean: float | None = None
    """The share of the time in which its memory was read or written."""
    temperature_max_celsius: float | None = None
    memory_clock_mean_mhz: float | None = None
    energy_source: Literal["counter", "power"] | None = None
    """Whether the energy is the driver's counter, or integrated power."""
    idle_power_w: float | None = None
    """Before the run, without load."""
    ecc_errors: int | None = None
    """New ones in the window."""
    throttle_reasons: tuple[str, ...] = ()
    driver_version: str | None = None
    parent_uuid: str | None = None
    """Of an instance of a divided GPU, the GPU's."""
    power_source: Literal["instant", "samples", "average"] | None = None
    """Whether the power is what the driver read at an instant, its buffer of such readings, or its mean over a second."""
    energy_above_idle_j: float | None = None
    """The energy without what the GPU would have drawn at rest, as measured before the run."""
    ecc_uncorrected_errors: int | None = None
    """Those of the new ECC errors that could not be corrected."""
    pcie_sent_mean_bytes_per_s: float | None = None
    pcie_received_mean_bytes_per_s: float | None = None
    used_by_server: bool | None = None
    """Whether a process of the target computed on it; None where the driver, or the system, does not say."""
