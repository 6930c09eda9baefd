"""What executes the commands of the documentation: how they are found and treated, and the shell that runs them."""

import os

import pytest

from benchmarks.documentation.commands import PAGES, Command, commands_in, commands_of, with_words
from benchmarks.documentation.page_run import FAILED, NOT_RUN, RAN, Outcome, as_run, treatment_of
from benchmarks.documentation.pages import SETUPS, TREATMENTS
from benchmarks.documentation.shell import Shell, TimedOutError
from benchmarks.documentation.treatment import Treatment
from benchmarks.documentation_commands import read_outcomes, report_lines, write_outcomes
from tests.docs.snippets import ROOT, snippets_of

TEXT = """
```console
$ perfkit run a.yaml \\
    --out a    # first
it says so
$ perfkit compare a b
```

```bash
export A=1
perfkit run b.yaml
```

```yaml
name: x
```

```python
print(1)
```
"""


@pytest.fixture
def shell(tmp_path):
    with Shell(tmp_path, {"PATH": os.environ["PATH"]}) as started:
        yield started


def test_a_page_has_console_lines_scripts_and_snippets_as_commands():
    assert commands_in("p.md", TEXT) == [
        Command("p.md:2", "console", "perfkit run a.yaml --out a    # first"),
        Command("p.md:2", "console", "perfkit compare a b"),
        Command("p.md:9", "bash", "export A=1\nperfkit run b.yaml"),
        Command("p.md:18", "python", "print(1)"),
    ]


def test_words_are_added_before_the_comment():
    assert with_words("perfkit run a.yaml    # first", "--quiet") == "perfkit run a.yaml --quiet    # first"
    assert with_words("perfkit run '#1'", "--quiet") == "perfkit run '#1' --quiet"


@pytest.mark.parametrize("page", TREATMENTS)
def test_each_treatment_is_of_a_command_that_the_page_has(page):
    treated = [treatment_of(page, command) for command in commands_of(page)]
    assert [treatment for treatment in TREATMENTS[page] if treatment not in treated] == []


@pytest.mark.parametrize("page", SETUPS)
def test_each_setup_is_of_a_page_with_commands_and_the_blocks_that_it_saves(page):
    assert page in PAGES
    assert commands_of(page)
    blocks = snippets_of(page, (ROOT / page).read_text(encoding="utf-8"), ("yaml",))
    assert all(any(block.text.startswith(start) for block in blocks) for start in SETUPS[page].blocks.values())


def test_a_command_that_nothing_is_said_of_runs_as_it_stands(tmp_path):
    command = Command("docs/index.md:1", "console", "perfkit doctor | head")
    assert treatment_of("docs/index.md", command) == Treatment("")
    assert as_run(command, Treatment(""), tmp_path) == "perfkit doctor | head"


def test_the_lines_of_a_script_are_put_where_its_treatment_says(tmp_path):
    command = Command("p.md:1", "bash", "# here\necho one\n# there\nTOKEN=... echo two")
    treatment = Treatment("echo one", replaced=(("TOKEN=... ", ""),), script="{1}; {0}; {1}")
    assert as_run(command, treatment, tmp_path) == "(set -e; \necho two; echo one; echo two\n)"


def test_the_shell_keeps_its_variables_and_gives_each_exit_code(shell, tmp_path):
    assert shell.run("A=7; cd / && false", 60) == (1, "\n")
    assert shell.run("echo $A; pwd; cat; (exit 3)", 60) == (3, "7\n/\n\n")
    assert shell.run(f"cd {tmp_path}", 60)[0] == 0


def test_a_command_in_the_background_can_be_interrupted(shell):
    assert shell.run("{ sleep 600 & } && background=$!", 60)[0] == 0
    assert shell.run('until grep -q sleep /proc/$background/comm; do :; done; kill -INT $background; wait "$background"', 60)[0] == 130


def test_a_command_that_does_not_end_is_an_error(shell):
    with pytest.raises(TimedOutError, match="begun"):
        shell.run("echo begun; sleep 600", 0.5)


def test_a_script_ends_at_its_first_failing_line(shell, tmp_path):
    line = as_run(Command("p.md:1", "bash", "false\necho on"), Treatment(""), tmp_path)
    assert shell.run(line, 60) == (1, "\n")


def test_the_report_counts_the_outcomes_and_names_what_failed_and_what_was_not_run():
    outcomes = {
        "README.md": [
            Outcome("README.md:3", "make run", RAN, 0, 90.0),
            Outcome("README.md:9", "perfkit run a | b", FAILED, 2, 1.0, "started\nno such scenario\n"),
        ],
        "docs/a.md": [Outcome("docs/a.md:1", "kubectl apply", NOT_RUN, said="it needs a cluster")],
    }
    lines = report_lines(outcomes, ["docs/b.md"], "2 CPUs.")
    assert "| [README.md](../README.md) | 2 | 1 | 1 | 0 | 91 |" in lines
    assert "| [docs/a.md](../docs/a.md) | 1 | 0 | 0 | 1 | 0 |" in lines
    assert "- docs/b.md" in lines
    assert "| README.md:9: `perfkit run a \\| b` | 2 | no such scenario |" in lines
    assert "| docs/a.md:1: `kubectl apply` | it needs a cluster |" in lines


def test_outcomes_are_those_of_the_commands_as_they_are_now(tmp_path):
    page = "docs/index.md"
    assert read_outcomes(tmp_path, page) is None
    write_outcomes(tmp_path, page, [Outcome("docs/index.md:1", commands_of(page)[0].text, RAN, 0)])
    assert [one.place for one in read_outcomes(tmp_path, page)] == [commands_of(page)[0].place]
