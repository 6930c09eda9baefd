"""The load points of a scenario: what each of them is, what is ordered for it, and how many workers carry that out."""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import AsyncIterator

from perfkit.calibration.model import Calibration
from perfkit.calibration.workers import highest_rate_per_s, spin_ns_per_request, workers_needed
from perfkit.clock import Clock
from perfkit.load.load_plan import ClosedPlan, LoadPlan, plan_loads
from perfkit.machine.host import open_file_limit
from perfkit.result.model import ClosedLoad, Load, OpenLoad
from perfkit.run.target import Probed
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address, Protocol
from perfkit.transport.base import Transport
from perfkit.transport.factory import make_transport
from perfkit.units import NS_PER_S
from perfkit.workers.point import PointSpec
from perfkit.workers.worker_spec import WorkerSpec


@dataclasses.dataclass(frozen=True)
class LoadPoint:
    """One load over one protocol, in one repetition; `index` counts those of a repetition, `number` all of a run."""

    index: int
    protocol: Protocol
    load: LoadPlan
    repetition: int
    number: int
    window_ns: int | None = None
    """Where it is not the scenario's."""
    hopeless_after_ns: int | None = None
    """See `PointSpec`."""

    @property
    def described(self) -> Load:
        """The load as a result names it."""
        if isinstance(self.load, ClosedPlan):
            return ClosedLoad(concurrency=self.load.concurrency)
        load = self.load
        return OpenLoad(rate_per_s=load.rate_per_s, arrivals=load.law, burstiness=load.burstiness, max_in_flight=load.max_in_flight)

    @property
    def tag(self) -> str:
        """What its intervals stand under in the log."""
        return f"p{self.index}.r{self.repetition}"


def load_points(loaded: LoadedScenario) -> list[LoadPoint]:
    """All of a run, one repetition behind the other; raises ScenarioError where a trace cannot be used."""
    scenario, points = loaded.scenario, list[LoadPoint]()
    for repetition in range(scenario.measure.repetitions):
        loads = plan_loads(
            scenario.load,
            seed=scenario.workload.seed,
            repetition=repetition,
            warmup_ns=scenario.warmup_ns,
            window_ns=scenario.window_ns,
            requests=scenario.measure.requests,
            folder=loaded.folder,
        )
        pairs = itertools.product(scenario.target.load_protocols, loads)
        points += [LoadPoint(index, protocol, load, repetition, len(points) + index) for index, (protocol, load) in enumerate(pairs)]
    return points


def max_connections(scenario: Scenario) -> int:
    """What the scenario allows, or the file limit."""
    return scenario.target.max_connections or min(1024, open_file_limit() * 4 // 5)


@contextlib.asynccontextmanager
async def connected(scenario: Scenario, address: Address, clock: Clock) -> AsyncIterator[Transport]:
    """A transport of the scenario's kind to an address of its target, for the length of a block."""
    target = scenario.target
    transport = make_transport(
        address,
        target.engine,
        max_connections=max_connections(scenario),
        timeout_ns=target.timeout_ns,
        clock=clock,
        compression=target.compression,
        streams_per_connection=target.streams_per_connection or 1,
    )
    try:
        yield transport
    finally:
        await transport.aclose()


def streams_per_connection(scenario: Scenario, protocol: Protocol) -> int:
    """How many requests a connection takes at a time."""
    return (scenario.target.streams_per_connection or 1) if protocol == "grpc" else 1


def make_worker_spec(scenario: Scenario, point: LoadPoint, address: Address, probed: Probed) -> WorkerSpec:
    """What one worker would have to do; several share it."""
    measure, slo, target, check = scenario.measure, scenario.objective, scenario.target, scenario.check
    most = max_connections(scenario)
    spec = PointSpec(
        load=point.load,
        warmup_ns=scenario.warmup_ns,
        window_ns=point.window_ns or scenario.window_ns,
        requests=measure.requests,
        drain_ns=scenario.drain_ns,
        connections=min(_connections(scenario, point, probed), most),
        finds_warm_up=scenario.finds_warm_up,
        good_within_ns=slo.good_within_ns if slo else None,
        abort_error_rate=measure.abort_error_rate,
        hopeless_after_ns=point.hopeless_after_ns,
    )
    return WorkerSpec(
        spec=spec,
        address=address,
        engine=target.engine,
        compression=target.compression,
        max_connections=most,
        streams_per_connection=target.streams_per_connection or 1,
        timeout_ns=target.timeout_ns,
        requests=probed.requests,
        expectation=probed.expectation,
        check_share=check.share,
        check_at_most_per_s=check.at_most_per_s,
        seed=point.number,
    )


def count_workers(
    scenario: Scenario, point: LoadPoint, probed: Probed, order: WorkerSpec, calibration: Calibration | None, cpus: int
) -> int:
    """As many as the scenario says, and have something to do; for `auto` what the calibration says is needed, up to `cpus`."""
    asked, most = scenario.measure.workers, min(order.spec.most_workers or order.max_connections, order.max_connections)
    if asked != "auto":
        return min(asked, most)
    if calibration is None or scenario.target.engine != "wire":  # no other engine was calibrated
        return 1
    needed = workers_needed(
        calibration.costs,
        protocol=point.protocol,
        tensor_bytes=max(sum(len(tensor.raw) for tensor in request.inputs) for request in probed.requests),
        rate_per_s=highest_rate_per_s(point.load, probed.try_ns),
        most=cpus,
        spin_ns=spin_ns_per_request(point.load),
    )
    return min(needed, most)


def _connections(scenario: Scenario, point: LoadPoint, probed: Probed) -> int:
    """Opened ahead: what a closed loop needs, and in an open one twice what Little's law expects of the first answer's time."""
    if isinstance(point.load, ClosedPlan):
        in_flight = point.load.concurrency
    else:
        in_flight = max(4, math.ceil(2 * point.load.rate_per_s * probed.try_ns / NS_PER_S))
    return math.ceil(in_flight / streams_per_connection(scenario, point.protocol))
