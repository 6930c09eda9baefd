"""The options `--onnx KEY=VALUE`: their values, and the combinations that are refused with a reason."""

import pytest

from perfkit.errors import UsageError
from server_stub.executors.onnx_options import OnnxOptions, parse_onnx_options, resolve_onnx_options
from server_stub.executors.onnx_session import _providers
from server_stub.options import parse_options


def resolve(text, kind):
    return resolve_onnx_options(parse_onnx_options(text.split()), kind, "the CPU, because the NVIDIA driver is not installed")


def test_all_options_are_parsed():
    text = "provider=cuda precision=fp16 layout=nhwc graphs=on instances=4 max_batch=64"
    assert parse_options(["--onnx", *text.split()]).onnx == OnnxOptions("cuda", "fp16", "nhwc", True, 4, 64)
    assert parse_options(["--onnx", "graphs=on", "--onnx", "graphs=off"]).onnx == OnnxOptions(graphs=False)
    assert parse_options([]).onnx == OnnxOptions()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("graph=on", "--onnx graph=on: unknown key; did you mean graphs? Keys: provider, precision, layout, graphs,"),
        ("graphs", "--onnx graphs: a value is missing, as in graphs=on."),
        ("graphs=1", "--onnx graphs=1: must be on or off."),
        ("precision=int8", "--onnx precision=int8: must be one of fp32, tf32, fp16, bf16."),
        ("max_batch=65", "--onnx max_batch=65: must be a number from 1 to 64."),
        ("instances=0", "--onnx instances=0: must be a number from 1 to 16."),
    ],
)
def test_other_keys_and_values_are_refused(text, sentence):
    with pytest.raises(UsageError) as error:
        parse_onnx_options(text.split())
    assert str(error.value).startswith(sentence)


def test_what_a_configuration_sets_is_refused_with_a_model_repository(tmp_path):
    for setting in ("instances=1", "instances=2", "max_batch=4"):
        with pytest.raises(UsageError, match=r"config\.pbtxt sets instance_group"):
            parse_options(["--model-repository", str(tmp_path), "--onnx", setting])


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("provider=cuda", "cpu", "models of this server run on the CPU: the CPU, because the NVIDIA driver is not installed; use"),
        ("graphs=on", "cpu", "--onnx graphs=on on the CPU: CUDA graphs need a GPU; remove it, or use --device cuda."),
        ("layout=nhwc", "cpu", "chooses the layout of each convolution itself"),
        ("precision=bf16", "cpu", "has no BF16 convolution"),
        ("precision=tf32", "cpu", "a format of NVIDIA's tensor cores"),
        ("provider=cpu graphs=on", "cuda", "CUDA graphs need a GPU"),
        ("precision=bf16", "cuda", "no batch normalization or max pooling in BF16 (1.31); use precision=fp16, or provider=tensorrt."),
        ("provider=tensorrt graphs=on", "cuda", "captures one graph per session, not one for each batch size"),
        ("provider=tensorrt layout=nhwc", "cuda", "TensorRT chooses layouts itself"),
    ],
)
def test_combinations_that_do_not_exist_are_refused_with_the_reason(text, kind, sentence):
    with pytest.raises(UsageError) as error:
        resolve(text, kind)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "kind", "capability", "resolved"),
    [
        ("", "cpu", (0, 0), OnnxOptions("cpu", instances=1, max_batch=8)),
        ("precision=fp16 instances=2 max_batch=64", "cpu", (0, 0), OnnxOptions("cpu", "fp16", instances=2, max_batch=64)),
        ("provider=cpu", "cuda", (9, 0), OnnxOptions("cpu", instances=1, max_batch=8)),
        ("", "cuda", (9, 0), OnnxOptions("cuda", "tf32", "nhwc", True, None, 64)),
        ("", "cuda", (8, 0), OnnxOptions("cuda", "tf32", "nhwc", True, None, 64)),
        ("", "cuda", (7, 5), OnnxOptions("cuda", "tf32", "nchw", True, None, 64)),
        ("layout=nhwc", "cuda", (7, 5), OnnxOptions("cuda", "tf32", "nhwc", True, None, 64)),
        (
            "precision=fp32 layout=nchw graphs=off instances=2 max_batch=16",
            "cuda",
            (9, 0),
            OnnxOptions("cuda", "fp32", "nchw", False, 2, 16),
        ),
        ("provider=tensorrt precision=bf16", "cuda", (9, 0), OnnxOptions("tensorrt", "bf16", None, False, None, 64)),
    ],
)
def test_what_is_not_given_follows_the_device(text, kind, capability, resolved):
    assert resolve_onnx_options(parse_onnx_options(text.split()), kind, "", capability) == resolved


def test_the_document_has_what_was_given_or_chosen():
    options = resolve_onnx_options(parse_onnx_options(["precision=fp16"]), "cuda", "", (9, 0))
    assert options.document() == {"provider": "cuda", "precision": "fp16", "layout": "nhwc", "graphs": True, "max_batch": 64}
    assert resolve("", "cpu").document() == {"provider": "cpu", "instances": 1, "max_batch": 8}


CUDA = {"device_id": "0", "cudnn_conv_algo_search": "HEURISTIC", "use_tf32": "1"}


@pytest.mark.parametrize(
    ("text", "stream", "providers"),
    [
        ("layout=nchw", None, [("CUDAExecutionProvider", CUDA), "CPUExecutionProvider"]),
        (
            "layout=nhwc",
            7,
            [
                ("CUDAExecutionProvider", CUDA | {"user_compute_stream": "7", "prefer_nhwc": "1", "fuse_conv_bias": "1"}),
                "CPUExecutionProvider",
            ],
        ),
        ("precision=fp32", None, [("CUDAExecutionProvider", CUDA | {"use_tf32": "0"}), "CPUExecutionProvider"]),
        ("precision=fp16", None, [("CUDAExecutionProvider", CUDA), "CPUExecutionProvider"]),  # use_tf32=0 would switch tensor cores off
        (
            "provider=tensorrt precision=bf16",
            None,
            [
                (
                    "TensorrtExecutionProvider",
                    {"device_id": "0", "trt_engine_cache_enable": "1", "trt_engine_cache_path": "/cache/tensorrt", "trt_bf16_enable": "1"},
                ),
                ("CUDAExecutionProvider", CUDA),
                "CPUExecutionProvider",
            ],
        ),
    ],
)
def test_onnx_runtime_gets_its_own_names_for_the_options(text, stream, providers, monkeypatch):
    """The names are those of ONNX Runtime's documentation of its CUDA and TensorRT execution providers."""
    monkeypatch.setenv("PERFKIT_CACHE_DIR", "/cache")
    assert _providers(resolve(text, "cuda"), stream) == providers
