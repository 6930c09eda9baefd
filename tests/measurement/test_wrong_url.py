"""URLs that are wrong in their protocol, TLS or path, and servers that redirect: the message says what to write."""

import asyncio
import contextlib
import pathlib
import re
import socket
import ssl
import threading

import pytest
import trustme

from perfkit.clock import MonotonicClock
from perfkit.errors import TargetError
from perfkit.measurement.target_metadata import read_model_index
from perfkit.measurement.wrong_url import wrong_url_named
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.target import Target
from perfkit.target_client import make_client
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S
from tests.json_server import JsonHandler, serving, v2_handler
from tests.measurement.partial_server import Lacking, partial_grpc_server

V2 = v2_handler(lambda _: None)


class AtRoot(JsonHandler):
    """A server that has `/v2`, and nothing below another path."""

    def do_GET(self):
        self.answer(200 if self.path == "/v2" else 404, {"name": "s"})


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path_factory.mktemp("ca") / "ca.pem")
    return authority


@pytest.fixture(scope="module")
def make_context(authority):
    certificate = authority.issue_cert("127.0.0.1")

    def make(*, requires_client=False, alpn=(), highest=ssl.TLSVersion.TLSv1_3):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = highest
        certificate.configure_cert(context)
        if requires_client:
            context.verify_mode = ssl.CERT_REQUIRED
            authority.configure_trust(context)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        return context

    return make


def complaint(url, **target):
    """What is said of a first call."""
    wanted = Target.model_validate({"url": url, "model": "m", **target})
    address = resolve_address(wanted, url, pathlib.Path())

    async def main():
        options = TransportOptions(engine=wanted.engine, timeout_ns=10 * NS_PER_S)
        async with contextlib.aclosing(make_client(address, options, MonotonicClock())) as client, wrong_url_named(address):
            await client.server_metadata()

    with pytest.raises(TargetError) as caught:
        asyncio.run(main())
    return str(caught.value)


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_port_that_speaks_tls_is_named_as_https(make_context, engine, scheme):
    with serving(V2, make_context()) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        assert complaint(url, engine=engine) == f"{url}: the port speaks TLS: use https://127.0.0.1:{port}"


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("alpn", [(), ("http/1.1",)])
def test_a_server_of_https_is_no_server_of_grpc(make_context, engine, alpn):
    with serving(V2, make_context(alpn=alpn)) as port:
        said = complaint(f"grpcs://127.0.0.1:{port}", engine=engine, tls={"verify": False} if engine == "wire" else None)
    why = "this looks like HTTP (in the TLS handshake it does not agree on HTTP/2, by ALPN)"
    assert said == f"grpcs://127.0.0.1:{port}: {why}: use https://127.0.0.1:{port}"


@pytest.mark.parametrize("engine", ["wire", "reference"])
@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_server_that_requires_a_certificate_is_named(make_context, engine, highest):
    with serving(V2, make_context(requires_client=True, highest=highest)) as port:
        said = complaint(f"https://127.0.0.1:{port}", engine=engine, tls={"verify": False})
    assert said == f"https://127.0.0.1:{port}: the server closes connections without a client's certificate: give target.tls.cert"


@contextlib.contextmanager
def closing_server(context, *, reads):
    """The port of a server that closes every connection after the TLS handshake, or after the first bytes, as one whose backend is dead."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted, contextlib.suppress(OSError), context.wrap_socket(accepted, server_side=True) as connection:
                    if reads:
                        connection.recv(1)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize("reads", [False, True])
@pytest.mark.parametrize(
    ("scheme", "engine", "said"),
    [
        # the close comes after the request is written, or before
        ("https", "wire", "the connection was closed before the answer was complete.*|the server closed the connection at once.*"),
        ("https", "reference", "Server disconnected|.*reset by peer.*"),
        ("grpcs", "wire", "the server closed the connection.*"),
        ("grpcs", "reference", "the server closes the connection after the TLS handshake"),
    ],
)
def test_a_server_that_closes_for_another_reason_may_only_require_a_certificate(
    tmp_path, authority, make_context, scheme, engine, said, reads
):
    with closing_server(make_context(alpn=("h2",) if scheme == "grpcs" else ()), reads=reads) as port:
        authority.cert_pem.write_to_path(tmp_path / "ca.pem")
        message = complaint(f"{scheme}://127.0.0.1:{port}", engine=engine, tls={"ca": str(tmp_path / "ca.pem")})
    assert re.search(rf": (?:{said})(?:; | Or )it may require a client certificate \(target\.tls\.cert\)(?!.*certificate)", message)


@pytest.mark.parametrize("engine", ["wire", "reference"])
def test_the_other_protocol_is_named(engine):
    with serving(V2) as port:
        url = f"grpc://127.0.0.1:{port}"
        assert complaint(url, engine=engine) == f"{url}: this looks like HTTP: use http://127.0.0.1:{port}"
    with partial_grpc_server(Lacking(frozenset(), "UNIMPLEMENTED")) as url:
        wrong = url.replace("grpc://", "http://")
        assert complaint(wrong, engine=engine) == f"{wrong}: this looks like gRPC: use {url}"


@pytest.mark.parametrize("path", ["/v2", "/v2/", "/v2/models/m", "/v2/models/m/infer"])
def test_a_path_of_the_api_in_the_url_is_named(path):
    with serving(AtRoot) as port:
        said = complaint(f"http://127.0.0.1:{port}{path}")
    path = path.rstrip("/")
    assert said == f"http://127.0.0.1:{port}{path}: {path} is a path of the API, which perfkit adds itself: use http://127.0.0.1:{port}"


@contextlib.contextmanager
def redirecting(code, location):
    class Handler(JsonHandler):
        def do_GET(self):
            self.send_response(code)
            self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("location", "shown", "hint"),
    [
        ("https://h:8443/v2", "https://h:8443/v2", "use https://h:8443"),
        ("/team/v2/", "/team/v2/", "use {url}/team"),
        ("https://u:secret@login.example/authorize?state=secret#secret", "https://<redacted>@login.example/authorize", None),
    ],
)
def test_a_redirection_says_where_to_and_what_to_write(code, location, shown, hint):
    with redirecting(code, location) as url:
        hint = hint.format(url=url) if hint else "if it leads to a login, give the credentials in target.headers"
        expected = f"{url}: GET /v2 returned HTTP {code}: redirected to {shown}, which is not followed: {hint}"
        assert complaint(url) == expected
        with pytest.raises(TargetError, match="redirected to"):
            asyncio.run(read_model_index(url, MonotonicClock()))


def test_nothing_that_listens_is_asked_no_more():
    with serving(V2) as port:
        pass
    assert complaint(f"http://127.0.0.1:{port}").startswith(f"http://127.0.0.1:{port} cannot be reached: ")
