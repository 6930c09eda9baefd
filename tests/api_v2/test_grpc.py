"""Calls that a gRPC server, or a proxy in front of it, refuses before any load."""

import asyncio
from typing import Any, cast

import pytest

from perfkit.api_v2.client import Client
from perfkit.api_v2.grpc import RpcCalls
from perfkit.errors import MissingEndpointError, TargetError
from perfkit.protocol import v2_pb2
from perfkit.target.address import Address
from perfkit.transport.base import OneAddress
from perfkit.transport.grpc.calls import RefusedError
from perfkit.transport.options import TransportOptions

ADDRESS = Address.parse("grpc://127.0.0.1:8001")


class Refusing(OneAddress):
    """Answers every call with an error; ServerReady, if `of_server` is None, with true."""

    address = ADDRESS

    def __init__(self, reason, of_server=None):
        self.reason, self.of_server = reason, of_server

    async def exchange(self, call):
        rpc = call.path.removeprefix("/inference.GRPCInferenceService/")
        if rpc != "ServerReady":
            raise RefusedError(self.address, rpc, self.reason)
        if self.of_server is not None:
            raise RefusedError(self.address, rpc, self.of_server)
        return b"\x08\x01"


def refusing(reason, of_server=None):
    return Client(cast(Any, Refusing(reason, of_server)), RpcCalls(TransportOptions(timeout_ns=10**9)))


CALLS = {
    "ServerMetadata": lambda client: client.server_metadata(),
    "ModelMetadata": lambda client: client.model_metadata("m", ""),
    "ModelReady": lambda client: client.is_ready("m", ""),
    "ModelStatistics": lambda client: client.model_statistics("m", ""),
}


RESTRICTED = [
    "PERMISSION_DENIED: not for you",
    "UNAUTHENTICATED: ",
    "UNAVAILABLE: This protocol is restricted, expecting header 'triton-grpc-protocol-key'",  # as Triton answers
]


@pytest.mark.parametrize("of_server", RESTRICTED)
def test_a_server_that_does_not_permit_to_ask_whether_it_is_ready_is_not_said_to_be_unready(of_server):
    client = refusing("UNIMPLEMENTED: no such call", of_server)
    assert asyncio.run(client.server_refusal()) == ""
    with pytest.raises(MissingEndpointError):
        asyncio.run(client.is_ready("m", ""))


def test_any_other_refusal_says_that_the_server_is_not_ready():
    client = refusing("UNIMPLEMENTED: no such call", "UNAVAILABLE: starting")
    assert asyncio.run(client.server_refusal()) == "ServerReady: UNAVAILABLE: starting"
    assert asyncio.run(client.is_ready("m", "")) is False


@pytest.mark.parametrize("rpc", CALLS)
@pytest.mark.parametrize("reason", RESTRICTED)
def test_a_restricted_call_is_told_with_the_server_s_words_and_is_final(rpc, reason):
    with pytest.raises(TargetError) as caught:
        asyncio.run(CALLS[rpc](refusing(reason)))
    hint = "give the credentials that the server, or a proxy in front of it, asks for in target.headers"
    assert str(caught.value) == f"{ADDRESS}: access to {rpc} is refused: {reason}: {hint}"
    assert not caught.value.may_pass


@pytest.mark.parametrize("rpc", CALLS)
def test_a_proxy_s_error_is_told_and_may_pass(rpc):
    with pytest.raises(TargetError, match="UNAVAILABLE: HTTP 502 without a gRPC status: Bad Gateway") as caught:
        asyncio.run(CALLS[rpc](refusing("UNAVAILABLE: HTTP 502 without a gRPC status: Bad Gateway")))
    assert caught.value.may_pass


def test_a_call_that_the_server_does_not_have_is_an_answer():
    client = refusing("UNIMPLEMENTED: no such method")
    for ask in (client.server_metadata(), client.is_ready("m", ""), client.model_config("m", "")):
        with pytest.raises(MissingEndpointError, match="UNIMPLEMENTED: no such method"):
            asyncio.run(ask)
    assert asyncio.run(client.model_index()) == ()
    assert asyncio.run(client.model_statistics("m", "")) == ()
    with pytest.raises(TargetError, match="does not offer model 'm': UNIMPLEMENTED: no such method") as caught:
        asyncio.run(client.model_metadata("m", ""))
    assert not caught.value.may_pass


class Taking(OneAddress):
    """Takes every call, and keeps the last one."""

    address = ADDRESS
    taken = b""

    async def exchange(self, call):
        self.taken = bytes(call.message)
        return b""


@pytest.mark.parametrize(("config", "parameters"), [("", {}), ('{"max_batch_size": 4}', {"config": '{"max_batch_size": 4}'})])
def test_a_model_is_loaded_with_the_configuration_that_is_given(config, parameters):
    transport = Taking()
    client = Client(cast(Any, transport), RpcCalls(TransportOptions(timeout_ns=10**9)))
    assert asyncio.run(client.load_model("m", config)) == ""
    sent = v2_pb2.RepositoryModelLoadRequest.FromString(transport.taken)
    assert sent.model_name == "m"
    assert {name: value.string_param for name, value in sent.parameters.items()} == parameters


def test_the_text_of_a_configuration_is_no_matter_of_grpc():
    with pytest.raises(MissingEndpointError, match="over HTTP"):
        asyncio.run(refusing("UNKNOWN: ").model_config_text("m", ""))
