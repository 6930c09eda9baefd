"""Overrides by the environment and `--set`, their precedence, and how results show them."""

import pytest

from perfkit.errors import ScenarioError

VARIABLE = "PERFKIT_SET_LOAD__CLOSED__CONCURRENCY"
HEAD = "target: {model: m}\nload: {closed: {concurrency: 1}}\n"


@pytest.mark.parametrize(
    ("text", "environ", "settings", "repetitions"),
    [
        (HEAD, {}, (), 3),
        (HEAD + "measure: {repetitions: 4}\n", {}, (), 4),
        (HEAD + "measure: {repetitions: 4}\n", {"PERFKIT_SET_MEASURE__REPETITIONS": "5"}, (), 5),
        (HEAD + "measure: {repetitions: 4}\n", {"PERFKIT_SET_MEASURE__REPETITIONS": "5"}, ("measure.repetitions=6",), 6),
        (HEAD + "measure: {repetitions: 4}\n", {}, ("measure.repetitions=6", "measure.repetitions=7"), 7),
        (HEAD + "measure: {repetitions: 4}\n", {}, ("measure.repetitions=null",), 3),
        (HEAD + "measure: {repetitions: 4}\n", {"PERFKIT_SET_MEASURE": "{drain: 1s}"}, (), 3),
        (HEAD + "measure:\n", {}, ("measure.repetitions=6",), 6),
    ],
)
def test_the_later_source_wins(read, text, environ, settings, repetitions):
    assert read(text, settings, environ).scenario.measure.repetitions == repetitions


def test_overrides_are_echoed_in_their_order_as_they_were_written(read):
    loaded = read(HEAD, ("workload.seed=7", "load.closed.concurrency=[1,8]"), {VARIABLE: "[2, 4]", "HOME": "/"})
    assert loaded.overrides == ("load.closed.concurrency=[2, 4]", "workload.seed=7", "load.closed.concurrency=[1,8]")
    assert loaded.scenario.load.closed.concurrency == (1, 8)


def test_the_environment_finds_keys_of_the_file_whatever_their_case(read):
    text = HEAD + "workload: {inputs: {INPUT0: {generate: zeros}}}\n"
    inputs = read(text, (), {"PERFKIT_SET_WORKLOAD__INPUTS__INPUT0__GENERATE": "ones"}).scenario.workload.inputs
    assert list(inputs) == ["INPUT0"]
    assert inputs["INPUT0"].generate == "ones"


def test_an_exact_key_goes_before_one_of_another_case(read):
    text = HEAD + "workload: {inputs: {A: {generate: zeros}, a: {generate: zeros}}}\n"
    inputs = read(text, ("workload.inputs.a.generate=ones",)).scenario.workload.inputs
    assert (inputs["A"].generate, inputs["a"].generate) == ("zeros", "ones")


@pytest.mark.parametrize(
    ("settings", "environ"),
    [
        (("target.headers.authorization=s3cret",), {}),
        (("target.headers={authorization: s3cret}",), {}),
        (("target={model: m, headers: {authorization: s3cret}}",), {}),
        ((), {"PERFKIT_SET_TARGET__HEADERS__AUTHORIZATION": "s3cret"}),
        ((), {"PERFKIT_SET_TARGET": "{model: m, headers: {authorization: s3cret}}"}),
    ],
)
def test_header_overrides_are_redacted(read, settings, environ):
    loaded = read(HEAD, settings, environ)
    assert loaded.scenario.target.headers == {"authorization": "s3cret"}
    (override,) = loaded.overrides
    assert override.startswith("target")
    assert override.endswith("=<redacted>")


def test_overrides_without_headers_are_not_redacted(read):
    assert read(HEAD, ("target={model: n}",)).overrides == ("target={model: n}",)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("x", "--set x: expected KEY=VALUE, such as load.closed.concurrency='[1,8]'"),
        ("=1", "--set : expected KEY=VALUE, such as load.closed.concurrency='[1,8]'"),
        ("name=[1", "--set name: not valid YAML: did not find expected ',' or ']'"),
        ("name=2001-02-30", "--set name: name: not valid YAML: day is out of range for month"),
        ("target={model: a, model: b}", "--set target: target.model: this key is set twice: remove one"),
        ("target=&x {a: *x}", "--set target: not valid YAML: an alias contains itself"),
        ("load.closed.concurrency.x=3", "--set load.closed.concurrency.x: load.closed.concurrency is 1, which has no keys"),
        ("load.closed.concurrency=zz", "--set load.closed.concurrency: load.closed.concurrency: expected a list, found 'zz'"),
        ("load.closed.concurrency=[1, z]", "--set load.closed.concurrency: load.closed.concurrency[1]: expected an integer, found 'z'"),
        ("load.open.rate=5", "{file}:2: load: give exactly one of closed, cold_start, idle, open, replay, search, surge; found closed and open"),
        ("target.protocol=http", "--set target.protocol: target.protocol: unknown key; did you mean 'protocols'? Known keys: url, urls, command, ready_within, balance, resolve, connections, protocols, model, version, api, endpoint, composing_models, engine, timeout, max_connections, streams_per_connection, max_answer, headers, secrets, tls, metrics_url, compression"),
    ],
)  # fmt: skip
def test_a_wrong_override_is_named_in_place_of_a_line(read, tmp_path, setting, message):
    with pytest.raises(ScenarioError) as caught:
        read(HEAD, (setting,))
    assert str(caught.value) == message.replace("{file}", f"{tmp_path}/s.yaml")


def test_a_wrong_variable_is_named(read):
    with pytest.raises(ScenarioError) as caught:
        read(HEAD, (), {VARIABLE: "0"})
    assert str(caught.value) == f"environment {VARIABLE}: load.closed.concurrency[0]: input should be greater than or equal to 1, found 0"
