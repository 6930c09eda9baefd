"""What the observers of HTTP and gRPC connections share, and the requests that they capture.

They get the bytes that were passed on, and find requests and the proxy's delay in them.
"""

import abc
import contextlib
import dataclasses
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from perfkit.errors import ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.compression import decompress
from perfkit.protocol.protobuf import describe_infer_request
from perfkit.stats.buckets import BucketCounts
from perfkit.trace.payloads import payload_of_grpc, payload_of_http

Call: TypeAlias = Literal["infer", "stream", "generate", "generate_stream"]
MAX_BODY_BYTES = 2**28
"""A larger body, also when it is decompressed, is recorded without its shapes and payload."""


@dataclasses.dataclass(frozen=True, slots=True)
class CapturedRequest:
    """The body of an inference request, without its headers."""

    arrival_ns: int
    """When the proxy read its first byte, by the monotonic clock."""
    call: Call
    body: Sequence[bytes]
    """In pieces; empty if it is too large to be kept."""
    is_grpc: bool = False
    model: str = ""
    """Of a request over HTTP, whose path names it."""
    version: str = ""
    header_length: int | None = None
    """Of a request over HTTP: the length of its JSON document, None if it is all JSON."""
    encoding: str = ""
    """The compression of the body: gzip, deflate, or none."""

    @property
    def body_bytes(self) -> int:
        """The memory that the body takes."""
        return sum(map(len, self.body))


class Description(NamedTuple):
    """What a trace says of a request; shapes and payload are missing where the request cannot be read."""

    model: str
    version: str
    shapes: Mapping[str, Sequence[int]]
    payload: bytes | None


def describe(captured: CapturedRequest, *, with_payload: bool) -> Description:
    """Reads a request as far as it is valid v2; `with_payload` makes its payload, too."""
    described = Description(captured.model, captured.version, {}, None)
    if not captured.body or captured.call.startswith("generate"):  # whose body is no infer request
        return described
    with contextlib.suppress(ProtocolError):  # what was read up to there
        body = decompress(b"".join(captured.body), captured.encoding, MAX_BODY_BYTES)
        if captured.is_grpc:
            model, version, shapes, is_typed = describe_infer_request(body)
            described = Description(model, version, shapes, None)
            return described._replace(payload=payload_of_grpc(body, is_typed=is_typed)) if with_payload else described
        document = rest.decode_object(memoryview(body)[: captured.header_length])
        described = described._replace(shapes=_shapes(document))
        return described._replace(payload=payload_of_http(document, body, captured.header_length)) if with_payload else described
    return described


def _shapes(document: Mapping[str, Any]) -> Mapping[str, Sequence[int]]:
    """The shapes of an infer request's inputs; empty if they are not v2."""
    inputs = document.get("inputs")
    shapes = {}
    for one in inputs if isinstance(inputs, list) else ():
        name, shape = (one.get("name"), one.get("shape")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
            return {}
        shapes[name] = shape
    return shapes


_BATCH = 4096


class AddedDelay:
    """The delay that the proxy itself adds to a request: from reading to passing on its last piece, plus the same of its answer's first piece."""

    def __init__(self) -> None:
        self._delays_ns = array("q")
        self._counts = BucketCounts.of([])

    def add(self, delay_ns: int) -> None:
        """Adds the delay of a request."""
        self._delays_ns.append(delay_ns)
        if len(self._delays_ns) >= _BATCH:
            self.counts()

    def counts(self) -> BucketCounts:
        """The delays of all requests so far."""
        if self._delays_ns:
            self._counts = BucketCounts.merged([self._counts, BucketCounts.of(np.array(self._delays_ns, dtype=np.int64))])
            del self._delays_ns[:]
        return self._counts


class Observer(abc.ABC):
    """Reads the bytes of one connection after they were passed on, so that its work does not delay them."""

    def __init__(self, on_request: Callable[[CapturedRequest], None], on_delay: Callable[[int], None]) -> None:
        self._on_request, self._on_delay = on_request, on_delay

    @property
    @abc.abstractmethod
    def unanswered(self) -> int:
        """Inference requests whose answers have not begun."""

    @abc.abstractmethod
    def client_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        """The client sent bytes, which were read and passed on at these instants; raises ProtocolError if they cannot be read."""

    @abc.abstractmethod
    def server_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        """The server sent bytes, like `client_sent`."""
