"""How many workers send a mix from several machines."""

from types import SimpleNamespace
from typing import Any

import pytest

from perfkit.measurement import worker_specs


@pytest.mark.parametrize(("machines", "needed", "workers"), [(1, [1, 1], 1), (2, [1, 1], 2), (2, [2, 3], 4), (5, [2, 3], 5)])
def test_a_mix_has_what_its_rates_need_together_and_a_worker_on_each_machine(monkeypatch, machines, needed, workers):
    monkeypatch.setattr(worker_specs, "_needed_workers", lambda load, *_: load)
    scenario = SimpleNamespace(measure=SimpleNamespace(workers="auto"))
    workloads: Any = [SimpleNamespace(scenario=scenario) for _ in needed]
    spec: Any = SimpleNamespace(shared=None, workloads=[SimpleNamespace(load=need) for need in needed], max_workers=100)
    assert worker_specs.count_workers(spec, workloads, None, 8, machines=machines) == workers
