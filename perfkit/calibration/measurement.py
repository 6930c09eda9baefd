"""Calibrates this machine: medians of a few short, interleaved rounds against a server with canned responses."""

import contextlib
import dataclasses
import json
import pathlib
import random
import statistics
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from perfkit.calibration.bare_client import BareGrpc, BareHttp
from perfkit.calibration.canned_server import INPUT, METADATA, MODEL
from perfkit.calibration.model import Calibration, Cost, identity
from perfkit.clock import Clock, resolution_ns, utc_now
from perfkit.errors import MeasurementError
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.load.open_loop import make_pacer
from perfkit.machine.cpus import pinned, usable_cpus
from perfkit.machine.description import describe_host
from perfkit.process.child import NotReadyError
from perfkit.process.start_module import start_module
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.recorder.window import Window, cut
from perfkit.result.distribution import Distribution, distribution
from perfkit.scenario.model import Scenario
from perfkit.scenario.workload import Check
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.validity import BUSY_CORE_SHARE
from perfkit.target.address import Address, WireProtocol
from perfkit.target_client import make_client
from perfkit.transport.base import Outcome
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S
from perfkit.workers.local import Placement, place
from perfkit.workers.messages import WorkerSpec, WorkloadSpec
from perfkit.workers.worker import execute
from perfkit.workload.expectation import Expectation

TENSOR_BYTES = (128, 602_112)
"""A small tensor, whose size costs nothing, and the input of DenseNet-121."""
PROTOCOLS: tuple[WireProtocol, ...] = ("http", "grpc")
_CONCURRENCY = 16
_RATE_PER_S = 1000.0
_TIMEOUT_NS = 10 * NS_PER_S
_TIMER_WAITS_NS = (500_000, 3_000_000)
_STARTS_WITHIN_S = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Lengths:
    """How long, and how often, each part of the calibration is measured."""

    rounds: int = 3
    warmup_ns: int = NS_PER_S // 5
    window_ns: int = 7 * NS_PER_S // 10
    open_ns: int = 3 * NS_PER_S
    timer_waits: int = 500
    requests: int | None = None
    """The number of requests that ends each window, instead of its length."""


Round: TypeAlias = tuple[float, int, float]
"""CPU nanoseconds per request, the p50 of service times, and that of the bare client."""


async def calibrate(lengths: Lengths, clock: Clock, on_progress: Callable[[str], None]) -> Calibration:
    """Starts the server and measures; `on_progress` gets a line per step. Raises MeasurementError if requests fail."""
    host, placement = describe_host(), _place()
    async with _canned_server(placement.server) as addresses:
        with pinned(placement.driver):
            costs = await _costs(addresses, lengths, clock, on_progress)
            on_progress(f"start delays at {_RATE_PER_S:,.0f}/s")
            plan = OpenPlan(_RATE_PER_S, "constant", Schedule("constant", constant_rate(_RATE_PER_S)), None, None)
            window, _ = await _load(addresses["http"], _request(TENSOR_BYTES[0]), plan, lengths.open_ns, lengths, clock)
            on_progress("the timer alone")
            late = await _timer_lateness(lengths.timer_waits, clock)
    return Calibration(
        measured_at=utc_now().isoformat(timespec="seconds"),
        host=identity(host),
        server_cpus=placement.server,
        driver_cpus=placement.driver,
        warnings=(placement.conflict,) if placement.conflict else (),
        rounds=lengths.rounds,
        costs=costs,
        start_delay_rate_per_s=_RATE_PER_S,
        start_delay_ns=distribution(window.times["start_delay"]),
        timer_late_ns=late,
        clock_resolution_ns=resolution_ns(),
    )


async def _costs(
    addresses: Mapping[WireProtocol, Address], lengths: Lengths, clock: Clock, on_progress: Callable[[str], None]
) -> tuple[Cost, ...]:
    kinds = [(protocol, size) for protocol in PROTOCOLS for size in TENSOR_BYTES]
    rounds: dict[tuple[WireProtocol, int], list[Round]] = {kind: [] for kind in kinds}
    for number in range(lengths.rounds):  # interleaved, so that a temporary slowdown affects all kinds alike
        for protocol, size in kinds:
            on_progress(f"round {number + 1} of {lengths.rounds}: {protocol}, tensors of {size:,} bytes")
            rounds[protocol, size].append(await _round(addresses[protocol], _request(size), lengths, clock))
    return tuple(cost(protocol, size, rounds[protocol, size]) for protocol, size in kinds)


