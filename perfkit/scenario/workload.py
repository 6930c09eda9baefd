"""The `workload`, `shared_memory` and `check` sections of a scenario: what requests carry, where their tensors are, and what answers must hold."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

import pydantic
from pydantic import BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from perfkit.scenario.prompts import Prompts
from perfkit.scenario.section import Count, Duration, OneOrMoreTexts, Rate, Section, Share, Size, Text

_MAX_INTEGER_BITS = 64
_LONGEST_TEXT = 1 << 20
OTHER_INPUTS = "*"
"""The name in `workload.inputs` that stands for all inputs without an entry of their own."""
Encoding: TypeAlias = Literal["binary", "json"]
# the protocol has 64-bit dimensions
Shape: TypeAlias = tuple[Annotated[int, Field(strict=True, ge=0, lt=2**63)], ...]
Files: TypeAlias = Annotated[tuple[Text, ...], Field(min_length=1), OneOrMoreTexts]


def _json_if_typed(value: object) -> object:
    """Accepts `typed`, what `json` is called over gRPC."""
    return "json" if value == "typed" else value


def _check_parameter(value: object) -> object:
    if not isinstance(value, bool | int | float | str):
        raise PydanticCustomError("not_values", "expected a number, text, true or false, found {found}", {"found": repr(value)})
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        raise PydanticCustomError("too_long", "expected an integer of up to 64 bits")
    return value


class InputSection(Section):
    """The keys of all kinds of inputs.

    `shape` excludes the batch dimension; `datatype` is for servers that do not describe their models; `encoding: json` or `typed`
    means JSON over HTTP and typed contents over gRPC.
    """

    shape: Shape | None = None
    """The full shape without the batch dimension; required where the model's metadata has -1."""
    datatype: Text | None = None
    """The v2 datatype, such as FP32, for servers that do not describe their models."""
    parameters: dict[Text, Annotated[Any, BeforeValidator(_check_parameter)]] = Field(default_factory=dict)
    """Parameters of the input, as the v2 protocol has them, such as `content_type` for MLServer's codecs."""
    force: Annotated[bool, Field(strict=True)] = False
    """Take `datatype` and `shape` from here where the model's metadata says otherwise, for servers whose metadata is narrower than what they accept."""
    encoding: Annotated[Encoding, BeforeValidator(_json_if_typed, json_schema_input_type=Literal["binary", "json", "typed"])] | None = None
    """Whether the tensor is sent or requested as binary data or as JSON; the default follows `workload.encoding`."""

    @pydantic.model_validator(mode="after")
    def _says_what_is_forced(self) -> Self:
        if self.force and self.datatype is None and self.shape is None:
            raise ValueError("force replaces the datatype or the shape of the model's metadata: give datatype or shape")
        return self


class GeneratedInput(InputSection):
    """Values generated from the workload's seed; `omit` leaves an optional input out of the requests, and so does `NAME: omit`."""

    generate: Literal["random", "zeros", "ones", "arange", "omit"] = "random"
    """How values are made: random, zeros, ones, arange; `omit` leaves an optional input out."""
    text: Annotated[str, Field(strict=True)] | None = None
    """Every element of an input of type BYTES; other inputs are as `generate` says."""
    text_length: Annotated[Count, Field(le=_LONGEST_TEXT)] | None = None
    """Elements of an input of type BYTES are so many random letters and digits; other inputs are as `generate` says."""

    @pydantic.model_validator(mode="after")
    def _has_one_kind_of_text(self) -> Self:
        if self.generate == "omit" and (self.text is not None or self.text_length is not None):
            raise ValueError("an input that is left out has neither text nor text_length: remove them")
        if self.text is not None and self.text_length is not None:
            raise ValueError("text and text_length exclude each other: remove one")
        return self


class FileInput(InputSection):
    """Arrays from `.npy` files, relative to the scenario's folder; `*` in a name matches several files."""

    file: Files
    """A .npy file, or several, which are used in turn."""


class StringsInput(InputSection):
    """Texts for the elements of the requests in turn, starting over after the last one."""

    strings: Annotated[tuple[Annotated[str, Field(strict=True)], ...], Field(min_length=1)]
    """The texts of a BYTES tensor."""


class ImageInput(InputSection):
    """Images, resized to the model's shape and scaled as by Triton's image client; `*` in a name matches several files."""

    image: Files
    """A picture, or several, which are used in turn."""
    scaling: Literal["none", "inception", "vgg"] = "none"
    """How values of pixels are scaled."""
    layout: Literal["auto", "nchw", "nhwc"] = "auto"
    """The order of the dimensions; `auto` follows the model's metadata."""


