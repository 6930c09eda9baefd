"""`ModelInfer` messages, of which clients repeat a few with different data: what surrounds the data is parsed and written once."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, wire_format
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer, Tensor
from server_stub.inference.repetition import MAX_HEAD_BYTES, ResponseKey, remember, response_key

_FORMS_OF_A_LENGTH = 4
_PATIENCE = 100  # so many messages that are not known, before one takes the place of a known one


class _Form(NamedTuple):
    """A request without its data, where its inputs' data is, and the bytes before each."""

    request: InferRequest
    places: Sequence[tuple[int, int, int, bytes]]
    """For each input: where the bytes before its data begin, where the data begins and ends, and those bytes."""


class RepeatedMessages:
    """Reads infer requests and encodes infer responses like `protobuf`, faster if ones that differ in their data only have been seen before.

    A known request is one of the same length whose bytes outside the data are the same, so that it cannot mean anything else.
    """

    def __init__(self) -> None:
        self._forms: dict[int, list[_Form]] = {}
        self._unknown = 0
        self._responses: dict[ResponseKey, Sequence[bytes]] = {}

    def find(self, encoded: Buffer) -> tuple[InferRequest, Sequence[Buffer]] | None:
        """The request in a message, if such a one is known: its form and the data of its inputs, see `with_data`."""
        for request, places in self._forms.get(len(encoded), ()):
            data: list[Buffer] = []
            for first, start, end, before in places:
                if encoded[first:start] != before:
                    break
                data.append(encoded[start:end])
            else:
                return request, data
        return None

    def add(self, encoded: Buffer, request: InferRequest) -> None:
        """Remember a request that was read from a message, if its data are raw contents, and no tensor is in shared memory."""
        forms = self._forms.get(len(encoded), [])
        if len(forms) >= _FORMS_OF_A_LENGTH:
            self._unknown += 1
            if self._unknown % _PATIENCE:
                return
        data_bytes = sum(len(tensor.raw) for tensor in request.inputs)
        if not request.inputs or len(encoded) - data_bytes > MAX_HEAD_BYTES:
            return
        places, first = [], 0
        try:
            for field in wire_format.fields(encoded):
                if field.tag == protobuf.RAW_INPUTS_TAG:
                    places.append((first, field.content, field.end, bytes(encoded[first : field.content])))
                    first = field.end
        except ProtocolError:
            return
        sizes = [end - start for _, start, end, _ in places]
        if first != len(encoded) or sizes != [len(tensor.raw) for tensor in request.inputs]:
            return
        inputs = tuple(Tensor(tensor.name, tensor.datatype, tensor.shape, b"") for tensor in request.inputs)
        form = _Form(InferRequest(request.model, inputs, request.outputs, request.version, request.id, request.parameters), places)
        remember(self._forms, len(encoded), [form, *forms[: _FORMS_OF_A_LENGTH - 1]])

    def encode(self, response: InferResponse) -> Sequence[Buffer]:
        """The pieces of a response; see `protobuf.encode_infer_response`."""
        if response.parameters or not response.outputs:
            return protobuf.encode_infer_response(response)
        key = response_key(response)
        heads = self._responses.get(key)
        if heads is None:
            heads = protobuf.infer_response_heads(response)
            if sum(map(len, heads)) <= MAX_HEAD_BYTES:
                remember(self._responses, key, heads)
        pieces: list[Buffer] = []
        for head, tensor in zip(heads, response.outputs, strict=True):
            pieces += (head, tensor.raw)
        return pieces
