"""The base of all models of stored documents, their reading, and dataclasses as documents."""

import json
import pathlib
from typing import Any, TypeVar

import pydantic
from pydantic import ConfigDict

from perfkit.errors import ResultError
from perfkit.result.json_file import read_json

_T = TypeVar("_T")


class Part(pydantic.BaseModel):
    """The base of all parts: frozen, and tolerant of keys of later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)

    def document(self) -> dict[str, Any]:
        """The part as JSON values, in the order of the schema."""
        return self.model_dump(mode="json", by_alias=True)


def read_part(file: pathlib.Path, kind: type[_T], schema: str = "") -> _T:
    """A JSON file as a part, or a list of parts; raises ResultError for another schema, and for the first value that does not fit."""
    try:
        document = read_json(file)
    except FileNotFoundError:
        raise ResultError(f"{file}: cannot be read: No such file or directory") from None
    found = document.get("schema", schema) if isinstance(document, dict) else schema
    if found != schema:
        raise ResultError(f"{file}: this perfkit reads {schema}, found {str(found)[:50]!r}: a newer perfkit may read it")
    try:
        return pydantic.TypeAdapter(kind).validate_python(document)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "cannot be read"
        raise ResultError(f"{file}: {place}: {first['msg']}; the file was damaged or edited: restore it, or measure again") from None


def adapter_of(kind: type[_T]) -> pydantic.TypeAdapter[list[_T]]:
    """Writes a list of parts or dataclasses, and has their JSON Schema.

    The metadata of a dataclass's field may have pydantic's settings: `{"exclude": True}`, `{"serialization_alias": "question"}`.
    """
    config = ConfigDict(arbitrary_types_allowed=True, json_schema_serialization_defaults_required=True)
    return pydantic.TypeAdapter(list[kind], config=config)  # type: ignore[valid-type]  # in a list, because a dataclass itself takes no configuration


def dataclass_document(schema: str, value: object) -> dict[str, Any]:
    """A dataclass as JSON values below the name of its format; null stands for numbers that are not finite."""
    return {"schema": schema, **json.loads(adapter_of(type(value)).dump_json([value], by_alias=True))[0]}
