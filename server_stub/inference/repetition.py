"""What clients repeat, remembered by its bytes or parts, so that it is read and written once."""

from typing import TypeAlias, TypeVar

from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype

MAX_REMEMBERED = 2**10
MAX_HEAD_BYTES = 2**12
"""Of a request or response without its data; longer ones are not remembered."""

ResponseKey: TypeAlias = tuple[str, str, str, tuple[tuple[str, Datatype, tuple[int, ...], int], ...]]
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def remember(known: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    """Add to what is known. Once that is full it is forgotten: only clients that never repeat anything fill it, and it does not help them."""
    if len(known) >= MAX_REMEMBERED:
        known.clear()
    known[key] = value


def response_key(response: InferResponse) -> ResponseKey:
    """What responses without parameters have in common if they are alike but for their data."""
    outputs = [(tensor.name, tensor.datatype, tensor.shape, len(tensor.raw)) for tensor in response.outputs]
    return response.model, response.version, response.id, tuple(outputs)
