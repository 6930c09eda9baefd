"""The base class of a scenario's sections, and the types of their values: durations, sizes, rates, shares, CPU lists."""

import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Union, get_args, get_origin

import pydantic
from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from perfkit.errors import nearest
from perfkit.units import NS_PER_S, parse_duration_ns, parse_rate_per_s, parse_share, parse_size_bytes, write_duration_ns, write_size_bytes

# a year: sums of longer ones would not fit 64 bits in places
_LONGEST_NS = 366 * 24 * 3600 * NS_PER_S
# ten million arrivals a second are one every 100 ns, which no load generator sends
_HIGHEST_PER_S = 10_000_000


def parse_duration(text: object) -> int:
    """A duration in nanoseconds, at most 366 days; raises ValueError."""
    if (duration_ns := parse_duration_ns(text)) > _LONGEST_NS:
        raise ValueError(f"a duration is at most {write_duration_ns(_LONGEST_NS)}, found {text!r}")
    return duration_ns


def _parse_rate(text: object) -> float:
    if (rate_per_s := parse_rate_per_s(text)) > _HIGHEST_PER_S:
        raise ValueError(f"a rate is at most {_HIGHEST_PER_S:,}/s, found {text!r}")
    return rate_per_s


Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(write_duration_ns, return_type=str),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["250us", "10ms", "30s", "2m"]}),
]
Size = Annotated[
    int,
    BeforeValidator(parse_size_bytes),
    PlainSerializer(write_size_bytes, return_type=str),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["64MB", "64MiB"]}),
]
Rate = Annotated[
    float,
    BeforeValidator(_parse_rate),
    PlainSerializer(lambda rate: f"{rate:.12g}/s", return_type=str),
    WithJsonSchema({"type": ["string", "number"], "examples": [100, "100/s"]}),
    Field(gt=0, allow_inf_nan=False),
]
Share = Annotated[
    float,
    BeforeValidator(parse_share),
    PlainSerializer(lambda share: f"{share * 100:.12g}%", return_type=str),
    WithJsonSchema({"type": ["string", "number"], "examples": ["0.1%", 0.001]}),
]
Count = Annotated[int, Field(strict=True, ge=1)]
Text = Annotated[str, Field(strict=True, min_length=1)]
# a single text stands for a list of one
OneOrMoreTexts = BeforeValidator(lambda value: (value,) if isinstance(value, str) else value, json_schema_input_type=str | list[str])

_HOST_AND_PORT = re.compile(r"(?P<host>[^\s:/\[\]]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def parse_host_and_port(text: str, example: str) -> tuple[str, int]:
    """A host and a port such as `127.0.0.1:4318` or `[::1]:4318`; raises ValueError, with an example of what is expected."""
    match = _HOST_AND_PORT.fullmatch(text)
    if not match or int(match["port"]) > 65_535:
        raise ValueError(f"expected a host and a port, such as {example}, found {text!r}")
    return match["host"].strip("[]"), int(match["port"])


_CPU_RANGE = re.compile(r"\s*(?P<first>[0-9]{1,5})\s*(?:-\s*(?P<last>[0-9]{1,5}))?\s*")


def _parse_cpus(value: object) -> object:
    """Reads a CPU number, a list of them, or text such as `0,2-3`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if not isinstance(value, str):
        return value
    cpus: list[int] = []
    for part in value.split(","):
        match = _CPU_RANGE.fullmatch(part)
        first, last = (int(match["first"]), int(match["last"] or match["first"])) if match else (1, 0)
        if first > last:
            raise ValueError(f"expected CPU numbers such as [0, 1] or 0,2-3, found {value!r}")
        cpus.extend(range(first, last + 1))
    return tuple(cpus)


Cpus = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0)], ...], BeforeValidator(_parse_cpus, json_schema_input_type=str | int | list[int])
]


class Section(pydantic.BaseModel):
    """A frozen section of a scenario; an unknown key is an error that suggests the nearest known one."""

    # defer_build: only the whole scenario needs a validator, and building one for every part takes time at start-up
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False, ser_json_inf_nan="constants", defer_build=True)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            raise PydanticCustomError("not_a_mapping", "expected keys and values, found {found}", {"found": repr(data)})
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [key for key in data if key not in known]
        if unknown:
            near = _least_deep(_inner_keys(cls, str(unknown[0]))) or nearest(str(unknown[0]), known)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise PydanticCustomError("unknown_key", f"unknown key; {hint}Known keys: {', '.join(known)}", {"key": unknown[0]})
        return data


def _inner_keys(section: type[Section], name: str) -> Iterator[str]:
    """The dotted paths of all keys with this name below a section, for a user who knows a key, but not where it belongs."""
    for own, field in section.model_fields.items():
        for inner in _sections_of(field.annotation):
            keys = [each.alias or key for key, each in inner.model_fields.items()]
            yield from (f"{field.alias or own}.{key}" for key in [*(key for key in keys if key == name), *_inner_keys(inner, name)])


def _sections_of(annotation: object) -> Iterator[type[Section]]:
    """The sections that a key may hold, without those in a list or under names, whose keys have no fixed place."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated):
        for argument in get_args(annotation):
            yield from _sections_of(argument)


def _least_deep(keys: Iterable[str]) -> list[str]:
    """The dotted keys with the fewest parts, at most three."""
    found = sorted(dict.fromkeys(keys), key=lambda key: key.count("."))
    return [key for key in found if key.count(".") == found[0].count(".")][:3]
