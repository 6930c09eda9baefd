"""Addresses with headers, credentials and variables, which of their parts are secret, and scenarios without their secrets."""

import base64
import json

import pytest
import yaml

from perfkit.errors import ScenarioError
from perfkit.scenario.credentials import (
    escaped,
    has_variable,
    resolve_address,
    resolve_metrics_url,
    shown_setting,
    with_variables,
    without_secrets,
)
from perfkit.scenario.file import ScenarioSource, make_cases, read_source, scenario_document
from perfkit.scenario.target import Target
from perfkit.target.address import Tls


@pytest.fixture
def resolve(tmp_path):
    def resolve_target(environ=(), url="http://h", **keys):
        return resolve_address(Target.model_validate({"model": "m", "url": url, **keys}), url, tmp_path, dict(environ))

    return resolve_target


def test_variables_in_headers_are_replaced_once(resolve):
    headers = {"authorization": "Bearer ${TOKEN}", "x": "${A}-${A}", "y": "$TOKEN"}
    address = resolve({"TOKEN": "s3cret", "A": "1"}, headers=headers)
    assert address.headers == {"authorization": "Bearer s3cret", "x": "1-1", "y": "$TOKEN"}
    assert {"s3cret", "Bearer s3cret", "1-1", "$TOKEN"} <= address.secrets
    assert resolve({"A": "${B}", "B": "no"}, headers={"x": "${A}"}).headers == {"x": "${B}"}


def test_an_unset_variable_is_named(resolve):
    with pytest.raises(ScenarioError) as caught:
        resolve({"USER": "u"}, headers={"authorization": "${USER} ${TOKEN}"})
    assert str(caught.value) == "target.headers.authorization: the environment variable TOKEN is not set"
    with pytest.raises(ScenarioError) as caught:
        resolve(url="http://${WHO}@h")
    assert str(caught.value) == "target.url: the environment variable WHO is not set"


@pytest.mark.parametrize("text", ["${A}", "$${A}", "x ${A}${B} $y", "${A", "$$", "${}", "${A-B}"])
def test_an_escaped_text_is_sent_as_it_is(resolve, text):
    assert resolve({"A": "no", "B": "no"}, headers={"x": escaped(text)}).headers == {"x": text}
    assert not has_variable(escaped(text))


def test_credentials_in_the_url_are_basic_authentication(resolve):
    address = resolve({"PASSWORD": "open:sesame"}, url="http://ali%20baba:${PASSWORD}@h")
    token = base64.b64encode(b"ali baba:open:sesame").decode()
    assert address.headers == {"Authorization": f"Basic {token}"}
    assert {token, "open:sesame"} <= address.secrets
    assert str(address) == "http://h:80"


def test_an_authorization_header_overrides_the_credentials_in_the_url(resolve):
    assert resolve(url="http://u:p@h", headers={"authorization": "Bearer x"}).headers == {"authorization": "Bearer x"}


def test_harmless_headers_are_not_secret(resolve):
    headers = {"Host": "models.example", "user-agent": "${AGENT}"}
    assert resolve({"AGENT": "secret-agent"}, headers=headers).secrets == {"secret-agent"}


@pytest.mark.parametrize(("name", "value"), [("a b", "x"), ("", "x"), ("x\ny", "x"), ("x", "a\nb"), ("x", "ü")])
def test_a_header_that_cannot_be_sent_is_refused(resolve, name, value):
    with pytest.raises(ScenarioError, match=r"target\.headers\."):
        resolve(headers={name: value})


def test_tls_files_are_found_beside_the_scenario(resolve, tmp_path):
    for name in ("ca.pem", "me.pem", "me.key"):
        (tmp_path / name).touch()
    tls = {"ca": "ca.pem", "cert": "me.pem", "key": "me.key", "server_name": "models.example"}
    address = resolve(url="https://h", tls=tls)
    assert address.tls == Tls(tmp_path / "ca.pem", tmp_path / "me.pem", tmp_path / "me.key", "models.example")


def test_the_error_names_a_missing_tls_file(resolve, tmp_path):
    with pytest.raises(ScenarioError) as caught:
        resolve(url="grpcs://h", tls={"ca": "none.pem"})
    assert str(caught.value) == f"target.tls.ca: no such file: {tmp_path}/none.pem"


