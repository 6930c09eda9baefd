"""NVIDIA Dynamo's KServe front end, played: metadata that it copied from the configuration until September 2026, and few calls of v2.

Its datatypes are those of the configuration (github.com/ai-dynamo/dynamo, issue 14520), its shapes lack the batch dimension (issue 14969). Requests
and answers have v2's own form. It has no statistics, and no readiness of its own.
"""

import asyncio
import contextlib

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tritonclient.grpc import model_config_pb2, service_pb2

from perfkit.clock import MonotonicClock
from perfkit.errors import ModelMismatchError
from perfkit.measurement.connections import connect
from perfkit.measurement.metadata_form import in_v2_form
from perfkit.measurement.target_metadata import describe_model
from perfkit.measurement.target_probe import probe
from perfkit.protocol.message import ModelConfig, ModelMetadata, TensorMetadata
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import read_scenario
from perfkit.scenario.workload import Workload
from tests.measurement.partial_server import serving_calls

CONFIG = model_config_pb2.ModelConfig(name="clip", max_batch_size=4)
CONFIG.input.add(name="query", data_type="TYPE_STRING", dims=[1])
CONFIG.input.add(name="scale", data_type="TYPE_FP32", dims=[3])
CONFIG.output.add(name="embedding", data_type="TYPE_FP32", dims=[-1])


class Dynamo:
    """The front end; `seen` has the inputs of each request as (datatype, shape) by name."""

    def __init__(self, *, has_v2_metadata=False, config=CONFIG):
        self.seen: list[dict[str, tuple[str, tuple[int, ...]]]] = []
        self._has_v2_metadata, self._config = has_v2_metadata, config

    def metadata(self, _request, _context):
        answer = service_pb2.ModelMetadataResponse(name="clip", versions=["1"], platform="dynamo")
        names = {1: "BOOL", 11: "FP32", 13: "BYTES"}
        for some, described in ((self._config.input, answer.inputs), (self._config.output, answer.outputs)):
            for one in some:
                if self._has_v2_metadata:
                    described.add(name=one.name, datatype=names[one.data_type], shape=[-1, *one.dims])
                else:
                    described.add(name=one.name, datatype=model_config_pb2.DataType.Name(one.data_type), shape=one.dims)
        return answer

    def config(self, _request, _context):
        return service_pb2.ModelConfigResponse(config=self._config)

    def infer(self, request, context):
        self.seen.append({one.name: (one.datatype, tuple(one.shape)) for one in request.inputs})
        batch = request.inputs[0].shape[0]
        if any(one.datatype.startswith("TYPE_") or one.shape[0] != batch for one in request.inputs):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "not v2")
        answer = service_pb2.ModelInferResponse(model_name="clip", model_version="1", id=request.id)
        answer.outputs.add(name="embedding", datatype="FP32", shape=[batch, 2])
        answer.raw_output_contents.append(bytes(8 * batch))
        return answer


@contextlib.contextmanager
def serving(dynamo):
    calls = {"ModelMetadata": dynamo.metadata, "ModelConfig": dynamo.config, "ModelInfer": dynamo.infer}
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            call, getattr(service_pb2, f"{name}Request").FromString, getattr(service_pb2, f"{name}Response").SerializeToString
        )
        for name, call in calls.items()
    }
    with serving_calls(handlers) as url:
        yield url


@pytest.fixture
def probed(tmp_path):
    """Probes the played server with a workload section."""

    def run(dynamo, workload="{batch_size: 2}"):
        with serving(dynamo) as url:
            path = tmp_path / "s.yaml"
            path.write_text(f"target: {{url: {url}, model: clip}}\nworkload: {workload}\nload: {{closed: {{concurrency: 1}}}}\n")
            loaded = read_scenario(path, environ={})
            address = resolve_address(loaded.scenario.target, url, tmp_path)

            async def main():
                async with connect(loaded.scenario, address, MonotonicClock()) as client:
                    return await probe(client, address, loaded, MonotonicClock())

            return asyncio.run(main())

    return run


NOTE = (
    "The server's metadata of model 'clip' names datatypes in another way than v2 (TYPE_STRING, read as BYTES) and leaves out the batch dimension, "
    "which is taken from its configuration."
)


