"""Which cases of a sweep are measured interleaved on one server."""

import pytest

from perfkit.scenario.file import read_cases
from perfkit.scenario.sweep import interleaved_groups

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
    ],
)
def test_what_is_of_the_requests_alone_is_measured_interleaved(groups, key):
    assert groups(f"{HEAD}sweep: {{{key}}}\n") == [[10, 11]]


@pytest.mark.parametrize(
    "key",
    [
        "target.model: [m, n]",
        "target.url: [http://a, http://b]",
        "target.protocols: [[http], [grpc]]",
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
