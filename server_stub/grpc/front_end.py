"""The gRPC front end: the service of `v2.proto`."""

import functools
import inspect
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.grpc_call import Status
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer
from server_stub.grpc.administration import Method, administrative_methods
from server_stub.grpc.calls import Answer, Call, Methods, StatusError, StreamingCall, UnaryMethod, status_error
from server_stub.grpc.connections import GrpcPort
from server_stub.grpc.repeated_messages import RepeatedMessages
from server_stub.grpc.stream import Stream
from server_stub.inference.layouts import AnyRequest
from server_stub.inference.model import Model
from server_stub.service import Service
from server_stub.shared_memory.shared_tensors import resolve_grpc_request
from server_stub.tracing.request_trace import KEY

_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
# encoded grpc.health.v1.HealthCheckResponse: field 1, status, is SERVING (1) or NOT_SERVING (2)
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
_GRPC_ERRORS = ("triton_grpc_error", "true")  # metadata by which a client wants a stream to end at a model's error


class GrpcFrontEnd(GrpcPort):
    """Serves the models of a repository over gRPC."""

    def __init__(self, service: Service) -> None:
        self._repository, self._regions, self._log, self._tracer = service.repository, service.regions, service.log, service.tracer
        self._messages = RepeatedMessages()
        self._encode, self._write = self._messages.encode, self._messages.write
        methods = administrative_methods(service)
        paths = {protobuf.method_path(name): _unary(name, method) for name, method in methods.items()}
        unary = {_HEALTH_CHECK: self._health, **paths, protobuf.method_path("ModelInfer"): self._infer}
        served = Methods(
            {path: functools.partial(self._respond, path.rpartition("/")[2], method) for path, method in unary.items()},
            {protobuf.method_path("ModelInfer"): self._infer_at_once},
            {protobuf.method_path("ModelStreamInfer"): self._stream},
        )
        super().__init__(served, service.limits, service.memory, service.threads)

    async def _health(self, _request: Buffer, _call: Call) -> Sequence[Buffer]:
        return [_SERVING if self._repository.is_ready else _NOT_SERVING]

    async def _infer(self, encoded: Buffer, call: Call) -> Sequence[Buffer]:
        arrived_ns = time.monotonic_ns()
        request, model, finish = self._read(encoded)
        if model.definition.is_decoupled:
            raise ProtocolError("ModelInfer RPC doesn't support models with decoupled transaction policy", ErrorKind.UNSUPPORTED)
        trace = None
        if self._tracer.is_on:
            trace = self._tracer.start("GRPC", model.definition.name, call.metadata.get(KEY, ""), arrived_ns, arrived_ns)
        try:
            return await model.infer(request, arrived_ns, lambda response: self._encode(finish(response)), trace)
        finally:
            if trace is not None:
                call.on_sent(functools.partial(self._tracer.finish, trace, time.monotonic_ns()))

    def _infer_at_once(self, encoded: bytes) -> Answer | None:
        if self._tracer.is_on or self._log.is_verbose or (known := self._messages.find(encoded)) is None:
            return None
        common = known.template.request
        try:
            model = self._repository.find(common.model, common.version)
            if not model.never_waits:
                return None
            return model.infer_at_once(known.request(encoded), self._encode, self._write)
        except Exception as error:  # noqa: BLE001 - as in `_stream`
            return self._refusal(error)

    def _read(self, encoded: Buffer) -> tuple[AnyRequest, Model, Callable[[InferResponse], InferResponse]]:
        if (known := self._messages.find(encoded)) is not None:
            common = known.template.request
            return known.request(encoded), self._repository.find(common.model, common.version), _unchanged
        parsed, shared = resolve_grpc_request(protobuf.parse_infer_request(encoded), self._regions)
        request, finish = protobuf.read_infer_request(parsed), _unchanged
        if shared.inputs or shared.outputs:
            request, finish = shared.fill(request), shared.finish
        elif parsed.raw_contents:
            finish = functools.partial(self._remember, encoded, request)
        return request, self._repository.find(request.model, request.version), finish

    def _remember(self, encoded: Buffer, request: InferRequest, response: InferResponse) -> InferResponse:
        self._messages.add(encoded, request)
        return response

    async def _stream(self, requests: AsyncIterator[Buffer], call: StreamingCall) -> None:
        tracing: dict[str, Any] = {"tracer": self._tracer, "traceparent": call.metadata.get(KEY, "")}
        ends_with_errors = call.metadata.get(_GRPC_ERRORS[0]) == _GRPC_ERRORS[1]
        try:
            await Stream(self._read, call.write, self._log, ends_with_errors=ends_with_errors, **tracing).serve(requests)
        except Exception as error:  # noqa: BLE001 - an error in one call must not end the server
            raise self._refusal(error) from None

    async def _respond(self, name: str, method: UnaryMethod, encoded: Buffer, call: Call) -> Sequence[Buffer]:
        """The response of a unary method; its exceptions become gRPC statuses."""
        arrived_ns, status = time.monotonic_ns(), Status.OK
        try:
            return await method(encoded, call)
        except Exception as error:  # noqa: BLE001 - as above
            refusal = self._refusal(error)
            status = refusal.status
            raise refusal from None
        finally:
            if self._log.is_verbose:
                self._log.request("gRPC", name, status.name, time.monotonic_ns() - arrived_ns)

    def _refusal(self, error: Exception) -> StatusError:
        match error:
            case ProtocolError():
                return status_error(error)
            case DecodeError():
                return StatusError(Status.INTERNAL, f"the message cannot be parsed: {error}")
            case _:
                self._log.internal_error(error)
                return StatusError(Status.INTERNAL, f"the server failed: {error}")


def _unchanged(response: InferResponse) -> InferResponse:
    return response


def _unary(name: str, method: Method) -> UnaryMethod:
    """A method that takes a message and returns a document, as one of bytes; raises DecodeError."""
    request_type: type[Message] = getattr(v2_pb2, f"{name}Request")
    response_type: type[Message] = getattr(v2_pb2, f"{name}Response")

    async def respond(encoded: Buffer, _call: Call) -> Sequence[Buffer]:
        answer = method(request_type.FromString(bytes(encoded)))
        document = await answer if inspect.isawaitable(answer) else answer
        return [json_format.ParseDict(document or {}, response_type()).SerializeToString()]

    return respond
