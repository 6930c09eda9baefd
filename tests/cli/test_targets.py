"""`perfkit run` on targets behind an ingress: a path prefix, TLS, another host name, and a token."""

import ssl

import pytest
import trustme

from tests.json_server import JsonHandler, serving

NAME = "models.example"
TENSOR = {"datatype": "FP32", "shape": [1]}
METADATA = {"name": "m", "versions": ["1"], "platform": "", "inputs": [{"name": "i", **TENSOR}], "outputs": [{"name": "o", **TENSOR}]}


class Handler(JsonHandler):
    """A v2 server behind an ingress that accepts one host name, one prefix and one token."""

    def do_GET(self):
        self._answer(METADATA if "config" not in self.path else {"max_batch_size": 0})

    def do_POST(self):
        self.body()
        self._answer({"model_name": "m", "outputs": [{"name": "o", **TENSOR, "data": [1.0]}]})

    def _answer(self, document):
        is_known = self.path.startswith("/team/v2") and self.headers["Host"] == NAME and self.headers["Authorization"] == "Bearer planted"
        if is_known:
            self.answer(200, document)
        else:
            self.answer(404, {"error": "not known here"})


@pytest.fixture
def ingress(tmp_path):
    """An HTTPS server whose certificate names that host only; the authority's is in `ca.pem` beside the scenario."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(NAME).configure_cert(context)
    with serving(Handler, context) as port:
        yield f"https://127.0.0.1:{port}/team"


@pytest.mark.parametrize("engine", ["wire", "reference"])
def test_an_ingress_is_reached_by_its_name_over_tls_with_a_token(perfkit, write_scenario, ingress, engine):
    target = {
        "url": ingress,
        "model": "m",
        "engine": engine,
        "headers": {"Host": NAME, "Authorization": "Bearer ${TOKEN}"},
        "tls": {"ca": "ca.pem", "server_name": NAME},
    }
    scenario = write_scenario(target=target, measure={"warmup": "0s", "requests": 20, "repetitions": 1})
    finished = perfkit.measure(scenario, environ={"TOKEN": "planted"})
    assert [point["requests"]["ok"] for point in finished.result["points"]] == [20, 20]
    assert finished.result["environment"]["target"]["url"] == ingress
    assert finished.result["scenario"]["target"]["tls"] == {"ca": "ca.pem", "server_name": NAME, "verify": True}


@pytest.mark.parametrize(
    ("tls", "code", "text"),
    [
        ({}, 6, "its certificate is not trusted"),
        ({"ca": "ca.pem"}, 6, "its certificate is not trusted"),  # the certificate is for another name
        ({"ca": "none.pem"}, 2, "target.tls.ca: no such file"),
    ],
)
def test_tls_errors_have_their_exit_code_and_a_message(perfkit, write_scenario, ingress, tls, code, text):
    finished = perfkit.run("run", write_scenario(target={"url": ingress, "model": "m", "tls": tls}))
    assert finished.code == code
    assert text in finished.stderr
    assert "Traceback" not in finished.stderr
