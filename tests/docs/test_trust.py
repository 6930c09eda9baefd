"""docs/trust.md: it lists every report with the command that makes it again."""

import ast
import functools
import re
import shlex

import pytest

from tests.docs.snippets import ROOT

BY_HAND = {"map-walk", "new-user-trial", "server-request-time"}
"""Reports that no program makes: what changes took, what a reader met, and what several profilers found."""
REPORTS = sorted(path.stem for path in (ROOT / "reports").glob("*.md"))
TEXT = (ROOT / "docs/trust.md").read_text(encoding="utf-8")
COMMANDS = dict(re.findall(r"^\| \[[\w-]+\]\(\.\./reports/([\w-]+)\.md\) \| `([^`]+)` \|", TEXT, re.MULTILINE))


@functools.cache
def source(module):
    """The text of a module of the benchmarks, and the modules among them that it imports."""
    text = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    return text, [node.module for node in imports if (node.module or "").startswith("benchmarks.")]


def sources(module):
    """The texts of a module and of those that it imports, themselves or by others."""
    found, todo = {}, [module]
    while todo:
        if (name := todo.pop()) not in found:
            found[name], imports = source(name)
            todo += imports
    return found


def has_option(text, option):
    """Whether a program's text names an option: as text, or as a keyword of the options."""
    return f'"{option}"' in text or re.search(rf"\b{option.removeprefix('--').replace('-', '_')}=", text)


def test_every_report_is_listed_with_its_command():
    assert sorted(COMMANDS) == sorted({*REPORTS} - BY_HAND)
    assert all(f"](../reports/{name}.md)" in TEXT for name in BY_HAND)


@pytest.mark.parametrize("report", COMMANDS)
def test_the_command_is_that_of_a_program_which_has_its_options_and_writes_the_report(report):
    program, *words = shlex.split(COMMANDS[report])
    if program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert re.search(rf"^{words[0]}:", makefile, re.MULTILINE)
        assert all(re.search(rf"^{word.partition('=')[0]} \?=", makefile, re.MULTILINE) for word in words[1:])
        return
    assert (program, words[0]) == ("python", "-m")
    texts = sources(words[1])
    assert 'if __name__ == "__main__":' in texts[words[1]]
    assert any("ArgumentParser(" in text for text in texts.values())
    options = [word for word in words if word.startswith("--")]
    assert [option for option in options if not any(has_option(text, option) for text in texts.values())] == []
    if "--out" in options:
        assert words[words.index("--out") + 1] == f"reports/{report}.md"
    else:
        default = re.compile(rf"(?:out|default|REPORT|_OUT)\s*=.*{re.escape(report)}[.\"]")
        assert default.search(texts[words[1]])
