"""Compiles the fake library with the machine's C compiler."""

import pathlib
import shutil
import subprocess

FOLDER = pathlib.Path(__file__).parent
_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-Wl,-soname,libnvidia-ml.so.1")


def compile_into(folder: pathlib.Path) -> pathlib.Path:
    """The library, in that folder; raises FileNotFoundError where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("the fake NVML library is compiled by a C compiler: install gcc and libc6-dev")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, *_FLAGS, "-o", str(library), str(FOLDER / "fake_nvml.c"), "-lm"], check=True)
    return library
