"""The `traces` section: its defaults, and what it cannot be combined with."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.file import read_document

CLOSED = {"closed": {"concurrency": 1}}
SERVER = {"url": "http://h:8000", "model": "m"}


def read(traces, target=None, load=CLOSED, **sections):
    return read_document({"name": "s", "target": target or {"model": "m"}, "load": load, "traces": traces, **sections}).scenario


@pytest.mark.parametrize(
    ("traces", "per_s", "share"),
    [({}, 100.0, None), ({"sample": "20/s"}, 20.0, None), ({"share": "2%"}, None, 0.02)],
)
def test_a_hundred_requests_a_second_are_traced_unless_a_rate_or_a_share_is_given(traces, per_s, share):
    spec = read(traces).traces
    assert (spec.rate_per_s, spec.share) == (per_s, share)


@pytest.mark.parametrize(
    ("listen", "at"), [("127.0.0.1:4318", ("127.0.0.1", 4318)), ("[::1]:1", ("::1", 1)), ("host.name:80", ("host.name", 80))]
)
def test_spans_are_received_at_a_host_and_a_port(listen, at):
    assert read({"listen": listen}, SERVER).traces.listen_at == at


@pytest.mark.parametrize(
    ("traces", "others", "found"),
    [
        ({"sample": "1/s", "share": "1%"}, {}, "sample and share exclude each other: remove one"),
        ({"listen": "h:1", "files": "f"}, {}, "listen and files exclude each other: remove one"),
        ({"listen": "4318"}, {}, "expected a host and a port, such as 127.0.0.1:4318, found '4318'"),
        ({"listen": "h:65536"}, {}, "expected a host and a port"),
        ({"listen": "h:0"}, {}, "expected a host and a port"),
        ({"files": "f"}, {}, "the bundled server sends its spans to perfkit, and writes no file: remove files, or give target.url"),
        ({"share": "0%"}, {}, "traces.share"),
        ({}, {"target": SERVER}, "perfkit must know where the server sends its spans: give listen"),
        ({}, {"stream": {}}, "traces follow single requests: remove stream, or traces"),
        ({}, {"load": {"idle": {"gap": "10ms"}}}, "traces need a steady load"),
        ({}, {"telemetry": False}, "remove telemetry: false, or give traces.files"),
        ({"files": "f"}, {"target": {**SERVER, "compression": "gzip"}}, "compressed requests cannot carry an id of their own"),
        ({"listen": "h:1"}, {"target": {**SERVER, "headers": {"TraceParent": "x"}}}, "traces set the header traceparent: remove it"),
    ],
)  # fmt: skip
def test_what_excludes_traces_is_named_with_its_remedy(traces, others, found):
    with pytest.raises(ScenarioError) as raised:
        read(traces, **others)
    assert found in str(raised.value)


def test_each_workload_of_a_mix_is_traced():
    mix = read({"listen": "h:1"}, SERVER, workloads=[{"name": "a", "weight": 1}, {"name": "b", "weight": 2}])
    assert all(plain.traces == mix.traces for plain in mix.plain_scenarios())
