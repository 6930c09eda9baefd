"""The interface between load, wire APIs and transports: prepared bytes in, replies out, one or a stream for a request; failures as data."""

import abc
import collections
import dataclasses
import enum
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, TypeVar, Unpack

if TYPE_CHECKING:
    import asyncio

    from perfkit.protocol.message import TokenCounts
    from perfkit.stats.buckets import BucketCounts
    from perfkit.target.address import Address

_MAX_LISTED_TIMES = 4096
# statuses of an error that the same request may not meet again: of the server or of a proxy, not of the request
_PASSING_HTTP = frozenset((408, 425, 429, 500, 502, 503, 504))
_PASSING_GRPC = frozenset(
    ("CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "ABORTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS")
)


def may_pass(status: str | int) -> bool:
    """Whether a request that was refused with this HTTP status, or gRPC status name, may succeed when it is sent again."""
    return status in _PASSING_HTTP or status in _PASSING_GRPC


class Outcome(enum.Enum):
    """The result of a request that was sent; each has exactly one. The value is its key in a result file."""

    OK = "ok"
    REJECTED = "rejected"
    TIMED_OUT = "timed_out"
    CONNECT_FAILED = "connect_failed"
    BROKEN = "broken"
    INVALID_OUTPUT = "invalid_output"
    UNFINISHED = "unfinished"
    ABANDONED = "abandoned"
    """Given up by the client on purpose, as `load.abandon` says: no failure."""

    __hash__ = object.__hash__  # members are compared by identity; Enum's own hash runs Python code for each lookup


@dataclasses.dataclass(slots=True)
class Prepared:
    """A request as bytes, including the tensors, in the order in which the buffers are sent."""

    buffers: Sequence[bytes]
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Headers besides those in the buffers, for engines that make the head themselves."""

    def become(self, other: "Prepared") -> None:
        """Takes over the contents of another one, so that whoever holds this one sends the other from now on."""
        for field in dataclasses.fields(other):
            setattr(self, field.name, getattr(other, field.name))

    def with_header(self, name: str, value: str) -> "Prepared":
        """The same request with one more header outside the buffers."""
        return dataclasses.replace(self, headers={**self.headers, name: value})


class RareAttributes(TypedDict, total=False):
    """The attributes of a `Reply` by name that few replies have."""

    intended_ns: int
    paced_ns: int
    responses_ns: Sequence[int]
    sequence_id: int | str
    replica: int
    is_own_limit: bool
    may_leave: bool


class Reply:
    """The outcome of a request and its times. `started_ns` is when its bytes were passed to a ready connection.

    `payload` is the answer in the engine's own form, for `Transport.answer`; `error` is the message of a failure; `status` is that
    of a rejection, such as 503 or RESOURCE_EXHAUSTED. The loops set `variant`, the request's index among the prepared
    ones, those of sequences `sequence_id`, and an open loop also `intended_ns`, the scheduled start, and `paced_ns`, when
    it was due in the loop. The reply to a streamed request is finished with its last response, and `responses_ns` has the
    instants of all of them.
    """

    # stored in every reply; the attributes below are stored in a dict, only where they differ from the values of the class
    __slots__ = ("__dict__", "finished_ns", "outcome", "payload", "started_ns", "variant")

    error: str = ""
    status: str | int = ""
    intended_ns: int = 0
    paced_ns: int = 0
    responses_ns: Sequence[int] = ()
    sequence_id: int | str = 0
    """The ID of the sequence whose step this request was; 0 for a request of no sequence."""
    replica: int = 0
    """The position of the address in `ConnectionCounts.by_address`; only where that is not empty."""
    is_own_limit: bool = False
    """Whether the request failed only because perfkit refuses an answer of this size."""
    tokens: "TokenCounts | None" = None
    """What the server reports of the answer, set by the recorder; None if it reports nothing."""
    may_leave: bool = False
    """Whether the client would have given this request up if it had not ended before."""

    def __init__(
        self,
        outcome: Outcome,
        started_ns: int,
        finished_ns: int,
        payload: Any = None,
        error: str = "",
        status: str | int = "",
        *,
        variant: int = 0,
        **rare: Unpack[RareAttributes],
    ) -> None:
        self.outcome, self.started_ns, self.finished_ns, self.payload, self.variant = outcome, started_ns, finished_ns, payload, variant
        if error:
            self.error = error
        if status:
            self.status = status
        if rare:
            self.__dict__.update(rare)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.outcome}, {self.started_ns}, {self.finished_ns}, {self.payload!r}, variant={self.variant}, {vars(self)})"


class OkReply(Reply):
    """The reply to a request that was answered OK. It is made without arguments, and whoever makes it sets all five slots of `Reply`.

    A call with arguments would take more instructions than all else that a small answer needs to become a reply. At most three are set in one
    statement: for more, Python makes a tuple.
    """

    __slots__ = ()
    __init__ = object.__init__  # that of `Reply` is in Python


class Attempt(NamedTuple):
    """One sending of a request that the client may send again."""

    outcome: Outcome
    status: str | int
    started_ns: int
    finished_ns: int

    @property
    def cause(self) -> str:
        """How `load.retry.on` names the failure: a status, or `timeout`, `connect` or `broken`; empty for what is never sent again."""
        return str(self.status) if self.outcome is Outcome.REJECTED else _CAUSES.get(self.outcome, "")


_CAUSES = {Outcome.TIMED_OUT: "timeout", Outcome.CONNECT_FAILED: "connect", Outcome.BROKEN: "broken"}


class RetriedReply(Reply):
    """The reply to a request that was sent again, or would have been: that of its last attempt, from the start of the first."""

    __slots__ = ()

    attempts: Sequence[Attempt] = ()
    """All attempts in turn. The last one has the outcome of the reply, unless the load ended before the next."""
    is_over_budget: bool = False
    """Whether the budget did not permit another attempt."""

    @classmethod
    def of(cls, last: Reply, attempts: Sequence[Attempt], *, is_over_budget: bool) -> "RetriedReply":
        """The reply to a request with these attempts, the last of which had the reply `last`."""
        reply = cls(last.outcome, attempts[0].started_ns, last.finished_ns, last.payload, variant=last.variant)
        reply.__dict__.update(vars(last))
        reply.attempts, reply.is_over_budget = attempts, is_over_budget
        return reply


class ConnectTimes:
    """The times from the first attempt to the ready connection, in bounded memory: resolution of the name, TCP, TLS, and HTTP/2's settings."""

    def __init__(self, counted: "Sequence[BucketCounts]" = ()) -> None:
        self._listed_ns: list[int] = []
        self._counted = counted

    def add(self, time_ns: int) -> None:
        """Adds one connection."""
        self._listed_ns.append(time_ns)
        if len(self._listed_ns) >= _MAX_LISTED_TIMES:
            self._counted = [self.counts()]
            self._listed_ns = []

    def counts(self) -> "BucketCounts":
        """All of them, as an HDR histogram's counts."""
        from perfkit.stats.buckets import BucketCounts  # imports NumPy, which commands that connect once do without

        return BucketCounts.merged((*self._counted, BucketCounts.of(self._listed_ns)))

    @classmethod
    def merged(cls, parts: "Iterable[ConnectTimes]") -> "ConnectTimes":
        """The connect times of several transports together."""
        return cls([counts for part in parts if (counts := part.counts()).count])


@dataclasses.dataclass(slots=True)
class ConnectionCounts:
    """Connections opened so far, those among them that replaced a lost one, and requests that were sent again.

    A request is sent again only if a reused HTTP/1.1 connection was closed before the first byte of the answer, or if a
    gRPC server declares that it did not process the request.
    """

    opened: int = 0
    reconnects: int = 0
    retried: int = 0
    failed_by_file_limit: int = 0
    """Attempts to open a connection that failed because this process may open no more files."""
    rotated: int = 0
    """Connections that took their last request, or grew too old, by `Rotation`."""
    connect_times: ConnectTimes = dataclasses.field(default_factory=ConnectTimes)
    by_address: dict[str, int] = dataclasses.field(default_factory=dict)
    """The connections opened to each address; empty if there is only one."""

    @classmethod
    def added(cls, parts: "Sequence[ConnectionCounts]") -> "ConnectionCounts":
        """The counts of several transports together, none of which changes later."""
        by_address = collections.Counter[str]()
        for part in parts:
            by_address.update(part.by_address)
        return cls(
            **{name: sum(getattr(part, name) for part in parts) for name in _COUNTS},
            connect_times=ConnectTimes.merged(part.connect_times for part in parts),
            by_address=dict(by_address),
        )


_COUNTS = ("opened", "reconnects", "retried", "failed_by_file_limit", "rotated")


class ReplyReceiver(Protocol):
    """What gets the reply to one request: a future, or something that acts on it at once."""

    def done(self) -> bool:
        """Whether the reply is no longer wanted."""

    def set_result(self, result: Reply, /) -> None:
        """Takes the reply; called once, and never while the request is being sent, unless it fails."""

    def set_exception(self, error: BaseException, /) -> None:
        """Takes an error of perfkit's own in place of the reply."""


def hand_over(receiver: ReplyReceiver, done: "asyncio.Future[Reply]") -> None:
    """Passes on what a future has come to, unless it was cancelled or is no longer wanted."""
    if receiver.done() or done.cancelled():
        return
    if error := done.exception():
        receiver.set_exception(error)
    else:
        receiver.set_result(done.result())


class DirectSender(abc.ABC):
    """A sender that hands over a reply as soon as the answer is read: a future passes it on only in the event loop's next turn."""

    @abc.abstractmethod
    def submit(self, prepared: Prepared, reply: ReplyReceiver) -> None:
        """Like `Sender.send`, with a receiver for the reply; an OK reply never comes before this returns."""

    def submitter(self) -> Callable[[Prepared, ReplyReceiver], None]:
        """The function that `submit` ends in; it stays valid for the transport's life."""
        return self.submit


class Sender(Protocol):
    """What a loop sends requests with. Only `send` is timed."""

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        """Sends a request; the time-out starts with this call. Failures of the target are outcomes, never exceptions."""

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        """The same request with this `traceparent` header (W3C Trace Context), by which a server reports its spans of the request."""

    def abandon(self) -> None:
        """Ends all requests in flight as unfinished; nothing is sent from then on."""


class CancellableSender(Sender, Protocol):
    """A sender of requests that a client may give up before the answer is complete."""

    def send_leaving(self, prepared: Prepared, after_responses: int) -> "asyncio.Future[Reply]":
        """Like `send`; a streamed request is given up with that many responses, and with 0 not before `give_up`. One given up is UNFINISHED."""

    def give_up(self, reply: "asyncio.Future[Reply]") -> None:
        """Ends a request of `send_leaving` as real clients do: over HTTP its connection is closed, over gRPC its stream is reset."""


_T = TypeVar("_T")


class Transport(CancellableSender, Protocol):
    """Connections to a target. It takes calls and hands over answers in the form of its protocol, whatever API they are part of."""

    @property
    def counts(self) -> ConnectionCounts:
        """Counts of connections and resent requests."""

    @property
    def queued(self) -> int:
        """The requests that wait for a connection, as far as the engine knows."""

    async def open(self, connections: int) -> None:
        """Opens that many connections ahead of time; raises TargetError if the target cannot be reached."""

    def prepare(self, call: Any) -> Prepared:
        """The bytes of a call; does no I/O."""

    def answer(self, reply: Reply) -> Any:
        """The answer that a reply carries, of a stream the first; raises ProtocolError if there is none or it is malformed."""

    def raw_failure(self, reply: Reply) -> Hashable:
        """A key of a failed reply that is cheap to make; equal keys have equal messages."""

    def retry_after_ns(self, reply: Reply) -> int | None:
        """How long the server asks the client of a failed reply to wait before it sends the request again; -1 to send it no more.

        None if the server says neither.
        """

    def received(self, reply: Reply) -> bytes:
        """The beginning of an OK answer that has a payload, as it was received, with its head or without; of a stream its first response.

        From `SEEN_BYTES` on it may end anywhere.
        """

    def renew(self, address: "Address") -> None:
        """Prepares calls from now on with the headers of this address, which is otherwise the same."""

    async def ask(self, question: Callable[[Any], Awaitable[_T]]) -> _T:
        """What `question` returns for the transport to one address; if it raises TargetError there, the next address is asked."""

    async def ask_all(self, question: Callable[[Any], Awaitable[_T]]) -> Mapping[str, _T]:
        """What `question` returns for each address that can be reached, at least one."""

    async def aclose(self) -> None:
        """Closes all connections."""


class OneAddress:
    """The part of a `Transport` to one address that answers for its only address."""

    address: "Address"

    def renew(self, address: "Address") -> None:
        """See `Transport`."""
        self.address = address

    @property
    def queued(self) -> int:
        """0: the engine does not tell."""
        return 0

    async def ask(self, question: Callable[[Any], Awaitable[_T]]) -> _T:
        """What `question` returns for this transport."""
        return await question(self)

    async def ask_all(self, question: Callable[[Any], Awaitable[_T]]) -> Mapping[str, _T]:
        """What `question` returns for this transport, by an empty name."""
        return {"": await question(self)}


SEEN_BYTES = 2048
"""So many bytes of every answer are looked at; the others only of those that are checked as a sample."""


class AnswerSigns(NamedTuple):
    """By what a sound answer is known without decoding it."""

    present: bytes
    """In the first `SEEN_BYTES` of each sound answer; empty if there is no such sign."""
    absent: bytes | None
    """What makes an answer suspect there; None if nothing does."""
    latest: int = SEEN_BYTES
    """The last place at which `present` may begin: the same bytes behind it are something else."""
