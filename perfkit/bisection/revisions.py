"""The revisions of a git repository on the path from a good to a bad one."""

import pathlib
import subprocess
from collections.abc import Sequence

from perfkit.errors import UsageError
from perfkit.result.part import Part

_GIT_WITHIN_S = 60
_FORMAT = "%H%x1f%P%x1f%aI%x1f%s"


class Revision(Part):
    """A commit."""

    sha: str
    """The full name of the commit."""
    subject: str
    """The first line of its message."""
    author_date: str
    """When it was written, as ISO 8601."""
    is_merge: bool = False
    """Whether it has several parents: it brings the changes of a branch, or of several."""

    @property
    def short(self) -> str:
        """The first ten digits of its name."""
        return self.sha[:10]


def read_path(repository: pathlib.Path, good: str, bad: str) -> tuple[Revision, ...]:
    """The good revision and those after it, up to the bad one: on the path of first parents, those that contain the good one.

    Raises UsageError if the folder is no repository, a revision is unknown, or the good one is not before the bad one.
    """
    first, last = (_commit(repository, option, name) for option, name in (("--good", good), ("--bad", bad)))
    if first == last:
        raise UsageError(f"--good {good} and --bad {bad} are the same revision, {first[:10]}")
    if not _is_ancestor(repository, first, last):
        if _is_ancestor(repository, last, first):
            raise UsageError(f"--bad {bad} comes before --good {good}: --good is the older, faster revision; swap them")
        base = _git(repository, "merge-base", first, last, may_fail=True).strip()
        hint = f"; they part at {base[:10]}, which may serve as --good" if base else ""
        raise UsageError(f"--good {good} is not part of the history of --bad {bad}{hint}")
    contains_good = set(_git(repository, "rev-list", "--ancestry-path", f"{first}..{last}").split())
    path = _git(repository, "rev-list", "--reverse", "--first-parent", f"{first}..{last}").split()
    return tuple(_describe(repository, [first, *(sha for sha in path if sha in contains_good)]))


def _commit(repository: pathlib.Path, option: str, name: str) -> str:
    found = _git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}", may_fail=True).split()
    if not found:
        _git(repository, "rev-parse", "--git-dir")  # raises if the folder is no repository
        raise UsageError(f"{option} {name}: this repository has no such revision; a shallow clone has few: git fetch --unshallow")
    return found[-1]


def _is_ancestor(repository: pathlib.Path, first: str, last: str) -> bool:
    return not _git(repository, "rev-list", "--max-count=1", first, f"^{last}").strip()


def _describe(repository: pathlib.Path, shas: Sequence[str]) -> list[Revision]:
    lines = _git(repository, "log", "--no-walk=unsorted", f"--format={_FORMAT}", "--stdin", text="\n".join(shas)).splitlines()
    revisions = []
    for line in lines:
        sha, parents, author_date, subject = line.split("\x1f", 3)
        revisions.append(Revision(sha=sha, subject=subject, author_date=author_date, is_merge=len(parents.split()) > 1))
    return revisions


def _git(repository: pathlib.Path, *words: str, may_fail: bool = False, text: str = "") -> str:
    """What a git command prints; raises UsageError if it fails, unless that may be."""
    command = ["git", "-C", str(repository), *words]
    try:
        ended = subprocess.run(
            command, input=text, capture_output=True, encoding="utf-8", errors="replace", timeout=_GIT_WITHIN_S, check=False
        )
    except FileNotFoundError:
        raise UsageError("git is not installed, and a bisection needs it") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {words[0]} took longer than {_GIT_WITHIN_S} s in {repository}") from None
    if ended.returncode and not may_fail:
        said = (ended.stderr.strip().splitlines() or [f"exit code {ended.returncode}"])[0]
        raise UsageError(f"{repository}: git {words[0]}: {said.removeprefix('fatal: ')}")
    return ended.stdout
