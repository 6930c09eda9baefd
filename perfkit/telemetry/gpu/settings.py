"""The settings of a GPU that affect measurements, as NVML reports them; the NVML module is passed in."""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from perfkit.telemetry.gpu.queries import THROTTLE_REASONS

_T = TypeVar("_T")
# nvml.h, nvmlComputeMode_t
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


@dataclasses.dataclass(frozen=True, slots=True)
class GpuSettings:
    """The settings of a whole GPU, and what it does now; None where the driver does not say."""

    title: str
    """Its index and name, for sentences."""
    is_divided: bool = False
    """Whether it is divided into MIG instances."""
    persistence: bool | None = None
    """Whether the driver stays loaded while no process uses the GPU."""
    compute_mode: str | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    sm_clock_limit_mhz: int | None = None
    """The application clock; the SM clock stays at or below it."""
    default_sm_clock_limit_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Why its clocks are lowered now."""
    utilization: float | None = None
    """The share of the last moments in which it computed."""
    processes: int | None = None
    """How many processes compute on it."""


def read_settings(nvml: Any, handle: Any, title: str, processes: int | None, is_divided: bool) -> GpuSettings:
    """Reads the settings of a GPU; what the driver refuses is None."""

    def read(name: str, convert: Callable[[Any], _T], *arguments: Any) -> _T | None:
        try:
            return convert(getattr(nvml, name)(handle, *arguments))
        except (nvml.NVMLError, AttributeError):  # newer versions of the library leave out deprecated functions
            return None

    def watts(milliwatts: int) -> float:
        return milliwatts / 1000

    reasons = read("nvmlDeviceGetCurrentClocksEventReasons", int) or read("nvmlDeviceGetCurrentClocksThrottleReasons", int) or 0
    return GpuSettings(
        title=title,
        is_divided=is_divided,
        persistence=read("nvmlDeviceGetPersistenceMode", bool),
        compute_mode=read("nvmlDeviceGetComputeMode", lambda mode: _COMPUTE_MODES.get(mode, f"mode {mode}")),
        power_limit_w=read("nvmlDeviceGetEnforcedPowerLimit", watts),
        default_power_limit_w=read("nvmlDeviceGetPowerManagementDefaultLimit", watts),
        sm_clock_limit_mhz=read("nvmlDeviceGetApplicationsClock", int, nvml.NVML_CLOCK_SM),
        default_sm_clock_limit_mhz=read("nvmlDeviceGetDefaultApplicationsClock", int, nvml.NVML_CLOCK_SM),
        throttle_reasons=tuple(reason for bit, reason in THROTTLE_REASONS.items() if reasons & bit),
        utilization=read("nvmlDeviceGetUtilizationRates", lambda rates: rates.gpu / 100),
        processes=processes,
    )
