"""Requests in flight of a mix with weights cannot have places of their own for outputs."""

import pytest

from perfkit.errors import ScenarioError
from perfkit.scenario.file import read_scenario


@pytest.mark.parametrize("where", ["whole", "entry"])
def test_a_mix_with_weights_has_no_outputs_in_shared_memory(tmp_path, where):
    shared = "{kind: system, outputs: true}"
    entry = f", shared_memory: {shared}" if where == "entry" else ""
    whole = f"shared_memory: {shared}\n" if where == "whole" else ""
    file = tmp_path / "mix.yaml"
    file.write_text(
        f"target: {{url: 'http://127.0.0.1:8000', model: m}}\n{whole}load: {{closed: {{concurrency: 2}}}}\n"
        f"workloads: [{{name: a, weight: 1{entry}}}, {{name: b, weight: 1}}]\n"
    )
    with pytest.raises(ScenarioError, match="with weights, requests in flight would share outputs"):
        read_scenario(file)
