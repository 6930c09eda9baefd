"""The command `perfkit tune` with limits on what the server uses."""

import json
import shutil
import subprocess
import sys

import pytest

from perfkit.cli.main import main
from tests.cli.tune_target import outcome_of
from tests.telemetry.fake_nvml.library import FakeNvml, compiled
from tests.undisturbed import undisturbed_tunes

GPU = "gpu\nuuid GPU-a\nmemory_used 9000000000\n"


def options(triton, tmp_path, *more, time="12s"):
    space = ["--space", "instance_group.count=2,8", "--indifference", "50%", "--set", "measure.warmup=20ms"]
    return ["tune", triton.url, "-m", "m", "-c", "2,8", *space, "--time", time, "--out", str(tmp_path / "tune"), *more]


def test_a_configuration_that_uses_more_cpus_than_the_limit_is_unmet_with_both_figures(triton, tmp_path, capsys):
    with undisturbed_tunes():
        main(options(triton, tmp_path, "--max-cpu", "0.001"))
    outcome = outcome_of(tmp_path)
    assert {row["state"] for row in outcome["rows"]} == {"unmet"}
    assert all(row["reason"].endswith("CPUs, and 0.001 are the limit") for row in outcome["rows"])
    assert outcome["constraints"] == {"CPUs": "0.001"}
    assert "with CPUs ≤ 0.001" in capsys.readouterr().out


def test_within_the_limit_the_windows_have_the_figure(triton, tmp_path):
    with undisturbed_tunes():
        main(options(triton, tmp_path, "--set", "tune.constraints.cpu=1000"))
    windows = [json.loads(line) for line in (tmp_path / "tune" / "windows.jsonl").read_text().splitlines()]
    assert all(row["state"] != "unmet" for row in outcome_of(tmp_path)["rows"])
    assert any(window["is_valid"] for window in windows)
    assert all(0 < window["server_cpus"] < 100 for window in windows if window["is_valid"])


def test_a_limit_on_gpu_memory_needs_a_gpu(triton, tmp_path, tmp_path_factory):
    def tune(fake):
        arguments = options(triton, tmp_path, "--max-gpu-memory", "8GiB", time="60s")
        command = [sys.executable, "-m", "perfkit", *arguments]
        return subprocess.run(command, env=fake.environment(script), capture_output=True, text=True, check=False)

    script = tmp_path / "gpus.txt"
    script.write_text(GPU)
    refused = tune(FakeNvml(tmp_path))
    if refused.returncode != 2:
        pytest.skip("this machine has a GPU of its own")
    assert "--max-gpu-memory: " in refused.stderr
    assert triton.loads == []
    shutil.copy(compiled(tmp_path_factory), tmp_path)
    tune(FakeNvml(tmp_path))
    assert {row["state"] for row in outcome_of(tmp_path)["rows"]} == {"unmet"}
    assert outcome_of(tmp_path)["rows"][0]["reason"] == "8.38 GiB of GPU memory were used, and 8GiB are the limit"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--max-cpu", "0"], "expected a number above zero"),
        (["--max-gpu-memory", "8 apples"], "expected a size"),
    ],
)
def test_a_limit_that_is_no_quantity_is_refused(capsys, arguments, sentence):
    with pytest.raises(SystemExit) as ended:
        main(["tune", "http://127.0.0.1:1", "-m", "m", *arguments])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err
