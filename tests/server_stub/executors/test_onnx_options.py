"""The options `--onnx KEY=VALUE`: their values, and the combinations that are refused with a reason."""

import pytest

from perfkit.errors import UsageError
from server_stub.executors.onnx_options import OnnxOptions, parse_onnx_options, resolve_onnx_options
from server_stub.executors.onnx_session import _providers
from server_stub.options import parse_options


def resolve(text, kind):
    return resolve_onnx_options(parse_onnx_options(text.split()), kind, "the CPU, because the NVIDIA driver is not installed")


def test_all_options_are_parsed():
    text = "provider=cuda precision=fp16 layout=nhwc graphs=on pinned=on streams=2 instances=4 max_batch=64"
    assert parse_options(["--onnx", *text.split()]).onnx == OnnxOptions("cuda", "fp16", "nhwc", True, True, 2, 4, 64)
    assert parse_options(["--onnx", "graphs=on", "--onnx", "graphs=off"]).onnx == parse_options([]).onnx == OnnxOptions()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("graph=on", "--onnx graph=on: unknown key; did you mean graphs? Keys: provider, precision, layout, graphs,"),
        ("graphs", "--onnx graphs: a value is missing, as in graphs=on."),
        ("graphs=1", "--onnx graphs=1: must be on or off."),
        ("precision=int8", "--onnx precision=int8: must be one of fp32, tf32, fp16, bf16."),
        ("max_batch=65", "--onnx max_batch=65: must be a number from 1 to 64."),
        ("instances=0", "--onnx instances=0: must be a number from 1 to 16."),
        ("streams=x", "--onnx streams=x: must be a number from 1 to 2."),
    ],
)
def test_other_keys_and_values_are_refused(text, sentence):
    with pytest.raises(UsageError) as error:
        parse_onnx_options(text.split())
    assert str(error.value).startswith(sentence)


def test_what_a_configuration_sets_is_refused_with_a_model_repository(tmp_path):
    for setting in ("instances=2", "max_batch=4"):
        with pytest.raises(UsageError, match=r"config\.pbtxt sets instance_group"):
            parse_options(["--model-repository", str(tmp_path), "--onnx", setting])


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("provider=cuda", "cpu", "models of this server run on the CPU: the CPU, because the NVIDIA driver is not installed; use"),
        ("graphs=on", "cpu", "--onnx graphs=on on the CPU: CUDA graphs need a GPU; remove it, or use --device cuda."),
        ("pinned=on", "cpu", "no GPU copies from host buffers"),
        ("streams=2", "cpu", "no inputs are copied to a GPU"),
        ("layout=nhwc", "cpu", "chooses the layout of each convolution itself"),
        ("precision=bf16", "cpu", "has no BF16 convolution"),
        ("precision=tf32", "cpu", "a format of NVIDIA's tensor cores"),
        ("provider=cpu graphs=on", "cuda", "CUDA graphs need a GPU"),
        ("precision=bf16", "cuda", "no batch normalization or max pooling in BF16 (1.31); use precision=fp16, or provider=tensorrt."),
        ("streams=2", "cuda", "copies from pageable memory do not run beside computations; add --onnx pinned=on."),
        ("provider=tensorrt graphs=on", "cuda", "captures one graph per session, not one for each batch size"),
        ("provider=tensorrt layout=nhwc", "cuda", "TensorRT chooses layouts itself"),
    ],
)
def test_combinations_that_do_not_exist_are_refused_with_the_reason(text, kind, sentence):
    with pytest.raises(UsageError) as error:
        resolve(text, kind)
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("text", "kind", "provider", "fixed"),
    [
        ("", "cpu", "cpu", False),
        ("precision=fp16 instances=2 max_batch=64", "cpu", "cpu", False),
        ("", "cuda", "cuda", False),
        ("precision=fp16 layout=nhwc", "cuda", "cuda", False),
        ("instances=2", "cuda", "cuda", True),
        ("pinned=on", "cuda", "cuda", True),
        ("graphs=on", "cuda", "cuda", True),
        ("pinned=on streams=2 graphs=on", "cuda", "cuda", True),
        ("provider=tensorrt precision=bf16 pinned=on streams=2", "cuda", "tensorrt", True),
    ],
)
def test_the_provider_follows_the_device_and_fixed_buffers_the_options(text, kind, provider, fixed):
    resolved = resolve(text, kind)
    assert (resolved.provider, resolved.has_fixed_buffers) == (provider, fixed)


@pytest.mark.parametrize(
    ("text", "providers"),
    [
        ("", [("CUDAExecutionProvider", {"device_id": "0"}), "CPUExecutionProvider"]),
        (
            "precision=tf32 layout=nhwc graphs=on",
            [
                ("CUDAExecutionProvider", {"device_id": "0", "user_compute_stream": "7", "use_tf32": "1", "prefer_nhwc": "1", "enable_cuda_graph": "1",
                        "cudnn_conv_algo_search": "HEURISTIC"}),
                "CPUExecutionProvider",
            ],
        ),
        ("precision=fp32", [("CUDAExecutionProvider", {"device_id": "0", "use_tf32": "0"}), "CPUExecutionProvider"]),
        ("precision=fp16", [("CUDAExecutionProvider", {"device_id": "0"}), "CPUExecutionProvider"]),  # use_tf32=0 would switch tensor cores off
        (
            "provider=tensorrt precision=bf16",
            [
                (
                    "TensorrtExecutionProvider",
                    {"device_id": "0", "trt_engine_cache_enable": "1", "trt_engine_cache_path": "/cache/tensorrt", "trt_bf16_enable": "1"},
                ),
                ("CUDAExecutionProvider", {"device_id": "0"}),
                "CPUExecutionProvider",
            ],
        ),
    ],
)  # fmt: skip
def test_onnx_runtime_gets_its_own_names_for_the_options(text, providers, monkeypatch):
    """The names are those of ONNX Runtime's documentation of its CUDA and TensorRT execution providers."""
    monkeypatch.setenv("PERFKIT_CACHE_DIR", "/cache")
    assert _providers(resolve(text, "cuda"), 7 if "graphs" in text else None) == providers
