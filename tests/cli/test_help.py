"""Help, and mistyped commands and options."""

import ast
import functools
import pathlib
import re
import subprocess

import pytest

import perfkit as package
from perfkit.cli.exit_code import ExitCode
from perfkit.cli.help import help_topics, scenario_keys
from perfkit.cli.schema import schema_of
from perfkit.report.warning_texts import warning_texts
from perfkit.stats.validity import INVALIDATING

CODE = pathlib.Path(package.__file__).parent


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


def first_column(markdown):
    """The cells of the first column of all tables, without quotes."""
    return [cell.strip(" `") for cell in re.findall(r"^\|([^|]*)\|", markdown, re.MULTILINE) if set(cell) - set("- ")]


def test_every_exit_code_is_explained():
    codes = ", ".join(first_column(help_topics()["exit-codes"])[1:])
    assert sorted(map(int, codes.split(", "))) == sorted(ExitCode)


def test_every_warning_is_explained_and_no_other():
    paths = (path for path in CODE.rglob("*.py") if not path.is_relative_to(CODE / "gate"))  # whose faults are sentences of a verdict
    texts = (path.read_text(encoding="utf-8") for path in paths)
    calls = [
        node
        for text in texts
        if "MeasurementWarning(" in text or "_warning(" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("MeasurementWarning", "_warning")
    ]
    given = [next((word.value for word in call.keywords if word.arg == "code"), None) or call.args[0] for call in calls]
    used = {str(code.value) for code in given if isinstance(code, ast.Constant)}
    assert len(used) > 40
    assert sorted(warning_texts()) == sorted(used)


def test_the_warnings_that_make_a_point_invalid_are_those_of_the_first_table():
    assert {code for code, text in warning_texts().items() if text.is_invalid} == INVALIDATING


def test_the_options_of_every_remedy_set_keys_that_a_scenario_has():
    keys = scenario_keys(help_topics()["scenario-keys"])
    named = [re.sub(r"\.NAME$", "", key) for text in warning_texts().values() for key in re.findall(r"--set ([\w.]+)=", text.options)]
    assert len(named) > 30
    assert [key for key in named if key not in keys] == []


def test_every_section_of_the_page_of_warnings_is_read():
    assert [f"### `{code}`" for code in warning_texts()] == re.findall("^### .*$", help_topics()["warnings"], re.MULTILINE)


def test_help_on_a_warning_says_what_mends_it_with_the_keys_that_a_run_names(perfkit):
    shown = perfkit.run("help", "late_starts").stdout
    assert shown.startswith("### `late_starts`\n\nMore than 2 % of an open loop's requests were sent late")
    assert warning_texts()["late_starts"].options in shown
    everything = perfkit.run("help", "warnings").stdout
    assert shown.strip() in everything
    assert "<!--" not in everything


def test_help_on_a_scenarios_key_says_its_meaning_type_and_default(perfkit):
    shown = perfkit.run("help", "measure.workers").stdout
    assert shown.startswith("### `measure.workers`\n\nThe number of load-generating processes")
    assert shown.endswith("Default: `auto`.\n")
    section = perfkit.run("help", "load.closed").stdout
    assert section.startswith("### `load.closed`\n")
    assert "| `concurrency` |" in section
    mistyped = perfkit.run("help", "measure.worker")
    assert (mistyped.code, "did you mean measure.workers?" in mistyped.stderr) == (2, True)


def test_every_key_of_the_schema_has_help():
    schema = schema_of("scenario")
    keys = scenario_keys(help_topics()["scenario-keys"])

    def named(part, place):
        """The keys of a part, of what it refers to, and of its alternatives; keys under names and in lists have places of their own."""
        reference = part.get("$ref", "").rpartition("/")[2]
        for one in [schema["$defs"].get(reference, {}), *part.get("anyOf", ()), *part.get("oneOf", ())]:
            yield from named(one, place) if one else ()
        for name, inner in part.get("properties", {}).items():
            yield f"{place}{name}"
            yield from named(inner, f"{place}{name}.")

    expected = set(named(schema, ""))
    assert {"load.open.rate", "load.search.precision", "target.tls.cert", "server.onnx.provider"} <= expected
    # what can be in several places is described at one of them: `load.search.slo.p99` at `slo.p99`
    one_of = {
        "load.search.": "",
        "measure.warmup.load.": "load.",
        "first_token.": "first_response.",
        "per_token.": "first_response.",
        "workload.prompts.max_tokens.": "sequences.length.",
    }
    places = {key: functools.reduce(lambda text, pair: text.replace(*pair), one_of.items(), key) for key in expected}
    described_elsewhere = {key for key, place in places.items() if place in keys}
    assert sorted(expected - keys.keys() - described_elsewhere) == []


def test_help_prints_topics_and_the_options_of_commands(perfkit):
    assert {"exit-codes", "warnings", "metrics", "scenarios", "gating"} <= {
        line.split()[0] for line in perfkit.run("help").stdout.split("\n") if line
    }
    assert perfkit.run("help", "metrics").stdout.startswith("# Metrics\n")
    assert perfkit.run("help", "validate").stdout.startswith("usage: perfkit validate")
    unknown = perfkit.run("help", "warnigns")
    assert (unknown.code, "did you mean warnings?" in unknown.stderr) == (2, True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_knows_every_command_and_its_options(perfkit, shell):
    script = perfkit.run("completion", shell).stdout
    for word in ("calibrate", "concurrency", "baseline", "junit", "slo"):
        assert word in script


def test_bash_completes_commands_options_and_files(perfkit, tmp_path):
    script = tmp_path / "perfkit.bash"
    script.write_text(perfkit.run("completion", "bash").stdout)
    (tmp_path / "mine.yaml").touch()

    def completed(*words):
        quoted = " ".join(f"'{word}'" for word in words)
        program = f"source {script}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _shtab_perfkit; echo ${{COMPREPLY[@]}}"
        ended = subprocess.run(["bash", "--norc", "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)  # noqa: S607
        return ended.stdout.split()

    assert completed("perfkit", "cal") == ["calibrate"]
    assert completed("perfkit", "run", "--conc") == ["--concurrency"]
    assert completed("perfkit", "run", "mi") == ["mine.yaml"]
    assert completed("perfkit", "compare", "--format", "m") == ["markdown"]
    assert completed("perfkit", "gate", "mi") == ["mine.yaml"]
    assert completed("perfkit", "gate", "accept", "--exp") == ["--expires"]
