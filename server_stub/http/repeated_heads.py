"""The JSON heads of binary requests and responses, of which clients repeat a few with different data: each is parsed and written once."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer
from server_stub.inference.repetition import MAX_HEAD_BYTES, ResponseKey, remember, response_key


class _KnownRequest(NamedTuple):
    """A decoded request without its data, and the sizes of its inputs."""

    request: InferRequest
    sizes: Sequence[int]
    data_bytes: int


class RepeatedHeads:
    """Decodes infer requests and encodes infer responses like `rest`, faster if their heads have been seen before."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, str, bytes], _KnownRequest] = {}
        self._responses: dict[ResponseKey, tuple[dict[str, str], bytes]] = {}

    def decode(self, model: str, version: str, body: Buffer, header_length: int | None) -> tuple[InferRequest, Sequence[Buffer] | None]:
        """See `rest.decode_infer_request`; a request that is known comes as its form and the data of its inputs, see `with_data`."""
        if header_length is None or not 0 <= header_length <= min(len(body), MAX_HEAD_BYTES):
            return rest.decode_infer_request(model, version, body, header_length), None
        view = memoryview(body)
        head, data = bytes(view[:header_length]), view[header_length:]
        known = self._requests.get((model, version, head))
        if known is None or known.data_bytes != len(data):
            request = rest.decode_infer_request(model, version, body, header_length)
            # inputs whose values are in the head have no data behind it
            if (data_bytes := sum(len(tensor.raw) for tensor in request.inputs)) == len(data):
                sizes = tuple(len(tensor.raw) for tensor in request.inputs)
                remember(self._requests, (model, version, head), _KnownRequest(_without_data(request), sizes, data_bytes))
            return request, None
        parts, start = list[Buffer](), 0
        for size in known.sizes:
            parts.append(data[start : start + size])
            start += size
        return known.request, parts

    def encode(self, response: InferResponse) -> tuple[dict[str, str], list[Buffer]]:
        """Headers and body of a response whose outputs are all binary; see `rest.encode_infer_response`."""
        outputs, key = response.outputs, response_key(response)
        known = None if response.parameters else self._responses.get(key)
        if known is not None:
            return known[0], [known[1], *[tensor.raw for tensor in outputs]]
        headers, body = rest.encode_infer_response(response, dict.fromkeys([tensor.name for tensor in outputs], True))
        if not response.parameters and len(body[0]) <= MAX_HEAD_BYTES and len(body) == 1 + len(outputs):
            remember(self._responses, key, (headers, bytes(body[0])))
        return headers, body


def _without_data(request: InferRequest) -> InferRequest:
    return dataclasses.replace(request, inputs=tuple(dataclasses.replace(tensor, raw=b"") for tensor in request.inputs))
