"""A scenario as frozen values. Fields carry their units in their names; the keys that people write are the aliases."""

import difflib
import re
import urllib.parse
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

import pydantic
from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, PlainSerializer, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from perfkit.units import parse_duration_ns, write_duration_ns

SCHEMA = "perfkit.scenario/1"

# keys whose capability is not there yet, with what to do until then
LATER = {
    "target.tls": "TLS options come with a later version",
    "target.metrics_url": "reading the server's Prometheus metrics comes with a later version",
    "load.open": "open-loop arrivals come with a later version; use load.closed",
    "load.search": "the capacity search comes with a later version; use load.closed with several concurrencies",
    "slo": "judging SLOs comes with a later version",
    "gpu": "GPU sampling comes with a later version",
    "gate": "the regression gate comes with a later version",
    "sweep": "sweeps come with a later version; use several concurrencies",
}

Protocol: TypeAlias = Literal["http", "grpc"]

Duration = Annotated[
    int,
    BeforeValidator(parse_duration_ns),
    PlainSerializer(write_duration_ns, return_type=str),
    WithJsonSchema({"type": ["string", "integer"], "examples": ["250us", "10ms", "30s", "2m"]}),
]
Count = Annotated[int, Field(strict=True, ge=1)]
Text = Annotated[str, Field(strict=True, min_length=1)]


_CPU_RANGE = re.compile(r"\s*(?P<first>[0-9]{1,5})\s*(?:-\s*(?P<last>[0-9]{1,5}))?\s*")


def _parse_cpus(value: object) -> object:
    """Reads `0,2-3` or a list of CPU numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    if not isinstance(value, str):
        return value
    cpus: list[int] = []
    for part in value.split(","):
        found = _CPU_RANGE.fullmatch(part)
        first, last = (int(found["first"]), int(found["last"] or found["first"])) if found else (1, 0)
        if first > last:
            raise ValueError(f"expected CPU numbers such as [0, 1] or 0,2-3, found {value!r}")
        cpus.extend(range(first, last + 1))
    return tuple(cpus)


Cpus = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=0)], ...], BeforeValidator(_parse_cpus, json_schema_input_type=str | int | list[int])
]


class Part(pydantic.BaseModel):
    """The base of every part: frozen, and an unknown key is refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            raise PydanticCustomError("not_a_mapping", "expected keys and values, found {found}", {"found": repr(data)})
        known = [field.alias or name for name, field in cls.model_fields.items()]
        unknown = [key for key in data if key not in known]
        if unknown:
            near = difflib.get_close_matches(str(unknown[0]), known, n=1, cutoff=0.5)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise PydanticCustomError("unknown_key", f"unknown key; {hint}Known here: {', '.join(known)}", {"key": unknown[0]})
        return data


