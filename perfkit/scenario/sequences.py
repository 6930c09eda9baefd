"""The `sequences` and `stream` sections of a scenario: requests that belong together, and requests whose answers are streams of responses."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

import pydantic
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from perfkit.scenario.section import Count, Duration, Section

# a live sequence takes about 1 KiB
_MAX_LIVE = 65_536
_MAX_LENGTH = 2**31
DEFAULT_LENGTH = 20
"""The steps of a sequence where nothing else says how many."""
_Steps = Annotated[Count, Field(le=_MAX_LENGTH)]


class UniformLength(Section):
    """Every length between two numbers of steps is equally likely."""

    uniform: tuple[_Steps, _Steps]
    """The shortest and the longest length in steps, which occur as often as all between them."""

    @pydantic.model_validator(mode="after")
    def _ascends(self) -> Self:
        if self.uniform[0] > self.uniform[1]:
            raise ValueError(f"uniform takes the shortest length and the longest, found {list(self.uniform)}")
        return self


class GeometricLength(Section):
    """After each step the sequence ends with the same probability; the number of steps is their mean."""

    geometric: Annotated[float, Field(ge=1, le=_MAX_LENGTH, allow_inf_nan=False)]
    """The mean number of steps."""


def _known_length(data: object) -> object:
    if isinstance(data, int) and not isinstance(data, bool):
        is_known = 1 <= data <= _MAX_LENGTH
    elif isinstance(data, Mapping):
        is_known = len(data) == 1 and {*data} <= {"uniform", "geometric"}
    else:
        is_known = isinstance(data, Section)
    if not is_known:
        forms = "expected a number of steps from 1 on, or a law: uniform with the shortest and the longest length, geometric with the mean"
        raise PydanticCustomError("variant", forms + "; found {found}", {"found": repr(data)})
    return data


def _variant(data: object) -> str:
    keys = data if isinstance(data, Mapping) else getattr(data, "model_fields_set", None)
    if keys is None:
        return "fixed"
    return "uniform" if "uniform" in keys else "geometric"


Length: TypeAlias = Annotated[
    Annotated[_Steps, Tag("fixed")] | Annotated[UniformLength, Tag("uniform")] | Annotated[GeometricLength, Tag("geometric")],
    Discriminator(_variant),
    BeforeValidator(_known_length),
]


class Sequences(Section):
    """Requests that belong together: they carry one id and are sent one after the other, the first and the last with a flag."""

    live: Annotated[Count, Field(le=_MAX_LIVE)] | None = None
    """Open loops: the number of sequences that share the arrivals, each of which is a step; without it, every arrival starts a sequence.
    A closed loop has as many as `load.closed.concurrency` says."""
    length: Length | None = None
    """The number of steps: a fixed one, `{uniform: [10, 30]}`, or `{geometric: 20}` with this mean. The default is 20, and with
    `workload.data` the length of each sequence's stream."""
    ids: Literal["integer", "string"] = "integer"
    """Whether the server takes the ids as integers or as strings."""
    first_id: Annotated[int, Field(strict=True, ge=1, lt=2**62)] | None = None
    """Integer ids count up from here. The default is a random number of 19 digits for each load point, so that the sequences of
    different runs and machines do not meet, and one of 10 digits if the model's control input has 32 bits."""
    end_id: Annotated[int, Field(strict=True, ge=2, lt=2**62)] | None = None
    """Ids stay below this one: after the last they start over at `first_id`, without those of sequences that are live."""
    think_time_ns: Duration = Field(default=0, alias="think_time")
    """Where arrivals start sequences: the pause between an answer and the next step of its sequence."""

    @pydantic.model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.first_id is not None and self.ids == "string":
            raise ValueError("first_id is for ids: integer; string ids begin with a random number of their own")
        if self.end_id is not None and self.first_id is None:
            raise ValueError("end_id needs first_id, from which the ids count up: give both")
        if self.id_count is not None and self.id_count < 1:
            raise ValueError(f"end_id must be above first_id, found {self.end_id} and {self.first_id}: the last id is the one below it")
        if self.live is not None and self.think_time_ns:
            raise ValueError("think_time is for arrivals that start sequences: remove live, whose steps start when arrivals are due")
        return self

    @property
    def id_count(self) -> int | None:
        """The number of different ids; None without a limit."""
        return None if self.first_id is None or self.end_id is None else self.end_id - self.first_id


class Stream(Section):
    """Requests are streamed: over gRPC with ModelStreamInfer, over HTTP with server-sent events."""

    requests_per_stream: Count = 1
    """After so many requests a stream is closed, and another takes its place; over HTTP always 1."""
    in_flight: Count = 1
    """Requests on one stream at a time."""
    body: Literal["generate", "infer"] = "generate"
    """Over HTTP, the form of requests and events: that of Triton's `generate_stream`, flat JSON without datatypes and shapes, or that of `infer`, as
    MLServer's `infer_stream` has it."""

    @pydantic.model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.in_flight > self.requests_per_stream:
            raise ValueError(
                f"in_flight is {self.in_flight:,}, but a stream is closed after {self.requests_per_stream:,} requests: raise requests_per_stream"
            )
        return self
