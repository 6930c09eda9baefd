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

from tests.telemetry.fake_nvml.compile import compile_into

ROOT = pathlib.Path(__file__).parents[2]
FAKE = pathlib.Path(__file__).parent / "fake_nvml"
EPOCH = "epoch_us 1700000000000000\n"


@dataclasses.dataclass(frozen=True)
class FakeNvml:
    """The folder of the fake library, and programs run against it."""

    folder: pathlib.Path

    def environment(self, script: pathlib.Path) -> dict[str, str]:
        return {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "FAKE_NVML_SCRIPT": str(script), "PYTHONPATH": str(ROOT)}

    def play(
        self,
        script: str,
        windows: Sequence[tuple[float, float]] = ((1.0, 2.0),),
        *,
        rate_per_s: float = 20.0,
        rest_s: float = 0.0,
        server_pids: Sequence[int] = (),
        count_calls: Sequence[str] = (),
    ) -> dict[str, Any]:
        """What a sampler saw of a script, whose windows are seconds of the script's; see player.py."""
        path = self.folder / "script.txt"
        path.write_text(EPOCH + script)
        order = {
            "windows": windows,
            "rate_per_s": rate_per_s,
            "rest_s": rest_s,
            "server_pids": server_pids,
            "count_calls": count_calls,
        }
        command = [sys.executable, str(FAKE / "player.py")]
        played = subprocess.run(
            command, input=json.dumps(order), env=self.environment(path), capture_output=True, text=True, check=False, cwd=self.folder
        )
        assert played.returncode == 0, played.stderr
        seen: dict[str, Any] = json.loads(played.stdout)
        return seen


@pytest.fixture(scope="session")
def compiled_nvml(tmp_path_factory):
    return compile_into(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def fake_nvml(compiled_nvml, tmp_path):
    shutil.copy(compiled_nvml, tmp_path)
    return FakeNvml(tmp_path)