def test_the_document_shows_allowed_headers_and_no_credentials(read):
    text = """
target:
  url: https://user:pass-word@h/x
  model: m
  headers: {Host: models.example, x-key: hidden, user-agent: "${AGENT}", accept: '*/*'}
load: {closed: {concurrency: 1}}
"""
    target = scenario_document(read(text).scenario)["target"]
    assert target["url"] == "https://<redacted>@h/x"
    assert target["headers"] == {"Host": "models.example", "x-key": "<redacted>", "user-agent": "<redacted>", "accept": "*/*"}


@pytest.mark.parametrize(
    "setting",
    [
        "target.url=http://u:s3cret@h",
        "target={model: m, url: 'http://u:s3cret@h'}",
        "target.urls.http=http://u:s3cret@h",
        "target.urls={http: 'http://u:s3cret@h'}",
        "target={model: m, urls: {http: 'http://u:s3cret@h'}}",
        "target.headers.x=s3cret",
        "target.headers={x: s3cret}",
    ],
)
def test_an_override_never_shows_a_secret_value(read, setting):
    (override,) = read(settings=(setting,)).overrides
    assert "s3cret" not in override
    assert "<redacted>" in override


@pytest.mark.parametrize(
    "setting",
    ["target.headers.x.y=s3cret", "target.headers=s3cret", "target.headers.x=[s3cret]", "target.url=[s3cret]", "target.url=ftp://u:s3cret@h", "target.url=http://u:s3/cret@h"],
)  # fmt: skip
def test_an_error_never_shows_a_possible_secret(read, setting):
    text = "target: {model: m, headers: {x: s3cret}}\nload: {closed: {concurrency: 1}}\n"
    with pytest.raises(ScenarioError) as caught:
        read(text, (setting,))
    assert "s3cret" not in str(caught.value)
    assert "cret" not in str(caught.value)


def test_values_of_variables_are_sent_unchanged(resolve):
    address = resolve({"P": "ab%41:cd"}, url="http://u:${P}@h")
    assert address.headers == {"Authorization": f"Basic {base64.b64encode(b'u:ab%41:cd').decode()}"}
    with pytest.raises(ScenarioError, match="the user name must not contain a colon"):
        resolve({"U": "a:b"}, url="http://${U}:p@h")


def test_basic_and_binary_headers_are_secret_in_both_encodings(resolve):
    header = f"Basic {base64.b64encode(b'ali:open sesame').decode()}"
    assert {"ali:open sesame", "open sesame", header} <= resolve(headers={"authorization": header}).secrets
    assert resolve(url="grpc://h", headers={"token-bin": "planted!"}).secrets == {"planted!", "cGxhbnRlZCE"}


@pytest.mark.parametrize(
    ("url", "name", "text"),
    [
        ("http://h", "Content-Length", "how requests are framed"),
        ("http://h", "transfer-encoding", "how requests are framed"),
        ("grpc://h", "x!y", "over gRPC a name consists of letters"),
        ("grpc://h", "grpc-timeout", "must not begin with grpc-"),
    ],
)
def test_a_header_that_would_break_the_transport_is_refused(resolve, url, name, text):
    with pytest.raises(ScenarioError, match=text):
        resolve(url=url, headers={name: "5"})


@pytest.mark.parametrize(
    "setting",
    [
        "target.headers.authorization=*s3cret",
        "target.headers.authorization=!s3cret",
        "target.headers.authorization:s3cret",
        "target=http://u:s3cret@h",
        "target.model.x=s3cret",
    ],
)
def test_values_that_are_not_yaml_or_are_in_the_wrong_place_are_not_shown(read, setting):
    with pytest.raises(ScenarioError) as caught:
        read(settings=(setting,))
    assert "s3cret" not in str(caught.value)


def test_credentials_of_several_urls_are_not_stored_in_results(read):
    text = "target: {model: m, urls: {http: 'http://u:s3cret@h', grpc: 'grpc://h'}}\nload: {closed: {concurrency: 1}}\n"
    assert scenario_document(read(text).scenario)["target"]["urls"] == {"http": "http://<redacted>@h", "grpc": "grpc://h"}


def test_an_escaped_url_is_redacted_like_the_plain_one(read):
    (override,) = read(settings=('target.url="http://u:s3cret\\u0040h"',)).overrides
    assert override == "target.url=http://<redacted>@h"


