"""`perfkit doctor`: what it prints, and its exit codes."""

import json

import pytest


def test_the_command_says_what_it_found_and_whether_that_spoils(perfkit, tmp_path):
    finished = perfkit.run("doctor", "--seconds", "0.1", "--format", "json", environ={"PERFKIT_CACHE_DIR": str(tmp_path)})
    document = json.loads(finished.stdout)
    spoils = [one for one in document["findings"] if one["severity"] == "spoils"]
    assert finished.code == (5 if spoils else 0)
    assert "calibration" in {one["subject"] for one in document["findings"]}
    assert 0 <= document["watched"]["busy_share"] <= 1


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "nan", "1e9"])
def test_a_time_that_is_none_is_refused(perfkit, seconds):
    finished = perfkit.run("doctor", f"--seconds={seconds}")
    assert finished.code == 2
    assert "expected seconds above 0" in finished.stderr
