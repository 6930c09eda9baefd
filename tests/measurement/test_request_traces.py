"""The traced requests of a run: when their spans are asked for, and how the clocks of one machine are tied."""

import asyncio
import itertools
import pathlib
from types import SimpleNamespace
from typing import Any

from perfkit.measurement import request_traces
from perfkit.measurement.observation import Observation
from perfkit.measurement.request_traces import RequestTraces, SpanSource
from perfkit.scenario.telemetry import Traces
from perfkit.spans.span import SampledRequest
from perfkit.target.address import Address
from perfkit.telemetry.client import TelemetryClient
from perfkit.telemetry.messages import SpanCounts, SpansReport
from perfkit.units import NS_PER_S
from tests.clocks import SettableClock

UNIX_NS = 1_795_439_334_000_000_000


def source():
    return SpanSource(Traces(listen="127.0.0.1:4318"), 1, pathlib.Path())


def measurement(trace_id, *machines_bounds_ns):
    sampled = (SampledRequest(trace_id, 1, 1, 1, 2, 0, True),)
    return SimpleNamespace(
        workload=None,
        is_alone=False,
        protocol="http",
        load=None,
        repetition=0,
        window=SimpleNamespace(start_ns=0),
        sampled=sampled,
        machines=[SimpleNamespace(recorded=SimpleNamespace(clock_bound_ns=bound_ns)) for bound_ns in machines_bounds_ns],
    )


class SilentTelemetry(Observation):
    """Telemetry to which no spans come: it waits as long as it may."""

    def __init__(self, clock):  # it needs nothing of what the other one has
        self.clock, self.waited_s = clock, []

    async def spans(self, trace_ids, within_s):
        self.waited_s.append(within_s)
        self.clock.ns += round(within_s * NS_PER_S)
        return {}


def test_scenarios_measured_interleaved_wait_for_their_spans_together():
    clock, one_source = SettableClock(), source()
    observation, runs = SilentTelemetry(clock), [RequestTraces(one_source, str(number), clock) for number in range(3)]
    for number, run in enumerate(runs):
        run.add([measurement(f"{one_source.prefix}{number:016}")])
        clock.ns += NS_PER_S
    for run in runs:
        asyncio.run(run.collect(observation, 10.0))
    assert observation.waited_s == [7.0, 1.0, 1.0]


def test_the_bound_of_a_fleet_s_clocks_is_in_the_bound_of_the_parts():
    traces = RequestTraces(source(), "", SettableClock())
    traces.add([measurement("a")])
    traces.add([measurement("b", 200_000, 300_000)])
    (_, _, of_here), (_, _, of_fleet) = traces._split([Address("http", "127.0.0.1", 1)])
    assert of_fleet.clock_bound_ns is not None
    assert of_here.clock_bound_ns is not None
    assert of_fleet.clock_bound_ns - of_here.clock_bound_ns == 300_000


def test_spans_that_could_not_be_used_are_noted_once_for_the_run():
    counted = iter([SpanCounts(received=9, strangers=5, duplicates=1), SpanCounts(refused_bodies=2, late=1), SpanCounts(refused_bodies=1)])

    class Client(TelemetryClient):
        async def spans(self, trace_ids, within_s):
            return SpansReport({}, next(counted))

    unused: Any = None
    observation = Observation(unused, Client(), unused, SettableClock())
    for _ in range(3):
        asyncio.run(observation.spans([], 1.0))
    assert not observation.notes
    observation.note_lost_spans()
    (note,) = observation.notes
    assert note == (
        "Not all that the server sent of traced requests could be used; refused bodies (too large, no OTLP, another compression, or too slow): 3,"
        " spans that came too late: 1."
    )


def test_a_reading_of_the_clocks_that_was_interrupted_is_not_used(monkeypatch):
    """Each reading takes 5 ms but for every third one, which takes 400 ns."""
    clock, lengths_ns = SettableClock(), itertools.cycle((5_000_000, 5_000_000, 400))

    def wall_ns():
        clock.ns += (length_ns := next(lengths_ns)) // 2
        now_ns = UNIX_NS + clock.ns
        clock.ns += length_ns // 2
        return now_ns

    monkeypatch.setattr(request_traces, "wall_ns", wall_ns)
    traces = RequestTraces(source(), "", clock)
    traces.read_clocks()
    traces.add([measurement("0" * 32)])
    assert list(traces.split([Address("http", "127.0.0.1", 1)])) == []  # no spans came
    assert {repetition: breakdown.clock_bound_ns for (_, repetition), breakdown in traces.breakdowns.items()} == {0: 200, None: 200}
