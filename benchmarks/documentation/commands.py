"""The commands of a page, in their order: console lines, whole scripts, and Python snippets."""

import dataclasses
import re

from tests.docs.snippets import ROOT, SHELLS, Snippet, shell_lines, snippets_of

PAGES = ("README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")))
_COMMENT = re.compile(r"\s+#\s.*$")


@dataclasses.dataclass(frozen=True)
class Command:
    """A command as a page has it. A console line is one command, a script or a Python snippet is one as a whole."""

    place: str
    """The page and the line of its code block."""
    language: str
    text: str

    @property
    def is_console(self) -> bool:
        """Whether it is one line that a reader types, whose effects on the shell stay."""
        return self.language == "console"

    @property
    def is_python(self) -> bool:
        """Whether it is a Python snippet."""
        return self.language in ("python", "py")

    @property
    def parts(self) -> list[str]:
        """The command lines of a script, without comments and empty lines."""
        return [line for line in shell_lines(Snippet(self.place, "bash", self.text)) if line.strip() and not line.startswith("#")]


def commands_of(page: str) -> list[Command]:
    """All commands of a page of the checkout."""
    return commands_in(page, (ROOT / page).read_text(encoding="utf-8"))


def commands_in(page: str, text: str) -> list[Command]:
    """All commands of a page's text."""
    found = []
    for snippet in snippets_of(page, text, (*SHELLS, "python", "py")):
        texts = shell_lines(snippet) if snippet.language == "console" else [snippet.text.rstrip("\n")]
        found += [Command(snippet.place, snippet.language, one) for one in texts]
    return found


def with_words(line: str, words: str) -> str:
    """A command line with further words at its end, before its comment."""
    comment = _COMMENT.search(line)
    end = comment.start() if comment else len(line)
    return f"{line[:end]} {words}{line[end:]}"
