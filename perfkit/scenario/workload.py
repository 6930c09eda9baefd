"""The `workload` part of a scenario: what a request carries."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import pydantic
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from perfkit.scenario.part import Count, Duration, Part, Text

Encoding: TypeAlias = Literal["binary", "json"]
Shape: TypeAlias = tuple[Annotated[int, Field(strict=True, ge=0)], ...]
# one text, or several that requests take in turn
Texts: TypeAlias = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value, json_schema_input_type=str | list[str]),
]


class InputPart(Part):
    """What all inputs may say.

    `shape` is the full one, without the batch dimension; `datatype` is for servers that do not describe their models;
    `encoding` is how the tensor travels, `json` meaning JSON over HTTP and typed contents over gRPC.
    """

    shape: Shape | None = None
    datatype: Text | None = None
    encoding: Encoding | None = None


class GeneratedInput(InputPart):
    """Values made from the workload's seed."""

    generate: Literal["random", "zeros", "ones", "arange"]


class FileInput(InputPart):
    """Arrays read from `.npy` files, relative to the scenario's folder; `*` in a name finds several."""

    file: Texts


class StringsInput(InputPart):
    """Texts dealt to the elements of one request after the other, going round."""

    strings: Annotated[tuple[Annotated[str, Field(strict=True)], ...], Field(min_length=1)]


class ImageInput(InputPart):
    """Pictures, resized to the model's shape and scaled as Triton's image client does; `*` in a name finds several."""

    image: Texts
    scaling: Literal["none", "inception", "vgg"] = "none"
    layout: Literal["auto", "nchw", "nhwc"] = "auto"


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


class LiteralInput(InputPart):
    """Values written in the scenario: nested as their shape, or flat beside a `shape`."""

    value: Annotated[list[Any] | bool | int | float | str, BeforeValidator(_check_values)]


_VARIANTS = ("generate", "file", "value", "strings", "image")


def _exactly_one_variant(data: object) -> object:
    keys = [str(key) for key in data] if isinstance(data, Mapping) else []
    found = [key for key in _VARIANTS if key in keys]
    if len(found) != 1:
        context = {"variants": ", ".join(_VARIANTS), "found": " and ".join(found or keys) or repr(data)}
        raise PydanticCustomError("variant", "takes exactly one of {variants}; found {found}", context)
    return data


def _variant(data: object) -> str | None:
    keys = data if isinstance(data, Mapping) else getattr(data, "model_fields_set", ())
    return next((key for key in _VARIANTS if key in keys), None)


Input: TypeAlias = Annotated[
    Annotated[GeneratedInput, Tag("generate")]
    | Annotated[FileInput, Tag("file")]
    | Annotated[LiteralInput, Tag("value")]
    | Annotated[StringsInput, Tag("strings")]
    | Annotated[ImageInput, Tag("image")],
    Discriminator(_variant),
    BeforeValidator(_exactly_one_variant),
]


class Output(Part):
    """An output to ask for; `classes` asks for the top classes in place of the values."""

    name: Text
    classes: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    encoding: Encoding | None = None


def _check_parameter(value: object) -> object:
    if not isinstance(value, bool | int | float | str):
        raise PydanticCustomError("not_values", "expected a number, text, true or false, found {found}", {"found": repr(value)})
    return value


class Workload(Part):
    """What a request carries; inputs left out are made from the server's metadata."""

    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    batch_size: Count = 1
    inputs: dict[str, Input] = Field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    variants: Count = 16
    encoding: Literal["auto", "binary", "json"] = "auto"
    """How tensors travel; `auto` is binary, and JSON where an HTTP server does not take binary data."""
    request_id: Annotated[str, Field(strict=True)] = ""
    """Requests carry this text and the number of their variant as their id."""
    priority: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 0
    """The server's own queue priority, where its model is configured for that; 0 leaves it to the model."""
    queue_timeout_ns: Duration = Field(default=0, alias="queue_timeout")
    """How long a request may wait in the server's queue, where its model allows that to be said; 0 leaves it to the model."""
    parameters: dict[Text, Annotated[Any, BeforeValidator(_check_parameter)]] = Field(default_factory=dict)

    @pydantic.field_validator("queue_timeout_ns")
    @classmethod
    def _not_below_a_microsecond(cls, timeout_ns: int) -> int:
        if 0 < timeout_ns < 1000:
            raise ValueError("the protocol counts microseconds: give at least 1us, or 0s for none")
        return timeout_ns

    @pydantic.field_validator("outputs")
    @classmethod
    def _each_once(cls, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        names = [output.name for output in outputs]
        if twice := [name for index, name in enumerate(names) if name in names[:index]]:
            raise ValueError(f"each output stands once, found '{twice[0]}' twice")
        return outputs
