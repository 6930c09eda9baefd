"""Commands and snippets of the documentation: each parses with the program or the reader that it is written for."""

import argparse
import ast
import json
import pathlib
import re
import shlex
import subprocess

import pytest
import yaml

import perfkit
from perfkit.cli.main import COMMANDS, _with_joined_command, make_parser
from perfkit.errors import PerfkitError
from perfkit.perf_analyzer.command_line import read_options
from perfkit.perf_analyzer.options import CommandLineError
from perfkit.scenario.file import read_cases
from perfkit.scenario.model import Scenario
from server_stub.options import make_parser as make_server_parser
from tests.docs.snippets import FENCE, PAGES, ROOT, SHELLS, shell_lines, snippets

JOBS = (["nightly"], ["watchdog"])
"""Jobs of docs/gitlab-ci.yml, which begin with perfkit, too."""
KEYS = {field.alias or name for name, field in Scenario.model_fields.items()} | {"$schema"}


def by_place(all_snippets):
    return [pytest.param(one, id=one.place) for one in all_snippets]


def simple_commands(line):
    """The words of each command of a line, without pipes, redirections and assignments."""
    reader = shlex.shlex(line, posix=True, punctuation_chars="|&;()<>")
    reader.whitespace_split, reader.commenters = True, "#"
    words: list[str] = []
    skips = False
    for word in reader:
        if set(word) <= set("|&;()<>"):
            if set(word) & set("|&;()"):
                yield words
                words = []
            else:
                skips = True  # the file of a redirection
                if words and words[-1].isdigit():
                    words.pop()
        elif skips:
            skips = False
        elif words or not re.fullmatch(r"\w+=.*", word):
            words.append(word)
    yield words


def check_perfkit(words):
    """Parses the words after `perfkit` as the program does."""
    words = [word for word in words if word != "…"]
    name = next((word for word in _with_joined_command(words) if not word.startswith("-")), None)
    if name == "perf-analyzer":
        list(read_options([word for word in words[1:] if word != "--print-scenario"]))
    elif name == "serve":
        make_server_parser().parse_args([word for word in words[1:] if word != "--"])
    elif name is None:
        make_parser([])[0].parse_args(words)
    else:
        assert name in COMMANDS, f"perfkit has no command {name}"
        parser, configured = make_parser([name])
        options, rest = parser.parse_known_args(_with_joined_command(words))
        configured[name].add_words(options, rest)


def make_scenarios(words):
    """Makes the scenario files that a command names, which some parsers look for."""
    for word in words:
        if word.endswith(".yaml") and not pathlib.Path(word).is_absolute():
            pathlib.Path(word).parent.mkdir(parents=True, exist_ok=True)
            pathlib.Path(word).touch()


def check_command(words):
    program = pathlib.PurePath(words[0]).name if words else ""
    if program == "perfkit":
        check_perfkit(words[1:])
    elif program == "make":
        targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
        assert [word for word in words[1:] if "=" not in word and not word.startswith("-") and word not in targets] == []
    elif program.startswith("python") and words[1:2] == ["-m"]:
        check_module(words[2])


def check_module(name):
    if name.partition(".")[0] in ("benchmarks", "docs_build", "perfkit", "server_stub"):
        path = ROOT.joinpath(*name.split("."))
        assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file(), f"there is no module {name}"


