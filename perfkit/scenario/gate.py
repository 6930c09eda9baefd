"""The `gate` section of a scenario: how `perfkit gate` compares two servers."""

from typing import Annotated, Literal

import pydantic
from pydantic import Field

from perfkit.scenario.section import Section

GateMetric = Literal["throughput", "p50", "p95", "p99", "cpu_time", "instructions"]


class Gate(Section):
    """How `perfkit gate` compares a candidate with a baseline; `perfkit run` ignores this section."""

    profile: Literal["standard"] | None = None
    """`standard` replaces the scenario's load: a closed loop that saturates the baseline (with the highest `load.closed.concurrency`,
    or one found by doubling), then Poisson arrivals at 70 % of its capacity."""
    metrics: Annotated[tuple[GateMetric, ...], Field(min_length=1)] | None = None
    """The metrics that decide; the default is throughput and percentiles, as far as a load point has them. The error rate always decides, too.

    `cpu_time` and `instructions`, those of the server for a request, decide only if they are named. Instructions are counted only then."""

    @pydantic.field_validator("metrics")
    @classmethod
    def _is_unique(cls, metrics: tuple[GateMetric, ...] | None) -> tuple[GateMetric, ...] | None:
        if metrics is not None and len(set(metrics)) < len(metrics):
            raise ValueError(f"metrics must be unique, found {list(metrics)}")
        return metrics
