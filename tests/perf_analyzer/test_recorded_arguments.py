"""The answers of the real perf_analyzer to 1,500 generated command lines, recorded once (version 2.60)."""

import contextlib
import json
import pathlib
import re
import shlex

from perfkit.perf_analyzer.command_line import parse
from perfkit.perf_analyzer.options import CommandLineError, UnsupportedError

_RECORDED = json.loads((pathlib.Path(__file__).parent / "recorded_arguments.json").read_text())


def _refusal(line: str) -> str | None:
    """Why perfkit refuses a line that perf_analyzer may run; None if it accepts it, or only cannot run it."""
    try:
        parse(shlex.split(line))
    except UnsupportedError:
        return None
    except CommandLineError as error:
        return str(error)
    return None


def _is_unsupported(line: str) -> bool:
    """Whether a value is refused for an option that perfkit ignores, or of a mode or server that it does not have."""
    return re.search(r"--grpc-me|--request-per|--perio|--sess|--servi", line) is not None


def test_command_lines_are_accepted_and_refused_as_by_the_real_parser(tmp_path):
    lines = _RECORDED["lines"]
    for name, text in _RECORDED["files"].items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    with contextlib.chdir(tmp_path):
        answers = [(line, code is None, _refusal(line)) for line, code, _ in lines]
    assert len(lines) > 1000
    refused = [(line, reason) for line, is_accepted, reason in answers if is_accepted and reason is not None]
    assert [(line, reason) for line, reason in refused if not re.search(r"expected a (whole )?number", reason)] == []
    assert len(refused) < 0.05 * len(lines)  # what follows a number is malformed here
    accepted = [line for line, is_accepted, reason in answers if not is_accepted and reason is None]
    assert [line for line in accepted if not _is_unsupported(line)] == []


def test_the_recorded_lines_have_all_kinds_of_answers():
    codes = [code for _, code, _ in _RECORDED["lines"]]
    assert min(codes.count(code) for code in (None, 0, 99, 134)) >= 5
