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


def test_the_last_line_agrees_with_the_findings(perfkit, tmp_path):
    finished = perfkit.run("doctor", "--seconds", "0.1", environ={"PERFKIT_CACHE_DIR": str(tmp_path)})
    *findings, last = finished.stdout.splitlines()
    severities = {line.split()[0] for line in findings} - {"→"}
    expected = (
        "would be invalid" if "spoils" in severities else "this machine can measure;" if "disturbs" in severities else "is ready to measure"
    )
    assert expected in last
    assert any(line.startswith("    note  calibration: ") and "optional" in line for line in findings)


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan", "1e9"])
def test_an_invalid_duration_is_refused(perfkit, seconds):
    finished = perfkit.run("doctor", f"--seconds={seconds}")
    assert finished.code == 2
    assert "expected seconds above 0" in finished.stderr


def test_an_invalid_target_is_refused(perfkit):
    finished = perfkit.run("doctor", "--target", "nonsense")
    assert finished.code == 2
    assert "expected http://HOST:PORT" in finished.stderr
