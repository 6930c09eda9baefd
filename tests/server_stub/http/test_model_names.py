"""Models of any name over HTTP: each is found under its own name, as tritonclient quotes it, too."""

import contextlib
import dataclasses

import numpy as np
import pytest
import tritonclient.http.aio

from perfkit.clock import MonotonicClock
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor
from perfkit.target.address import Address
from perfkit.target_client import make_client
from perfkit.transport.options import TransportOptions
from server_stub.http.front_end import HttpFrontEnd
from server_stub.inference.executed_model import ExecutedModel
from server_stub.log import Log
from server_stub.models import array_models
from server_stub.repository.repository import Repository
from server_stub.repository.sources import BuiltinModels
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions

# names that are others once they are decoded or encoded once more are among them
NAMES = (
    "plain", "a b", " a ", "a+b", "%", "a%b", "a%20b", "%25", "a%2Fb", "A%2fB", "a?b", "a#b", "a/b", "a//b", "a/versions/1", "a/infer", "a;b", "a&b=c", "a:b@c",
    "a,b", "'a'", 'a"b', "a\\b", "a|b", "{model}", "a{b}", "a[b]", "a^b`<c>", "~a", "versions", "ä", "é", "e\u0301", "日本", "\U0001f600", "a\tb", "a\nb", "\x7f",
    "a\u2028b",
)  # fmt: skip
INPUTS = ("INPUT0", "INPUT1")


def _model(name):
    definition, executor = array_models.load("simple")
    return ExecutedModel(dataclasses.replace(definition, name=name), executor)


@contextlib.asynccontextmanager
async def _serving():
    models = BuiltinModels({name: lambda name=name: _model(name) for name in NAMES})  # type: ignore[misc]
    repository = Repository(models, NAMES)
    repository.load()
    http = HttpFrontEnd(Service(repository, SharedMemoryRegions(is_allowed=False), Log(Settings())))
    try:
        yield await http.start("127.0.0.1", 0)
    finally:
        await http.stop()
        repository.close()


@pytest.mark.parametrize("engine", ["wire", "reference"])
async def test_every_call_reaches_the_model_of_any_name(engine):
    tensors = tuple(Tensor(name, Datatype.INT32, (1, 16), bytes(64)) for name in INPUTS)
    async with _serving() as port:
        client = make_client(
            Address.parse(f"http://127.0.0.1:{port}"), TransportOptions(timeout_ns=30 * 10**9, engine=engine), MonotonicClock()
        )
        async with contextlib.aclosing(client):
            for name in NAMES:
                assert await client.is_ready(name, "")
                assert (await client.model_metadata(name, "")).name == name
                assert (await client.model_config(name, "")).sha256
                answer = client.decode(await client.transport.send(client.prepare(InferRequest(name, tensors))))
                assert answer.model == name
                (counted,) = await client.model_statistics(name, "")
                assert counted.success.count == 1


async def test_every_model_that_tritonclient_reaches_has_the_same_name_there():
    """It leaves slashes as they are, so that names with one lead elsewhere."""
    inputs = [tritonclient.http.InferInput(name, [1, 16], "INT32") for name in INPUTS]
    for one in inputs:
        one.set_data_from_numpy(np.zeros((1, 16), np.int32))
    async with _serving() as port, tritonclient.http.aio.InferenceServerClient(f"127.0.0.1:{port}") as client:
        for name in NAMES:
            if "/" not in name:
                assert (await client.infer(name, inputs)).get_response()["model_name"] == name
