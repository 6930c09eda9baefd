"""An infer request over HTTP, from the bytes of its body to those of its answer, whatever read the one and writes the other."""

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.compression import ACCEPTED, choose_encoding, compress, decompress
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub import inference, shared_requests
from server_stub.model import Model
from server_stub.repository import Repository
from server_stub.shared_memory import Regions, Slot, without_slots

# what has to be held twice, parsed or unpacked; binary tensors behind the JSON part may be larger
MAX_JSON_BYTES = 2**26
_STATUS = {ErrorKind.INTERNAL: 500, ErrorKind.NOT_FOUND: 404, ErrorKind.UNAVAILABLE: 503, ErrorKind.UNSUPPORTED: 501}


class HttpAnswer(NamedTuple):
    """An answer before anything writes it; `headers` go without its length."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class EarlyError(ProtocolError):
    """A refusal before the request itself is looked at."""


def check_json_size(json_bytes: int) -> None:
    """Raises ProtocolError for more JSON than is parsed."""
    if json_bytes > MAX_JSON_BYTES:
        raise ProtocolError(f"request JSON size of {json_bytes} bytes exceeds the maximum allowed input size of {MAX_JSON_BYTES} bytes")


class HttpInference:
    """Answers infer requests from a repository of models."""

    def __init__(self, repository: Repository, regions: Regions) -> None:
        self._repository, self._regions = repository, regions

    def find(self, name: str, version: str) -> Model:
        """The model, if it can be asked in this way; raises EarlyError."""
        with _early():
            model = self._repository.find(name, version)
            if model.definition.is_decoupled:
                raise ProtocolError("HTTP end point doesn't support models with decoupled transaction policy", ErrorKind.UNSUPPORTED)
            return model

    async def answer(
        self, name: str, version: str, encoded: bytes, header_length: str | None, content_encoding: str = "", accept_encoding: str = ""
    ) -> HttpAnswer:
        """The answer to a body; `header_length` and the encodings are the headers' values. Raises ProtocolError."""
        arrived_ns = time.monotonic_ns()
        model = self.find(name, version)
        with _early():
            body = decompress(encoded, content_encoding, MAX_JSON_BYTES)
            json_length = _header_length(header_length, len(body))
            json_bytes = json_length or len(body)  # without a header, or with 0, it is all of the body
            check_json_size(json_bytes)
        body, json_length, slots = shared_requests.read_http(body, json_length, self._regions)
        if json_length == 0 or not body:
            asked = inference.raw_request(model.definition, model.version, body)
        else:
            asked = rest.decode_infer_request(model.definition.name, model.version, body, json_length)
        return await model.infer(asked, arrived_ns, functools.partial(_encoded, asked, choose_encoding(accept_encoding), slots))


def http_status(error: ProtocolError) -> int:
    """The status that an error is answered with over HTTP."""
    return _STATUS.get(error.kind, 400)


def refusal(error: ProtocolError) -> HttpAnswer:
    """`{"error": …}` with Triton's codes."""
    # Triton's own HTTP layer answers early refusals, and knows of no other type for its JSON
    headers = {"Content-Type": "text/plain" if isinstance(error, EarlyError) else rest.JSON_TYPE}
    if error.kind is ErrorKind.UNSUPPORTED and "compression" in str(error):
        headers["Accept-Encoding"] = ", ".join(ACCEPTED)
    return HttpAnswer(http_status(error), headers, rest.encode_error(str(error)))


def slow_body(timeout_s: float) -> HttpAnswer:
    """The last answer on a connection whose client does not get on."""
    headers = {"Content-Type": rest.JSON_TYPE, "Connection": "close"}
    return HttpAnswer(400, headers, rest.encode_error(slow_body_text(timeout_s)))


def slow_body_text(timeout_s: float) -> str:
    """What is said of a body that is not there in time."""
    return f"the body of the request did not arrive within {timeout_s:g} s"


@contextlib.contextmanager
def _early() -> Iterator[None]:
    try:
        yield
    except ProtocolError as error:
        raise EarlyError(str(error), error.kind) from None


def _header_length(text: str | None, body_bytes: int) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise ProtocolError(f"Unable to parse {rest.HEADER_LENGTH}, got: {text}")
    length = int(text)
    if not 0 <= length <= body_bytes:
        raise ProtocolError(f"inference header size should be in range (0, {body_bytes}), got: {length}")
    return length


def _encoded(asked: InferRequest, encoding: str, slots: Mapping[str, Slot], response: InferResponse) -> HttpAnswer:
    response = without_slots(response, slots)
    listed = {output.name: output.binary is True for output in reversed(asked.outputs)}
    encoded = rest.encode_infer_response(
        response, {tensor.name: listed.get(tensor.name, asked.binary_output) for tensor in response.outputs}
    )
    headers, buffers = shared_requests.write_http(*encoded, slots)
    if encoding == "identity":
        return HttpAnswer(200, headers, b"".join(buffers))
    return HttpAnswer(200, {**headers, "Content-Encoding": encoding}, compress(buffers, encoding))
