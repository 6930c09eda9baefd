"""Tests that need an NVIDIA GPU: `make test-gpu`."""

import http.client
import re

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]  # CUDA starts slowly
LIBRARIES = {"http": tritonclient.http, "grpc": tritonclient.grpc}
IMAGES = np.random.default_rng(3).random((3, 3, 224, 224), dtype=np.float32)  # a batch that graphs pad


@pytest.fixture(scope="module")
def servers(start_server):
    """One server on each device, and one on the GPU without graphs."""
    models = ("--model", "simple", "simple_dyna_sequence", "identity_bf16", "densenet_onnx", "densenet_batch", "--allow-client-shm")
    plain = ("--onnx", "graphs=off", "instances=1")
    with (
        start_server("--device", "cpu", *models) as on_cpu,
        start_server("--device", "cuda", *models) as on_gpu,
        start_server("--device", "cuda", *models, *plain) as without_graphs,
    ):
        yield {"cpu": on_cpu, "cuda": on_gpu, "plain": without_graphs}


def import_shared_memory():
    """The client's module, which needs NVIDIA's package `cuda-bindings`."""
    pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    import tritonclient.utils.cuda_shared_memory

    return tritonclient.utils.cuda_shared_memory


def infer(server, library, model, arrays):
    port = server.http_port if library is tritonclient.http else server.grpc_port
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
        inputs = []
        for name, array in arrays.items():
            given = library.InferInput(name, list(array.shape), "FP32" if array.dtype == np.float32 else "INT32")
            given.set_data_from_numpy(array)
            inputs.append(given)
        answer = client.infer(model, inputs)
        outputs = (
            answer.get_response()["outputs"]
            if library is tritonclient.http
            else [{"name": one.name} for one in answer.get_response().outputs]
        )
        return {one["name"]: answer.as_numpy(one["name"]) for one in outputs}


def test_the_ready_line_reports_the_gpu(servers):
    assert servers["cuda"].ready["device"] == "cuda"
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{servers['cuda'].http_port}") as client:
        (group,) = client.get_model_config("densenet_onnx")["instance_group"]
    assert (group["kind"], group["gpus"]) == ("KIND_GPU", [0])


def test_auto_chooses_the_gpu(start_server):
    started = start_server("--model", "simple")
    assert started.ready["device"] == "cuda"
    assert started.end()[0] == 0


@pytest.mark.parametrize("device", ["cuda", "plain"])
@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
@pytest.mark.parametrize(("model", "image"), [("densenet_onnx", IMAGES[0]), ("densenet_batch", IMAGES), ("densenet_batch", IMAGES[:1])])
def test_results_equal_the_cpus_within_tolerance(servers, device, library, model, image):
    results = [infer(servers[name], library, model, {"data_0": image})["fc6_1"] for name in ("cpu", device)]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-2, atol=1e-2 * float(np.abs(results[0]).max()))


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_integer_results_equal_the_cpus(servers, library):
    rows = {name: np.arange(32, dtype=np.int32).reshape(2, 16) * factor for name, factor in (("INPUT0", 1), ("INPUT1", -(2**26)))}
    results = [infer(servers[device], library, "simple", rows) for device in ("cpu", "cuda")]
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array)


@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_tensors_are_exchanged_through_cuda_shared_memory(servers, library):
    shared = import_shared_memory()
    port = servers["cuda"].http_port if library is tritonclient.http else servers["cuda"].grpc_port
    rows = [np.arange(16, dtype=np.int32).reshape(1, 16), np.full((1, 16), 7, np.int32)]
    region = shared.create_shared_memory_region("c", 256, 0)
    try:
        shared.set_shared_memory_region(region, rows)
        with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
            client.register_cuda_shared_memory("c", shared.get_raw_handle(region), 0, 256)
            inputs = [library.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
            outputs = [library.InferRequestedOutput(name) for name in ("OUTPUT0", "OUTPUT1")]
            for index, one in enumerate((*inputs, *outputs)):
                one.set_shared_memory("c", 64, 64 * index)
            client.infer("simple", inputs, outputs=outputs)
            client.unregister_cuda_shared_memory()
        contents = shared.get_contents_as_numpy(region, np.int32, [4, 16])
        np.testing.assert_array_equal(contents, np.concatenate([*rows, rows[0] + rows[1], rows[0] - rows[1]]))
    finally:
        shared.destroy_shared_memory_region(region)


@pytest.mark.parametrize("device", ["cuda", "plain"])
@pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
def test_images_in_cuda_shared_memory_give_the_same_results(servers, device, library):
    shared = import_shared_memory()
    server = servers[device]
    region = shared.create_shared_memory_region("images", IMAGES.nbytes, 0)
    try:
        shared.set_shared_memory_region(region, [IMAGES])
        port = server.http_port if library is tritonclient.http else server.grpc_port
        with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
            client.register_cuda_shared_memory("images", shared.get_raw_handle(region), 0, IMAGES.nbytes)
            given = library.InferInput("data_0", list(IMAGES.shape), "FP32")
            given.set_shared_memory("images", IMAGES.nbytes)
            logits = client.infer("densenet_batch", [given]).as_numpy("fc6_1")
            client.unregister_cuda_shared_memory()
    finally:
        shared.destroy_shared_memory_region(region)
    expected = infer(server, library, "densenet_batch", {"data_0": IMAGES})["fc6_1"]
    np.testing.assert_allclose(logits, expected, rtol=1e-3, atol=1e-3 * float(np.abs(expected).max()))


def test_NVML_reports_the_utilisation(servers):
    def utilisation():
        connection = http.client.HTTPConnection("127.0.0.1", servers["cuda"].metrics_port, timeout=60)
        connection.request("GET", "/metrics")
        results = re.findall(r'\nnv_gpu_utilization\{gpu_uuid="[^"]+"\} (\d+\.?\d*)', connection.getresponse().read().decode())
        connection.close()
        return max(map(float, results))

    while utilisation() == 0:  # bounded by the test's timeout
        for _ in range(20):
            infer(servers["cuda"], tritonclient.grpc, "densenet_batch", {"data_0": IMAGES})
