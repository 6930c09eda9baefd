"""Scenarios for OpenAI's API: what goes together, and what is said of the rest."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import read_document

TARGET = {"url": "http://h:1/v1", "model": "m", "api": "openai"}
BASE = {"name": "s", "target": TARGET, "load": {"closed": {"concurrency": [1]}}}


@pytest.mark.parametrize(
    ("target", "api", "endpoint", "path"),
    [
        ({}, "openai", "chat", ""),
        ({"endpoint": "embeddings"}, "openai", "embeddings", ""),
        ({"url": "http://h:1/base/v1"}, "openai", "chat", "/base"),
        ({"url": "http://h:1/base"}, "openai", "chat", "/base"),
        ({"api": "v2"}, "v2", "", "/v1"),
    ],
)
def test_an_address_says_which_api_is_spoken(tmp_path, target, api, endpoint, path):
    scenario = read_document({**BASE, "target": {**TARGET, **target}}).scenario
    address = resolve_address(scenario.target, scenario.target.urls_by_protocol["http"][0], tmp_path)
    assert (address.api, address.endpoint, address.base_path) == (api, endpoint, path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"target": {**TARGET, "api": "v2", "endpoint": "chat"}}, "add api: openai, or remove endpoint"),
        ({"target": {**TARGET, "url": "grpc://h:1"}}, "api: openai is spoken over HTTP"),
        ({"target": {**TARGET, "version": "1"}}, "target.version: OpenAI's API has none: remove it, or target.api: openai"),
        ({"target": {**TARGET, "api": "v2"}, "workload": {"prompts": {}}}, "workload.prompts are for target.api: openai"),
        (
            {"workload": {"batch_size": 2}},
            "workload.batch_size: OpenAI's API has none: remove it, or target.api: openai; prompts go into workload.prompts",
        ),
        ({"workload": {"batch_size": 2}, "stream": {}}, "workload.batch_size: OpenAI's API has none"),
        ({"sequences": {}, "stream": {}}, "sequences: OpenAI's API has none"),
        ({"workload": {"inputs": {"a": {"generate": "zeros"}}}}, "workload.inputs: OpenAI's API has none"),
        ({"workload": {"queue_timeout": "1s"}}, "workload.queue_timeout: OpenAI's API has none"),
        ({"target": {**TARGET, "endpoint": "embeddings"}, "stream": {}}, "embeddings are not streamed"),
        ({"stream": {"body": "infer"}}, "stream.body: OpenAI's API has none"),
        ({"shared_memory": "system", "target": {**TARGET, "url": "http://127.0.0.1:1"}}, "shared_memory: OpenAI's API has none"),
        ({"traces": {"files": ["trace.json"]}}, "traces.files: OpenAI's API has none"),
        ({"sequences": {}}, "sequences: OpenAI's API has none"),
        ({"slo": {"p99": "1s", "wrong_answers": "1%"}}, "slo.wrong_answers: OpenAI's API has none"),
        ({"slo": {"first_token": {"p99": "1s"}}}, "slo.first_token: only streams have first tokens: add stream: {}"),
        ({"slo": {"first_response": {"p99": "1s"}}, "stream": {}}, "slo.first_response is for api: v2"),
        ({"target": {**TARGET, "api": "v2"}, "stream": {}, "slo": {"per_token": {"p99": "1s"}}}, "slo.per_token is for api: openai"),
        ({"workload": {"prompts": {"values": ["a"], "file": "x"}}}, "values and file exclude each other"),
        ({"workload": {"prompts": {"extra": {"n": 2}}}, "stream": {}}, "workload.prompts.extra.n: events of several answers"),
        ({"workload": {"prompts": {"extra": {"best_of": 3, "n": 1}}}, "stream": {}}, "workload.prompts.extra.best_of: events of several"),
        ({"workload": {"prompts": {"max_tokens": 0}}}, "expected a number of tokens, or a law"),
        ({"workload": {"prompts": {"max_tokens": {"normal": 5}}}}, "expected a number of tokens, or a law"),
        ({"workload": {"prompts": {"max_tokens": {"lognormal": 0, "sigma": 1}}}}, "max_tokens.lognormal"),
        ({"workload": {"prompts": {"extra": {"stream": True}}}}, "'stream' is set by stream: remove it from extra"),
        ({"workload": {"prompts": {"extra": {"temperature": float("nan")}}}}, "'temperature' is no JSON value"),
        ({"workload": {"prompts": {"extra": {"stop": ["a", "\ud800"]}}}}, "'stop' is no JSON value"),
        ({"workload": {"prompts": {"extra": {"bias": {"\ud800": 1}}}}}, "'bias' is no JSON value"),
        ({"workload": {"prompts": {"extra": {"messages": []}}}}, "'messages' is set by workload.prompts.values"),
    ],
)
def test_what_does_not_go_together_is_said(changes, words):
    with pytest.raises(ScenarioError) as caught:
        read_document({**BASE, **changes})
    assert words in str(caught.value)


@pytest.mark.parametrize(("extra", "stream"), [({"n": 2}, None), ({"n": 1, "best_of": 1}, {})])
def test_several_answers_are_refused_only_in_one_stream(extra, stream):
    read = read_document({**BASE, "workload": {"prompts": {"extra": extra}}, **({} if stream is None else {"stream": stream})})
    assert read.scenario.workload.prompts.extra == extra
