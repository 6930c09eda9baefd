"""What a worker is to do in a load point of several workloads."""

import pytest

from perfkit.load.point import load_points
from perfkit.measurement.load_points import load_point_source
from perfkit.measurement.target_probe import ProbedWorkload, ProbeResult
from perfkit.measurement.worker_specs import make_worker_spec
from perfkit.protocol.message import InferRequest, ModelMetadata
from perfkit.scenario.file import read_scenario
from perfkit.scenario.workload import Check
from perfkit.target.address import Address
from perfkit.workers.request_sampler import TraceIds
from perfkit.workload.expectation import Expectation

S = 1_000_000_000
WEIGHTED = """\
target: {timeout: 2s, url: "http://h:1"}
workloads:
  - {name: fast, weight: 1, model: a}
  - {name: slow, weight: 1, model: b, target: {timeout: 20s}}
load: {open: {rate: 10}}
"""
OWN = """\
target: {timeout: 2s, url: "http://h:1"}
workloads:
  - {name: fast, model: a, load: {open: {rate: 10}}}
  - {name: slow, model: b, target: {timeout: 20s}, load: {closed: {concurrency: 1}}}
"""


def probed(folder):
    requests = (InferRequest("m", ()),)
    expectation = Expectation.of(requests, ModelMetadata("m", (), "", (), ()), Check(), None, folder)
    return ProbeResult("", "", requests, "", expectation, 1, 1, "", {}, 1)


@pytest.mark.parametrize(("text", "drain_s"), [(WEIGHTED, 20), (OWN, 20), (WEIGHTED + "measure: {drain: 3s}\n", 3)])
def test_a_mix_drains_as_long_as_its_slowest_workload_needs(tmp_path, text, drain_s):
    """The loops end together: the drain of the first workload would cut the answers of a slower one off."""
    (tmp_path / "mix.yaml").write_text(text)
    loaded = read_scenario(tmp_path / "mix.yaml")
    (point,) = (one for one in load_points(loaded) if one.repetition == 0)
    workloads = [ProbedWorkload(one.scenario, Address("http", "h", 1), probed(tmp_path)) for one in loaded.workloads()]
    assert make_worker_spec(loaded.scenario, point, workloads).drain_ns == drain_s * S


@pytest.mark.parametrize(("text", "rate_per_s"), [(WEIGHTED, 10), (OWN, None)])
def test_the_traced_requests_of_a_mix_are_a_share_of_all_its_requests(tmp_path, text, rate_per_s):
    (tmp_path / "mix.yaml").write_text(text + "traces: {listen: 'h:1'}\n")
    loaded = read_scenario(tmp_path / "mix.yaml")
    (point,) = (one for one in load_points(loaded) if one.repetition == 0)
    workloads = [ProbedWorkload(one.scenario, Address("http", "h", 1), probed(tmp_path)) for one in loaded.workloads()]
    specs = make_worker_spec(loaded.scenario, point, workloads, TraceIds("0" * 16)).workloads
    assert [(one.sampling.per_s, one.sampling.expected_per_s) for one in specs if one.sampling] == [(100, rate_per_s)] * 2


def test_of_a_fast_open_loop_the_share_is_what_may_be_traced_of_its_window(tmp_path):
    text = 'target: {model: m, url: "http://h:1"}\nload: {open: {rate: 4000}}\nmeasure: {duration: 10s}\ntraces: {share: "%d%%", listen: "h:1"}\n'
    for share, expected in ((100, 0.5), (20, 0.2)):  # 20,000 of 40,000 requests
        (tmp_path / "one.yaml").write_text(text % share)
        loaded = read_scenario(tmp_path / "one.yaml")
        point = load_point_source(loaded).next_point(probe_time_ns=1)
        assert point is not None
        one = ProbedWorkload(loaded.scenario, Address("http", "h", 1), probed(tmp_path))
        sampling = make_worker_spec(loaded.scenario, point, [one], TraceIds("0" * 16)).workloads[0].sampling
        assert sampling is not None
        assert sampling.share == pytest.approx(expected)
