"""Values of tensors as perf_analyzer's input data writes them: a list, base64, either with a shape, or the bytes of a file."""

import base64
import binascii
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.protocol.tensor import Datatype, Tensor, check_size, encode_bytes_elements, tensor_from_json

_FORMS = 'a list of values, {"b64": TEXT} or {"content": VALUES, "shape": SIZES}'


@dataclasses.dataclass(frozen=True, slots=True)
class DataTensor:
    """A tensor of the model as the data must give it, without the batch dimension."""

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    """The model's shape, -1 for open dimensions."""
    chosen_shape: tuple[int, ...] | None = None
    """The shape of values that come without one; None for the model's."""
    shape_key: str = ""
    """The key of the scenario that chooses the shape; empty if there is none."""

    def read(self, place: str, value: object) -> Tensor:
        """The tensor of a JSON value, or of the content of a file.

        `place` is where the value is, for messages. Raises ScenarioError if the value is not well-formed or does not fit its shape,
        ModelMismatchError if its shape does not fit the model.
        """
        content, given_shape = value, None
        if isinstance(value, dict):
            content, given_shape = self._open_object(place, value)
        shape = self._checked_shape(place, given_shape)
        if isinstance(content, dict):
            return self._sized(place, shape, _decoded(place, content["b64"]))
        if isinstance(content, bytes):
            return self._sized(place, shape, content if self.datatype is not Datatype.BYTES else _encode_lines(content))
        if not isinstance(content, list):
            raise ScenarioError(f"{place}: expected {_FORMS}, found {value!r:.60}")
        return self._from_list(place, shape, content)

    def _open_object(self, place: str, value: Mapping[str, Any]) -> tuple[object, object]:
        """The content, which is a list or an object with the member b64, and the shape if there is one."""
        unknown = value.keys() - {"b64", "content", "shape"}
        if unknown or ("b64" in value) == ("content" in value):
            raise ScenarioError(f"{place}: expected {_FORMS}, found an object with {', '.join(map(repr, value)) or 'nothing'}")
        content = value.get("content", value)
        if isinstance(content, dict) and "content" in value and content.keys() != {"b64"}:
            raise ScenarioError(f'{place}.content: expected a list of values or {{"b64": TEXT}}, found {content!r:.60}')
        return content, value.get("shape")

    def _checked_shape(self, place: str, given: object) -> tuple[int, ...]:
        shape = self.shape if self.chosen_shape is None else self.chosen_shape
        if given is not None:
            if not isinstance(given, list) or not all(type(size) is int and size >= 0 for size in given):
                raise ScenarioError(f"{place}.shape: expected a list of sizes such as [3, 224], without the batch, found {given!r:.60}")
            shape = tuple(given)
        elif -1 in shape:
            or_key = f", or give {self.shape_key}" if self.shape_key else ""
            raise ModelMismatchError(
                f'{place}: the model\'s shape is {list(shape)}: write {{"content": VALUES, "shape": SIZES}} with a size for each -1{or_key}'
            )
        if len(shape) != len(self.shape) or any(want not in (-1, size) for want, size in zip(self.shape, shape, strict=True)):
            raise ModelMismatchError(f"{place}: the model has shape {list(self.shape)}, without the batch, found {list(shape)}")
        return shape

    def _sized(self, place: str, shape: tuple[int, ...], raw: bytes) -> Tensor:
        tensor = Tensor(self.name, self.datatype, shape, raw)
        try:
            check_size(tensor)
        except ProtocolError as error:
            hint = "; base64 has 4 bytes of length (little-endian) before each string" if self.datatype is Datatype.BYTES else ""
            raise ScenarioError(f"{place}: the bytes do not fit {self.datatype.value} of shape {list(shape)}: {error}{hint}") from None
        return tensor

    def _from_list(self, place: str, shape: tuple[int, ...], values: list[Any]) -> Tensor:
        if not self.datatype.has_json_form:
            raise ScenarioError(f'{place}: JSON has no values of {self.datatype.value}: give their bytes as {{"b64": TEXT}}')
        is_flat = not any(isinstance(value, list) for value in values)
        try:
            if is_flat:
                return tensor_from_json(self.name, self.datatype, shape, values)
        except ProtocolError:
            pass  # found again below, in the words of the data
        wrong = [value for value in values if self._is_wrong(value)]
        found = f"{wrong[0]!r:.60}" if wrong else f"{len(values):,} of them"
        expected = f"a flat list of {math.prod(shape):,} {_element_words(self.datatype)}"
        raise ScenarioError(f"{place}: expected {expected} for {self.datatype.value} of shape {list(shape)}, found {found}")

    def _is_wrong(self, value: object) -> bool:
        try:
            tensor_from_json(self.name, self.datatype, (1,), [value])
        except ProtocolError:
            return True
        return isinstance(value, list)


def _element_words(datatype: Datatype) -> str:
    if datatype is Datatype.BOOL:
        return "true or false"
    if datatype is Datatype.BYTES:
        return "strings"
    return "numbers" if datatype.is_float else "whole numbers"


def _decoded(place: str, text: object) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
        error: object = f"found {text!r:.60}"
    except (binascii.Error, ValueError) as invalid:  # ValueError: characters beyond ASCII
        error = invalid
    raise ScenarioError(f"{place}.b64: expected base64: {error}")


def _encode_lines(content: bytes) -> bytes:
    """The strings of a text file, one a line."""
    lines = content.split(b"\n")
    return encode_bytes_elements(lines if lines[-1] else lines[:-1])