def cost(protocol: WireProtocol, tensor_bytes: int, rounds: Sequence[Round]) -> Cost:
    """The medians of rounds."""
    cpu_ns = statistics.median(cpu for cpu, _, _ in rounds)
    return Cost(
        protocol=protocol,
        tensor_bytes=tensor_bytes,
        cpu_ns_per_request=cpu_ns,
        ceiling_per_s=BUSY_CORE_SHARE * NS_PER_S / cpu_ns,
        service_time_p50_ns=round(statistics.median(service for _, service, _ in rounds)),
        bare_p50_ns=round(statistics.median(bare for _, _, bare in rounds)),
        overhead_p50_ns=round(statistics.median(service - bare for _, service, bare in rounds)),
    )


async def _round(address: Address, request: InferRequest, lengths: Lengths, clock: Clock) -> Round:
    busy, cpu_ns = await _load(address, request, ClosedPlan(_CONCURRENCY, 0), lengths.window_ns, lengths, clock)
    buffers = make_client(address, TransportOptions(timeout_ns=_TIMEOUT_NS), clock).prepare(request).buffers  # never opened
    # half of the bare client before and half after, so that a temporary slowdown affects both alike
    with contextlib.closing((BareHttp if address.protocol == "http" else BareGrpc)(address, buffers)) as bare:
        bare.times_ns(clock.now_ns, lengths.warmup_ns)
        bare_ns = bare.times_ns(clock.now_ns, lengths.window_ns // 2)
        alone, _ = await _load(address, request, ClosedPlan(1, 0), lengths.window_ns, lengths, clock)
        bare_ns += bare.times_ns(clock.now_ns, lengths.window_ns // 2)
    (service_p50_ns,) = alone.times["service_time"].values_at([0.5])
    return cpu_ns / busy.count("finished"), service_p50_ns, round(statistics.median(bare_ns))


async def _load(
    address: Address, request: InferRequest, plan: LoadPlan, window_ns: int, lengths: Lengths, clock: Clock
) -> tuple[Window, float]:
    """The window of a load, and the CPU nanoseconds of this process in it."""
    connections = plan.concurrency if isinstance(plan, ClosedPlan) else _CONCURRENCY
    length_ns = window_ns if lengths.requests is None else None
    workload = WorkloadSpec(
        load=plan,
        connections=connections,
        address=address,
        transport=TransportOptions(max_connections=64, timeout_ns=_TIMEOUT_NS),
        requests=(request,),
        expectation=Expectation.of((request,), METADATA, Check(), None, pathlib.Path()),
        check_share=0.0,
        check_at_most_per_s=1.0,
        seed=0,
    )
    spec = WorkerSpec((workload,), lengths.warmup_ns, length_ns, lengths.requests, _TIMEOUT_NS)
    recorded = await execute(spec, clock, on_loop=lambda _: None)
    window = cut(recorded.recording, recorded.recording.origin_ns, is_open=isinstance(plan, OpenPlan))
    failed = sum(count for outcome, count in window.outcomes.items() if outcome is not Outcome.OK)
    if failed or not window.count("finished"):
        sentences = "; ".join(kind.message for kind in window.failures if kind.message)
        raise MeasurementError(
            f"{failed} of the requests to perfkit's own server failed and {window.count('finished')} succeeded: {sentences}"
        )
    return window, recorded.shares.cpu * window.length_ns


async def _timer_lateness(waits: int, clock: Clock) -> Distribution:
    """How late the pacer returns from waits of random length."""
    gaps, late_ns = random.Random(0), []
    with contextlib.closing(make_pacer(clock)) as pacer:
        for _ in range(waits):
            instant_ns = clock.now_ns() + gaps.randint(*_TIMER_WAITS_NS)
            await pacer.wait_until_ns(instant_ns)
            late_ns.append(clock.now_ns() - instant_ns)
    return distribution(BucketCounts.of(late_ns))


def _request(tensor_bytes: int) -> InferRequest:
    values = np.random.default_rng(0).random(tensor_bytes // 4, np.float32)
    return InferRequest(MODEL, (tensor_from_array(INPUT, Datatype.FP32, values),))


def _place() -> Placement:
    """The CPUs that a run against the bundled server gets."""
    scenario = Scenario.model_validate({"name": "calibrate", "target": {"model": MODEL}, "load": {"closed": {"concurrency": 1}}})
    return place(scenario, usable_cpus())


@contextlib.asynccontextmanager
async def _canned_server(cpus: Sequence[int]) -> AsyncIterator[Mapping[WireProtocol, Address]]:
    """Starts the server on those CPUs, or any; gives its addresses."""
    async with start_module("perfkit.calibration.canned_server", "--cpus", ",".join(map(str, cpus))) as server:
        try:
            ports = json.loads(await server.read_line(_STARTS_WITHIN_S))
        except NotReadyError as error:
            raise MeasurementError(f"perfkit's own server did not start: it {error}; its output says why") from None
        yield {"http": Address("http", "127.0.0.1", ports["http_port"]), "grpc": Address("grpc", "127.0.0.1", ports["grpc_port"])}
