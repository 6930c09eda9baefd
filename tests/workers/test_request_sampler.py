"""The requests that are traced: a fair sample of the load, of the rate or share that was asked for, with the times of their replies."""

import asyncio
import dataclasses
import itertools
import re

import pytest

from perfkit.api_v2.client import make_client
from perfkit.clock import ManualClock
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.load.sequence_requests import SequenceRequests
from perfkit.load.sequences import LengthLaw, SequencePlan
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.recorder.window import cut
from perfkit.spans.span import client_span_id
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply, Sender
from perfkit.transport.options import TransportOptions
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers.point_recording import merge_points
from perfkit.workers.prepared_workload import PreparedWorkload
from perfkit.workers.request_sampler import REQUEST_ID, RequestSampler, SamplingSpec, TraceIds
from perfkit.workers.worker import run_workloads
from tests.load.sequence_server import REQUESTS, SequenceServer, prepare
from tests.measured_points import point_spec, workload_spec

MS, S = 1_000_000, 1_000_000_000
PREFIX = "0123456789abcdef"


class NotingTransport(ScriptedTransport):
    """Notes the traceparent of every request, or None, and its reply."""

    def __init__(self, clock, script):
        super().__init__(clock, script)
        self.seen = []

    async def send(self, prepared):
        reply = await super().send(prepared)
        self.seen.append((prepared.headers.get("traceparent"), reply))
        return reply


def measure(load, script=lambda _: (5 * MS, Outcome.OK), *, worker=0, workers=1, warmup_ns=2 * S, window_ns=10 * S, own=(), **sampling):
    """The transport and the recording of one worker."""
    clock = ManualClock(5 * S)
    transport = NotingTransport(clock, script)
    spec = point_spec(load, warmup_ns, window_ns, None, S, 2, **dict(own)).split(workers)[worker]
    wanted = SamplingSpec(TraceIds(PREFIX, "p1.r0"), **{"per_s": None, "share": None, "expected_per_s": None, **sampling})
    sampler = RequestSampler(transport, wanted.split(worker, workers))
    workload = PreparedWorkload(
        spec.workloads[0], transport, [Prepared((b"0",)), Prepared((b"1",))], Address("http", "h", 1), sampler=sampler
    )

    async def main():
        return await run_workloads(spec, [workload], clock=clock, on_loop=lambda _: None)

    return transport, clock.run(main())


def poisson(rate_per_s):
    return OpenPlan(rate_per_s, "poisson", Schedule("poisson", arrivals.constant_rate(rate_per_s), (4,)), None, None)


@pytest.mark.parametrize("load", [ClosedPlan(4, 0), poisson(800.0)], ids=["closed", "open"])
def test_each_traced_request_has_an_id_of_its_own_and_the_times_of_its_reply(load):
    transport, point = measure(load, window_ns=3 * S, share=0.1)
    traced = {header: reply for header, reply in transport.seen if header is not None}
    assert len(traced) == len(point.sampled) > 200
    assert len({header.split("-")[2] for header in traced}) == len(traced)
    for one in point.sampled:
        (header,) = [header for header in traced if header.split("-")[1] == one.trace_id]
        assert re.fullmatch(f"00-{PREFIX}[0-9a-f]{{16}}-[0-9a-f]{{16}}-01", header)
        assert header.split("-")[2] == client_span_id(one.trace_id)
        reply = traced[header]
        is_open = isinstance(load, OpenPlan)
        assert one.intended_ns == (reply.intended_ns if is_open else reply.started_ns)
        assert (one.started_ns, one.finished_ns, one.variant) == (reply.started_ns, reply.finished_ns, reply.variant)
        assert one.is_paced is is_open
        assert one.is_ok


def test_the_chance_of_a_request_does_not_depend_on_its_time():
    """Of a sample that preferred some requests, the slow share would differ: 2 % are slow, and the exact binomial bounds at 1e-6 are stated."""
    _, point = measure(poisson(800.0), lambda number: ((50 if number % 50 == 0 else 1) * MS, Outcome.OK), share=0.4)
    slow = sum(one.finished_ns - one.started_ns == 50 * MS for one in point.sampled)
    assert 3_620 < len(point.sampled) < 4_060  # 9,600 requests x 0.4 = 3,840, standard deviation 48
    assert 40 < slow < 122  # 3,840 x 0.02 = 77, standard deviation 8.8, but Poisson tails


@pytest.mark.parametrize("warmup_ns", [2 * S, 0])
def test_a_rate_becomes_a_share_of_the_closed_loops_own_rate(warmup_ns):
    _, point = measure(ClosedPlan(4, 0), warmup_ns=warmup_ns, per_s=100.0)
    window_s = 10.0 if warmup_ns else 9.9  # without a warm-up the first steps observe the rate
    assert len(point.sampled) == pytest.approx(100 * window_s, rel=0.1)


def test_the_load_of_a_warm_up_is_no_part_of_the_rate_that_becomes_a_share():
    own = {"warm_up": ClosedPlan(40, 0), "warm_up_ns": 8 * S}
    _, point = measure(ClosedPlan(4, 0), warmup_ns=9 * S, per_s=100.0, own=own)
    in_window = [one for one in point.sampled if one.intended_ns >= point.start_ns + 9 * S]
    assert len(in_window) == pytest.approx(1000, rel=0.1)


def test_a_rate_becomes_a_share_of_an_open_loops_planned_rate_from_its_first_request_on():
    _, point = measure(poisson(800.0), warmup_ns=0, per_s=160.0, expected_per_s=800.0)
    assert len(point.sampled) == pytest.approx(1600, rel=0.1)
    assert min(one.intended_ns for one in point.sampled) < 6 * S


