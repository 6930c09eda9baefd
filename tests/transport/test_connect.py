"""Connecting to targets: IPv6, Unix sockets, TLS, client certificates, base paths, ingresses, and the errors."""

import asyncio
import contextlib
import dataclasses
import pathlib
import socket
import ssl
import time
from typing import Any

import grpc
import grpc.aio
import pytest
import trustme
from aiohttp import web
from tritonclient.grpc import service_pb2

from perfkit.errors import TargetError, UsageError
from perfkit.protocol import rest
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype, Tensor
from perfkit.target.address import Address, Tls
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.reference import ReferenceGrpcTransport
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.transport import servers
from tests.transport.clients import client_of

ENGINES: dict[str, Any] = {
    "wire": WireHttpTransport,
    "reference": ReferenceHttpTransport,
    "wire-grpc": WireGrpcTransport,
    "grpcio": ReferenceGrpcTransport,
}
GRPC = ("wire-grpc", "grpcio")
NAME = "models.example"
OUTPUT = Tensor("y", Datatype.INT8, (1,), b"\x05")


@dataclasses.dataclass
class Seen:
    """A request as a server saw it: path, authority, headers, and whether the client sent a certificate."""

    path: str
    authority: str
    headers: dict[str, str]
    client_certificate: bool


@dataclasses.dataclass(frozen=True)
class Certificates:
    """An authority, a server's certificate, and PEM files of the authority and of a client."""

    authority: trustme.CA
    server: trustme.LeafCert
    ca: pathlib.Path
    client: pathlib.Path


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("client@example").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    return Certificates(authority, authority.issue_cert(NAME, "127.0.0.1", "::1"), folder / "ca.pem", folder / "client.pem")


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


def serving(engine, seen, **options):
    return _serving_grpc(seen, **options) if engine in GRPC else _serving_http(seen, **options)


@contextlib.asynccontextmanager
async def _serving_http(seen, host="127.0.0.1", socket_path="", certificates=None, requires_client=False):
    async def answer(request):
        ssl_object = request.transport.get_extra_info("ssl_object")
        seen.append(Seen(request.path, request.headers["Host"], dict(request.headers), bool(ssl_object and ssl_object.getpeercert())))
        headers, body = rest.encode_infer_response(InferResponse("m", "1", (OUTPUT,)), {"y": True})
        return web.Response(body=b"".join(body), headers=headers)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    context = _server_context(certificates, requires_client) if certificates else None
    site = web.UnixSite(runner, socket_path) if socket_path else web.TCPSite(runner, host, 0, ssl_context=context)
    await site.start()
    try:
        yield _address("http", host, socket_path, lambda: runner.addresses[0][1])
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def _serving_grpc(seen, host="127.0.0.1", socket_path="", certificates=None, requires_client=False):
    class Handlers(grpc.GenericRpcHandler):
        def service(self, details):
            async def answer(_message, context):
                metadata = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
                certificate = "x509_pem_cert" in context.auth_context()
                seen.append(Seen(details.method, "", metadata, certificate))  # grpcio does not report the authority
                reply = service_pb2.ModelInferResponse(model_name="m", raw_output_contents=[b"\x05"])
                reply.outputs.add(name="y", datatype="INT8", shape=[1])
                return reply.SerializeToString()

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handlers(),))
    where = f"unix:{socket_path}" if socket_path else f"[{host}]:0" if ":" in host else f"{host}:0"
    if certificates:
        pair = (certificates.server.private_key_pem.bytes(), b"".join(pem.bytes() for pem in certificates.server.cert_chain_pems))
        ca = certificates.authority.cert_pem.bytes() if requires_client else None
        port = server.add_secure_port(where, grpc.ssl_server_credentials([pair], ca, require_client_auth=requires_client))
    else:
        port = server.add_insecure_port(where)
    await server.start()
    try:
        yield _address("grpc", host, socket_path, lambda: port)
    finally:
        await server.stop(None)


def _address(protocol, host, socket_path, port):
    return Address.parse(f"{protocol}+unix:{socket_path}") if socket_path else Address(protocol, host, port())


