"""The check of a release: commands are run without the checkout, must say what is asked of them, and are reported in columns."""

import json
import sys

import pytest

from benchmarks.release import Step, clean_environment, report_lines, run_step, version_of


def test_a_step_runs_in_its_folder_without_the_checkout_on_its_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("PERFKIT_SET_MEASURE__DURATION", "1h")
    code = "import os, json; print(os.getcwd(), json.dumps([n for n in os.environ if n.startswith(('PYTHON', 'PERFKIT_'))]))"
    step = run_step("x", (sys.executable, "-c", code), tmp_path, says=r".+")
    folder, names = step.said.split(" ", 1)
    assert folder == str(tmp_path)
    assert json.loads(names) == ["PERFKIT_CACHE_DIR"]
    assert clean_environment(tmp_path)["PERFKIT_CACHE_DIR"].startswith(str(tmp_path))


@pytest.mark.parametrize(
    ("code", "says", "expected"),
    [
        ("print('a\\nbest 3')", r"^best.*$", (True, "best 3")),
        ("print('a')", r"^best.*$", (False, "exit code 0")),
        ("print('best'); raise SystemExit(3)", r"^best.*$", (False, "best")),
        ("raise SystemExit(2)", None, (False, "exit code 2")),
        ("pass", None, (True, "")),
    ],
)
def test_a_step_is_done_if_it_exits_with_0_and_says_what_it_should(tmp_path, code, says, expected):
    step = run_step("x", (sys.executable, "-c", code), tmp_path, says)
    assert (step.is_done, step.said) == expected


def test_a_step_that_does_not_end_failed(tmp_path):
    step = run_step("x", (sys.executable, "-c", "import signal; signal.pause()"), tmp_path, wait_s=0.05)
    assert (step.is_done, step.said) == (False, "not ended after 0 s")


def test_the_report_has_a_column_for_each_python_and_names_what_failed():
    steps = {
        "3.11.1": [Step("run", is_done=True, seconds=1.2, said="best 3/s"), Step("tests", is_done=False, seconds=9, said="1 failed")],
        "3.13.0": [Step("run", is_done=False, seconds=2, said="exit code 5")],
    }
    lines = report_lines({"perfkit-1.tar.gz": "ab"}, steps, ["# Title"])
    assert "| `perfkit-1.tar.gz` | yes | `ab` |" in lines
    assert "| wheel | no | – |" in lines
    assert "| step | Python 3.11.1 | Python 3.13.0 |" in lines
    assert "| `run` | best 3/s (1 s) | **failed**: exit code 5 (2 s) |" in lines
    assert "| `tests` | **failed**: 1 failed (9 s) | – |" in lines


def test_the_version_is_the_interpreters_own():
    assert version_of(sys.executable) == ".".join(map(str, sys.version_info[:3]))
