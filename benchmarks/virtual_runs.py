"""Results of simulated servers in virtual time, by perfkit's own loops and recorders: the same figures on every machine."""

import heapq
import math
import pathlib
import random
from collections.abc import Callable, Sequence

from perfkit.clock import Clock, ManualClock
from perfkit.load.load_plan import ClosedPlan
from perfkit.points.measured import PointMeasurement
from perfkit.recorder.window import cut
from perfkit.result.counts import Connections
from perfkit.result.file import ResultWriter
from perfkit.result.generator import Generator
from perfkit.result.load import ClosedLoad
from perfkit.result.model import Result
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from perfkit.units import NS_PER_MS, NS_PER_S
from tests.measured_points import point_spec, run_point
from tests.queue_results import write_result

MakeServer = Callable[[Clock], Callable[[int], tuple[int, Outcome]]]
ENVIRONMENT = {"generator": {"perfkit": "0.1.0", "cpu_model": "a simulated machine"}, "target": {"name": "simulated"}}
_WARM_UP_NS = NS_PER_S


def workers(number: int, service_ms: float, variation: float = 0.3, seed: int = 1) -> MakeServer:
    """A queue in front of some workers with lognormal service times of that mean."""
    deviation = math.sqrt(math.log(1 + variation**2))

    def make(clock: Clock) -> Callable[[int], tuple[int, Outcome]]:
        draws, free_ns = random.Random(seed), [0] * number

        def answer(_: int) -> tuple[int, Outcome]:
            now_ns = clock.now_ns()
            service_ns = round(NS_PER_MS * service_ms * draws.lognormvariate(-(deviation**2) / 2, deviation))
            end_ns = max(heapq.heappop(free_ns), now_ns) + service_ns
            heapq.heappush(free_ns, end_ns)
            return end_ns - now_ns, Outcome.OK

        return answer

    return make


def measure(folder: pathlib.Path, name: str, make_server: Sequence[MakeServer], concurrencies: Sequence[int], *, seconds: int) -> Result:
    """A result of closed loops, with a repetition for each server."""
    measured = [
        _measured(make, concurrency, repetition, seconds) for repetition, make in enumerate(make_server) for concurrency in concurrencies
    ]
    scenario = {"name": name, "target": {"model": "m"}, "load": {"closed": {"concurrency": list(concurrencies)}}}
    return write_result(ResultWriter(folder, 1_700_000_000.0), measured, status="complete", status_reason="", overrides=(), scenario=scenario, environment=ENVIRONMENT)  # fmt: skip


def _measured(make_server: MakeServer, concurrency: int, repetition: int, seconds: int) -> PointMeasurement:
    clock = ManualClock(5 * NS_PER_S)
    spec = point_spec(
        load=ClosedPlan(concurrency=concurrency, think_time_ns=0), warmup_ns=_WARM_UP_NS, window_ns=seconds * NS_PER_S, requests=None, drain_ns=NS_PER_S,
        connections=concurrency,
    )  # fmt: skip
    recorded = clock.run(run_point(spec, ScriptedTransport(clock, make_server(clock)), [Prepared(())], clock=clock, on_loop=lambda _: None))
    recording = recorded.recording
    return PointMeasurement(
        protocol="http", load=ClosedLoad(concurrency=concurrency), batch_size=1, repetition=repetition,
        window=cut(recording, 0, is_open=False), warmup_ns=_WARM_UP_NS, warnings=(),
        connections=Connections(opened=concurrency, reconnects=0), generator=Generator(cpu_share=0.1, steal_share=0.0),
    )  # fmt: skip
