"""All that a worker needs to know to carry out a load point, wherever it runs."""

import dataclasses
from collections.abc import Awaitable, Callable, Sequence

from perfkit.clock import Clock
from perfkit.load.loop import Loop
from perfkit.protocol.message import InferRequest
from perfkit.recorder.recording import Interval
from perfkit.target.address import Address
from perfkit.transport.factory import make_transport
from perfkit.transport.options import TransportOptions
from perfkit.workers.answer_check import AnswerCheck
from perfkit.workers.point import PointRecording, PointSpec, part
from perfkit.workers.worker import run_point
from perfkit.workload.expectation import Expectation


@dataclasses.dataclass(frozen=True)
class WorkerSpec:
    """A load point, its target, and the requests to send there: plain data, which crosses to other processes."""

    spec: PointSpec
    address: Address
    transport: TransportOptions
    requests: tuple[InferRequest, ...]
    expectation: Expectation
    check_share: float
    check_at_most_per_s: float
    seed: int
    cpus: tuple[int, ...] = ()
    """To be pinned to, where the worker is a process of its own."""

    def shared(self, workers: int, cpus: Sequence[int]) -> "list[WorkerSpec]":
        """The orders of so many workers, who together do what one would, on a CPU each as long as there are enough."""
        return [
            dataclasses.replace(
                self,
                spec=spec,
                transport=dataclasses.replace(self.transport, max_connections=part(self.transport.max_connections, worker, workers)),
                check_at_most_per_s=self.check_at_most_per_s / workers,
                seed=self.seed * workers + worker,
                cpus=(cpus[worker % len(cpus)],) if cpus else (),
            )
            for worker, spec in enumerate(self.spec.shared(workers))
        ]


async def execute(
    order: WorkerSpec,
    clock: Clock,
    *,
    on_loop: Callable[[Loop], None],
    on_interval: Callable[[int, Interval], None],
    begin_at: Callable[[], Awaitable[int]] | None = None,
) -> PointRecording:
    """Connects, sends the load, and gives back what was recorded; see `run_point`."""
    transport = make_transport(order.address, order.transport, clock)
    check = AnswerCheck(transport, order.expectation, share=order.check_share, at_most_per_s=order.check_at_most_per_s, seed=order.seed)
    try:
        return await run_point(
            order.spec,
            transport,
            [transport.prepare(request) for request in order.requests],
            clock=clock,
            address=order.address,
            on_loop=on_loop,
            on_interval=on_interval,
            check=check,
            begin_at=begin_at,
        )
    finally:
        await transport.aclose()
