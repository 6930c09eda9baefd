"""The answers of the real perf_analyzer to 1,500 generated command lines, recorded once (version 2.60)."""

import contextlib
import json
import pathlib
import shlex

from perfkit.perf_analyzer.command_line import CommandLineError, UnsupportedError, parse

_RECORDED = json.loads((pathlib.Path(__file__).parent / "recorded_arguments.json").read_text())
_NAMED_BY_PERFKIT = "Error: Cannot use both RequestRate"


def _answer(line: str) -> tuple[int | None, str]:
    try:
        parse(shlex.split(line))
    except UnsupportedError:
        pass
    except CommandLineError as error:
        return error.exit_code, str(error)
    return None, ""


def test_command_lines_are_accepted_and_refused_as_by_the_real_parser(tmp_path):
    lines, messages = _RECORDED["lines"], _RECORDED["messages"]
    for name, text in _RECORDED["files"].items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    with contextlib.chdir(tmp_path):
        answers = [_answer(line) for line, _, _ in lines]
    assert len(lines) > 1000
    differing = [(line, code, answer) for (line, code, _), answer in zip(lines, answers, strict=True) if code != answer[0]]
    assert differing == []
    reworded = [
        (line, messages[message], words)
        for (line, code, message), (_, words) in zip(lines, answers, strict=True)
        if code == 99 and words != messages[message] and not words.startswith(_NAMED_BY_PERFKIT)
    ]
    assert reworded == []


def test_the_recorded_lines_have_all_kinds_of_answers():
    codes = [code for _, code, _ in _RECORDED["lines"]]
    assert min(codes.count(code) for code in (None, 0, 99, 134)) >= 5
