"""Batches in the simulated queue, against closed forms for closed loops and queueing theory for open ones."""

import asyncio
import heapq
import random

import numpy as np
import pytest

from perfkit.errors import ErrorKind
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from server_stub.synthetic.model import SyntheticModel
from server_stub.synthetic.service_model import Batch, Exponential, Failures, Linear, ServiceModel
from server_stub.synthetic.simulated_batches import ArrivedRequest, SimulatedBatch, SimulatedBatchQueue
from tests.conditions import until

MS, S = 10**6, 10**9


def test_no_request_is_served_before_its_batch_is_full():
    queue = SimulatedBatchQueue(ServiceModel(Linear(10)), Batch(3, is_awaited=True))
    assert queue.arrive(ArrivedRequest(0, 1, "a")) == queue.arrive(ArrivedRequest(5, 1, "b")) == []
    assert (queue.next_ns, len(queue)) == (None, 2)
    (service,) = queue.arrive(ArrivedRequest(9, 1, "c"))
    assert (service.started_ns, service.departed_ns, len(queue)) == (9, 19, 0)
    assert [(one.key, served.arrived_ns, served.departed_ns) for one, served in service.members] == [
        ("a", 0, 19),
        ("b", 5, 19),
        ("c", 9, 19),
    ]


def test_a_free_server_takes_waiting_requests_up_to_the_batch_size():
    queue = SimulatedBatchQueue(ServiceModel(Linear(10, row_ns=1)), Batch(3))
    assert queue.arrive(ArrivedRequest(0, 1))[0].departed_ns == 11
    for instant_ns in range(1, 6):
        assert queue.arrive(ArrivedRequest(instant_ns, 1)) == []
    assert (queue.next_ns, queue.advance(10)) == (11, [])
    assert [(one.started_ns, one.departed_ns, len(one.members)) for one in queue.advance(11)] == [(11, 24, 3)]
    assert [(one.started_ns, one.departed_ns, len(one.members)) for one in queue.advance(100)] == [(24, 36, 2)]


def test_batches_start_at_the_right_time_however_late_the_simulation_is_advanced():
    queue = SimulatedBatchQueue(ServiceModel(Linear(10)), Batch(2))
    queue.arrive(ArrivedRequest(0, 1))
    queue.arrive(ArrivedRequest(1, 1))
    (second,) = queue.arrive(ArrivedRequest(500, 1))[:1]
    assert (second.started_ns, [one.arrived_ns for one, _ in second.members]) == (10, [1])


def test_a_request_whose_rows_do_not_fit_starts_the_next_batch():
    queue = SimulatedBatchQueue(ServiceModel(Linear(0, row_ns=10)), Batch(4, is_awaited=True))
    queue.arrive(ArrivedRequest(0, 3, "a"))
    (first,) = queue.arrive(ArrivedRequest(0, 2, "b"))
    assert ([one.key for one, _ in first.members], first.departed_ns) == (["a"], 30)
    queue.arrive(ArrivedRequest(1, 2, "c"))
    (second,) = queue.advance(30)
    assert ([one.key for one, _ in second.members], second.started_ns) == (["b", "c"], 30)


def closed_loop(model, clients, requests):
    """A closed loop of clients without think time: the batches in order, and all response times."""
    queue = SimulatedBatchQueue(model, model.batch)
    responses_ns: list[int] = []
    batches: list[SimulatedBatch] = []
    arrivals = [(0, client) for client in range(clients)]
    while len(responses_ns) < requests:
        if queue.next_ns is not None and (not arrivals or queue.next_ns < arrivals[0][0]):
            started = queue.advance(queue.next_ns)
        else:
            instant_ns, client = heapq.heappop(arrivals)
            started = queue.arrive(ArrivedRequest(instant_ns, 1, client))
        batches += started
        for service in started:
            for arrival, served in service.members:
                responses_ns.append(served.departed_ns - served.arrived_ns)
                heapq.heappush(arrivals, (served.departed_ns, arrival.key))
    return batches, responses_ns