def _server_context(certificates, requires_client):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificates.server.configure_cert(context)
    if requires_client:
        certificates.authority.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def exchange(engine, address, request):
    """Sends a request, checks its answer, and returns the closed transport."""
    transport = client_of(ENGINES[engine], address, TransportOptions(max_connections=4, timeout_ns=30_000_000_000), time.monotonic_ns)
    try:
        if engine != "reference":  # it opens connections by sending requests
            await transport.open(1)
        reply = await transport.send(transport.prepare(request))
        assert reply.outcome is Outcome.OK, reply.error
        assert transport.decode(reply).outputs == (OUTPUT,)
        return transport
    finally:
        await transport.aclose()


def has_ipv6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
def test_an_ipv6_target_is_reached(engine, infer_request):
    async def main():
        seen: list[Seen] = []
        async with serving(engine, seen, host="::1") as address:
            await exchange(engine, address, infer_request)
            return seen, address

    seen, address = asyncio.run(main())
    assert len(seen) == 1
    if engine not in GRPC:
        assert seen[0].authority == f"[::1]:{address.port}"


def test_a_unix_socket_is_reached(run, engine, infer_request, tmp_path):
    async def main():
        seen: list[Seen] = []
        async with serving(engine, seen, socket_path=str(tmp_path / "v2.sock")) as address:
            transport = await exchange(engine, address, infer_request)
            return seen, transport

    seen, transport = asyncio.run(main()) if engine in GRPC else run(main())
    assert transport.counts.opened == 1
    if engine not in GRPC:
        assert seen[0].authority == "localhost"


def test_a_request_that_was_prepared_takes_the_headers_of_a_renewed_address(engine, infer_request):
    async def main():
        seen: list[Seen] = []
        async with serving(engine, seen) as address:
            old, new = (dataclasses.replace(address, headers={"authorization": token}) for token in ("old", "new and longer"))
            transport = client_of(ENGINES[engine], old, TransportOptions(max_connections=1, timeout_ns=30_000_000_000), time.monotonic_ns)
            prepared = transport.prepare(infer_request)
            for each in (old, new):
                transport.transport.renew(each)
                prepared.become(transport.prepare(infer_request))
                assert (await transport.transport.send(prepared)).outcome is Outcome.OK
            await transport.aclose()
            return [{name.lower(): value for name, value in one.headers.items()}["authorization"] for one in seen]

    assert asyncio.run(main()) == ["old", "new and longer"]


def test_a_base_path_precedes_the_protocol_path(engine, infer_request):
    async def main():
        seen: list[Seen] = []
        async with serving(engine, seen) as address:
            await exchange(engine, dataclasses.replace(address, base_path="/team/a"), infer_request)
            return seen

    expected = "/team/a/inference.GRPCInferenceService/ModelInfer" if engine in GRPC else "/team/a/v2/models/my model/versions/3/infer"
    assert [request.path for request in asyncio.run(main())] == [expected]


def test_a_certificate_of_the_given_authority_is_trusted(run, engine, infer_request, certificates):
    async def main():
        seen: list[Seen] = []
        async with serving(engine, seen, certificates=certificates) as address:
            await exchange(engine, dataclasses.replace(address, tls=Tls(ca=certificates.ca)), infer_request)
            return seen

    assert len(asyncio.run(main()) if engine in GRPC else run(main())) == 1


def test_a_client_certificate_is_sent_to_a_server_that_requires_one(engine, infer_request, certificates):
    async def main():
        seen: list[Seen] = []
        async with serving(engine, seen, certificates=certificates, requires_client=True) as address:
            await exchange(engine, dataclasses.replace(address, tls=Tls(ca=certificates.ca, cert=certificates.client)), infer_request)
            return seen

    assert [request.client_certificate for request in asyncio.run(main())] == [True]


