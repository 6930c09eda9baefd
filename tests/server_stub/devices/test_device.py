"""Choosing the device, on the CPU with a fake GPU driver."""

import ctypes
import functools
import pathlib
import sys
import types

import numpy as np
import onnxruntime
import pytest

from perfkit.errors import UsageError
from perfkit.protocol.tensor import Datatype
from server_stub.devices import device
from server_stub.devices.cuda_driver import CudaDriver, CudaError
from server_stub.devices.device import check_execution, check_provider, choose_device, find_gpu, find_usable_cuda
from server_stub.executors.array import ArrayExecutor, GpuArray, cupy_namespace
from server_stub.executors.onnx import OnnxExecutor
from server_stub.executors.onnx_options import OnnxOptions
from server_stub.models import array_models, densenet
from server_stub.options import Options
from server_stub.repository.sources import open_repository
from tests.server_stub.devices.fake_cuda import FakeCuda


def missing(name, **_):
    raise OSError(f"{name}: cannot open shared object file: No such file or directory")


def test_a_requested_cpu_is_chosen_without_looking_for_a_gpu():
    assert choose_device("cpu", lambda: pytest.fail("the CPU was requested")).kind == "cpu"


def test_auto_reports_what_is_missing_and_cuda_fails():
    def look():
        return find_usable_cuda(missing)

    device = choose_device("auto", look)
    assert (device.kind, device.driver) == ("cpu", None)
    assert device.reason.startswith("the CPU, because the NVIDIA driver is not installed (libcuda.so.1: cannot open shared object file")
    with pytest.raises(
        UsageError, match=r"^--device cuda: the NVIDIA driver is not installed \(libcuda\.so\.1: .*; use --device cpu or auto"
    ):
        choose_device("cuda", look)


@pytest.mark.parametrize(
    ("library", "sentence"),
    [
        (FakeCuda(devices=0), "reports no GPU"),
        (FakeCuda(failing={"cuInit": 100}), "cuInit failed: CUDA_ERROR_NO_DEVICE"),
        (FakeCuda(failing={"cuInit": 12345}), "cuInit failed: error 12345"),
    ],
)
def test_a_driver_without_a_gpu_is_distinguished_from_no_driver(library, sentence):
    with pytest.raises(CudaError, match=sentence):
        CudaDriver(lambda _: library)


def test_with_a_gpu_and_all_libraries_auto_and_cuda_choose_it():
    driver = CudaDriver(lambda _: FakeCuda())
    for asked in ("auto", "cuda"):
        device = choose_device(asked, lambda: (driver, driver.device_name(0)))
        assert (device.kind, device.driver) == ("cuda", driver)
        assert device.reason == "Fake GPU 0: CUDA 12.4 and ONNX Runtime's CUDA provider work"


def test_a_gpu_needs_no_onnx_runtime_with_cuda_if_onnx_models_stay_on_the_cpu(monkeypatch):
    monkeypatch.setattr(device, "find_gpu", functools.partial(find_gpu, lambda _: FakeCuda()))
    chosen = choose_device("cuda", has_onnx_on_cpu=True)
    assert (chosen.kind, chosen.reason) == ("cuda", "Fake GPU 0: CUDA 12.4 works; ONNX models run on the CPU, as requested by --onnx")
    repository = open_repository(Options(models=("densenet_onnx",), onnx=OnnxOptions("cpu")), 1, device=chosen)
    assert repository.names == ("densenet_onnx",)


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this ONNX Runtime is built with CUDA")
def test_an_onnx_runtime_without_cuda_is_named():
    with pytest.raises(
        CudaError, match=rf"ONNX Runtime {onnxruntime.__version__} is built without CUDA: pip install '\.\[cuda\]' in perfkit's repository"
    ):
        find_usable_cuda(lambda _: FakeCuda())


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this ONNX Runtime is built with CUDA")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_model_that_would_silently_run_on_the_cpu_is_an_error(environment, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE_DIR", environment["PERFKIT_CACHE_DIR"])
    with pytest.raises(UsageError, match="cannot run on cuda: ONNX Runtime could not start its CUDAExecutionProvider"):
        OnnxExecutor(densenet.seeded_file(), 1, OnnxOptions("cuda"))


