"""TLS, with independent clients."""

import contextlib
import http.client
import random
import socket
import ssl

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
import trustme

from perfkit.errors import UsageError
from server_stub.options import read_tls_identity

ARRAY = np.arange(16, dtype=np.int32)[np.newaxis]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A certificate for 127.0.0.1, its key, and its certificate authority."""
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    for blob in issued.cert_chain_pems:
        blob.write_to_path(folder / "cert.pem", append=True)
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return folder


@pytest.fixture(scope="module")
def secured(start_server, files):
    with start_server(
        "--model", "simple", "identity_uint8", "--tls-cert", str(files / "cert.pem"), "--tls-key", str(files / "key.pem")
    ) as started:
        yield started


def inputs(library):
    given = [library.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one in given:
        one.set_data_from_numpy(ARRAY)
    return given


def test_tritonclient_infers_over_https(secured, files):
    context = {"ssl_context_factory": lambda: ssl.create_default_context(cafile=str(files / "ca.pem"))}
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{secured.http_port}", ssl=True, **context) as client:
        np.testing.assert_array_equal(client.infer("simple", inputs(tritonclient.http)).as_numpy("OUTPUT0"), 2 * ARRAY)
        assert client.get_server_metadata()["name"] == "triton"


def test_large_bodies_arrive_whole_over_https(secured, files):
    context = ssl.create_default_context(cafile=str(files / "ca.pem"))
    with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", secured.http_port, timeout=60, context=context)) as connection:
        for seed, size in enumerate((300_000, 16, 5_000_000, 70_000)):
            body = random.Random(seed).randbytes(size)
            connection.request("POST", "/v2/models/identity_uint8/infer", body, {"Inference-Header-Content-Length": "0"})
            response = connection.getresponse()
            assert response.read()[int(response.headers["Inference-Header-Content-Length"]) :] == body


def test_tritonclient_infers_over_grpc(secured, files):
    address = f"127.0.0.1:{secured.grpc_port}"
    with tritonclient.grpc.InferenceServerClient(address, ssl=True, root_certificates=str(files / "ca.pem")) as client:
        np.testing.assert_array_equal(client.infer("simple", inputs(tritonclient.grpc)).as_numpy("OUTPUT0"), 2 * ARRAY)


def test_a_client_that_does_not_trust_the_authority_sends_nothing(secured):
    connection = http.client.HTTPSConnection("127.0.0.1", secured.http_port, timeout=60, context=ssl.create_default_context())
    with pytest.raises(ssl.SSLCertVerificationError):
        connection.request("GET", "/v2")


@pytest.mark.parametrize("port", ["http_port", "grpc_port"])
def test_plain_text_is_not_answered(secured, port):
    with socket.create_connection(("127.0.0.1", getattr(secured, port)), timeout=60) as plain:
        plain.sendall(b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP" not in plain.recv(1 << 16)


def test_metrics_are_in_plain_text_as_scrapers_expect_them(secured):
    connection = http.client.HTTPConnection("127.0.0.1", secured.metrics_port, timeout=60)
    connection.request("GET", "/metrics")
    assert connection.getresponse().read().startswith(b"# HELP nv_inference")
    connection.close()


def test_unusable_certificates_and_keys_are_named(files):
    for certificate, key in (
        (files / "key.pem", files / "cert.pem"),
        (files / "ca.pem", files / "key.pem"),
        (files / "no", files / "key.pem"),
    ):
        with pytest.raises(UsageError, match=rf"--tls-cert {certificate} with --tls-key {key} cannot be used: "):
            read_tls_identity(certificate, key)


def test_an_encrypted_key_is_an_error_instead_of_a_prompt(files, tmp_path):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((files / "key.pem").read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    encrypted = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    (tmp_path / "key.pem").write_bytes(encrypted)
    with pytest.raises(UsageError, match="the key unencrypted"):
        read_tls_identity(files / "cert.pem", tmp_path / "key.pem")
