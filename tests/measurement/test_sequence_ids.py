"""Ids of sequences for a model whose control input has 32 bits, from its configuration to the requests."""

import asyncio
import json

import pytest

from perfkit.errors import ModelMismatchError
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.scenario.file import read_scenario
from tests.json_server import JsonHandler, serving

CORRID = {"name": "CORRID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT32"}]}


def noting(ids, config):
    """A handler with this configuration of the model `m`, which notes the ids of sequences."""

    tensor = {"datatype": "FP32", "shape": [1]}

    class Handler(JsonHandler):
        def do_GET(self):
            inputs, outputs = [{"name": "i", **tensor}], [{"name": "o", **tensor}]
            metadata = {"name": "m", "versions": ["1"], "platform": "x", "inputs": inputs, "outputs": outputs}
            self.answer(200, config if self.path.endswith("config") else metadata)

        def do_POST(self):
            ids.append(json.loads(self.body())["parameters"]["sequence_id"])
            self.answer(200, {"model_name": "m", "model_version": "1", "outputs": [{"name": "o", **tensor, "data": [1.0]}]})

    return Handler


def measure(folder, config, load="load: {closed: {concurrency: 2}}", sequences="{length: 2}"):
    """The ids of the probe and of a load of 20 requests."""
    ids: list[int] = []
    with serving(noting(ids, config)) as port:
        (folder / "s.yaml").write_text(
            f"target: {{url: 'http://127.0.0.1:{port}', model: m}}\nworkload: {{encoding: json}}\nsequences: {sequences}\n{load}\n"
            "measure: {warmup: 0s, requests: 20, repetitions: 1}\ntelemetry: false\n"
        )
        loaded = read_scenario(folder / "s.yaml", environ={})
        asyncio.run(measure_scenario(loaded, folder / "out", RunObserver(), Interruption()))
    return ids


@pytest.mark.parametrize("load", ["load: {closed: {concurrency: 2}}", "load: {open: {rate: 500}}"])
def test_ids_have_32_bits_where_the_model_says_so(tmp_path, load):
    ids = measure(tmp_path, {"max_batch_size": 0, "sequence_batching": {"control_input": [CORRID]}}, load)
    assert len(ids) >= 20
    assert 10**9 <= min(ids) <= max(ids) < 2**31


def test_ids_are_long_for_other_models(tmp_path):
    assert min(measure(tmp_path, {"max_batch_size": 0})) >= 10**18


def test_a_first_id_that_the_server_would_cut_is_refused(tmp_path):
    config = {"max_batch_size": 0, "sequence_batching": {"control_input": [CORRID]}}
    assert min(measure(tmp_path, config, sequences="{length: 2, first_id: 4294967000}")) == 4294967000
    with pytest.raises(ModelMismatchError, match=r"sequences\.first_id: the control input of model 'm' has 32 bits.*4,294,967,296"):
        measure(tmp_path, config, sequences="{length: 2, first_id: 4294967296}")
    assert max(measure(tmp_path, config, sequences="{length: 2, first_id: 4294967294, end_id: 4294967296}")) == 4294967295
    with pytest.raises(ModelMismatchError, match=r"sequences\.end_id: the control input of model 'm' has 32 bits.*4,294,967,296"):
        measure(tmp_path, config, sequences="{length: 2, first_id: 4294967294, end_id: 4294967297}")
