"""What a gate requires of its request before it measures."""

import pytest

from perfkit.errors import UsageError
from perfkit.gate.arm import parse_arm
from perfkit.gate.paired_gate import GateRequest
from perfkit.scenario.file import read_scenario
from tests.cli.gate_scenario import write_gate_scenario


def request_of(folder, fleet):
    loaded = read_scenario(write_gate_scenario(folder, "throughput", fleet=fleet))
    baseline, candidate = (parse_arm("", url, loaded.scenario) for url in ("http://127.0.0.1:1", "http://127.0.0.1:2"))
    return GateRequest(loaded, baseline, candidate)


def test_machines_that_stay_need_a_port_that_stays(tmp_path):
    with pytest.raises(UsageError, match=r"fleet\.listen: 127\.0\.0\.1:0: port 0 .* give a port"):
        request_of(tmp_path, {"kind": "worker", "workers": 2, "listen": "127.0.0.1:0"})
    assert request_of(tmp_path, {"kind": "worker", "workers": 2, "listen": "127.0.0.1:8790"}).needs_kept_machines


def test_dask_starts_machines_for_each_run_at_any_port(tmp_path):
    assert not request_of(tmp_path, {"kind": "dask", "scheduler": "tcp://127.0.0.1:8786", "listen": "127.0.0.1:0"}).needs_kept_machines