@pytest.mark.parametrize("snippet", by_place(snippets(*SHELLS)))
def test_commands_parse(snippet, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for line in shell_lines(snippet):
        for words in simple_commands(line):
            make_scenarios(words)
            try:
                check_command(words)
            except (SystemExit, PerfkitError) as end:
                if not isinstance(end, SystemExit) or end.code:
                    pytest.fail(f"{snippet.place}: {line}\n{capsys.readouterr().err or end}")


@pytest.mark.parametrize("snippet", by_place(snippets("bash", "sh", "shell")))
def test_scripts_are_valid_bash(snippet):
    ended = subprocess.run(["bash", "-n"], input=snippet.text, capture_output=True, text=True, check=False)  # noqa: S607
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("page", PAGES)
def test_options_named_in_the_text_exist(page):
    text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    wrong = []
    for code in re.findall(r"(?<!`)`perfkit ([^`]+)`(?!`)", text):
        words = _with_joined_command(re.sub(r"[\[\]|…]", " ", code).split())
        name = words[0] if words else ""
        options = {word.partition("=")[0] for word in words if re.fullmatch(r"--[a-z][\w-]*(=.*)?", word)}
        if name == "perf-analyzer" or words[:1] in JOBS:
            continue
        if name in COMMANDS:
            wrong += [f"perfkit {code}: {option}" for option in options - known_options(name)]
        elif re.fullmatch(r"[a-z][a-z-]*", name):
            wrong.append(f"perfkit {name}")
    for name in re.findall(r"`(?:\.venv/bin/)?python -m ([\w.]+)", text):
        check_module(name)
    assert wrong == []


def known_options(name):
    """The options of a command, or of its parts."""
    todo = [make_server_parser() if name == "serve" else make_parser([name])[1][name]]
    found = set()
    while todo:
        for action in todo.pop()._actions:
            found |= set(action.option_strings)
            if isinstance(action, argparse._SubParsersAction):
                todo += action.choices.values()
    return found


@pytest.mark.parametrize("snippet", by_place(snippets("yaml", "yml")))
def test_scenarios_are_valid(snippet, monkeypatch, tmp_path):
    document = yaml.safe_load(re.sub(r"\bon:", '"on":', snippet.text))  # a key, which PyYAML takes for `true`
    if not isinstance(document, dict) or not set(document) <= KEYS:
        return  # of another program, such as a workflow: tests/cli/test_ci_files.py checks those
    for name in re.findall(r"\$\{(\w+)\}", snippet.text):
        monkeypatch.setenv(name, "secret")
    for whole in whole_scenarios(document):
        path = tmp_path / "snippet.yaml"
        path.write_text(yaml.safe_dump(whole))
        assert read_cases(path)


def whole_scenarios(document):
    """The scenarios that a part of one stands for: with what it leaves out, and one for each load where several are shown."""
    rest = {"target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}, "measure": {"duration": "10m"}}
    if "rank" in document:
        rest["sweep"] = {"workload.batch_size": [1, 2]}
    if "workloads" in document:
        del rest["load"]
    whole = rest | document
    if "workloads" not in document:
        whole["target"] = {"model": "m"} | whole["target"]
    loads = dict(whole.get("load", {}))
    beside = [{key: loads.pop(key)} for key in ("abandon", "retry") if key in loads] or [{}]  # one excludes the other
    return [
        whole | {"load": {kind: load} | (own if kind in ("closed", "open") else {})} for kind, load in loads.items() for own in beside
    ] or [whole]


@pytest.mark.parametrize("snippet", by_place(snippets("python", "py")))
def test_python_compiles_and_uses_what_perfkit_has(snippet):
    tree = compile(snippet.text, snippet.place, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "perfkit"
    }
    assert [name for name in used if not hasattr(perfkit, name)] == []


@pytest.mark.parametrize("snippet", by_place(snippets("json")))
def test_json_parses(snippet):
    json.loads(snippet.text)


def test_every_kind_of_snippet_is_found():
    assert {one.language for one in snippets("console", "yaml", "python")} == {"console", "yaml", "python"}
    assert len(snippets("console")) > 20


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("perfkit run a.yaml --set 'x=[1, 2]'  # why", [["perfkit", "run", "a.yaml", "--set", "x=[1, 2]"]]),
        ("A=1 perfkit explain r | less && make test", [["perfkit", "explain", "r"], ["less"], ["make", "test"]]),
        ("perfkit schema > f.json 2>/dev/null", [["perfkit", "schema"]]),
    ],
)
def test_lines_are_split_into_commands(line, commands):
    assert list(simple_commands(line)) == commands


@pytest.mark.parametrize("words", ["run a.yaml --no-such", "rum a.yaml", "gate s.yaml --baseline a", "perf-analyzer -m m --no-such"])
def test_a_command_that_perfkit_refuses_fails(words, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    make_scenarios(words.split())
    with pytest.raises((SystemExit, AssertionError, CommandLineError)):
        check_perfkit(words.split())
