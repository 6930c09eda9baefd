"""The `measure` section of a scenario: how long, how often and from which processes load is sent."""

from typing import Annotated, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from perfkit.scenario.section import Count, Cpus, Duration, Section, Share, parse_duration
from perfkit.units import NS_PER_S, write_duration_ns


class Measure(Section):
    """How long, how often and from which processes load is sent; `duration` or `requests` ends a window."""

    warmup_ns: Annotated[
        int | Literal["auto"],
        BeforeValidator(lambda value: value if value == "auto" else parse_duration(value)),
        PlainSerializer(lambda value: value if value == "auto" else write_duration_ns(value)),
        WithJsonSchema({"type": ["string", "integer"], "examples": ["auto", "2s"]}),
    ] = Field(default="auto", alias="warmup")
    """`auto` excludes the first second, and any part of the window's first third that is not steady yet."""
    duration_ns: Duration | None = Field(default=None, alias="duration", gt=0)
    requests: Count | None = None
    drain_ns: Duration | None = Field(default=None, alias="drain")
    repetitions: Count = 3
    abort_error_rate: Share | None = None
    """The run ends if a larger share of a load point's requests fails, judged from 20 requests on."""
    workers: Literal["auto"] | Count = "auto"
    """The number of load-generating processes. `auto` follows the machine's calibration (`perfkit calibrate`), and is 1 without one. More help a
    generator that is the bottleneck, if CPUs are free for them."""
    cpus: Cpus | None = None
    checkpoint_ns: Duration = Field(default=60 * NS_PER_S, alias="checkpoint")
    """How often the figures so far are written while a longer window is measured, in whole seconds, so that `perfkit recover` makes a result
    of a run that was killed."""

    @pydantic.field_validator("checkpoint_ns")
    @classmethod
    def _is_in_whole_seconds(cls, checkpoint_ns: int) -> int:
        if checkpoint_ns <= 0 or checkpoint_ns % NS_PER_S:
            raise ValueError("expected whole seconds, at least one, such as 30s or 1m")
        return checkpoint_ns

    @pydantic.model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if self.duration_ns is not None and self.requests is not None:
            raise ValueError("duration and requests exclude each other, because each ends the window: remove one")
        return self
