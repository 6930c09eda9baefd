"""The fake library, compiled with the machine's C compiler, and programs that run on it."""

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.made_once import made_once

FOLDER = pathlib.Path(__file__).parent
ROOT = FOLDER.parents[2]
EPOCH = "epoch_us 1700000000000000\n"
SEARCH_PATH = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
_NAME = "libnvidia-ml.so.1"
_FLAGS = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1", "-fvisibility=hidden", f"-Wl,-soname,{_NAME}")


def compiled(factory: pytest.TempPathFactory) -> pathlib.Path:
    """The path of the library, which all tests share."""
    return made_once(factory, "fake_nvml", compile_into) / _NAME


def compile_into(folder: pathlib.Path) -> None:
    """Compiles the library into a folder; raises FileNotFoundError without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise FileNotFoundError("the fake NVML library needs a C compiler: install gcc and libc6-dev")
    subprocess.run([compiler, *_FLAGS, "-o", str(folder / _NAME), str(FOLDER / "fake_nvml.c"), "-lm"], check=True)


def play(order: dict[str, Any], environment: dict[str, str], folder: pathlib.Path) -> dict[str, Any]:
    """What player.py reports of an order."""
    command = [sys.executable, str(FOLDER / "player.py")]
    played = subprocess.run(command, input=json.dumps(order), env=environment, capture_output=True, text=True, check=False, cwd=folder)
    assert played.returncode == 0, played.stderr
    report: dict[str, Any] = json.loads(played.stdout)
    return report


@dataclasses.dataclass(frozen=True)
class FakeNvml:
    """Runs programs on the fake library in a folder."""

    folder: pathlib.Path

    def environment(self, script: pathlib.Path) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "PERFKIT_FAKE_NVML_SCRIPT": str(script), "PYTHONPATH": SEARCH_PATH}

    def play(
        self,
        script: str,
        windows: Sequence[tuple[float, float]] = ((1.0, 2.0),),
        *,
        rate_per_s: float = 20.0,
        idle_s: float = 0.0,
        server_pids: Sequence[int] = (),
        count_calls: Sequence[str] = (),
    ) -> dict[str, Any]:
        """What a sampler reports of a script, in windows given in the script's seconds; see player.py."""
        path = self.folder / "script.txt"
        path.write_text(EPOCH + script)
        order = {"windows": windows, "rate_per_s": rate_per_s, "idle_s": idle_s, "server_pids": server_pids, "count_calls": count_calls}
        return play(order, self.environment(path), self.folder)