def test_credentials_of_metrics_pages_are_sent_as_a_header_and_not_stored_in_results(read):
    text = "target: {model: m}\nload: {closed: {concurrency: 1}}\nmetrics: {url: ['http://me:pw@h:9400/m', 'http://h/n']}\n"
    loaded = read(text, ("target.metrics_url=https://u:${TOKEN}@h:8002/metrics", "metrics={url: 'http://a:b@c/d'}"))
    document = scenario_document(loaded.scenario)
    assert document["target"]["metrics_url"] == "https://<redacted>@h:8002/metrics"
    assert document["metrics"]["url"] == ["http://<redacted>@c/d"]
    assert loaded.overrides == ("target.metrics_url=https://<redacted>@h:8002/metrics", "metrics=<redacted>")
    assert scenario_document(read(text).scenario)["metrics"]["url"] == ["http://<redacted>@h:9400/m", "http://h/n"]
    url, header = resolve_metrics_url("target.metrics_url", loaded.scenario.target.metrics_url, {"TOKEN": "a:b"})
    assert (url, base64.b64decode(header.removeprefix("Basic "))) == ("https://h:8002/metrics", b"u:a:b")
    assert resolve_metrics_url("metrics.url", "http://h/n", {}) == ("http://h/n", "")
    with pytest.raises(ScenarioError, match=r"target\.metrics_url: the environment variable TOKEN is not set"):
        resolve_metrics_url("target.metrics_url", loaded.scenario.target.metrics_url, {})


