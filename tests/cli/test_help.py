"""Help, and mistyped commands and options."""

import pytest


def test_perfkit_alone_shows_its_commands_and_three_examples_in_80_columns(perfkit, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    finished = perfkit.run()
    assert finished.code == 2
    lines = finished.stdout.splitlines()
    assert sum(" perfkit " in line for line in lines[lines.index("examples:") :]) == 3
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rum", "x.yaml"], "perfkit: unknown command rum; did you mean run?"),
        (["--verison"], "perfkit: unknown option --verison; did you mean --version?"),
        (["run", "simple", "--concurency", "4"], "perfkit run: unknown option --concurency; did you mean --concurrency?"),
        (["compare", "--formt=json", "a", "b"], "perfkit compare: unknown option --formt=json; did you mean --format?"),
        (["validate", "simple", "more"], "perfkit validate: unknown argument more"),
        (["run", "simple", "--xyzzy"], "perfkit run: unknown option --xyzzy; see perfkit run --help"),
    ],
)
def test_a_mistyped_command_or_option_names_the_nearest(perfkit, arguments, sentence):
    finished = perfkit.run(*arguments)
    assert (finished.code, finished.stdout) == (2, "")
    assert finished.stderr.startswith(sentence)
