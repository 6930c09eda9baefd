"""Cache of `ModelInfer` messages: what surrounds the data of messages that differ in their data only is parsed and written once."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, wire_format
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Buffer
from server_stub.inference.layouts import RepeatedRequest, RequestTemplate, make_template
from server_stub.inference.repeated_responses import AnyResponse, RepeatedResponse
from server_stub.inference.repetition import MAX_HEAD_BYTES, MAX_REMEMBERED, ResponseHeads

_FORMS_OF_A_LENGTH = 4
_PATIENCE = 100  # so many messages that are not known, before one takes the place of a known one
_MAX_FIELDS = 200  # far more than a request with a template needs


class _Form(NamedTuple):
    """A request without its data, where its inputs' data is, and the bytes before each."""

    template: RequestTemplate
    places: Sequence[tuple[int, int, int, bytes]]
    """For each input: where the bytes before its data begin, where the data begins and ends, and those bytes."""


class RepeatedMessages:
    """Reads infer requests and encodes infer responses like `protobuf`, faster if ones that differ in their data only have been seen before.

    A known request is one of the same length whose bytes outside the data are the same, so that it cannot mean anything else.
    """

    def __init__(self) -> None:
        self._forms: dict[int, list[_Form]] = {}
        self._form_count = self._unknown = 0
        self._responses: ResponseHeads[Sequence[bytes]] = ResponseHeads()

    def find(self, encoded: Buffer) -> RepeatedRequest | None:
        """The request in a message, if one like it is known."""
        for template, places in self._forms.get(len(encoded), ()):
            data: list[Buffer] = []
            for first, start, end, before in places:
                if encoded[first:start] != before:
                    break
                data.append(encoded[start:end])
            else:
                return RepeatedRequest(template, data)
        return None

    def add(self, encoded: Buffer, request: InferRequest) -> None:
        """Remember a request that was read from the raw contents of a message, unless it is long or has many parts.

        The caller has answered it, so that only requests that fit a model are remembered, and passes none with tensors in shared memory:
        these have to be looked up each time.
        """
        forms = self._forms.get(len(encoded), [])
        if len(forms) == _FORMS_OF_A_LENGTH:
            self._unknown += 1
            if self._unknown % _PATIENCE:
                return
        sizes = [len(tensor.raw) for tensor in request.inputs]
        if len(encoded) - sum(sizes) > MAX_HEAD_BYTES or self.find(encoded) is not None:  # another call may have added it meanwhile
            return
        places, template = _places(encoded), make_template(request)
        if template is None or not places or sizes != [end - start for _, start, end, _ in places]:
            return
        if len(forms) < _FORMS_OF_A_LENGTH:
            if self._form_count == MAX_REMEMBERED:  # as in `remember`
                self._forms.clear()
                self._form_count, forms = 0, []
            self._form_count += 1
        self._forms[len(encoded)] = [_Form(template, places), *forms[: _FORMS_OF_A_LENGTH - 1]]

    def encode(self, response: AnyResponse) -> Sequence[Buffer]:
        """The pieces of a response; see `protobuf.encode_infer_response`."""
        if isinstance(response, RepeatedResponse):
            form = response.form
            if form.written is not None:
                return [piece for pair in zip(form.written, response.data, strict=True) for piece in pair]
            encoded = self.encode(response.whole())
            if sum(map(len, encoded[::2])) <= MAX_HEAD_BYTES:  # without the data
                form.written = encoded[::2]
            return encoded
        if response.parameters or not response.outputs:
            return protobuf.encode_infer_response(response)
        key, heads = self._responses.find(response)
        if heads is None:
            heads = protobuf.infer_response_heads(response)
            self._responses.add(key, heads, sum(map(len, heads)))
        pieces: list[Buffer] = []
        for head, tensor in zip(heads, response.outputs, strict=True):
            pieces += (head, tensor.raw)
        return pieces


def _places(encoded: Buffer) -> Sequence[tuple[int, int, int, bytes]]:
    """The places of a form; none if raw contents are not the last fields of the message, or it has too many fields."""
    places, first = [], 0
    try:
        for count, field in enumerate(wire_format.fields(encoded)):
            if count == _MAX_FIELDS:
                return ()
            if field.tag == protobuf.RAW_INPUTS_TAG:
                places.append((first, field.content, field.end, bytes(encoded[first : field.content])))
                first = field.end
    except ProtocolError:
        return ()
    return places if first == len(encoded) else ()