PLANTED = "s3cret"
URL = f"http://ali:{PLANTED}@h:8000"
HIDDEN = "http://<redacted>@h:8000"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("target.url", URL, HIDDEN),
        ("Target.URL", URL, HIDDEN),
        ("target.url", "http://h:8000", "http://h:8000"),
        ("target.urls", {"http": URL, "grpc": "grpc://h:1"}, {"http": HIDDEN, "grpc": "grpc://h:1"}),
        ("target.metrics_url", URL, HIDDEN),
        ("metrics.url", [URL, "http://h:1"], [HIDDEN, "http://h:1"]),
        ("target", {"url": URL, "headers": {"x-key": PLANTED, "accept": "a/b"}}, {"url": HIDDEN, "headers": {"x-key": "<redacted>", "accept": "a/b"}}),
        ("target.headers", {"x-key": PLANTED}, {"x-key": "<redacted>"}),
        ("target.headers.authorization", f"Bearer {PLANTED}", "<redacted>"),
        ("target.secrets.T.command", f"curl -su bob:{PLANTED} http://idp", "curl <redacted>"),
        ("target.secrets", {"T": {"command": "'get it' x"}, "U": {"command": "get"}, "V": {"file": "a b"}}, {"T": {"command": "'get it' <redacted>"}, "U": {"command": "get"}, "V": {"file": "a b"}}),
        ("workload.inputs.A", {"strings": ["a@b"]}, {"strings": ["a@b"]}),
        ("server.threads", 4, 4),
    ],
)  # fmt: skip
def test_a_swept_value_is_shown_without_its_secrets(key, value, shown):
    assert without_secrets(value, key) == shown
    document = {"target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}, "sweep": {key: [value]}}
    assert without_secrets(document)["sweep"][key] == [shown]


SECRETS = {"T": {"command": f"get {PLANTED}"}}


@pytest.mark.parametrize(
    "key", ["target.url", "target.headers.x-key", "target", "target.metrics_url", "target.secrets", "target.secrets.T.command"]
)
def test_the_cases_of_a_sweep_hold_no_secret_beside_the_scenario_itself(key, tmp_path):
    values = {
        "target.url": [URL, "http://h"],
        "target.headers.x-key": [PLANTED],
        "target": [{"model": "m", "url": URL}, {"model": "m", "url": "http://h", "secrets": SECRETS}],
        "target.metrics_url": [URL],
        "target.secrets": [SECRETS],
        "target.secrets.T.command": [f"get {PLANTED}"],
    }
    document = {"target": {"model": "m", "url": "http://h"}, "load": {"closed": {"concurrency": 1}}, "sweep": {key: values[key]}}
    for case in make_cases(ScenarioSource(document, {}, tmp_path / "s.yaml"), (), {}):
        assert PLANTED not in json.dumps([dict(case.values), case.loaded.overrides])
    source = ScenarioSource({**document, "sweep": None}, {}, tmp_path / "s.yaml")
    cases = make_cases(source, [f"sweep={json.dumps({key: values[key]})}"], {})
    assert PLANTED not in json.dumps([case.loaded.overrides for case in cases])


def test_variables_replace_each_secret_once_and_variables_stay(tmp_path):
    target = {
        "urls": {"http": URL, "grpc": f"grpc://ali:{PLANTED}2@h:8001"},
        "metrics_url": "http://${WHO}:${PASSWORD}@h",
        "headers": {"x-key": PLANTED, "authorization": "Bearer ${TOKEN}", "accept": "a/b"},
    }
    written, keys = with_variables({"target": target, "sweep": {"metrics.url": [[f"http://{PLANTED}@h:9"]]}})
    assert written["target"] == {
        "urls": {"http": "http://${TARGET_USER}:${TARGET_PASSWORD}@h:8000", "grpc": "grpc://${TARGET_USER}:${TARGET_PASSWORD_2}@h:8001"},
        "metrics_url": "http://${WHO}:${PASSWORD}@h",
        "headers": {"x-key": "${TARGET_X_KEY}", "authorization": "Bearer ${TOKEN}", "accept": "a/b"},
    }
    assert written["sweep"] == {"metrics.url": [["http://${METRICS_USER}@h:9"]]}
    assert keys == {
        "TARGET_USER": "target.urls.http", "TARGET_PASSWORD": "target.urls.http", "TARGET_PASSWORD_2": "target.urls.grpc",
        "TARGET_X_KEY": "target.headers.x-key", "METRICS_USER": "metrics.url",
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(
        yaml.safe_dump({"target": {"model": "m", **written["target"]}, "load": {"closed": {"concurrency": 1}}})
    )
    assert make_cases(read_source(tmp_path / "s.yaml"), (), {})


@pytest.mark.parametrize(
    ("setting", "shown"),
    [
        (f"target.url={URL}", f"target.url={HIDDEN}"),
        (f"target.headers.x={PLANTED}", "target.headers.x=<redacted>"),
        (f"target={{url: {URL}}}", "target=<redacted>"),
        (f"target={{headers: {{x: {PLANTED}}}}}", "target=<redacted>"),
        (f"metrics.url=[{URL}]", "metrics.url=<redacted>"),
        (f"sweep={{target.url: [{URL}]}}", "sweep=<redacted>"),
        (f"target.headers.x:{PLANTED}", "target.headers.x"),
        (f"target.secrets.T.command=get {PLANTED}", "target.secrets.T.command=<redacted>"),
        (f"target.secrets.T={{command: get {PLANTED}}}", "target.secrets.T=<redacted>"),
        (f"target={{secrets: {{T: {{command: get {PLANTED}}}}}}}", "target=<redacted>"),
        (f"sweep={{target.secrets.T.command: [get {PLANTED}]}}", "sweep=<redacted>"),
        ("target.secrets.T.every=5m", "target.secrets.T.every=5m"),
        ("load.closed.concurrency=[1,8]", "load.closed.concurrency=[1,8]"),
        ("target.timeout=5s", "target.timeout=5s"),
    ],
)
def test_a_setting_is_shown_without_its_secrets(setting, shown):
    assert shown_setting(setting) == shown


def test_a_stored_scenario_names_the_program_of_a_secret_without_its_arguments(tmp_path):
    plain = {"model": "m", "url": "http://h", "secrets": SECRETS}
    load = {"closed": {"concurrency": 1}}
    for document in (
        {"target": plain, "load": load},
        {"target": {"url": "http://h"}, "workloads": [{"name": name, "target": plain, "load": load} for name in "ab"]},
    ):
        (case,) = make_cases(ScenarioSource(document, {}, tmp_path / "s.yaml"), (), {})
        stored = json.dumps(scenario_document(case.loaded.scenario))
        assert "get <redacted>" in stored
        assert PLANTED not in stored


@pytest.mark.parametrize("given", [{"T": {"command": [PLANTED]}}, {"T": [PLANTED]}, [PLANTED]])
def test_no_error_shows_the_command_of_a_secret(given, tmp_path):
    document = {"target": {"model": "m", "url": "http://h", "secrets": given}, "load": {"closed": {"concurrency": 1}}}
    with pytest.raises(ScenarioError) as caught:
        make_cases(ScenarioSource(document, {}, tmp_path / "s.yaml"), (), {})
    assert "target.secrets" in str(caught.value)
    assert PLANTED not in str(caught.value)