@pytest.mark.parametrize("has_v2_metadata", [False, True])
def test_the_same_requests_are_sent_whichever_form_the_metadata_has(probed, has_v2_metadata):
    dynamo = Dynamo(has_v2_metadata=has_v2_metadata)
    found = probed(dynamo)
    assert dynamo.seen[0] == {"query": ("BYTES", (2, 1)), "scale": ("FP32", (2, 3))}
    assert (NOTE in found.note) != has_v2_metadata
    assert found.expectation.described == (TensorMetadata("embedding", "FP32", (-1, -1)),)
    assert "The scenario's" not in found.note


def test_without_batches_a_shape_is_as_it_is(probed):
    config = model_config_pb2.ModelConfig()
    config.CopyFrom(CONFIG)
    config.max_batch_size = 0
    config.input[0].dims[:] = [3]
    config.output[0].dims[:] = [-1, 2]
    dynamo = Dynamo(config=config)
    note = probed(dynamo, "{}").note
    assert dynamo.seen[0] == {"query": ("BYTES", (3,)), "scale": ("FP32", (3,))}
    assert "batch dimension" not in note


def test_the_scenarios_datatype_and_shape_win_over_such_metadata_only(probed):
    workload = "{batch_size: 2, inputs: {scale: {generate: ones, datatype: FP64, shape: [5]}, query: {generate: ones, shape: [1]}}}"
    dynamo = Dynamo()
    assert "The scenario's datatype and shape are taken for: scale." in probed(dynamo, workload).note
    assert dynamo.seen[0] == {"query": ("BYTES", (2, 1)), "scale": ("FP64", (2, 5))}
    with pytest.raises(ModelMismatchError, match=r"workload\.inputs\.scale\.datatype: the model takes FP32, found FP64"):
        probed(Dynamo(has_v2_metadata=True), workload)


def test_a_forced_input_wins_over_any_metadata_and_lower_case_is_read(probed):
    workload = "{inputs: {scale: {generate: ones, datatype: BYTES, shape: [5], force: true}, query: {generate: ones}}}"
    dynamo = Dynamo(has_v2_metadata=True)
    assert probed(dynamo, workload).note.endswith(" The scenario's datatype and shape are taken for: scale.")
    assert dynamo.seen[0] == {"query": ("BYTES", (1, 1)), "scale": ("BYTES", (1, 5))}
    lower = ModelMetadata("m", ("1",), "", (TensorMetadata("x", "fp32", (2,)),), ())
    found, note = in_v2_form(lower, ModelConfig())
    assert found.inputs == (TensorMetadata("x", "FP32", (2,)),)
    assert note == "The server's metadata of model 'm' names datatypes in another way than v2 (fp32, read as FP32)."


def test_force_without_a_datatype_or_shape_is_refused():
    with pytest.raises(ValidationError, match="force replaces the datatype or the shape of the model's metadata: give datatype or shape"):
        Workload.model_validate({"inputs": {"x": {"generate": "ones", "force": True}}})


def test_init_describes_the_model_in_v2_form():
    with serving(Dynamo()) as url:
        described = asyncio.run(describe_model(url, "clip", MonotonicClock()))
    assert [(one.datatype, one.shape) for one in described.metadata.inputs] == [("BYTES", (-1, 1)), ("FP32", (-1, 3))]


@given(
    st.lists(
        st.tuples(st.sampled_from(["BYTES", "FP32", "INT64", "BOOL"]), st.lists(st.integers(-1, 9), max_size=3)), min_size=1, max_size=4
    ),
    st.integers(0, 8),
)
def test_metadata_in_v2_form_stays_and_the_other_form_becomes_the_same(tensors, max_batch_size):
    shapes = {f"t{place}": tuple(shape) for place, (_, shape) in enumerate(tensors)}
    config = ModelConfig(max_batch_size, shapes=shapes)
    batch = (-1,) if max_batch_size else ()
    in_v2 = tuple(TensorMetadata(f"t{place}", datatype, (*batch, *shape)) for place, (datatype, shape) in enumerate(tensors))
    copied = tuple(
        TensorMetadata(f"t{place}", f"TYPE_{'STRING' if datatype == 'BYTES' else datatype}", tuple(shape))
        for place, (datatype, shape) in enumerate(tensors)
    )
    v2, other = (ModelMetadata("m", ("1",), "", described, described) for described in (in_v2, copied))
    assert in_v2_form(v2, config) == (v2, "")
    assert in_v2_form(other, config)[0] == v2
    assert in_v2_form(other, config)[1]
