"""Which CUDA a package was built for."""

import pytest

from perfkit.machine.gpu_packages import package_cuda_major


@pytest.mark.parametrize(
    ("name", "version", "major"),
    [
        ("cupy-cuda12x", "14.2.0", 12),
        ("cupy-cuda13x", "14.2.0", 13),
        ("nvidia-cublas-cu12", "12.9.2.10", 12),
        ("nvidia-cudnn-cu13", "9.28.1.4", 13),
        ("nvidia-cublas", "13.10.0.20", 13),
        ("nvidia-cuda-nvrtc", "13.5.37", 13),
        ("nvidia-cufft", "12.5.0.14", 13),
        ("nvidia-curand", "10.4.5.25", 13),
        ("nvidia-nvjitlink", "14.0.1", 14),
        ("cuda-toolkit", "12.9.2.0", 12),
        ("tensorrt-cu13", "10.14.1", 13),
        ("nvidia-ml-py", "13.615.71", None),
        ("cuda-pathfinder", "1.9.0", None),
        ("numpy", "2.5.5", None),
        # ONNX Runtime's page on the CUDA provider, and from 1.21 on the packages that its extra `cuda` names
        ("onnxruntime-gpu", "1.18.1", 11),
        ("onnxruntime-gpu", "1.19.0", 12),
        ("onnxruntime-gpu", "1.26.0", 12),
        ("onnxruntime-gpu", "1.27.0", 13),
        ("onnxruntime-gpu", "1.31.1", 13),
    ],
)
def test_a_package_belongs_to_the_cuda_that_its_name_or_version_says(name, version, major):
    assert package_cuda_major(name, version) == major
