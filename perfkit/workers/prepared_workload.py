"""One workload of a load point, prepared to be sent by a worker: its connections, its requests, and what its answers are read with."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence

from perfkit.clock import Clock
from perfkit.errors import ProtocolError
from perfkit.load.abandonment import AbandoningSender
from perfkit.load.listed_requests import ListedRequests
from perfkit.load.retries import RetryingSender
from perfkit.load.sequence_requests import SequenceRequests
from perfkit.protocol.message import InferRequest, TokenCounts
from perfkit.spans.span import SampledRequest
from perfkit.target.address import Address
from perfkit.target_client import make_client
from perfkit.transport.base import Prepared, Reply, Sender, Transport
from perfkit.transport.resolution import with_peers
from perfkit.workers.answer_check import AnswerCheck
from perfkit.workers.loops import ReplayedRequests, prepare_requests
from perfkit.workers.messages import WorkerSpec, WorkloadSpec
from perfkit.workers.request_sampler import RequestSampler


class RenewedHeaders:
    """The newest addresses of the workloads, whose headers replace those of the prepared requests."""

    def __init__(self) -> None:
        self._addresses: tuple[Address, ...] = ()
        self._has_come = asyncio.Event()

    def come(self, addresses: tuple[Address, ...]) -> None:
        """Takes the addresses of all workloads, in their order."""
        self._addresses = addresses
        self._has_come.set()

    async def follow(self, workloads: "Sequence[PreparedWorkload]") -> None:
        """Prepares the requests again after each change, one by one, so that requests that are due are not delayed; never ends."""
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            for workload, address in zip(workloads, self._addresses, strict=True):
                await workload.renew(address)


@dataclasses.dataclass
class PreparedWorkload:
    """One workload of a load point as a worker sends it: its connections and prepared requests; `check` is that of `Recorder`."""

    spec: WorkloadSpec
    transport: Transport
    requests: Sequence[Prepared] | SequenceRequests
    address: Address
    check: Callable[[Reply], bool] | None = None
    decode: Callable[[Reply], object] | None = None
    """What reads an answer, and raises ProtocolError with the message of a rejection; None where answers have no contents."""
    sampler: RequestSampler | None = None
    """What the requests are sent through if some of them are traced."""
    count_tokens: Callable[[Reply], TokenCounts | None] | None = None
    """The function that reads the numbers of tokens that an answer reports; None for an API without tokens."""
    prepare: Callable[[InferRequest], Prepared] | None = None
    """The function that prepares requests, also again with renewed headers; None where headers never change."""
    abandoning: AbandoningSender | None = None
    """What the requests are sent through if some of them are given up."""
    retrying: RetryingSender | None = None
    """What they are sent through if failed ones are sent again."""

    @property
    def sender(self) -> Sender:
        """What the loop sends the requests with."""
        return self.sampler or self.abandoning or self.retrying or self.transport

    @property
    def sampled(self) -> tuple[SampledRequest, ...]:
        """The traced requests that were answered."""
        return self.sampler.finish() if self.sampler else ()

    @property
    def prepared(self) -> Sequence[Prepared]:
        """The requests of a workload without sequences."""
        assert not isinstance(self.requests, SequenceRequests)
        return self.requests

    async def renew(self, address: Address) -> None:
        """Prepares all requests again with the headers of the address; requests that fall due meanwhile are sent."""
        self.address = dataclasses.replace(address, secrets=self.address.secrets | address.secrets)
        self.transport.renew(self.address)
        if isinstance(self.requests, SequenceRequests):
            self.requests.forget()
            return
        assert self.prepare is not None
        distinct = self.requests.items if isinstance(self.requests, ReplayedRequests | ListedRequests) else self.requests
        for request, prepared in zip(self.spec.requests, distinct, strict=True):
            prepared.become(self.prepare(request))
            await asyncio.sleep(0)

    def failure(self, reply: Reply) -> str:
        """The message of a failed reply, without secrets of the target."""
        return self.address.sanitize(_failure(self.decode, reply))


async def prepare_workload(spec: WorkloadSpec, point: WorkerSpec, clock: Clock) -> PreparedWorkload:
    """Connects to a workload's target and prepares its requests."""
    client = make_client(spec.address, await with_peers(spec.address, spec.transport), clock)
    check = AnswerCheck(
        client,
        spec.expectation,
        share=spec.check_share,
        at_most_per_s=spec.check_at_most_per_s,
        seed=spec.seed,
        request_indices=spec.request_indices,
    )
    requests = prepare_requests(spec, client, point.worker, point.workers)
    sampler = RequestSampler(client.transport, spec.sampling) if spec.sampling else None
    return PreparedWorkload(
        spec,
        client.transport,
        requests,
        spec.address,
        check.__call__,  # a bound method is called with half the instructions
        client.decode,
        sampler,
        client.count_tokens,
        client.prepare,
        AbandoningSender.of(client.transport, clock) if spec.abandon else None,
        RetryingSender(client.transport, spec.retry, clock, point.workers) if spec.retry else None,
    )


def _failure(decode: Callable[[Reply], object] | None, reply: Reply) -> str:
    """The message of a failed reply, without its status."""
    message = reply.error
    if not message and decode is not None:
        try:
            decode(reply)
        except ProtocolError as error:
            message = str(error)
    return message.removeprefix(f"HTTP {reply.status}: ").removeprefix(f"{reply.status}: ")
