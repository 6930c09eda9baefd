"""`ModelStreamInfer`: requests and responses of one call, each in its own time.

Responses of ordinary models keep the requests' order, those of decoupled ones come when they come. What fails is told
in a response; the stream goes on.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

from google.protobuf.message import DecodeError

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub.log import Log
from server_stub.model import Model

_MOST_REQUESTS, _MOST_RESPONSES = 256, 64  # of one stream at a time: who sends more, or reads more slowly, waits
_FINAL, _ASKS_FOR_FINAL = "triton_final_response", "triton_enable_empty_final_response"
_INFER_RESPONSE_TAG = b"\x12"  # field 2, its length behind it


OpenRequest: TypeAlias = Callable[[bytes], tuple[InferRequest, Model, Callable[[InferResponse], InferResponse]]]
"""Reads a request and finds its model; gives what is to be done with each response before it is encoded."""


class StreamFailureError(Exception):
    """A model's error, for clients that asked to have the stream ended by it."""

    def __init__(self, error: ProtocolError) -> None:
        super().__init__(str(error))
        self.error = error


class Stream:
    """One call."""

    def __init__(self, open_request: OpenRequest, write: Callable[[bytes], Awaitable[None]], log: Log, *, ends_with_errors: bool) -> None:
        self._open_request, self._write, self._log, self._ends_with_errors = open_request, write, log, ends_with_errors
        self._responses: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_RESPONSES)
        self._room = asyncio.Semaphore(_MOST_REQUESTS)
        self._latest: asyncio.Future[None] | None = None  # of the ordinary requests: the next one's turn comes behind it

    async def serve(self, requests: AsyncIterator[bytes]) -> None:
        """Returns when the client has ended its side and all is answered; raises StreamFailureError."""
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = tasks.create_task(self._write_all())
                async with asyncio.TaskGroup() as answers:
                    async for encoded in requests:
                        await self._room.acquire()
                        answers.create_task(self._answer(encoded, time.monotonic_ns())).add_done_callback(lambda _: self._room.release())
                await self._responses.put(None)
                await writing
        except BaseExceptionGroup as group:
            raise _first(group) from None

    async def _write_all(self) -> None:
        while (response := await self._responses.get()) is not None:
            await self._write(response)

    async def _answer(self, encoded: bytes, arrived_ns: int) -> None:
        before, turn = self._latest, asyncio.get_running_loop().create_future()
        self._latest = turn
        is_accepted = False
        try:
            request, model, finish = self._open_request(encoded)
            if model.definition.is_decoupled:
                turn.set_result(None)
                async with contextlib.aclosing(model.responses(request, arrived_ns)) as responses:
                    async for response in responses:
                        is_accepted = True
                        await self._responses.put(_encoded(finish(response), is_final=False))
                if request.parameters.get(_ASKS_FOR_FINAL) is True:
                    await self._responses.put(_encoded(InferResponse(request.model, "", (), request.id), is_final=True))
                return
            is_accepted = True
            answer = await model.infer(request, arrived_ns, lambda response: _encoded(finish(response), is_final=True))
        except ProtocolError as error:
            answer = self._failed(encoded, error, is_accepted=is_accepted)
        except Exception as error:  # noqa: BLE001 - a fault in one request must not end the others
            self._log.fault(error)
            answer = self._failed(encoded, ProtocolError(f"the server failed: {error}", ErrorKind.INTERNAL), is_accepted=True)
        try:
            if before is not None:
                await before
            await self._responses.put(answer)
        finally:
            if not turn.done():
                turn.set_result(None)

    def _failed(self, encoded: bytes, error: ProtocolError, *, is_accepted: bool) -> bytes:
        """The failure as a response; of one that came after its request was accepted, a final one."""
        message = v2_pb2.ModelStreamInferResponse(error_message=str(error))
        try:
            message.infer_response.id = v2_pb2.ModelInferRequest.FromString(encoded).id
        except DecodeError:
            message.infer_response.SetInParent()
        if is_accepted and error.kind in (ErrorKind.INTERNAL, ErrorKind.UNAVAILABLE):
            if self._ends_with_errors:
                raise StreamFailureError(error)
            message.infer_response.parameters[_FINAL].bool_param = True
        return message.SerializeToString()


def _encoded(response: InferResponse, *, is_final: bool) -> bytes:
    parameters = {**response.parameters, _FINAL: is_final}
    encoded = protobuf.encode_infer_response(InferResponse(response.model, response.version, response.outputs, response.id, parameters))
    return b"".join((_INFER_RESPONSE_TAG, _varint(len(encoded)), encoded))


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