def _check_values(value: object) -> object:
    """Accepts numbers, text, true and false, and lists of them, but no other YAML values, such as dates."""
    unchecked = [value]
    while unchecked:
        element = unchecked.pop()
        if isinstance(element, list):
            unchecked.extend(element)
        elif not isinstance(element, bool | int | float | str):
            raise PydanticCustomError(
                "not_values", "expected numbers, text, true or false, or lists of them, found {found}", {"found": repr(element)}
            )
    return value


class LiteralInput(InputSection):
    """Values in the scenario itself: lists nested like the shape, or a flat list together with `shape`."""

    value: Annotated[list[Any] | bool | int | float | str, BeforeValidator(_check_values)]
    """The values: a list nested like the shape, or a flat one."""


_VARIANTS = ("generate", "file", "value", "strings", "image")


def _exactly_one_variant(data: object) -> object:
    if data == "omit":
        return {"generate": "omit"}
    keys = [str(key) for key in data] if isinstance(data, Mapping) else []
    found = [key for key in _VARIANTS if key in keys]
    if isinstance(data, Mapping) and not found and GeneratedInput.model_fields.keys() >= set(keys):
        return {"generate": "random", **data}
    if len(found) != 1:
        context = {"variants": ", ".join(_VARIANTS), "found": " and ".join(found or keys) or repr(data)}
        raise PydanticCustomError("variant", "give exactly one of {variants}; found {found}", context)
    return data


def _variant(data: object) -> str | None:
    keys = data if isinstance(data, Mapping) else getattr(data, "model_fields_set", ())
    return next((key for key in _VARIANTS if key in keys), None)


_Section: TypeAlias = Annotated[
    Annotated[GeneratedInput, Tag("generate")]
    | Annotated[FileInput, Tag("file")]
    | Annotated[LiteralInput, Tag("value")]
    | Annotated[StringsInput, Tag("strings")]
    | Annotated[ImageInput, Tag("image")],
    Discriminator(_variant),
]
Input: TypeAlias = Annotated[_Section, BeforeValidator(_exactly_one_variant, json_schema_input_type=_Section | Literal["omit"])]


class Output(Section):
    """An output to request; `classes` requests that many top classes instead of the values."""

    name: Text
    """The output's name in the model's metadata."""
    classes: Annotated[int, Field(strict=True, ge=0, lt=2**31)] = 0
    """Ask for that many top classes in place of the values; 0 asks for the values."""
    encoding: Encoding | None = None
    """Whether the tensor is sent or requested as binary data or as JSON; the default follows `workload.encoding`."""


class Workload(Section):
    """What a request carries; missing inputs are generated from the model's metadata."""

    seed: Annotated[int, Field(strict=True, ge=0, lt=1 << _MAX_INTEGER_BITS)] = 0
    """The seed of generated inputs and of arrivals."""
    batch_size: Count = 1
    """Inferences per request; put before the shape if the model batches."""
    data: Files | None = None
    """perf_analyzer's input data, relative to the scenario's folder: a JSON file, several, or a folder with a file for each input."""
    inputs: dict[str, Input] = Field(default_factory=dict)
    """Values by the input's name; `*` says how inputs without an entry of their own are generated, by default random."""
    outputs: tuple[Output, ...] = ()
    """The outputs to ask for; the default is all."""
    prompts: Prompts | None = None
    """What a language model is asked, for `target.api: openai`."""
    variants: Count = 16
    """How many different requests are made ahead of time and used in turn."""
    encoding: Annotated[
        Literal["auto", "binary", "json"],
        BeforeValidator(_json_if_typed, json_schema_input_type=Literal["auto", "binary", "json", "typed"]),
    ] = "auto"
    """The encoding of tensors; `auto` is binary, or JSON if an HTTP server does not accept binary data. `typed` is `json`: typed contents
    over gRPC."""
    request_id: Annotated[str, Field(strict=True)] = ""
    """The prefix of request ids, which end with the number of the variant."""
    priority: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 0
    """The priority in the server's queue, if the model is configured for priorities; 0 means the model's default."""
    queue_timeout_ns: Duration = Field(default=0, alias="queue_timeout")
    """The time-out in the server's queue, if the model allows it; 0 means the model's default."""
    parameters: dict[Text, Annotated[Any, BeforeValidator(_check_parameter)]] = Field(default_factory=dict)
    """Parameters of each request, as the v2 protocol has them."""

    @pydantic.field_validator("inputs")
    @classmethod
    def _generates_other_inputs(cls, inputs: dict[str, InputSection]) -> dict[str, InputSection]:
        other = inputs.get(OTHER_INPUTS)
        if other is not None and not (isinstance(other, GeneratedInput) and other.generate != "omit"):
            raise ValueError(f"'{OTHER_INPUTS}' stands for several inputs: give generate: random, zeros, ones or arange")
        if other is not None and (other.shape is not None or other.datatype is not None or other.force):
            raise ValueError(f"'{OTHER_INPUTS}' stands for several inputs: give shape, datatype and force with the name of each")
        return inputs

    @property
    def other_input(self) -> GeneratedInput:
        """How inputs without an entry of their own are generated."""
        other = self.inputs.get(OTHER_INPUTS)
        return other if isinstance(other, GeneratedInput) else GeneratedInput(generate="random")

    @pydantic.field_validator("queue_timeout_ns")
    @classmethod
    def _is_at_least_a_microsecond(cls, timeout_ns: int) -> int:
        if 0 < timeout_ns < 1000:
            raise ValueError("the protocol counts microseconds: give at least 1us, or 0s for the model's default")
        return timeout_ns

    @pydantic.field_validator("outputs")
    @classmethod
    def _is_unique(cls, outputs: tuple[Output, ...]) -> tuple[Output, ...]:
        names = [output.name for output in outputs]
        if duplicates := [name for index, name in enumerate(names) if name in names[:index]]:
            raise ValueError(f"outputs must be unique, found '{duplicates[0]}' twice")
        return outputs


_Tolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_DEFAULT_TOLERANCES: Mapping[str, float] = {"FP16": 2e-3, "BF16": 1.6e-2, "FP32": 1e-5, "FP64": 1e-5}


class Check(Section):
    """A sample of the answers is compared with the model's metadata and expected values, outside the timed span.

    Whatever the sample, no answer may hold an error or name another model.
    """

    share: Share = 0.01
    """The share of the ok answers to check, chosen at random; 0 for none."""
    at_most_per_s: Rate = Field(default=20.0, alias="at_most")
    """The maximum number of checks per second, because checking takes the load generator's time."""
    outputs: dict[Text, FileInput | LiteralInput] = Field(default_factory=dict)
    """Expected values; several files belong to the requests in turn, like those of an input."""
    tolerance: _Tolerance | dict[str, _Tolerance] = Field(default_factory=dict)
    """A float may differ from an expected value e by `tolerance * max(1, |e|)`; texts and integers must be equal. One number is for every
    datatype, a mapping for those it names; the others have 1e-5, or twice the spacing of numbers at 1 for FP16 (2e-3) and BF16 (1.6e-2)."""

    @pydantic.field_validator("tolerance")
    @classmethod
    def _names_floats(cls, tolerance: float | dict[str, float]) -> float | dict[str, float]:
        if isinstance(tolerance, dict) and (others := sorted(tolerance.keys() - _DEFAULT_TOLERANCES.keys())):
            raise ValueError(f"a tolerance is for {', '.join(_DEFAULT_TOLERANCES)}, found {others[0]}: other datatypes must be equal")
        return tolerance

    def tolerance_of(self, datatype: str) -> float:
        """The tolerance of a datatype."""
        if isinstance(self.tolerance, float):
            return self.tolerance
        return {**_DEFAULT_TOLERANCES, **self.tolerance}.get(datatype, 0.0)


class SharedMemory(Section):
    """Tensors in shared memory, which needs a server on this machine that allows clients to register it."""

    kind: Literal["system", "cuda"]
    """`system` is POSIX shared memory, in /dev/shm; `cuda` the memory of a GPU."""
    inputs: Annotated[bool, Field(strict=True)] = True
    """Whether the inputs are there; otherwise they are in the requests."""
    outputs: Annotated[bool, Field(strict=True)] = True
    """Whether the server writes the outputs there; otherwise they are in the answers."""
    output_bytes: Annotated[Size, Field(gt=0)] | None = None
    """The space for each output whose size the model's metadata leaves open, such as strings; by default twice that of the first answer."""
    device: Annotated[int, Field(strict=True, ge=0)] = 0
    """The number of the GPU, for `cuda`."""

    @pydantic.model_validator(mode="after")
    def _holds_something(self) -> Self:
        if not (self.inputs or self.outputs):
            raise ValueError("neither inputs nor outputs are in shared memory: set one to true, or write shared_memory: none")
        return self


def _read_shared_memory(value: object) -> object:
    """Accepts `none`, `system` and `cuda`, also as the `kind` of a mapping."""
    if value == "none" or (isinstance(value, Mapping) and value.get("kind") == "none"):
        return None
    return {"kind": value} if isinstance(value, str) else value


SharedMemorySpec = Annotated[
    SharedMemory | None,
    BeforeValidator(_read_shared_memory, json_schema_input_type=Literal["none", "system", "cuda"] | SharedMemory),
]
