"""Bounded caches of what clients send again and again, so that it is read and written once."""

from typing import Generic, TypeAlias, TypeVar

from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype

MAX_REMEMBERED = 2**10
"""The number of entries of each cache."""
MAX_HEAD_BYTES = 2**12
"""The largest size of a request or response without its data; longer ones are not remembered."""

ResponseKey: TypeAlias = tuple[str, str, str, tuple[tuple[str, Datatype, tuple[int, ...], int], ...]]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Head = TypeVar("_Head")


def remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add an entry to a cache, or replace it. A full cache is emptied first."""
    if len(known) >= MAX_REMEMBERED and key not in known:
        known.clear()
    known[key] = value


class ResponseHeads(Generic[_Head]):
    """Cache of what is written of a response besides its data, for responses without parameters."""

    def __init__(self) -> None:
        self._known: dict[ResponseKey, _Head] = {}

    def find(self, response: InferResponse) -> tuple[ResponseKey, _Head | None]:
        """All of a response but its data, and the head of the responses that have this in common; None if it is not known."""
        outputs = [(tensor.name, tensor.datatype, tensor.shape, len(tensor.raw)) for tensor in response.outputs]
        key = response.model, response.version, response.id, tuple(outputs)
        return key, self._known.get(key)

    def add(self, key: ResponseKey, head: _Head, head_bytes: int) -> None:
        """Remember a head, unless it is long."""
        if head_bytes <= MAX_HEAD_BYTES:
            remember(self._known, key, head)

    def __len__(self) -> int:
        """The number of heads that are known."""
        return len(self._known)
