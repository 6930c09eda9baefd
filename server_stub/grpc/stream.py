"""`ModelStreamInfer`: many requests and responses in one call.

Responses of ordinary models come in the order of the requests, those of decoupled models as soon as they are ready. An
error is a response; the stream continues.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, v2_pb2, wire_format
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Buffer
from server_stub.inference.layouts import AnyRequest, whole_request
from server_stub.inference.model import Model
from server_stub.log import Log
from server_stub.tracing.request_trace import RequestTrace
from server_stub.tracing.tracer import Tracer

_MAX_REQUESTS, _MAX_RESPONSES = 256, 64  # in flight and unsent, per stream; then the stream is not read
_FINAL, _WANTS_FINAL = "triton_final_response", "triton_enable_empty_final_response"
_INFER_RESPONSE_TAG = 2 << 3 | 2  # field 2, length-delimited


ReadRequest: TypeAlias = Callable[[Buffer], tuple[AnyRequest, Model, Callable[[InferResponse], InferResponse]]]
"""Decodes a request and finds its model. The returned function processes each response before it is encoded."""


class _Outgoing(NamedTuple):
    """An encoded response to send, or None if a traced request has got its last one already."""

    encoded: Sequence[Buffer] | None
    trace: RequestTrace | None = None
    is_last: bool = True


class Stream:
    """One streaming call."""

    def __init__(
        self,
        read_request: ReadRequest,
        write: Callable[[Sequence[Buffer]], Awaitable[None]],
        log: Log,
        *,
        ends_with_errors: bool,
        tracer: Tracer | None = None,
        traceparent: str = "",
    ) -> None:
        """`traceparent` is the call's metadata."""
        self._read_request, self._write, self._log, self._ends_with_errors = read_request, write, log, ends_with_errors
        self._tracer, self._traceparent = tracer or Tracer(), traceparent
        self._waiting_since_ns = time.monotonic_ns()  # for the next request
        self._responses: asyncio.Queue[_Outgoing | None] = asyncio.Queue(_MAX_RESPONSES)
        self._slots = asyncio.Semaphore(_MAX_REQUESTS)
        self._latest: asyncio.Future[None] | None = None  # done when the latest request's response is queued

    async def serve(self, requests: AsyncIterator[Buffer]) -> None:
        """Serve until the client has closed its side and all requests are answered. Raises a model's ProtocolError if it `ends_with_errors`."""
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write_all())
                async with asyncio.TaskGroup() as responding:
                    async for encoded in requests:
                        await self._slots.acquire()
                        arrived_ns = time.monotonic_ns()
                        task = responding.create_task(self._respond(encoded, self._waiting_since_ns, arrived_ns))
                        self._waiting_since_ns = arrived_ns
                        task.add_done_callback(lambda _: self._slots.release())
                await self._responses.put(None)
                await writing
        except BaseExceptionGroup as group:
            raise _first_error(group) from None

    async def _write_all(self) -> None:
        while (response := await self._responses.get()) is not None:
            if response.trace is None:
                assert response.encoded is not None
                await self._write(response.encoded)
            else:
                await self._write_traced(response.encoded, response.trace, is_last=response.is_last)

    async def _write_traced(self, encoded: Sequence[Buffer] | None, trace: RequestTrace, *, is_last: bool) -> None:
        if encoded is not None:
            started_ns = time.monotonic_ns()
            await self._write(encoded)
            trace.sends.append((started_ns, time.monotonic_ns()))
        if is_last:
            self._tracer.finish(trace)

    async def _respond(self, encoded: Buffer, waiting_since_ns: int, arrived_ns: int) -> None:
        previous, own = self._latest, asyncio.get_running_loop().create_future()
        self._latest = own
        is_accepted, trace = False, None
        try:
            request, model, finish = self._read_request(encoded)
            trace = self._tracer.start("GRPC", model.definition.name, self._traceparent, waiting_since_ns, arrived_ns)
            if model.definition.is_decoupled:
                own.set_result(None)
                whole = whole_request(request)
                async with contextlib.aclosing(model.responses(whole, arrived_ns, trace)) as responses:
                    async for response in responses:
                        is_accepted = True
                        await self._responses.put(_Outgoing(_encode(finish(response), is_final=False), trace, is_last=False))
                if whole.parameters.get(_WANTS_FINAL) is True:
                    await self._responses.put(_Outgoing(_encode(InferResponse(whole.model, "", (), whole.id), is_final=True), trace))
                elif trace is not None:
                    await self._responses.put(_Outgoing(None, trace))
                return
            is_accepted = True
            encoded_response = await model.infer(request, arrived_ns, lambda response: _encode(finish(response), is_final=True), trace)
        except ProtocolError as error:
            encoded_response = self._encode_error(encoded, error, is_accepted=is_accepted)
        except Exception as error:  # noqa: BLE001 - an error in one request must not end the others
            self._log.internal_error(error)
            failure = ProtocolError(f"the server failed: {error}", ErrorKind.INTERNAL)
            encoded_response = self._encode_error(encoded, failure, is_accepted=True)
        try:
            if previous is not None:
                await previous
            await self._responses.put(_Outgoing(encoded_response, trace))
        finally:
            if not own.done():
                own.set_result(None)

    def _encode_error(self, encoded: Buffer, error: ProtocolError, *, is_accepted: bool) -> Sequence[Buffer]:
        """An error as a response, final if the model had accepted the request. May raise it instead."""
        message = v2_pb2.ModelStreamInferResponse(error_message=str(error))
        try:
            message.infer_response.id = v2_pb2.ModelInferRequest.FromString(bytes(encoded)).id
        except DecodeError:
            message.infer_response.SetInParent()
        if is_accepted and error.kind in (ErrorKind.INTERNAL, ErrorKind.UNAVAILABLE):
            if self._ends_with_errors:
                raise error
            message.infer_response.parameters[_FINAL].bool_param = True
        return [message.SerializeToString()]


def _encode(response: InferResponse, *, is_final: bool) -> Sequence[Buffer]:
    parameters = {**response.parameters, _FINAL: is_final}
    encoded = protobuf.encode_infer_response(InferResponse(response.model, response.version, response.outputs, response.id, parameters))
    return [wire_format.field_head(_INFER_RESPONSE_TAG, sum(map(len, encoded))), *encoded]


def _first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_error(error) if isinstance(error, BaseExceptionGroup) else error