def _parse_version(value: object) -> object:
    """Takes `version: 1` without quotes."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Target(Part):
    """The server under test; without a `url` perfkit starts the bundled one."""

    url: Text | None = None
    protocols: Annotated[tuple[Protocol, ...], Field(min_length=1)] | None = None
    model: Text
    version: Annotated[str, BeforeValidator(_parse_version, json_schema_input_type=str | int)] = ""
    engine: Literal["wire", "reference"] = "wire"
    timeout_ns: Duration = Field(default=30_000_000_000, alias="timeout", gt=0)
    max_connections: Count | None = None
    headers: dict[str, Annotated[str, Field(strict=True)]] = Field(default_factory=dict)

    @pydantic.field_validator("url")
    @classmethod
    def _known_scheme(cls, url: str) -> str:
        scheme = url.partition(":")[0].lower()
        if scheme in ("https", "grpcs", "unix"):
            raise ValueError(f"{scheme} targets come with a later version; use http:// or grpc://")
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "grpc") or not parts.hostname:
            raise ValueError(f"expected http://HOST:PORT or grpc://HOST:PORT, found {url!r}")
        try:
            _ = parts.port
        except ValueError as error:
            raise ValueError(f"{error}, in {url!r}") from None
        if parts.query or parts.fragment:
            raise ValueError("a target's URL ends with its path; tokens stand in target.headers, such as authorization: Bearer ${TOKEN}")
        if parts.username or parts.password:
            raise ValueError("credentials stand in target.headers, such as authorization: Bearer ${TOKEN}, not in the URL")
        return f"{parts.scheme}{url[len(parts.scheme) :]}"

    @pydantic.model_validator(mode="after")
    def _one_way_to_name_it(self) -> Self:
        if self.url and self.protocols:
            raise ValueError(
                "url and protocols exclude each other: protocols are for the bundled server (--set target.protocols=null leaves them out)"
            )
        return self

    @property
    def load_protocols(self) -> tuple[Protocol, ...]:
        """The protocols that load is sent over, each its own load points."""
        if self.url:
            return ("grpc" if self.url.startswith("grpc") else "http",)
        return self.protocols or ("http",)


class Server(Part):
    """Options of the bundled server, where perfkit starts it."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = None
    cpus: Cpus | None = None

    @pydantic.field_validator("device")
    @classmethod
    def _cpu_alone(cls, device: str) -> str:
        if device == "cuda":
            raise ValueError("CUDA in the bundled server comes with a later version; use auto or cpu")
        return device


Shape: TypeAlias = tuple[Annotated[int, Field(strict=True, ge=0)], ...]


class GeneratedInput(Part):
    """Values made from the workload's seed; `shape` is the full one, without the batch dimension."""

    generate: Literal["random", "zeros", "ones", "arange"]
    shape: Shape | None = None


class FileInput(Part):
    """An array read from a `.npy` file, relative to the scenario's folder."""

    file: Text


def _check_values(value: object) -> object:
    """Lets through numbers, text, true and false, in lists or not; what else YAML knows is in no tensor."""
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, list):
            rest.extend(one)
        elif not isinstance(one, bool | int | float | str):
            raise PydanticCustomError(
                "not_values", "expected numbers, text, true or false, or lists of them, found {found}", {"found": repr(one)}
            )
    return value


class LiteralInput(Part):
    """Values written in the scenario: nested as their shape, or flat beside a `shape`."""

    value: Annotated[list[Any] | bool | int | float | str, BeforeValidator(_check_values)]
    shape: Shape | None = None


def _one_variant(*variants: str) -> tuple[Discriminator, BeforeValidator]:
    """Variants told apart by the one key that names each, and the sentence for none or several of them."""

    def check(data: object) -> object:
        keys = [str(key) for key in data] if isinstance(data, Mapping) else []
        found = [key for key in variants if key in keys]
        later = [key for key in keys if key in ("strings", "image")]
        if later and not found:
            raise PydanticCustomError("later", "{key} inputs come with a later version; use generate, file or value", {"key": later[0]})
        if len(found) != 1:
            context = {"variants": ", ".join(variants), "found": " and ".join(keys) or repr(data)}
            raise PydanticCustomError("variant", "takes exactly one of {variants}; found {found}", context)
        return data

    def choose(data: object) -> str | None:
        keys = data if isinstance(data, Mapping) else getattr(data, "model_fields_set", ())
        return next((key for key in variants if key in keys), None)

    return Discriminator(choose), BeforeValidator(check)


Input: TypeAlias = Annotated[
    Annotated[GeneratedInput, Tag("generate")] | Annotated[FileInput, Tag("file")] | Annotated[LiteralInput, Tag("value")],
    *_one_variant("generate", "file", "value"),
]


class Output(Part):
    """An output to ask for; `classes` asks for the top classes in place of the values."""

    name: Text
    classes: Annotated[int, Field(strict=True, ge=0)] = 0


