"""Requests that are given up over real connections: counts, figures, and the connections of the others."""

import pytest

from perfkit.errors import ScenarioError
from tests.measurement import one_point


def read(tmp_path, protocol="http", synthetic="service=constant:300ms,servers=1000", load=None, **sections):
    if "workloads" not in sections:  # those of a mix have loads of their own
        load = load or {"closed": {"concurrency": 8}, "abandon": {"share": "50%", "after": "20ms"}}
    return one_point.read(tmp_path, protocol=protocol, synthetic=synthetic, load=load, **sections)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_given_up_requests_are_counted_and_are_no_failures(tmp_path, protocol):
    point = one_point.run(read(tmp_path, protocol), tmp_path)
    requests = point.requests
    assert (requests.sent, requests.ok + requests.abandoned) == (60, 60)
    assert requests.abandoned > 10
    assert point.error_rate == 0
    assert not point.failures
    assert point.times.count == requests.ok  # of those that were answered, none was to be given up
    assert point.abandonment is not None
    assert point.abandonment.after_ns is not None
    assert point.abandonment.after_ns.count == requests.abandoned
    # the bundled server cancels what its clients have left
    assert (point.abandonment.executed, point.abandonment.wasted_share, point.abandonment.unknown) == (0, 0.0, "")
    assert point.connections.reconnects == 0


def test_requests_that_are_answered_in_time_count_but_have_no_times(tmp_path):
    load = {"closed": {"concurrency": 4}, "abandon": {"share": "50%", "after": "10s"}}
    point = one_point.run(read(tmp_path, synthetic="service=constant:5ms,servers=1000", load=load), tmp_path)
    assert (point.requests.ok, point.requests.abandoned) == (60, 0)
    assert 10 < point.requests.answered_early < 50
    assert point.times.count == 60 - point.requests.answered_early


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_streams_are_given_up_with_their_nth_response(tmp_path, protocol):
    load = {"closed": {"concurrency": 4}, "abandon": {"share": "100%", "after": {"events": 3}}}
    loaded = read(
        tmp_path,
        protocol,
        "service=constant:5ms,servers=1000,responses=20,gap=10ms",
        load,
        stream={},
        measure={"warmup": "0s", "requests": 20, "repetitions": 1},
    )
    point = one_point.run(loaded, tmp_path)
    assert point.requests.abandoned == point.requests.sent == 20
    assert point.responses is not None
    assert point.responses.count == 3 * 20
    assert point.abandonment is not None
    assert (point.abandonment.executed, point.abandonment.wasted_share) == (None, None)
    assert "stream" in point.abandonment.unknown


def test_each_workload_of_a_mix_has_its_own_patience(tmp_path):
    load = {"open": {"rate": [40]}}
    workloads = [
        {"name": "hasty", "load": {**load, "abandon": {"share": "100%", "after": "20ms"}}, "inputs": {"INPUT0": {"shape": [4]}}},
        {"name": "patient", "load": load, "inputs": {"INPUT0": {"shape": [4]}}},
    ]
    loaded = read(tmp_path, workloads=workloads, workload=None, measure={"warmup": "0s", "duration": "1s", "repetitions": 1})
    points = one_point.run_all(loaded, tmp_path)
    counts = {point.workload: (point.requests.sent, point.requests.ok, point.requests.abandoned) for point in points}
    assert {name: (sent == ok, sent == left) for name, (sent, ok, left) in counts.items() if name} == {
        "hasty": (False, True),
        "patient": (True, False),
    }
    assert all(sent > 0 for sent, _, _ in counts.values())


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"load": {"idle": {"gap": "1s"}, "abandon": {"share": "5%", "after": "1s"}}}, "load.abandon is for closed and open loads"),
        (
            {"load": {"closed": {"concurrency": 1}, "abandon": {"share": "5%", "after": {"events": 3}}}},
            "only streams have several responses",
        ),
        ({"load": {"closed": {"concurrency": 1}, "abandon": {"share": "5%", "after": {"uniform": ["2s", "1s"]}}}}, "the shortest time"),
        ({"load": {"closed": {"concurrency": 1}, "abandon": {"share": "5%", "after": {}}}}, "exactly one of time"),
        ({"load": {"closed": {"concurrency": 1}, "abandon": {"share": "0.01%", "after": "1s"}}}, "load.abandon.share"),
    ],
)
def test_what_cannot_be_given_up_is_refused(tmp_path, sections, told):
    with pytest.raises(ScenarioError, match=told):
        read(tmp_path, **sections)
