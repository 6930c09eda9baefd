"""ONNX Runtime's CPU provider in FP16, with several instances and larger batches, through a running server."""

import numpy as np
import onnx
import pytest
import tritonclient.grpc

from perfkit.errors import UsageError
from server_stub.executors.onnx import OnnxExecutor
from server_stub.executors.onnx_options import OnnxOptions
from server_stub.executors.onnx_session import open_session
from server_stub.options import Options
from server_stub.repository.sources import open_repository


def write_model(file):
    """y = x · w, with a weight that FP16 rounds."""
    value, result = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 1]) for name in ("x", "y"))
    weight = onnx.numpy_helper.from_array(np.array([[1.0001]], np.float32), "w")
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [value], [result], [weight])
    file.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8).SerializeToString())
    return file


def test_fp16_rounds_the_weights_and_keeps_the_datatypes_of_inputs_and_outputs(tmp_path):
    file = write_model(tmp_path / "model.onnx")
    given = {"x": np.array([[1.0], [2.0]], np.float32)}
    for options, expected in (
        (OnnxOptions("cpu", "fp32"), np.float32(1.0001)),
        (OnnxOptions("cpu", "fp16"), np.float32(np.float16(1.0001))),
    ):
        executor = OnnxExecutor(file, 1, options)
        assert [(tensor.name, tensor.datatype) for tensor in (*executor.inputs, *executor.outputs)] == [("x", "FP32"), ("y", "FP32")]
        np.testing.assert_array_equal(executor.execute(given)["y"], expected * given["x"])


def test_a_file_that_cannot_be_converted_is_named(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match=r"model\.onnx cannot be converted to FP16"):
        OnnxExecutor(file, 1, OnnxOptions("cpu", "fp16"))


def test_a_missing_tensorrt_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"^--onnx provider=tensorrt: ONNX Runtime .* is built without TensorRT; use provider=cuda\.$"):
        open_session(tmp_path / "model.onnx", 1, OnnxOptions("tensorrt"))


def test_the_server_refuses_options_that_its_device_does_not_have():
    with pytest.raises(UsageError, match="--onnx graphs=on on the CPU: CUDA graphs need a GPU"):
        open_repository(Options(device="cpu", onnx=OnnxOptions(graphs=True)), 1)


def test_a_server_executes_densenet_as_its_options_say(start_server):
    settings = ("precision=fp16", "instances=2", "max_batch=64")
    images = np.random.default_rng(1).random((3, 3, 224, 224), dtype=np.float32)
    with start_server("--device", "cpu", "--model", "densenet_batch", "densenet_onnx", "--onnx", *settings) as server:
        assert server.ready["onnx"] == {"provider": "cpu", "precision": "fp16", "instances": 2, "max_batch": 64}
        with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            config = client.get_model_config("densenet_batch").config
            assert (config.max_batch_size, config.instance_group[0].count) == (64, 2)
            logits = {}
            for model, array in (("densenet_batch", images), ("densenet_onnx", images[0])):
                given = tritonclient.grpc.InferInput("data_0", list(array.shape), "FP32")
                given.set_data_from_numpy(array)
                logits[model] = client.infer(model, [given]).as_numpy("fc6_1")
    np.testing.assert_allclose(logits["densenet_batch"][0], logits["densenet_onnx"], atol=0.05)
    assert logits["densenet_batch"].dtype == np.float32
