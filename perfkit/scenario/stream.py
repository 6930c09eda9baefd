"""The `stream` section of a scenario: requests whose answers are streams of none to many responses."""

from typing import Self

import pydantic

from perfkit.scenario.section import Count, Section


class Stream(Section):
    """Requests are streamed: over gRPC with ModelStreamInfer, over HTTP with Triton's generate_stream (server-sent events)."""

    requests_per_stream: Count = 1
    """After so many requests a stream is closed, and another takes its place; over HTTP always 1."""
    in_flight: Count = 1
    """Requests on one stream at a time."""

    @pydantic.model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.in_flight > self.requests_per_stream:
            raise ValueError(
                f"in_flight is {self.in_flight:,}, but a stream is closed after {self.requests_per_stream:,} requests: raise requests_per_stream"
            )
        return self