def test_several_workers_trace_their_parts_under_different_ids():
    parts = [measure(ClosedPlan(4, 0), worker=worker, workers=2, per_s=100.0)[1] for worker in range(2)]
    whole = merge_points(parts)
    assert len({one.trace_id for one in whole.sampled}) == len(whole.sampled) == sum(len(part.sampled) for part in parts)
    assert len(whole.sampled) == pytest.approx(1000, rel=0.1)


def test_what_may_be_traced_is_spread_over_the_window_whatever_the_share_is():
    """The warm-up of 2 s at 800/s uses up its own 500; of the window's 1,600 requests, 500 with a standard deviation of 19 are traced."""
    _, point = measure(ClosedPlan(4, 0), warmup_ns=2 * S, window_ns=2 * S, share=1.0, most=500)
    window_start_ns = point.start_ns + 2 * S
    traced = [one.intended_ns - window_start_ns for one in point.sampled if one.intended_ns >= window_start_ns]
    assert 496 <= len(point.sampled) - len(traced) <= 508  # 4 are in flight at a time
    assert 410 <= len(traced) <= 508
    assert sum(at_ns >= S for at_ns in traced) > 150


def test_the_workloads_of_a_mix_are_traced_by_one_share():
    """As many of each as it has of the requests: with as many of both, the rare ones would make the tail of the whole."""
    clock, workloads = ManualClock(5 * S), []
    for number, service_ms in enumerate((5, 100)):
        transport = NotingTransport(clock, lambda _, ns=service_ms * MS: (ns, Outcome.OK))
        sampler = RequestSampler(transport, SamplingSpec(TraceIds(PREFIX, f"p{number}"), 168.0, None, None))
        workloads.append(
            PreparedWorkload(workload_spec(ClosedPlan(4, 0)), transport, [Prepared((b"0",))], Address("http", "h", 1), sampler=sampler)
        )

    async def main():
        spec = dataclasses.replace(point_spec(ClosedPlan(4, 0), 2 * S, 10 * S, None, S, 2), workloads=tuple(one.spec for one in workloads))
        return await run_workloads(spec, workloads, clock=clock, on_loop=lambda _: None)

    quick, slow = (len(one.sampled) for one in clock.run(main()).workloads)
    assert quick == pytest.approx(160 * 10, rel=0.1)  # of 800/s + 40/s, a fifth
    assert slow == pytest.approx(8 * 10, rel=0.4)  # standard deviation 8.5


def test_nothing_is_traced_without_a_share_and_failures_are_marked():
    transport, point = measure(ClosedPlan(4, 0), window_ns=2 * S)
    assert not point.sampled
    assert all(header is None for header, _ in transport.seen)
    _, point = measure(ClosedPlan(4, 0), lambda _: (5 * MS, Outcome.REJECTED), window_ns=2 * S, share=1.0)
    assert point.sampled
    assert not any(one.is_ok for one in point.sampled)


def test_the_same_seed_gives_the_same_ids():
    first, second = (measure(ClosedPlan(4, 0), window_ns=2 * S, share=0.05)[1].sampled for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("protocol", "engine"), [*itertools.product(["http", "grpc"], ["wire", "reference"])])
def test_where_requests_have_ids_a_traced_one_has_its_trace_id_and_nothing_else_differs(protocol, engine):
    request = InferRequest("m", (tensor_from_array("x", Datatype.INT32, [0, 1]),), id=REQUEST_ID)
    sent = []

    class Noting(Sender):
        def send(self, prepared):
            sent.append(prepared)
            future = asyncio.get_running_loop().create_future()
            future.set_result(Reply(Outcome.OK, 1, 2))
            return future

        def with_traceparent(self, prepared, traceparent):
            return prepared

        def abandon(self):
            pass

    async def main():
        transport = make_client(Address(protocol, "h", 1), TransportOptions(timeout_ns=S, engine=engine, max_connections=1), ManualClock())
        sampler = RequestSampler(Noting(), SamplingSpec(TraceIds(PREFIX), None, 1.0, None, sets_request_id=True))
        await sampler.send(transport.prepare(request))
        await asyncio.sleep(0)
        ((trace_id, *_),) = sampler.finish()
        expected = transport.prepare(dataclasses.replace(request, id=trace_id))
        await transport.aclose()
        return expected

    expected = asyncio.run(main())
    assert list(map(bytes, sent[0].buffers)) == list(map(bytes, expected.buffers))


def test_a_request_that_ends_a_sequence_early_is_not_traced():
    """No figure counts it: each third request fails, and its sequence is ended by a request of its own."""
    clock = ManualClock(5 * S)
    server = SequenceServer(clock, lambda index: (10 * MS, Outcome.REJECTED if index % 3 == 1 else Outcome.OK))

    class Transport(ScriptedTransport):
        def send(self, prepared):
            return server.send(prepared)

        def with_traceparent(self, prepared, traceparent):
            return prepared

        def abandon(self):
            server.abandon()

    transport = Transport(clock, lambda _: (0, Outcome.OK))
    plan = SequencePlan(LengthLaw(5, 5), 10**18)
    spec = point_spec(ClosedPlan(2, 0, plan), 0, 2 * S, None, S, 2)
    sampler = RequestSampler(transport, SamplingSpec(TraceIds(PREFIX), None, 1.0, None))
    workload = PreparedWorkload(spec.workloads[0], transport, SequenceRequests(prepare, REQUESTS), Address("http", "h", 1), sampler=sampler)

    async def main():
        return await run_workloads(spec, [workload], clock=clock, on_loop=lambda _: None)

    point = clock.run(main())
    counted = sum(cut(point.recording, 0, is_open=False).outcomes.values())
    assert len(server.calls) > counted == len(point.sampled) > 0