class Workload(Part):
    """What a request carries; inputs left out are made from the server's metadata."""

    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    batch_size: Count = 1
    inputs: dict[str, Input] = Field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    variants: Count = 16


class ClosedLoop(Part):
    """A fixed number of requests in flight, each `concurrency` its own load point."""

    concurrency: Annotated[
        tuple[Count, ...],
        Field(min_length=1),
        BeforeValidator(lambda value: (value,) if isinstance(value, int) else value, json_schema_input_type=int | list[int]),
    ]
    think_time_ns: Duration = Field(default=0, alias="think_time")

    @pydantic.field_validator("concurrency")
    @classmethod
    def _each_once(cls, concurrency: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(concurrency)) < len(concurrency):
            raise ValueError(f"each concurrency stands once; measure.repetitions measures it again, found {list(concurrency)}")
        return concurrency


def _exactly_one_load(data: object) -> object:
    keys = [str(key) for key in data] if isinstance(data, Mapping) else []
    if len(keys) != 1:
        found = " and ".join(keys) or repr(data)
        raise PydanticCustomError("variant", "takes exactly one of closed, open, search; found {found}", {"found": found})
    return data


class ClosedLoad(Part):
    """The `closed` variant of `load`."""

    closed: ClosedLoop


Load: TypeAlias = Annotated[ClosedLoad, BeforeValidator(_exactly_one_load)]


class Measure(Part):
    """How long, how often and from where; `duration` or `requests` ends a window."""

    warmup_ns: Duration = Field(default=1_000_000_000, alias="warmup")
    duration_ns: Duration | None = Field(default=None, alias="duration", gt=0)
    requests: Count | None = None
    drain_ns: Duration | None = Field(default=None, alias="drain")
    repetitions: Count = 3
    workers: Literal["auto"] | Count = "auto"
    cpus: Cpus | None = None

    @pydantic.field_validator("warmup_ns", mode="before")
    @classmethod
    def _no_auto_yet(cls, value: object) -> object:
        if value == "auto":
            raise ValueError("auto comes with a later version; write a duration such as 2s")
        return value

    @pydantic.field_validator("workers")
    @classmethod
    def _one_worker(cls, workers: str | int) -> str | int:
        if workers not in ("auto", 1):
            raise ValueError(f"several worker processes come with a later version; use 1 or auto, found {workers}")
        return workers

    @pydantic.model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.duration_ns is not None and self.requests is not None:
            raise ValueError("duration and requests exclude each other: each ends the window")
        return self


DEFAULT_DURATION_NS = 10_000_000_000
DEFAULT_DRAIN_NS = 30_000_000_000


class Scenario(Part):
    """One scenario file, validated."""

    schema_version: str = Field(default=SCHEMA, alias="schema")
    name: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][\w.-]*$")]
    target: Target
    server: Server = Server()
    workload: Workload = Workload()
    load: Load
    measure: Measure = Measure()

    @pydantic.field_validator("schema_version")
    @classmethod
    def _readable(cls, schema: str) -> str:
        if schema != SCHEMA:
            raise ValueError(f"this perfkit reads {SCHEMA}, found {schema!r}: a newer perfkit may read it")
        return schema

    @property
    def window_ns(self) -> int | None:
        """The measured window's length; None where a number of requests ends it."""
        if self.measure.requests is not None:
            return None
        return self.measure.duration_ns or DEFAULT_DURATION_NS

    @property
    def drain_ns(self) -> int:
        """How long answers are awaited after the window."""
        return self.measure.drain_ns if self.measure.drain_ns is not None else min(self.target.timeout_ns, DEFAULT_DRAIN_NS)


def scenario_document(scenario: Scenario) -> dict[str, Any]:
    """The scenario as a person would write it, defaults filled in; header values, which may be secrets, are left out."""
    document = scenario.model_dump(mode="json", by_alias=True, exclude_none=True)
    document["target"]["headers"] = dict.fromkeys(scenario.target.headers, "<redacted>")
    return document
