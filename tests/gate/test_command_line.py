"""The command line of a gate with other options and settings."""

import shlex

import pytest

from perfkit.gate.command_line import changed_command

GIVEN = ["perfkit", "gate", "my gate.yaml", "--baseline", "cmd:a --port {port}", "--candidate", "cmd:b", "--pairs", "20", "--time=6m", "--set", "load.closed.concurrency=[4]",
         "--set=measure.duration=2s", "--out", "reports/x", "--junit", "j.xml"]  # fmt: skip
TARGETS = ["perfkit", "gate", "my gate.yaml", "--baseline", "cmd:a --port {port}", "--candidate", "cmd:b"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            [*TARGETS, "--pairs", "20", "--time=6m", "--set", "load.closed.concurrency=[4]", "--set", "measure.duration=2s", "--junit", "j.xml"],
        ),
        (
            {"options": {"--pairs": "40"}, "settings": {"measure.duration": "10s"}, "without": ["--time"]},
            [*TARGETS, "--set", "load.closed.concurrency=[4]", "--junit", "j.xml", "--pairs", "40", "--set", "measure.duration=10s"],
        ),
        (
            {"options": {"--time": "20m"}, "without": ["--pairs"]},
            [*TARGETS, "--set", "load.closed.concurrency=[4]", "--set", "measure.duration=2s", "--junit", "j.xml", "--time", "20m"],
        ),
    ],
)  # fmt: skip
def test_options_and_settings_take_the_place_of_those_given(changes, words):
    assert shlex.split(changed_command(GIVEN, **changes)) == words
