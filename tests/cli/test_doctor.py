"""`perfkit doctor`: its output and exit codes."""

import json

import pytest


def test_the_findings_decide_the_exit_code(perfkit, tmp_path):
    finished = perfkit.run("doctor", "--seconds", "0.1", "--format", "json", environ={"PERFKIT_CACHE_DIR": str(tmp_path)})
    document = json.loads(finished.stdout)
    spoils = any(finding["severity"] == "spoils" for finding in document["findings"])
    assert finished.code == (5 if spoils else 0)
    assert ("calibration", "note") in {(finding["subject"], finding["severity"]) for finding in document["findings"]}
    assert 0 <= document["idle"]["busy_share"] <= 1


def test_a_missing_calibration_is_a_note(perfkit, tmp_path):
    finished = perfkit.run("doctor", "--seconds", "0.1", environ={"PERFKIT_CACHE_DIR": str(tmp_path)})
    assert any(line.startswith("    note  calibration: ") and "optional" in line for line in finished.stdout.splitlines())


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan", "1e9"])
def test_an_invalid_duration_is_refused(perfkit, seconds):
    finished = perfkit.run("doctor", f"--seconds={seconds}")
    assert finished.code == 2
    assert "expected seconds above 0" in finished.stderr


def test_an_invalid_target_is_refused(perfkit):
    finished = perfkit.run("doctor", "--target", "nonsense")
    assert finished.code == 2
    assert "expected http://HOST:PORT" in finished.stderr
