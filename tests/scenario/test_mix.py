"""The `workloads` of a scenario: what each is by itself, what is refused and where, and what results store."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.file import read_document, read_scenario, scenario_document
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec

MIX = """\
name: mix
target: {timeout: 5s, engine: reference}
workload: {seed: 3, batch_size: 4}
workloads:
  - {name: small, weight: 70, model: a, batch_size: 1, slo: {p99: 20ms}}
  - {name: large, weight: 30, model: b, protocol: grpc, target: {timeout: 9s, headers: {X-Key: planted}}}
load: {open: {rate: [100, 200]}}
"""
OWN = """\
workloads:
  - {name: online, model: a, target: {url: "http://u:pw@h:1"}, load: {open: {rate: 50}}}
  - {name: batch, model: b, target: {url: "grpc://h:2"}, load: {closed: {concurrency: 8}}}
"""


def read(tmp_path, text):
    (tmp_path / "mix.yaml").write_text(text)
    return read_scenario(tmp_path / "mix.yaml")


def test_each_workload_is_a_scenario_with_the_common_parts_and_its_own(tmp_path):
    small, large = (one.scenario for one in read(tmp_path, MIX).workloads())
    assert (small.target.model, small.target.load_protocols, small.workload.batch_size) == ("a", ("http",), 1)
    assert (large.target.model, large.target.load_protocols, large.workload.batch_size) == ("b", ("grpc",), 4)
    assert (small.target.timeout_ns, large.target.timeout_ns) == (5 * 10**9, 9 * 10**9)
    assert {small.target.engine, large.target.engine} == {"reference"}
    assert {small.workload.seed, large.workload.seed} == {3}
    assert small.slo is not None
    assert large.slo is None
    assert small.workloads is large.workloads is None


COMMAND = """
target: {command: "serve {http_port} {grpc_port}", protocols: [http, grpc]}
load: {closed: {concurrency: 2}}
workloads:
  - {name: started, weight: 1, model: a, protocol: grpc}
  - {name: over-http, weight: 1, model: b, target: {protocols: [http]}}
  - {name: elsewhere, weight: 1, model: c, target: {url: "http://h:1"}}
"""


def test_a_command_serves_the_workloads_that_have_no_url_of_their_own(tmp_path):
    targets = [one.scenario.target for one in read(tmp_path, COMMAND).workloads()]
    assert [(one.command is not None, one.is_started, one.load_protocols) for one in targets] == [
        (True, True, ("grpc",)),
        (True, True, ("http",)),
        (False, False, ("http",)),
    ]


def test_loads_of_their_own_may_be_closed_and_open(tmp_path):
    online, batch = (one.scenario.load for one in read(tmp_path, OWN).workloads())
    assert isinstance(online, OpenLoadSpec)
    assert isinstance(batch, ClosedLoadSpec)


@pytest.mark.parametrize("text", [MIX, OWN])
def test_what_a_result_stores_has_no_secrets_and_is_the_same_mix(tmp_path, text):
    scenario = read(tmp_path, text).scenario
    stored = scenario_document(scenario)
    assert "planted" not in str(stored)
    assert "pw" not in str(stored)
    again = read_document(stored).scenario
    for before, after in zip(scenario.plain_scenarios(), again.plain_scenarios(), strict=True):
        assert (before.load, before.workload, before.slo, before.target.model) == (
            after.load,
            after.workload,
            after.slo,
            after.target.model,
        )


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (MIX, "model: a, batch_size", "model: a, batch_sise", "mix.yaml:5: workloads[0].batch_sise: unknown key; did you mean 'batch_size'?"),
        (MIX, "timeout: 9s", "timeout: -9s", "mix.yaml:6: workloads[1].target.timeout: a duration cannot be negative"),
        (MIX, "{p99: 20ms}", "{p9: 20ms}", "mix.yaml:5: workloads[0].slo.p9: unknown key"),
        (MIX, "weight: 70", "weight: 1.5", "mix.yaml:5: workloads[0].weight: expected an integer, found 1.5"),
        (MIX, "weight: 70, ", "", "workloads: 'small' has neither a weight nor a load"),
        (MIX, "weight: 70", "load: {closed: {concurrency: 1}}", "give either every workload a load of its own"),
        (MIX, "name: large", "name: small", "names must be unique, found 'small' twice"),
        (MIX, "load: {open: {rate: [100, 200]}}", "load: {search: {slo: {p99: 5ms}}}", "a search varies the rate of one workload"),
        (MIX, "protocol: grpc, target: {", "protocol: grpc, target: {url: http://h, ", "workloads[1].protocol: the target has no grpc URL"),
        (MIX, "engine: reference", "protocols: [http, grpc]", "workloads[0].protocol: the target has http and grpc"),
        (OWN, "rate: 50", "rate: [50, 60]", "the load of 'online' has 2 values: give one"),
        (OWN, "load: {open: {rate: 50}}", "load: {open: {rate: 50}}, stream: {}, check: {outputs: {o: {value: [1]}}}", "workloads[0]: check.outputs: the events of generate_stream"),
        (OWN, "workloads:", "slo: {first_response: {p99: 1ms}}\nworkloads:", "give first_response in the slo of each that is one"),
        (OWN, "workloads:", "measure: {requests: 5}\nworkloads:", "give measure.duration instead"),
        ("load: {closed: {concurrency: 1}}\ntarget: {model: m}\n", "target", "alone: true\ntarget", "give workloads, or remove alone"),
    ],
)  # fmt: skip
def test_an_error_names_the_workloads_own_line_and_key(tmp_path, text, old, new, message):
    assert old in text
    with pytest.raises(ScenarioError) as raised:
        read(tmp_path, text.replace(old, new, 1))
    assert message in str(raised.value)
    assert "planted" not in str(raised.value)


def test_a_mix_needs_no_target_besides_those_of_its_workloads(tmp_path):
    urls = [one.scenario.target.url for one in read(tmp_path, OWN).workloads()]
    assert urls == ["http://u:pw@h:1", "grpc://h:2"]
