"""The key `load.retry`: which failed requests the client sends again, when and how often."""

import re
from typing import Annotated, Literal

import pydantic
from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from perfkit.protocol.grpc_call import Status
from perfkit.scenario.section import Count, Section, Share, parse_duration
from perfkit.units import NS_PER_S, write_duration_ns

_MOST_ATTEMPTS, _LONGEST_NS = 10, 3600 * NS_PER_S
_OUTCOMES = ("timeout", "connect", "broken")
_STATUSES = tuple(status.name for status in Status if status.name != "OK")
_HTTP_ERROR = re.compile("[45][0-9][0-9]", re.ASCII)


def _parse_backoff(value: object) -> tuple[int, int]:
    """The first pause and the longest, from `50ms..2s`, or the same one for all, from `100ms`."""
    ends = value.split("..") if isinstance(value, str) else value if isinstance(value, tuple | list) else (value,)
    first_ns, *others = [parse_duration(end.strip() if isinstance(end, str) else end) for end in ends] or (0,)
    longest_ns = others[0] if others else first_ns
    if not 0 < first_ns <= longest_ns <= _LONGEST_NS or len(others) > 1:
        raise ValueError(f"expected the first pause and the longest, at most an hour, such as 50ms..2s, found {value!r}")
    return first_ns, longest_ns


def _parse_causes(value: object) -> object:
    return tuple(str(one) for one in (value if isinstance(value, tuple | list) else (value,)))


class Retry(Section):
    """Requests that the client sends again after a failure. They stay one request, whose latency ends with the last answer."""

    attempts: Annotated[Count, Field(ge=2, le=_MOST_ATTEMPTS)] = 3
    """How often a request is sent at most, the first time included."""
    backoff_ns: Annotated[
        tuple[int, int],
        BeforeValidator(_parse_backoff),
        PlainSerializer(lambda ends: "..".join(map(write_duration_ns, ends)), return_type=str),
        WithJsonSchema({"type": "string", "examples": ["50ms..2s", "100ms"]}),
    ] = Field(default=(50_000_000, 2_000_000_000), alias="backoff")
    """The pause after the first attempt, which doubles with each further one, and the longest, at most an hour. A server's `Retry-After` in seconds
    takes its place, or for unary gRPC calls of the wire engine `grpc-retry-pushback-ms`."""
    jitter: Literal["full", "none"] = "full"
    """`full` draws each pause between 0 and that length, by `workload.seed`."""
    on: Annotated[
        tuple[str, ...],
        Field(min_length=1),
        BeforeValidator(_parse_causes, json_schema_input_type=list[str | int] | str | int),
    ] = ("429", "503", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "timeout", "connect")
    """The failures after which a request is sent again: HTTP statuses, names of gRPC statuses, `timeout` (no answer within `target.timeout`), `connect`
    (no connection), `broken` (the connection was lost)."""
    budget: Annotated[Share, Field(gt=0, le=1)] | None = None
    """The largest share of retries in the requests: each request adds this share of a token to a bucket of at most 100, each retry takes a whole one,
    and without one the failure is final. None for no limit."""

    @pydantic.field_validator("on")
    @classmethod
    def _are_known(cls, causes: tuple[str, ...]) -> tuple[str, ...]:
        for cause in causes:
            if cause not in _OUTCOMES and cause not in _STATUSES and not _HTTP_ERROR.fullmatch(cause):
                known = f"an HTTP status such as 503, the name of a gRPC status such as UNAVAILABLE, or one of {', '.join(_OUTCOMES)}"
                raise ValueError(f"expected {known}, found {cause!r}")
        return causes