def test_what_onnx_runtime_prints_about_libraries_stays_off_stdout(monkeypatch, capsys):
    """Stdout has the ready line alone, which clients read as JSON."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"])
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: sys.stdout.write("Failed to load libcublas.so.13\n"), raising=False)
    for check in ("check_provider", "check_execution"):
        monkeypatch.setattr(device, check, lambda *_: None)
    find_usable_cuda(lambda _: FakeCuda())
    assert capsys.readouterr() == ("", "Failed to load libcublas.so.13\n")


def test_a_missing_library_of_the_provider_is_named(tmp_path):
    def load(name, **_):
        if name.endswith("providers_cuda.so"):
            missing("libcublasLt.so.12")

    with pytest.raises(
        CudaError, match=r"provider of ONNX Runtime 1\.2 cannot be loaded \(libcublasLt\.so\.12: .*the driver supports CUDA 12\.4"
    ):
        check_provider(tmp_path, "1.2", "12.4", load)
    with pytest.raises(CudaError, match=r"libonnxruntime_providers_shared\.so"):
        check_provider(tmp_path, "1.2", "12.4")


def test_a_provider_is_tested_before_it_is_chosen(capfd):
    check_execution("CPUExecutionProvider", "12.4")
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="this ONNX Runtime is built with CUDA")
@pytest.mark.filterwarnings("ignore:Specified provider")
def test_a_provider_that_does_not_start_is_named():
    with pytest.raises(CudaError, match=r"could not start its CUDAExecutionProvider; the driver supports CUDA 12\.4"):
        check_execution("CUDAExecutionProvider", "12.4")


def test_a_provider_that_fails_is_named(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("CUDA failure 35: CUDA driver version is insufficient")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with pytest.raises(CudaError, match=r"does not work \(CUDA failure 35: .*the driver supports CUDA 12\.4"):
        check_execution("CUDAExecutionProvider", "12.4")


def test_a_failing_execution_does_not_fall_back_to_the_cpu(environment, monkeypatch, capfd):
    monkeypatch.setenv("PERFKIT_CACHE_DIR", environment["PERFKIT_CACHE_DIR"])
    failure = onnxruntime.capi.onnxruntime_pybind11_state.EPFail

    class Failing:
        def __init__(self, session):
            self._session = session

        def __getattr__(self, name):
            return getattr(self._session, name)

        def run(self, *_):
            raise failure("no memory on the device")

    executor = OnnxExecutor(densenet.seeded_file(), 1)
    executor._session._sess = Failing(executor._session._sess)
    with pytest.raises(failure):
        executor.execute({"data_0": np.zeros((1, 3, 224, 224), np.float32)})
    assert capfd.readouterr().out == "", "stdout is reserved for the ready line"


def test_bound_execution_equals_plain_execution(environment, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE_DIR", environment["PERFKIT_CACHE_DIR"])
    executor = OnnxExecutor(densenet.seeded_file(densenet.BATCH_NAME), 1)
    image = np.random.default_rng(0).random((2, 3, 224, 224), dtype=np.float32)
    plain, bound = executor.execute({"data_0": image}), executor.execute_bound({"data_0": image})
    assert plain.keys() == bound.keys() == {"fc6_1"}
    np.testing.assert_array_equal(plain["fc6_1"], bound["fc6_1"])


class Elsewhere:
    """An array that only its own namespace converts, like CuPy's."""

    def __init__(self, values):
        self.values = values

    def __add__(self, other):
        return Elsewhere(self.values + other.values)

    def __sub__(self, other):
        return Elsewhere(self.values - other.values)

    def __mul__(self, other):
        return Elsewhere(self.values * other.values)

    def astype(self, name):
        return Elsewhere(self.values.astype(name))

    def __array__(self, *arguments, **keys):
        raise TypeError("implicit conversion is not allowed")


NAMESPACE = types.SimpleNamespace(asarray=Elsewhere, asnumpy=lambda array: array.values)


