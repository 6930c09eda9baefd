"""gRPC calls, refusals, and what both engines make of an exchange."""

import abc
import dataclasses

from perfkit.errors import ErrorKind, ProtocolError, TargetError
from perfkit.target.address import Address
from perfkit.transport.base import OneAddress, Outcome, Prepared, Reply, may_pass

_RESTRICTED = ("UNAUTHENTICATED", "PERMISSION_DENIED")


@dataclasses.dataclass(frozen=True, slots=True)
class RpcCall:
    """A call: the path of its method below the target's URL, `/SERVICE/METHOD`, and its message."""

    path: str
    message: bytes
    request_id: str = ""
    """The start of the id of a streamed request, whose message has none: requests of a stream are told apart by their ids."""


class RefusedError(TargetError):
    """The server answered a call with an error; `reason` is its status and message, such as `NOT_FOUND: no such model`."""

    def __init__(self, address: Address, rpc: str, reason: str) -> None:
        self.reason, self.status = reason, reason.partition(":")[0]
        self.is_restricted = self.status in _RESTRICTED or "restricted" in reason.lower()  # Triton's status for it is UNAVAILABLE
        message = f"{address}: {'access to ' if self.is_restricted else ''}{rpc} is refused: {address.sanitize(reason)}"
        if self.is_restricted:
            message += ": give the credentials that the server, or a proxy in front of it, asks for in target.headers"
        super().__init__(message, may_pass=may_pass(self.status) and not self.is_restricted)


class GrpcTransport(OneAddress, abc.ABC):
    """The part of a gRPC transport to one address that is the same for both engines."""

    def __init__(self, address: Address) -> None:
        self.address = address

    @abc.abstractmethod
    def prepare(self, call: RpcCall) -> Prepared:
        """The bytes of a call; does no I/O."""

    @abc.abstractmethod
    def answer(self, reply: Reply) -> bytes:
        """The message that a reply carries, of a stream the first; raises ProtocolError if there is none or it is malformed."""

    @abc.abstractmethod
    async def _exchange(self, call: RpcCall) -> Reply:
        """The reply to a call that is not part of the load, which is not compressed."""

    def raw_failure(self, reply: Reply) -> str:
        return reply.error

    def retry_after_ns(self, reply: Reply) -> int | None:
        """The time in `grpc-retry-pushback-ms`, which the wire engine reads and leaves in place of the answer of a failed unary call."""
        return reply.payload if isinstance(reply.payload, int) else None

    async def exchange(self, call: RpcCall) -> bytes:
        """Makes a call that is not part of the load; raises RefusedError with status and message, or TargetError if there is no answer."""
        reply = await self._exchange(call)
        if reply.outcome is Outcome.REJECTED:
            raise RefusedError(self.address, call.path.rpartition("/")[2], reply.error)
        if reply.outcome is not Outcome.OK:
            error = reply.error if reply.outcome is Outcome.CONNECT_FAILED else f"{self.address}: {reply.error}"
            raise TargetError(error, may_pass=reply.outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN))
        try:
            return self.answer(reply)
        except ProtocolError as error:
            raise TargetError(f"{self.address}: {error}") from None


def refusal(error: str) -> ProtocolError:
    """The error for a request that was refused with the message `error`."""
    return ProtocolError(error, ErrorKind.INVALID_ARGUMENT if error.startswith("INVALID_ARGUMENT:") else ErrorKind.INTERNAL)
