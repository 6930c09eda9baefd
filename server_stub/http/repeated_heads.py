"""Cache of the JSON heads of binary requests and responses: a head that comes again with other data is parsed and written once."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer
from server_stub.inference.layouts import RepeatedRequest, RequestTemplate, make_template
from server_stub.inference.repetition import MAX_HEAD_BYTES, ResponseHeads, remember
from server_stub.receiving import COPIED_BYTES


class _KnownRequest(NamedTuple):
    """What follows from the head of a request: all but its data, and the sizes of its inputs."""

    template: RequestTemplate
    sizes: Sequence[int]
    data_bytes: int


class RepeatedHeads:
    """Decodes infer requests and encodes infer responses like `rest`, faster if their heads have been seen before."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, bytes], _KnownRequest] = {}
        self._responses: ResponseHeads[tuple[dict[str, str], bytes]] = ResponseHeads()

    def find(self, model: str, version: str, body: Buffer, header_length: int | None) -> RepeatedRequest | None:
        """The request in a body, if its head is known; see `rest.decode_infer_request`."""
        if header_length is None or not 0 <= header_length <= min(len(body), MAX_HEAD_BYTES):
            return None
        view = body if isinstance(body, bytes) and len(body) <= COPIED_BYTES else memoryview(body)
        known = self._requests.get((model, version, bytes(view[:header_length])))
        data = view[header_length:]
        if known is None or known.data_bytes != len(data):
            return None
        parts, start = list[Buffer](), 0
        for size in known.sizes:
            parts.append(data[start : start + size])
            start += size
        return RepeatedRequest(known.template, parts)

    def add(self, model: str, version: str, body: Buffer, header_length: int | None, request: InferRequest) -> None:
        """Remember a request that was decoded from a body, unless its head is long or has many parts.

        The caller has answered it, so that only requests that fit a model are remembered.
        """
        if header_length is None or header_length > MAX_HEAD_BYTES:
            return
        sizes = [len(tensor.raw) for tensor in request.inputs]
        data_bytes = len(body) - header_length
        # inputs whose values are in the head have no data behind it
        if sum(sizes) == data_bytes and (template := make_template(request)) is not None:
            head = bytes(memoryview(body)[:header_length])
            remember(self._requests, (model, version, head), _KnownRequest(template, sizes, data_bytes))

    def encode(self, response: InferResponse) -> tuple[dict[str, str], list[Buffer]]:
        """Headers and body of a response whose outputs are all binary; see `rest.encode_infer_response`."""
        outputs = response.outputs
        key, known = (None, None) if response.parameters else self._responses.find(response)
        if known is not None:
            return known[0], [known[1], *[tensor.raw for tensor in outputs]]
        headers, body = rest.encode_infer_response(response, dict.fromkeys([tensor.name for tensor in outputs], True))
        if key is not None and len(body) == 1 + len(outputs):
            self._responses.add(key, (headers, bytes(body[0])), len(body[0]))
        return headers, body