def test_array_models_use_the_given_namespace():
    rows = {name: np.array([[1, 2, 3]], np.int32) * factor for name, factor in (("INPUT0", 1), ("INPUT1", 10))}
    for namespace in (None, NAMESPACE):
        executor = array_models.load("simple", namespace)[1]
        outputs = executor.execute(rows)
        assert {name: array.tolist() for name, array in outputs.items()} == {"OUTPUT0": [[11, 22, 33]], "OUTPUT1": [[-9, -18, -27]]}
        assert executor.runs_inline is (namespace is None), "waiting for a GPU would block the event loop"
        bf16 = np.array([[1.5]], np.float32)
        assert array_models.load("identity_bf16", namespace)[1].execute({"INPUT0": bf16})["OUTPUT0"] == bf16
    controls = {"INPUT": 5, "START": 1, "READY": 1, "END": 1, "CORRID": 7}
    given = {name: np.array([[value]], np.uint64 if name == "CORRID" else np.int32) for name, value in controls.items()}
    assert array_models.load("simple_dyna_sequence", NAMESPACE)[1].execute(given)["OUTPUT"].tolist() == [[13]]


def test_array_models_read_inputs_in_gpu_memory_in_place():
    """On an array library whose functions have CuPy's names, with host memory at the address."""
    memory = np.arange(6, dtype=np.int32)
    library = types.SimpleNamespace(
        **vars(NAMESPACE),
        cuda=types.SimpleNamespace(
            UnownedMemory=lambda address, size, owner, device: (address, size, owner, device), MemoryPointer=lambda memory, _: memory
        ),
        ndarray=lambda shape, dtype, pointer: Elsewhere(
            np.frombuffer((ctypes.c_char * pointer[1]).from_address(pointer[0]), dtype).reshape(shape)
        ),
    )
    executor = array_models.load("simple", library)[1]
    assert executor.accepts_gpu_arrays
    shared = GpuArray((1, 6), memory.dtype, memory.ctypes.data, types.SimpleNamespace(read=memory.tobytes))
    given = {"INPUT0": shared, "INPUT1": np.full((1, 6), 10, np.int32)}
    assert executor.execute(executor.join([given]))["OUTPUT0"].tolist() == [[10, 11, 12, 13, 14, 15]]
    assert executor.execute(executor.join([given, given]))["OUTPUT1"].tolist() == [[-10, -9, -8, -7, -6, -5]] * 2


@pytest.mark.parametrize(
    "load", [lambda: array_models.load("simple_string", NAMESPACE), lambda: array_models.load("simple_identity", NAMESPACE)]
)
def test_strings_stay_in_numpy(load):
    definition, executor = load()
    assert definition.inputs[0].datatype is Datatype.BYTES
    texts = np.array([[b"1"]], object)
    outputs = executor.execute({one.name: texts for one in definition.inputs})
    assert all(array.dtype == object for array in outputs.values())
    assert isinstance(executor, ArrayExecutor)
    assert executor.runs_inline


def test_without_cupy_auto_uses_numpy_and_cuda_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(UsageError, match="built-in models on a GPU need CuPy"):
        cupy_namespace()
    device = choose_device("cuda", lambda: (CudaDriver(lambda _: FakeCuda()), "a GPU"))
    open_repository(Options(models=("simple",)), 1, device=device).load()
    with pytest.raises(UsageError, match="cupy-cuda13x"):
        open_repository(Options(models=("simple",), device="cuda"), 1, device=device).load()


def test_shared_memory_is_opened_read_written_and_closed():
    library = FakeCuda(shared={b"h" * 64: bytearray(b"0123456789")})
    driver = CudaDriver(lambda _: library)
    address = driver.open_memory(b"h" * 64, 1)
    assert driver.memory_bytes(address + 4, 1) == 6
    assert driver.read(address + 2, 3, 1) == b"234"
    driver.write(address + 8, b"xy", 1)
    assert driver.read(address, 10, 1) == b"01234567xy"
    driver.close_memory(address, 1)
    assert (library.open, library.entered) == (0, {1})
    with pytest.raises(CudaError, match="cuIpcOpenMemHandle_v2 failed: CUDA_ERROR_INVALID_VALUE"):
        driver.open_memory(b"x" * 64, 1)


def test_the_fake_driver_has_the_functions_of_the_real_one():
    """The names are those that the driver's library exports. Needs an installed driver, but no GPU."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        pytest.skip("no driver is installed")
    source = pathlib.Path(__import__("server_stub.devices.cuda_driver").cuda_driver.__file__).read_text(encoding="utf-8")
    for name in set(__import__("re").findall(r'"(cu[A-Z]\w+)"', source)):
        assert getattr(library, name)
