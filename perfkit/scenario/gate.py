"""The `gate` part of a scenario: what `perfkit gate` runs and compares."""

from typing import Annotated, Literal

import pydantic
from pydantic import Field

from perfkit.scenario.part import Part

GateMetric = Literal["throughput", "p50", "p95", "p99"]


class Gate(Part):
    """How the scenario is used to compare a candidate with a baseline; `perfkit run` leaves it aside."""

    profile: Literal["standard"] | None = None
    """In place of the scenario's load: a closed loop that saturates the baseline (as many in flight as `load.closed` says at
    most, found by doubling where there is none), then Poisson arrivals at 70 % of its capacity."""
    metrics: Annotated[tuple[GateMetric, ...], Field(min_length=1)] | None = None
    """Those that have a say, of those that a load point has; left out, all. The error rate always has."""

    @pydantic.field_validator("metrics")
    @classmethod
    def _each_once(cls, metrics: tuple[GateMetric, ...] | None) -> tuple[GateMetric, ...] | None:
        if metrics is not None and len(set(metrics)) < len(metrics):
            raise ValueError(f"each metric stands once, found {list(metrics)}")
        return metrics
