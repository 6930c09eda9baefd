"""What is said of a page of metrics over one load point's window."""

import dataclasses
from typing import Literal

from perfkit.telemetry.gpu.figures import GpuFigures


@dataclasses.dataclass(frozen=True, slots=True)
class MetricFigures:
    """One metric over a window. A counter has its rise and that per second, everything else its mean, least and most."""

    name: str
    labels: dict[str, str]
    kind: Literal["counter", "gauge"]
    rise: float | None = None
    per_s: float | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class MetricsFigures:
    """A page over a window: its GPUs, and its other metrics."""

    gpus: tuple[GpuFigures, ...]
    metrics: tuple[MetricFigures, ...]
