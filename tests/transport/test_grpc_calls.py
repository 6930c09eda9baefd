"""Calls that a gRPC server, or a proxy in front of it, refuses before any load."""

import asyncio

import pytest

from perfkit.errors import MissingEndpointError, TargetError
from perfkit.target.address import Address
from perfkit.transport.grpc.calls import RefusedError, RpcTransport

ADDRESS = Address.parse("grpc://127.0.0.1:8001")


class Refusing(RpcTransport):
    """Answers every call but ServerReady with an error."""

    def __init__(self, reason):
        super().__init__(ADDRESS)
        self.reason = reason

    async def _exchange(self, rpc, message):
        if rpc == "ServerReady":
            return b"\x08\x01"
        raise RefusedError(self._address, rpc, self.reason)


CALLS = {
    "ServerMetadata": lambda transport: transport.server_metadata(),
    "ModelMetadata": lambda transport: transport.model_metadata("m", ""),
    "ModelReady": lambda transport: transport.is_ready("m", ""),
    "ModelStatistics": lambda transport: transport.model_statistics("m", ""),
}


@pytest.mark.parametrize("rpc", CALLS)
@pytest.mark.parametrize(
    "reason",
    [
        "PERMISSION_DENIED: not for you",
        "UNAUTHENTICATED: ",
        "UNAVAILABLE: This protocol is restricted, expecting header 'triton-grpc-protocol-key'",  # as Triton answers
    ],
)
def test_a_restricted_call_is_told_with_the_server_s_words_and_is_final(rpc, reason):
    with pytest.raises(TargetError) as caught:
        asyncio.run(CALLS[rpc](Refusing(reason)))
    hint = "give the credentials that the server, or a proxy in front of it, asks for in target.headers"
    assert str(caught.value) == f"{ADDRESS}: access to {rpc} is refused: {reason}: {hint}"
    assert not caught.value.may_pass


@pytest.mark.parametrize("rpc", CALLS)
def test_a_proxy_s_error_is_told_and_may_pass(rpc):
    with pytest.raises(TargetError, match="UNAVAILABLE: HTTP 502 without a gRPC status: Bad Gateway") as caught:
        asyncio.run(CALLS[rpc](Refusing("UNAVAILABLE: HTTP 502 without a gRPC status: Bad Gateway")))
    assert caught.value.may_pass


def test_a_call_that_the_server_does_not_have_is_an_answer():
    transport = Refusing("UNIMPLEMENTED: no such method")
    for ask in (transport.server_metadata(), transport.is_ready("m", ""), transport.model_config("m", "")):
        with pytest.raises(MissingEndpointError, match="UNIMPLEMENTED: no such method"):
            asyncio.run(ask)
    assert asyncio.run(transport.model_index()) == ()
    assert asyncio.run(transport.model_statistics("m", "")) == ()
    with pytest.raises(TargetError, match="does not offer model 'm': UNIMPLEMENTED: no such method") as caught:
        asyncio.run(transport.model_metadata("m", ""))
    assert not caught.value.may_pass
