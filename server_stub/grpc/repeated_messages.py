"""Cache of `ModelInfer` messages: what surrounds the data of messages that differ in their data only is parsed and written once."""

import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, wire_format
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer
from server_stub.inference.layouts import RepeatedRequest, RequestTemplate, make_template
from server_stub.inference.repeated_responses import AnyResponse, RepeatedResponse
from server_stub.inference.repetition import MAX_HEAD_BYTES, MAX_REMEMBERED, ResponseHeads

_FORMS_OF_A_LENGTH = 4
_PATIENCE = 100  # so many messages that are not known, before one takes the place of a known one
_MAX_FIELDS = 200  # far more than a request with a template needs
_Cut: TypeAlias = Callable[[Buffer], Sequence[Buffer]]


class KnownMessage(NamedTuple):
    """What is known of a message: its request without data, and how messages like it are recognized and read."""

    template: RequestTemplate
    cut_heads: _Cut
    """Cuts the bytes before the data of each input out of a message."""
    heads: Sequence[bytes]
    """These bytes, which are equal in all messages like it."""
    cut_data: _Cut
    """Cuts the data of each input out of a message."""

    def request(self, encoded: Buffer) -> RepeatedRequest:
        """The request in a message like it."""
        return RepeatedRequest(self.template, self.cut_data(encoded))


class RepeatedMessages:
    """Reads infer requests and encodes infer responses like `protobuf`, faster if ones that differ in their data only have been seen before.

    A known request is one of the same length whose bytes outside the data are the same, so that it cannot mean anything else.
    """

    def __init__(self) -> None:
        self._forms: dict[int, list[KnownMessage]] = {}
        self._form_count = self._unknown = 0
        self._responses: ResponseHeads[Sequence[bytes]] = ResponseHeads()

    def find(self, encoded: Buffer) -> KnownMessage | None:
        """What is known of messages like this one."""
        for known in self._forms.get(len(encoded), ()):
            if known.cut_heads(encoded) == known.heads:
                return known
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
        heads, data = _places(encoded)
        template = make_template(request)
        if template is None or not data or sizes != [place.stop - place.start for place in data]:
            return
        if len(forms) < _FORMS_OF_A_LENGTH:
            if self._form_count == MAX_REMEMBERED:  # as in `remember`
                self._forms.clear()
                self._form_count, forms = 0, []
            self._form_count += 1
        cut_heads = _cutter(heads)
        known = KnownMessage(template, cut_heads, tuple(map(bytes, cut_heads(encoded))), _cutter(data))
        self._forms[len(encoded)] = [known, *forms[: _FORMS_OF_A_LENGTH - 1]]

    def encode(self, response: AnyResponse) -> Sequence[Buffer]:
        """The pieces of a response; see `protobuf.encode_infer_response`."""
        if isinstance(response, RepeatedResponse):
            return [piece for pair in zip(response.written, response.data, strict=True) for piece in pair]
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

    def write(self, _request: InferRequest, response: InferResponse) -> tuple[Sequence[Buffer], int]:
        """What precedes each output's data in `encode`, and the bytes of that; see `Write`. There is at least one output."""
        heads = self.encode(response)[::2]
        return heads, sum(map(len, heads))


def _places(encoded: Buffer) -> tuple[list[slice], list[slice]]:
    """Where the bytes before each input's data are, and that data; none if raw contents are not the last fields of the message, or it has too many."""
    heads, data, first = list[slice](), list[slice](), 0
    try:
        for count, field in enumerate(wire_format.fields(encoded)):
            if count == _MAX_FIELDS:
                return [], []
            if field.tag == protobuf.RAW_INPUTS_TAG:
                heads.append(slice(first, field.content))
                data.append(slice(field.content, field.end))
                first = field.end
    except ProtocolError:
        return [], []
    return (heads, data) if first == len(encoded) else ([], [])


def _cutter(places: Sequence[slice]) -> _Cut:
    """What cuts one or more pieces out of a message, which an itemgetter does faster than a loop."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    (place,) = places
    return lambda encoded: (encoded[place],)
