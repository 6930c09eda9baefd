"""Load points of one workload, as tests and benchmarks send them over a transport of their own."""

from collections.abc import Callable, Sequence
from typing import Any

from perfkit.load.load_plan import LoadPlan
from perfkit.load.sequence_requests import SequenceRequests
from perfkit.target.address import Address
from perfkit.transport.base import Prepared, Reply, Transport
from perfkit.transport.options import TransportOptions
from perfkit.workers.messages import WorkerSpec, WorkloadSpec
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.prepared_workload import PreparedWorkload
from perfkit.workers.worker import run_workloads
from perfkit.workload.expectation import Expectation

ADDRESS = Address("http", "h", 1)
_OF_WORKLOAD = ("good_within_ns", "is_streamed")


def workload_spec(load: LoadPlan, connections: int = 2, **changes: Any) -> WorkloadSpec:
    """A workload whose answers are not checked."""
    return WorkloadSpec(
        load, connections, ADDRESS, TransportOptions(max_connections=1024, timeout_ns=10**9), requests=(),
        expectation=Expectation((), (), frozenset(), {}, (), {}), check_share=0.0, check_at_most_per_s=1.0, seed=0, **changes,
    )  # fmt: skip


def point_spec(
    load: LoadPlan, warmup_ns: int, window_ns: int | None, requests: int | None, drain_ns: int, connections: int, **changes: Any
) -> WorkerSpec:
    """What a single worker does for one workload."""
    own = {name: changes.pop(name) for name in _OF_WORKLOAD if name in changes}
    return WorkerSpec((workload_spec(load, connections, **own),), warmup_ns, window_ns, requests, drain_ns, **changes)


async def run_point(
    spec: WorkerSpec,
    transport: Transport,
    requests: Sequence[Prepared] | SequenceRequests,
    *,
    address: Address = ADDRESS,
    check: Callable[[Reply], bool] | None = None,
    decode: Callable[[Reply], object] | None = None,
    **options: Any,
) -> PointRecording:
    """Sends the one workload of a load point over a transport; see `run_workloads`."""
    return await run_workloads(spec, [PreparedWorkload(spec.workloads[0], transport, requests, address, check, decode)], **options)
