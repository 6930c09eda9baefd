"""The key `load.open.shape`: how the rate of an open loop changes within the window."""

import math
from typing import Annotated, Self

import pydantic
from pydantic import Field

from perfkit.scenario.section import Duration, Section
from perfkit.units import NS_PER_S

Factor = Annotated[float, Field(gt=0, allow_inf_nan=False)]
SINE_PIECES = 256
"""The number of linear pieces that a period of a sine is made of."""


class Ramp(Section):
    """A linear change from the rate to `to` times the rate, which then stays."""

    to: Factor
    """The final rate as a multiple of the first."""
    over_ns: Duration = Field(alias="over", gt=0)
    """How long the change takes."""


class Steps(Section):
    """Multiples of the rate, one after the other; the last one stays."""

    levels: Annotated[tuple[Factor, ...], Field(min_length=1)]
    """The levels as multiples of the rate."""
    each_ns: Duration = Field(alias="each", gt=0)
    """How long each level lasts."""


class Spike(Section):
    """A temporary change to `to` times the rate."""

    to: Factor
    """The rate during the spike as a multiple."""
    at_ns: Duration = Field(alias="at")
    """When it begins, since the window's start."""
    length_ns: Duration = Field(alias="for", gt=0)
    """How long it lasts."""


class Sine(Section):
    """A sinusoidal change of the rate; `amplitude` is a share of it."""

    amplitude: Annotated[float, Field(gt=0, lt=1)]
    """The amplitude as a share of the rate."""
    period_ns: Duration = Field(alias="period", gt=0)
    """The length of a period."""


class Shape(Section):
    """How the rate changes within the window; give exactly one. The warm-up runs at the rate with which the window begins."""

    ramp: Ramp | None = None
    """A linear change."""
    steps: Steps | None = None
    """Several levels, one after another."""
    spike: Spike | None = None
    """A temporary change."""
    sine: Sine | None = None
    """A sinusoidal change."""

    @pydantic.model_validator(mode="after")
    def _is_exactly_one(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError(f"give exactly one of ramp, steps, spike, sine; found {' and '.join(sorted(self.model_fields_set)) or 'none'}")
        return self

    def count_pieces(self, length_s: float) -> int:
        """The number of linear pieces within a window of that length."""
        if self.steps is not None:
            return len(self.steps.levels)
        return math.ceil(length_s * NS_PER_S / self.sine.period_ns * SINE_PIECES) if self.sine is not None else 3