@pytest.mark.parametrize(("size", "k"), [(1, 1), (4, 1), (4, 2), (8, 3)])
def test_a_closed_loop_of_k_batches_has_throughput_b_by_d_and_response_time_k_times_d(size, k):
    model = ServiceModel(Linear(10 * MS), batch=Batch(size, is_awaited=True))
    batches, responses_ns = closed_loop(model, size * k, 1000 * size)
    assert {len(service.members) for service in batches} == {size}
    assert batches[-1].departed_ns == len(batches) * 10 * MS, "X = b / D, to the nanosecond"
    assert set(responses_ns[size * k :]) == {k * 10 * MS}


@pytest.mark.parametrize(("rate", "mean"), [(0.3, 5.09), (0.8, 18.7)])
def test_mean_response_times_of_linear_batches_follow_theory(rate, mean):
    """Service time n + 2 for batches of n, Poisson arrivals (Inoue, arXiv 1912.06322; the mean by simulation)."""
    chosen, now = random.Random(5), 0.0
    queue = SimulatedBatchQueue(ServiceModel(Linear(2 * S, row_ns=S)), Batch(10**6))
    batches = []
    for _ in range(50_000):
        now += chosen.expovariate(rate)
        batches += queue.arrive(ArrivedRequest(round(now * S), 1))
    batches += queue.advance(10**30)
    responses = [(served.departed_ns - served.arrived_ns) / S for service in batches for _, served in service.members]
    assert len(responses) == 50_000
    assert np.mean(responses) == pytest.approx(mean, rel=0.03)
    load = rate
    first = 3 * 2 / (2 * (1 - load)) + (load + 2) / (2 * (1 - load**2))
    second = 3 / (2 * (1 - load)) * (1 + 4 * rate + (1 - 2 * rate) / (1 + load))
    assert np.mean(responses) <= 1.01 * min(first, second)


def test_several_servers_execute_batches_concurrently():
    queue = SimulatedBatchQueue(ServiceModel(Linear(10), servers=2), Batch(2, is_awaited=True))
    started = [service for instant in (0, 0, 1, 1) for service in queue.arrive(ArrivedRequest(instant, 1))]
    assert [(one.started_ns, one.departed_ns) for one in started] == [(0, 10), (1, 11)]


def test_service_times_are_per_batch_and_failures_per_request():
    model = ServiceModel(Exponential(10 * MS), failures=Failures(0.5, ErrorKind.INTERNAL), seed=3, batch=Batch(2, is_awaited=True))
    batches, _ = closed_loop(model, 2, 2000)
    again, _ = closed_loop(model, 2, 2000)
    assert batches == again
    failed = [sum(served.failure is not None for _, served in service.members) for service in batches]
    assert set(failed) == {0, 1, 2}
    assert np.mean([service.departed_ns - service.started_ns for service in batches]) == pytest.approx(10 * MS, rel=0.1)


def request(rows=1):
    return InferRequest("synthetic", (tensor_from_array("INPUT0", Datatype.FP32, np.ones((rows, 2), np.float32)),))


def test_the_model_counts_a_batch_as_one_execution_and_keeps_cancelled_requests_in_it():
    async def main():
        model = SyntheticModel(ServiceModel(Linear(MS, row_ns=MS), batch=Batch(4, is_awaited=True)))
        left = asyncio.ensure_future(model.infer(request(), 0, lambda response: response))
        await until(lambda: model.pending == 1)
        left.cancel()
        answers = await asyncio.gather(*(model.infer(request(rows), 10, lambda response: response) for rows in (2, 1)))
        assert [len(answer.outputs[0].raw) for answer in answers] == [16, 8]
        assert model.pending == 0
        entry = model.statistics()
        model.close()
        return entry

    entry = asyncio.run(main())
    assert (entry["execution_count"], entry["inference_count"]) == (1, 3)
    assert entry["inference_stats"]["compute_infer"] == {"count": 2, "ns": 2 * 5 * MS}
    assert entry["inference_stats"]["queue"] == {"count": 2, "ns": 0}


def test_a_batch_waiting_for_a_server_is_started_by_the_alarm():
    async def main():
        model = SyntheticModel(ServiceModel(Linear(MS), batch=Batch(1)))
        await asyncio.gather(*(model.infer(request(), 0, lambda response: response) for _ in range(3)))
        entry = model.statistics()
        model.close()
        return entry

    assert asyncio.run(main())["inference_stats"]["queue"] == {"count": 3, "ns": 3 * MS}
