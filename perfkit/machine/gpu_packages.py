"""The Python packages for NVIDIA GPUs, and which CUDA each was built for; read from their files and metadata, none is imported."""

import re

_SUFFIX = re.compile(r"-cu(?:da)?(\d\d)x?(?:-|$)")
# numbered by themselves; without a suffix they exist from CUDA 13 on (CUDA Toolkit 13.0 release notes, table of components)
_OWN_NUMBERS = frozenset({"nvidia-cufft", "nvidia-cufile", "nvidia-curand", "nvidia-cusolver", "nvidia-cusparse"})
_FIRST_WITHOUT_SUFFIX = 13
# the first of ONNX Runtime's builds on PyPI for each CUDA: ONNX Runtime's page on the CUDA provider, and its extra `cuda`
_ONNXRUNTIME = ((1, 27, 13), (1, 19, 12), (0, 0, 11))


def package_cuda_major(name: str, version: str) -> int | None:
    """The major version of CUDA that a package belongs to; None if it belongs to none in particular.

    CuPy's packages and NVIDIA's up to CUDA 12 name it (`cupy-cuda13x`, `nvidia-cublas-cu12`). NVIDIA's later packages have no
    suffix, except cuDNN and a few others, and most have the version of the toolkit (`nvidia-cublas 13.2`).
    """
    if match := _SUFFIX.search(name):
        return int(match[1])
    if name in _OWN_NUMBERS:
        return _FIRST_WITHOUT_SUFFIX
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]] + [0, 0]
    if name == "onnxruntime-gpu":
        return next(cuda for major, minor, cuda in _ONNXRUNTIME if (numbers[0], numbers[1]) >= (major, minor))
    follows_toolkit = name.startswith("nvidia-") and name != "nvidia-ml-py"  # which has the driver's version
    return numbers[0] if follows_toolkit or name in {"cuda-toolkit", "cuda-python", "cuda-bindings"} else None
