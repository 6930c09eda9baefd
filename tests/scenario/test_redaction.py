"""Scenarios without their secrets: nothing that is secret is left, and what is written works with the variables that it names."""

import json

import pytest
import yaml

from perfkit.scenario.credentials import shown_setting, with_variables, without_secrets
from perfkit.scenario.file import ScenarioSource, make_cases, read_source

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
        ("workload.inputs.A", {"strings": ["a@b"]}, {"strings": ["a@b"]}),
        ("server.threads", 4, 4),
    ],
)  # fmt: skip
def test_a_swept_value_is_shown_without_its_secrets(key, value, shown):
    assert without_secrets(value, key) == shown
    document = {"target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}, "sweep": {key: [value]}}
    assert without_secrets(document)["sweep"][key] == [shown]


@pytest.mark.parametrize("key", ["target.url", "target.headers.x-key", "target", "target.metrics_url"])
def test_the_cases_of_a_sweep_hold_no_secret_beside_the_scenario_itself(key, tmp_path):
    values = {
        "target.url": [URL, "http://h"],
        "target.headers.x-key": [PLANTED],
        "target": [{"model": "m", "url": URL}],
        "target.metrics_url": [URL],
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
        ("load.closed.concurrency=[1,8]", "load.closed.concurrency=[1,8]"),
        ("target.timeout=5s", "target.timeout=5s"),
    ],
)
def test_a_setting_is_shown_without_its_secrets(setting, shown):
    assert shown_setting(setting) == shown
