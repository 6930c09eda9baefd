"""A sweep yields every combination as a scenario, and says which of them are measured interleaved on one server."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.file import read_cases, read_scenario
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec
from perfkit.scenario.sweep import interleaved_groups

SWEEP = """
target: {model: m}
load: {closed: {concurrency: 1}}
sweep:
  workload.batch_size: [1, 4]
  server.threads: [1, 2, 3]
"""


@pytest.fixture
def cases(tmp_path):
    def read(text, settings=(), environ=()):
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return read_cases(path, settings, dict(environ))

    return read


def test_every_combination_is_a_case_and_the_last_key_changes_fastest(cases):
    cases_read = cases(SWEEP)
    assert [tuple(case.values.values()) for case in cases_read] == [(1, 1), (1, 2), (1, 3), (4, 1), (4, 2), (4, 3)]
    assert [(case.loaded.scenario.workload.batch_size, case.loaded.scenario.server.threads) for case in cases_read] == [
        (1, 1), (1, 2), (1, 3), (4, 1), (4, 2), (4, 3),
    ]  # fmt: skip
    assert cases_read[4].loaded.overrides == ("workload.batch_size=4", "server.threads=2")
    assert all(case.loaded.scenario.sweep is None for case in cases_read)


def test_a_setting_of_a_swept_key_replaces_its_values(cases):
    cases_read = cases(SWEEP, ["workload.batch_size=2"])
    assert [dict(case.values) for case in cases_read] == [{"server.threads": threads} for threads in (1, 2, 3)]
    assert {case.loaded.scenario.workload.batch_size for case in cases_read} == {2}
    cases_read = cases(SWEEP, environ={"PERFKIT_SET_SERVER__THREADS": "7"})
    assert [dict(case.values) for case in cases_read] == [{"workload.batch_size": 1}, {"workload.batch_size": 4}]


def test_a_setting_inside_a_swept_section_is_refused(cases):
    swept = "target: {model: m}\nload: {closed: {concurrency: 1}}\nsweep: {load: [{closed: {concurrency: 1}}, {open: {rate: 5}}]}\n"
    with pytest.raises(ScenarioError, match=r"load\.closed\.concurrency has no effect, because sweep replaces all of load: set load"):
        cases(swept, ["load.closed.concurrency=4"])


def test_any_key_can_be_swept_even_a_whole_load(cases):
    text = "target: {model: m}\nsweep: {load: [{closed: {concurrency: 3}}, {open: {rate: 5}}], target.protocols: [[http], [grpc]]}\n"
    cases_read = cases(text)
    loads = [type(case.loaded.scenario.load) for case in cases_read]
    assert loads == [ClosedLoadSpec] * 2 + [OpenLoadSpec] * 2
    assert [case.loaded.scenario.target.load_protocols for case in cases_read] == [("http",), ("grpc",)] * 2


def test_a_swept_header_is_redacted(cases):
    (one,) = cases(SWEEP.replace("workload.batch_size: [1, 4]", "target.headers: [{authorization: s3cret}]").replace("[1, 2, 3]", "[1]"))
    assert one.loaded.overrides == ("target.headers=<redacted>", "server.threads=1")


def test_a_file_without_a_sweep_is_one_case_and_one_scenario(cases, tmp_path):
    (one,) = cases("target: {model: m}\nload: {closed: {concurrency: 1}}\n")
    assert not one.values
    assert read_scenario(tmp_path / "s.yaml", environ={}) == one.loaded


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([100] * 4, "100 × 100 × 100 × 100 = 100,000,000 cases, and 10,000 are the most: remove values of workload.parameters.p0, "),
        ([10_001], "10,001 cases, and 10,000 are the most: remove values of workload.parameters.p0"),
    ],
)
def test_the_cases_of_a_sweep_are_multiplied_before_any_is_made(cases, lengths, message):
    keys = "".join(f"  workload.parameters.p{index}: {list(range(length))}\n" for index, length in enumerate(lengths))
    with pytest.raises(ScenarioError) as refusal:
        cases(f"target: {{model: m}}\nload: {{closed: {{concurrency: 1}}}}\nsweep:\n{keys}")
    assert f"s.yaml:3: sweep: {message}" in str(refusal.value)


def test_large_values_in_every_case_of_a_sweep_are_refused(cases):
    values = f"workload: {{inputs: {{X: {{value: {[1] * 20_000}}}}}}}"
    with pytest.raises(ScenarioError, match=r"sweep: 200 cases of 20,\d\d\d values each are 4,\d\d\d,\d\d\d, and 2,000,000 are the most"):
        cases(
            f"target: {{model: m}}\nload: {{closed: {{concurrency: 1}}}}\n{values}\nsweep: {{workload.batch_size: {list(range(1, 201))}}}"
        )


def test_the_ranking_belongs_to_the_sweep_and_not_to_its_scenarios(cases):
    (first, *_), plain = cases(SWEEP + "rank: {by: p99, where: [p99 < 50ms, gpu_memory < 40GiB]}\n"), cases(SWEEP)
    assert (first.rank.by, first.rank.where) == ("p99", ("p99 < 50ms", "gpu_memory < 40GiB"))
    assert first.loaded.scenario == plain[0].loaded.scenario, "so nothing is measured again where only the ranking changes"
    assert plain[0].rank is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SWEEP + "rank: {by: speed}\n", r"s\.yaml:7: rank\.by: expected 'throughput', .*found 'speed'"),
        (SWEEP + "rank:\n  where: [p99 < 50]\n", r"s\.yaml:8: rank\.where: expected a duration"),
        (SWEEP + "rank: {where: [price < 3/h]}\n", r"'price' is not a known figure; known are throughput, "),
        ("target: {model: m}\nload: {closed: {concurrency: 1}}\nrank: {by: p99}\n", r"s\.yaml:3: rank: it orders the cases of a sweep: add sweep, or remove rank"),
        (SWEEP + "  rank.by: [p99, p50]\n", r"sweep\.rank\.by: this key cannot be swept"),
    ],
)  # fmt: skip
def test_a_ranking_that_cannot_be_read_is_refused(cases, text, message):
    with pytest.raises(ScenarioError, match=message):
        cases(text)


CHOICES = """
target: {model: m}
load: {closed: {concurrency: 1}}
sweep:
  choices:
    plain: {}
    nothing:
    small and gzip: {target.compression: gzip, workload.batch_size: 2}
  server.threads: [1, 2]
