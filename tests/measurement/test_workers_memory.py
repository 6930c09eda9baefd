"""The memory of worker processes is multiplied before one is started."""

from types import SimpleNamespace
from typing import Any

import pytest

from perfkit.errors import ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.measurement.worker_specs import count_workers
from perfkit.scenario.model import Scenario

MIB = 2**20


def count(workers, *, available_mib, tensor_mib=0, concurrency=1000):
    document = {"name": "s", "target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}, "measure": {"workers": workers}}
    tensor = SimpleNamespace(raw=memoryview(bytes(tensor_mib * MIB)))
    spec: Any = SimpleNamespace(max_workers=concurrency)
    probed: Any = SimpleNamespace(requests=[SimpleNamespace(inputs=[tensor])])
    one: Any = SimpleNamespace(scenario=Scenario.model_validate(document), probed=probed)
    return count_workers(spec, [one], None, 2, MemoryBudget(available_mib * MIB))


def test_as_many_workers_as_a_quarter_of_the_memory_holds_are_started():
    assert count(100, available_mib=100 * 40 * 4) == 100
    with pytest.raises(ScenarioError, match=r"measure\.workers: 101 processes × 40\.0 MiB = 3\.95 GiB of memory"):
        count(101, available_mib=100 * 40 * 4)


def test_every_worker_holds_the_requests():
    assert count(10, available_mib=10 * 50 * 4, tensor_mib=10) == 10
    with pytest.raises(ScenarioError, match=r"10 processes × 51\.0 MiB"):
        count(10, available_mib=10 * 50 * 4, tensor_mib=11)


def test_workers_that_would_have_nothing_to_do_are_not_counted():
    assert count(1000, available_mib=1000, concurrency=3) == 3
