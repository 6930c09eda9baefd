"""How many workers send a mix from several machines."""

from types import SimpleNamespace
from typing import Any

import pytest

from perfkit.measurement import mix


@pytest.mark.parametrize(("machines", "needed", "workers"), [(1, [1, 1], 1), (2, [1, 1], 2), (2, [2, 3], 4), (5, [2, 3], 5)])
def test_a_mix_has_what_its_rates_need_together_and_a_worker_on_each_machine(monkeypatch, machines, needed, workers):
    def count_workers(_scenario, _part, own_need, *_, machines):
        return max(own_need, machines)

    monkeypatch.setattr(mix, "count_workers", count_workers)
    scenario = SimpleNamespace(measure=SimpleNamespace(workers="auto"))
    workloads: Any = [SimpleNamespace(scenario=scenario, probed=need) for need in needed]
    point: Any = SimpleNamespace(parts=needed)
    spec: Any = SimpleNamespace(workloads=needed, max_workers=100)
    assert mix.count_mix_workers(point, workloads, spec, None, 8, machines) == workers