"""


def test_choices_are_named_sets_of_keys_and_combine_with_swept_keys(cases):
    cases_read = cases(CHOICES)
    assert [dict(case.values) for case in cases_read] == [
        {"choices": name, "server.threads": threads} for name in ("plain", "nothing", "small and gzip") for threads in (1, 2)
    ]
    scenarios = [case.loaded.scenario for case in cases_read]
    assert [one.target.compression for one in scenarios] == ["none"] * 4 + ["gzip"] * 2
    assert [one.workload.batch_size for one in scenarios] == [1] * 4 + [2] * 2
    assert cases_read[5].loaded.overrides == ("target.compression=gzip", "workload.batch_size=2", "server.threads=2")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ("[1, 2]", "expected names and the keys that each sets"),
        ("{}", "expected names and the keys that each sets"),
        ("{a: 1}", "expected names and the keys that each sets"),
        ("{a: {name: x}}", "name cannot be set by a choice$"),
        ("{a: {rank.by: p99}}", "rank.by cannot be set by a choice$"),
        ("{a: {server.threads: 3}}", "server.threads cannot be set by a choice, because it is swept itself"),
        ("{a: {workload.bach_size: 3}}", "bach_size: unknown key"),
    ],
)
def test_choices_that_cannot_be_measured_are_refused(cases, choices, message):
    text = f"target: {{model: m}}\nload: {{closed: {{concurrency: 1}}}}\nsweep: {{choices: {choices}, server.threads: [1, 2]}}\n"
    with pytest.raises(ScenarioError, match=message):
        cases(text)


@pytest.mark.parametrize("setting", ["workload.batch_size=4", "workload={seed: 1}", "target.compression.x=1"])
def test_a_setting_that_a_choice_replaces_is_refused(cases, setting):
    with pytest.raises(ScenarioError, match="has no effect for every case, because a choice sets"):
        cases(CHOICES, [setting])


def test_typed_is_the_name_of_json_over_grpc(cases):
    text = "target: {model: m}\nload: {closed: {concurrency: 1}}\nworkload: {encoding: typed, inputs: {x: {value: 1, encoding: typed}}}\n"
    workload = cases(text)[0].loaded.scenario.workload
    assert (workload.encoding, workload.inputs["x"].encoding) == ("json", "json")


HEAD = "target: {model: m}\nload: {closed: {concurrency: 1}}\n"


@pytest.fixture
def groups(tmp_path):
    def read(text):
        path = tmp_path / "s.yaml"
        path.write_text(text)
        return interleaved_groups([(10 + number, case.loaded.scenario) for number, case in enumerate(read_cases(path, environ={}))])

    return read


@pytest.mark.parametrize(
    "key",
    [
        "workload.encoding: [binary, json]",
        "workload.batch_size: [1, 4]",
        "target.compression: [none, gzip]",
        "target.engine: [wire, reference]",
        "target.max_connections: [1, 2]",
        "shared_memory: [none, system]",
        "load.closed.concurrency: [[1, 2], 4]",
        "slo: [{p99: 5ms}, {p99: 9ms}]",
        "check.share: [0%, 1%]",
        "target.protocols: [[http], [grpc]]",
        "target.api: [v2, openai]",
        "target.url: [http://a, grpc://a]",
        "choices: {a: {target.url: 'http://a:1', target.api: openai}, b: {target.url: 'http://a:2'}}",
    ],
)
def test_what_is_of_the_requests_alone_is_measured_interleaved(groups, key):
    assert groups(f"{HEAD}sweep: {{{key}}}\n") == [[10, 11]]


@pytest.mark.parametrize(
    "key",
    [
        "target.model: [m, n]",
        "target.url: [http://a, http://b]",
        "target.url: [http://a, grpc://b]",
        "target.url: [http://a:1, http://a:2]",
        "choices: {a: {target.url: 'http://a:1', target.api: openai}, b: {target.url: 'http://a:2', target.api: openai}}",
        "choices: {a: {target.command: 's {port}', target.protocols: [http]}, b: {target.command: 's {port}', target.protocols: [grpc]}}",
        "target.headers: [{a: b}, {a: c}]",
        "server.threads: [1, 2]",
        "measure.workers: [1, 2]",
        "telemetry: [true, false]",
    ],
)
def test_what_needs_another_server_or_another_measurement_is_not(groups, key):
    assert groups(f"{HEAD}sweep: {{{key}}}\n") == [[10], [11]]


def test_each_server_has_a_group_in_the_order_of_the_cases(groups):
    assert groups(f"{HEAD}sweep: {{workload.batch_size: [1, 4], server.threads: [1, 2]}}\n") == [[10, 12], [11, 13]]


def test_searches_are_measured_alone(groups):
    text = "target: {model: m}\nload: {search: {slo: {p99: 9ms}}}\nsweep: {workload.batch_size: [1, 4]}\n"
    assert groups(text) == [[10], [11]]


def test_a_group_has_32_cases_at_most(groups):
    sizes = [len(group) for group in groups(f"{HEAD}sweep: {{workload.seed: {list(range(70))}}}\n")]
    assert sizes == [32, 32, 6]