def test_a_server_that_requires_a_client_certificate_refuses_connections_without_one(engine, infer_request, certificates):
    async def main():
        async with serving(engine, [], certificates=certificates, requires_client=True) as address:
            transport = client_of(
                ENGINES[engine],
                dataclasses.replace(address, tls=Tls(ca=certificates.ca)),
                TransportOptions(timeout_ns=10**10),
                time.monotonic_ns,
            )
            try:
                await transport.open(1)
                return (await transport.send(transport.prepare(infer_request))).outcome
            except TargetError:
                return Outcome.CONNECT_FAILED
            finally:
                await transport.aclose()

    # with TLS 1.3 the client may send a request before the server has checked its certificate
    assert asyncio.run(main()) in (Outcome.CONNECT_FAILED, Outcome.BROKEN)


def test_server_name_is_sent_and_verified_instead_of_the_host(engine, infer_request, certificates):
    certificate_by_name = dataclasses.replace(certificates, server=certificates.authority.issue_cert(NAME))

    async def main():
        seen: list[Seen] = []
        async with serving(engine, seen, certificates=certificate_by_name) as address:
            tls = Tls(ca=certificates.ca, server_name=NAME)
            await exchange(engine, dataclasses.replace(address, tls=tls, headers={"Host": NAME}), infer_request)
            with pytest.raises(TargetError, match="cannot be reached"):
                await _open(engine, dataclasses.replace(address, tls=Tls(ca=certificates.ca)))
            return seen

    seen = asyncio.run(main())
    assert len(seen) == 1
    if engine not in GRPC:
        assert seen[0].authority == NAME


def test_a_host_header_is_the_authority_over_grpc(infer_request):
    """Searches the frames, because grpcio's client does not compress header values."""
    received = bytearray()

    async def answer(reader, writer):
        writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")  # empty SETTINGS
        while NAME.encode() not in received and (part := await reader.read(1 << 16)):
            received.extend(part)
        writer.close()

    async def main():
        async with servers.scripted_server(answer) as address:
            named = dataclasses.replace(address, protocol="grpc", headers={"host": NAME, "X-Tenant": "a"})
            transport = client_of(ReferenceGrpcTransport, named, TransportOptions(timeout_ns=10**10), time.monotonic_ns)
            await transport.open(1)
            await transport.send(transport.prepare(infer_request))
            await transport.aclose()

    asyncio.run(main())
    assert NAME.encode() in received
    assert b"x-tenant" in received


async def _open(engine, address):
    transport = client_of(ENGINES[engine], address, TransportOptions(timeout_ns=10**10), time.monotonic_ns)
    try:
        await transport.open(1)
    finally:
        await transport.aclose()


def test_an_untrusted_certificate_is_refused_with_a_hint(engine, certificates):
    async def main():
        async with serving(engine, [], certificates=certificates) as address:
            with pytest.raises(
                TargetError, match=r"^(https|grpcs)://127.0.0.1:\d+ cannot be reached: its certificate is not trusted \(.*target\.tls\.ca"
            ):
                await _open(engine, dataclasses.replace(address, tls=Tls()))
            if engine != "grpcio":  # grpcio cannot skip the verification
                await _open(engine, dataclasses.replace(address, tls=Tls(verify=False)))

    asyncio.run(main())


def test_the_error_names_a_port_without_tls(engine, certificates):
    async def main():
        async with serving(engine, []) as address:
            with pytest.raises(TargetError, match="the port does not speak TLS"):
                await _open(engine, dataclasses.replace(address, tls=Tls(ca=certificates.ca)))

    asyncio.run(main())


def test_the_error_names_an_invalid_tls_file(engine, certificates, tmp_path):
    (tmp_path / "junk.pem").write_text("junk")
    own = tmp_path / "locked.pem"
    own.write_bytes(certificates.client.read_bytes().replace(b"PRIVATE KEY", b"PUBLIC TOY"))

    async def make(tls):
        client_of(
            ENGINES[engine],
            Address("grpc" if engine in GRPC else "http", "127.0.0.1", 1, tls=tls),
            TransportOptions(timeout_ns=10**10),
            time.monotonic_ns,
        )

    for tls, key in ((Tls(ca=tmp_path / "junk.pem"), "ca"), (Tls(cert=tmp_path / "junk.pem"), "cert"), (Tls(cert=own), "cert")):
        with pytest.raises(UsageError, match=rf"^target\.tls\.{key}: .*\.pem"):
            asyncio.run(make(tls))
