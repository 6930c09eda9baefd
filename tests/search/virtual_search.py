"""A whole search in virtual time: real loops and recordings of a declared queue, put together as a run does."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import yaml

from perfkit.clock import ManualClock
from perfkit.errors import MeasurementWarning
from perfkit.load.loop import StopCause
from perfkit.measurement.load_points import describe_load
from perfkit.points.measured import PointMeasurement
from perfkit.points.point import point
from perfkit.recorder.window import Window, cut
from perfkit.result.counts import Connections
from perfkit.result.generator import Generator
from perfkit.result.model import Point
from perfkit.result.search import AddedTime, Search
from perfkit.scenario.file import read_scenario
from perfkit.search.capacity_search import CapacitySearch
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers.point_recording import PointRecording
from tests.measured_points import point_spec, run_point

MS, S = 1_000_000, 1_000_000_000
Script: TypeAlias = Callable[[int], tuple[int, Outcome]]


class Queue:
    """A queue in front of one server with a constant service time; or a server that rejects requests above a rate."""

    def __init__(self, clock, service_ns, *, fails_above_per_s=None):
        self.clock, self.service_ns, self.free_ns = clock, service_ns, 0
        self.every_ns, self.next_ns = S / fails_above_per_s if fails_above_per_s else 0, 0.0

    def __call__(self, _):
        now_ns = self.clock.now_ns()
        if self.every_ns:  # a bucket of tokens
            self.next_ns = max(self.next_ns, now_ns - 50 * self.every_ns)
            if self.next_ns > now_ns:
                return MS, Outcome.REJECTED
            self.next_ns += self.every_ns
            return MS, Outcome.OK
        self.free_ns = max(self.free_ns, now_ns) + self.service_ns
        return self.free_ns - now_ns, Outcome.OK


def search_in_virtual_time(
    path: pathlib.Path, make_script: Callable[[ManualClock], Script], *, probe_time_ns: int = 5 * MS, seconds: int = 4,
    warned_of: Sequence[str] = (), invalid_by: Sequence[str] = (), check: Callable[[Reply], bool] | None = None,
    taken: list[tuple[Window, Point]] | None = None, before: Sequence[tuple[Window, Point]] = (), added: Sequence[AddedTime] = (),
    is_streamed: bool = False, **given: Any,
) -> tuple[Search, list[PointRecording]]:  # fmt: skip
    """Searches the capacity of a scripted target; returns the outcome and the recording of each probe. `path` receives the scenario."""
    document = {"target": {"model": "m"}, "load": {"search": given}, "measure": {"duration": f"{seconds}s", "warmup": "1s"}}
    if is_streamed:
        document["stream"] = {}
    path.write_text(yaml.safe_dump(document))
    loaded = read_scenario(path, environ={})
    search, scenario, recorded = CapacitySearch(loaded), loaded.scenario, []
    search.add_time(added)
    for window, earlier in before:
        assert search.next_point(probe_time_ns) is not None
        search.record(window, earlier, 11.0)
    while (planned := search.next_point(probe_time_ns)) is not None:
        clock = ManualClock(5 * S)

        async def main(clock=clock, planned=planned):
            spec = point_spec(
                load=planned.loads[0], warmup_ns=scenario.warmup_ns, window_ns=planned.window_ns, requests=None, drain_ns=30 * S,
                connections=4, overload_abort_after_ns=planned.overload_abort_after_ns, is_streamed=is_streamed,
            )  # fmt: skip
            return await run_point(
                spec, ScriptedTransport(clock, make_script(clock)), [Prepared(())], clock=clock, address=Address("http", "h", 1),
                on_loop=lambda _: None, check=check,
            )  # fmt: skip

        one = clock.run(main())
        recorded.append(one)
        measured = PointMeasurement(
            protocol="http", load=describe_load(planned.loads[0]), batch_size=1, repetition=planned.repetition,
            window=cut(one.recording, 0, is_open=True), warmup_ns=S, connections=Connections(opened=4, reconnects=0),
            generator=Generator(cpu_share=0.1, steal_share=0.0),
            warnings=tuple(MeasurementWarning(code=code, message="x") for code in (*warned_of, *["hopeless"] * (one.ending.cause is StopCause.OVERLOADED))),
        )  # fmt: skip
        made = point(measured)
        if invalid_by:
            made = made.model_copy(update={"valid": False, "warnings": tuple(MeasurementWarning(code, "x") for code in invalid_by)})
        search.record(measured.window, made, 11.0)
        if taken is not None:
            taken.append((measured.window, made))
    return search.outcome(), recorded
