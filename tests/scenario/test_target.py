"""Several addresses and the rotation of connections in `target`."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.measurement.connections import transport_options
from perfkit.scenario.file import scenario_document
from perfkit.transport.options import Rotation


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{url: [http://a, grpc://b]}", "replicas of one protocol: for both protocols use urls"),
        ("{url: [http://a, http://a:80]}", "names http://a:80 more than once"),
        ("{url: [http://a, 5]}", "expected a URL, or a list of the URLs of replicas"),
        ("{url: []}", "expected a URL, or a list of the URLs of replicas"),
        ("{url: [http://a, ftp://b]}", "URL 2 of the list: expected http://HOST:PORT"),
        ("{urls: {http: [http://a, grpc://b]}}", "http: this URL is for grpc"),
        ("{url: http://a, balance: random}", "balance needs several addresses"),
        ("{url: http://127.0.0.1, resolve: all}", "resolve: all needs a url with a name"),
        ("{url: http://a, resolve: any}", "'first' or 'all'"),
        ("{url: http://a, connections: {}}", "give max_requests, max_age, or both"),
        ("{url: http://a, connections: {max_requests: 0}}", "max_requests"),
        ("{url: http://a, connections: {max_age: 0s}}", "max_age"),
        ("{url: http://a, connections: {max_request: 1}}", "did you mean 'max_requests'"),
    ],
)
def test_addresses_and_rotation_are_checked_without_a_server(read, target, message):
    with pytest.raises(ScenarioError) as caught:
        read(f"target: {target[:-1]}, model: m}}\nload: {{closed: {{concurrency: 1}}}}\n")
    assert message in str(caught.value)


def test_replicas_and_rotation_are_read_and_written_as_given(read):
    text = "target: {url: [http://u:pw@a, http://b], model: m, balance: random, connections: {max_requests: 5, max_age: 30s}}\n"
    scenario = read(text + "load: {closed: {concurrency: 1}}\n").scenario
    assert scenario.target.urls_by_protocol == {"http": ("http://u:pw@a", "http://b")}
    options = transport_options(scenario, "http")
    assert (options.rotation, options.balance, options.resolve) == (Rotation(5, 30 * 10**9), "random", "first")
    document = scenario_document(scenario)["target"]
    assert document["url"] == ["http://<redacted>@a", "http://b"]
    assert (document["connections"], document["balance"]) == ({"max_requests": 5, "max_age": "30s"}, "random")
    plain = read("target: {url: http://a, model: m}\nload: {closed: {concurrency: 1}}\n").scenario
    assert {"connections", "balance", "resolve"}.isdisjoint(scenario_document(plain)["target"])  # older results stay comparable
    assert transport_options(plain, "http").rotation is None
