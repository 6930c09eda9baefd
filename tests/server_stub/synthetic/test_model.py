"""The model `synthetic`, directly and through both front ends: its responses, times and statistics."""

import asyncio
import contextlib
import functools
import time

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array, tensor_to_array
from server_stub.synthetic.model import SyntheticModel
from server_stub.synthetic.service_model import Exponential, Failures, Linear, ServiceModel, uniform_share
from tests.conditions import until

MS = 10**6


def request(batch_size=1, values=2):
    return InferRequest("synthetic", (tensor_from_array("INPUT0", Datatype.FP32, np.ones((batch_size, values), np.float32)),))


def totals(model):
    stats = model.statistics()["inference_stats"]
    return {name: (one["count"], one["ns"]) for name, one in stats.items() if one["count"]}


def serve(service_model, use):
    async def main():
        model = SyntheticModel(service_model)
        try:
            await use(model)
        finally:
            model.close()
        return totals(model)

    return asyncio.run(main())


def infer(model, asked, arrived_ns):
    return model.infer(asked, arrived_ns, lambda response: response)


def test_concurrent_requests_wait_for_the_simulated_server_and_return_in_order():
    ended = []

    async def use(model):
        arrived_ns = time.monotonic_ns()

        async def one(number):
            response = await infer(model, request(values=number), arrived_ns)
            ended.append(tensor_to_array(response.outputs[0]).shape)

        await asyncio.gather(*(one(number) for number in range(20)))

    counted = serve(ServiceModel(Linear(MS)), use)
    assert ended == [(1, number) for number in range(20)]
    queued_ns = sum(number * MS for number in range(20))
    none = (20, 0)
    assert counted == {
        "success": (20, queued_ns + 20 * MS), "queue": (20, queued_ns), "compute_input": none, "compute_infer": (20, 20 * MS), "compute_output": none,
    }  # fmt: skip


def test_with_enough_servers_no_request_waits():
    async def use(model):
        arrived_ns = time.monotonic_ns()
        await asyncio.gather(*(infer(model, request(), arrived_ns) for _ in range(20)))

    assert serve(ServiceModel(Linear(MS), servers=20), use)["queue"] == (20, 0)


def test_the_batch_size_counts_in_linear_service_times_and_in_the_statistics():
    async def use(model):
        await infer(model, request(batch_size=8), time.monotonic_ns())
        (batch,) = model.statistics()["batch_stats"]
        assert (batch["batch_size"], batch["compute_infer"]) == (8, {"count": 1, "ns": 900_000})

    serve(ServiceModel(Linear(100_000, row_ns=100_000)), use)


def test_a_rejected_request_uses_no_server_and_no_random_value():
    service_model = ServiceModel(Exponential(MS), seed=4)

    async def use(model):
        with pytest.raises(ProtocolError, match="batch-size must be <= 64"):
            await infer(model, request(batch_size=65), time.monotonic_ns())
        await infer(model, request(), time.monotonic_ns())

    first_ns = round(service_model.service.quantile_ns(uniform_share(4, 0, b"service"), 1))
    assert serve(service_model, use)["compute_infer"] == (1, first_ns)


def test_a_disconnecting_client_does_not_free_the_simulated_server():
    async def use(model):
        arrived_ns = time.monotonic_ns()
        left = asyncio.ensure_future(infer(model, request(), arrived_ns))
        await until(lambda: model._departures is not None)  # created with the first request
        left.cancel()
        await infer(model, request(), arrived_ns)

    assert serve(ServiceModel(Linear(3 * MS)), use)["queue"] == (1, 3 * MS)


@pytest.mark.parametrize(("counts_left", "counted"), [(False, 1), (True, 2)])
def test_a_request_whose_client_has_left_is_counted_if_that_is_declared(counts_left, counted):
    async def use(model):
        arrived_ns = time.monotonic_ns()
        left = asyncio.ensure_future(infer(model, request(), arrived_ns))
        await until(lambda: model._departures is not None)  # created with the first request
        left.cancel()
        await infer(model, request(), arrived_ns)  # departs after it

    assert serve(ServiceModel(Linear(3 * MS), counts_left=counts_left), use)["success"][0] == counted


def test_a_simulated_failure_is_counted_with_its_time():
    async def use(model):
        with pytest.raises(ProtocolError, match="as its service model specifies") as error:
            await infer(model, request(), time.monotonic_ns())
        assert error.value.kind is ErrorKind.UNAVAILABLE

    assert serve(ServiceModel(Linear(MS), failures=Failures(1.0, ErrorKind.UNAVAILABLE)), use) == {"fail": (1, MS)}


