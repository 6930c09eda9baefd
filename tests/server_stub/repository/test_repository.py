"""Readiness while models are loading: rows H2 and G1 of the conformance checklist."""

import asyncio
import dataclasses
import sys
import threading

import aiohttp
import grpc
import grpc.aio
import pytest
from tritonclient.grpc import service_pb2

from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor
from server_stub.grpc.front_end import GrpcFrontEnd
from server_stub.http.front_end import HttpFrontEnd
from server_stub.inference.executed_model import ExecutedModel
from server_stub.log import Log
from server_stub.models import array_models
from server_stub.options import Options
from server_stub.repository.repository import Repository
from server_stub.repository.sources import BuiltinModels, open_repository
from server_stub.scheduling.batching import BatchingPolicy
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from tests.conditions import until

SERVICE, HEALTH = "/inference.GRPCInferenceService", "/grpc.health.v1.Health/Check"


@pytest.fixture
def slow():
    """A repository whose second model starts loading, sets `reached`, and waits for `release`. A third one follows."""
    release, reached = threading.Event(), threading.Event()

    def load_slowly():
        reached.set()
        assert release.wait(30)
        return ExecutedModel(*array_models.load("simple_int8"))

    loaders = BuiltinModels(
        {
            "simple": lambda: ExecutedModel(*array_models.load("simple")),
            "simple_int8": load_slowly,
            "simple_string": lambda: ExecutedModel(*array_models.load("simple_string")),
        }
    )
    repository = Repository(loaders, loaders.names())
    yield repository, reached, release
    release.set()
    repository.close()


async def get(session, url):
    async with session.get(url) as answer:
        return answer.status, await answer.text()


async def call(channel, path, message=b""):
    return await channel.unary_unary(path)(message)


def test_H2_G1_a_server_is_live_but_not_ready_while_it_loads(slow):
    repository, reached, release = slow

    async def main():
        service = Service(repository, SharedMemoryRegions(is_allowed=False), Log(Settings()))
        http, rpc = HttpFrontEnd(service), GrpcFrontEnd(service)
        port, rpc_port = await http.start("127.0.0.1", 0), await rpc.start("127.0.0.1", 0)
        loading = asyncio.ensure_future(asyncio.to_thread(repository.load))
        await asyncio.to_thread(reached.wait, 30)
        base = f"http://127.0.0.1:{port}/v2"
        async with aiohttp.ClientSession() as session, grpc.aio.insecure_channel(f"127.0.0.1:{rpc_port}") as channel:
            seen = {
                path: await get(session, f"{base}/{path}")
                for path in ("health/live", "health/ready", "models/simple/ready", "models/simple_int8/ready")
            }
            async with session.post(f"{base}/models/simple_int8/infer", data=b"{}") as answer:
                seen["infer"] = (answer.status, await answer.text())
            async with session.post(f"{base}/repository/index") as answer:
                seen["index"] = await answer.json()
            async with session.post(f"{base}/repository/index", json={"ready": True}) as answer:
                seen["ready"] = await answer.json()
            live = await call(channel, f"{SERVICE}/ServerLive")
            ready = await call(channel, f"{SERVICE}/ServerReady")
            model = await call(channel, f"{SERVICE}/ModelReady", service_pb2.ModelReadyRequest(name="simple_int8").SerializeToString())
            before = await call(channel, HEALTH)
            release.set()
            await loading
            after = await call(channel, HEALTH, b"\x0a\x00")
            seen["health/ready after"] = await get(session, f"{base}/health/ready")
        await http.stop()
        await rpc.stop()
        return seen, live, ready, model, before, after

    seen, live, ready, model, before, after = asyncio.run(main())
    assert seen["health/live"] == (200, "")
    assert seen["health/ready"] == (400, "")
    assert seen["models/simple/ready"] == (200, "")
    assert seen["models/simple_int8/ready"] == (400, '{"error":"Model version not ready"}')
    assert seen["infer"] == (503, '{"error":"Request for unknown model: \'simple_int8\' version 1 is not at ready state"}')
    assert seen["index"] == [
        {"name": "simple", "version": "1", "state": "READY"},
        {"name": "simple_int8", "state": "LOADING"},
        {"name": "simple_string", "state": "LOADING"},
    ]
    assert seen["ready"] == [{"name": "simple", "version": "1", "state": "READY"}]
    assert seen["health/ready after"] == (200, "")
    assert service_pb2.ServerLiveResponse.FromString(live).live
    assert not service_pb2.ServerReadyResponse.FromString(ready).ready
    assert not service_pb2.ModelReadyResponse.FromString(model).ready
    # field 1, `status`, of grpc.health.v1.HealthCheckResponse: 1 is SERVING, 2 NOT_SERVING
    assert (before, after) == (b"\x08\x02", b"\x08\x01")


def test_a_closed_repository_loads_no_further_model(slow):
    repository, reached, release = slow
    loading = threading.Thread(target=repository.load)
    loading.start()
    assert reached.wait(30)
    repository.close()
    release.set()
    loading.join(30)
    assert [model.definition.name for model in repository.loaded] == ["simple", "simple_int8"]


def test_without_onnx_the_models_that_need_it_are_left_out_unless_they_are_named(monkeypatch, capsys):
    for package in ("onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    bare = open_repository(Options(), 1, Log(Settings()))
    assert not {"densenet_onnx", "densenet_batch"} & set(bare.names)
    assert {"simple", "synthetic", "identity_fp32"} <= set(bare.names)
    assert "not serving densenet_onnx and densenet_batch: they need pip install onnx onnxruntime" in capsys.readouterr().err
    assert open_repository(Options(models=("densenet_onnx",)), 1).names == ("densenet_onnx",)


async def test_a_request_that_waits_for_its_batch_is_answered_when_its_model_is_reloaded():
    definition, executor = array_models.load("simple")
    hour = dataclasses.replace(definition, max_batch_size=8, scheduling=BatchingPolicy(max_delay_ns=3600 * 10**9))
    loaders = BuiltinModels({"simple": lambda: ExecutedModel(hour, executor)})
    repository = Repository(loaders, ["simple"], is_explicit=True)
    repository.load()
    model = repository.find("simple")
    tensors = tuple(Tensor(name, Datatype.INT32, (1, 16), bytes(64)) for name in ("INPUT0", "INPUT1"))
    waiting = asyncio.ensure_future(model.infer(InferRequest("simple", tensors), 0, lambda response: response))
    await until(lambda: model.pending == 1)
    async with asyncio.timeout(30):
        await repository.load_model("simple")
        assert [tensor.name for tensor in (await waiting).outputs] == ["OUTPUT0", "OUTPUT1"]
    assert repository.find("simple") is not model
    repository.close()