@pytest.fixture(scope="module")
def synthetic(start_server):
    """Servers by service model, each started once."""
    with contextlib.ExitStack() as running:
        yield functools.cache(lambda declaration: running.enter_context(start_server("--model", "synthetic", "--synthetic", declaration)))


def document(values):
    return {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": list(values.shape), "data": values.ravel().tolist()}]}


def triton_input(values):
    given = tritonclient.grpc.InferInput("INPUT0", list(values.shape), "FP32")
    given.set_data_from_numpy(values)
    return given


def test_both_front_ends_count_the_simulated_service_time_to_the_nanosecond(synthetic, wire_to):
    server = synthetic("service=linear:2ms+1ms/row,servers=2")
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        answer = client.infer("synthetic", [triton_input(values)]).as_numpy("OUTPUT0")
        assert np.array_equal(answer, values)
        (entry,) = client.get_inference_statistics("synthetic").model_stats
        assert (entry.inference_stats.compute_infer.ns, entry.inference_stats.queue.ns) == (5 * MS, 0)
        assert entry.inference_stats.success.ns == 5 * MS
    assert wire_to(server).infer(document(values), model="synthetic").status == 200
    (entry,) = wire_to(server).get("/v2/models/synthetic/stats").json["model_stats"]
    assert entry["inference_stats"]["compute_infer"] == {"count": 2, "ns": 10 * MS}


@pytest.mark.parametrize(
    ("status", "grpc_status"), [(400, "StatusCode.INVALID_ARGUMENT"), (500, "StatusCode.INTERNAL"), (503, "StatusCode.UNAVAILABLE")]
)
def test_simulated_errors_have_their_status_in_both_protocols(synthetic, wire_to, status, grpc_status):
    server = synthetic(f"service=constant:1ms,errors=100%:{status}")
    answer = wire_to(server).infer(document(np.ones((1, 1))), model="synthetic")
    assert (answer.status, answer.json) == (
        status,
        {"error": "model 'synthetic' failed, as its service model specifies for a share of requests"},
    )
    with (
        tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client,
        pytest.raises(InferenceServerException) as error,
    ):
        client.infer("synthetic", [triton_input(np.ones((1, 1), np.float32))])
    assert error.value.status() == grpc_status


def test_by_default_requests_take_5_ms_each_one_after_the_other(wire):
    before = wire.get("/v2/models/synthetic/stats").json["model_stats"][0]["inference_stats"]["compute_infer"]
    answer = wire.infer(document(np.array([[1, 2, 3]])), model="synthetic")
    assert answer.json["outputs"] == [{"name": "OUTPUT0", "datatype": "FP32", "shape": [1, 3], "data": [1.0, 2.0, 3.0]}]
    after = wire.get("/v2/models/synthetic/stats").json["model_stats"][0]["inference_stats"]["compute_infer"]
    assert (after["count"] - before["count"], after["ns"] - before["ns"]) == (1, 5 * MS)


@pytest.mark.parametrize("responses", [0, 1, 4])
def test_a_stream_has_its_declared_number_of_responses_and_none_before_its_instant(responses):
    received: list[int] = []
    arrived_ns = time.monotonic_ns()

    async def use(model):
        async for response in model.responses(request(), arrived_ns):
            received.append(time.monotonic_ns())
            assert tensor_to_array(response.outputs[0]).tolist() == [[1.0, 1.0]]

    counted = serve(ServiceModel(Linear(20 * MS), lead_ns=0, responses=responses, gap_ns=5 * MS), use)
    assert len(received) == responses
    assert all(at >= arrived_ns + 20 * MS + number * 5 * MS for number, at in enumerate(received))
    assert counted["success"] == (1, 20 * MS)


def test_a_stream_is_refused_as_a_single_answer():
    async def use(model):
        with pytest.raises(ProtocolError, match="decoupled"):
            await infer(model, request(), time.monotonic_ns())
        assert model.definition.is_decoupled

    serve(ServiceModel(Linear(1 * MS), responses=1), use)


def test_a_request_that_a_full_queue_refuses_is_counted_as_rejected():
    async def use(model):
        arrived_ns = time.monotonic_ns()
        (first, second) = await asyncio.gather(*(infer(model, request(), arrived_ns) for _ in range(2)), return_exceptions=True)
        assert not isinstance(first, Exception)
        assert (second.kind, str(second)) == (ErrorKind.UNAVAILABLE, "model 'synthetic' refuses the request: its queue is full")

    assert serve(ServiceModel(Linear(MS), queue=0), use)["fail"] == (1, 0)
