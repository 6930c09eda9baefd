"""The revisions of a repository, and their builds in git worktrees of their own; the user's checkout is never touched."""

import asyncio
import pathlib
import shutil
import subprocess
from collections.abc import Sequence

from perfkit.errors import UsageError, quotation
from perfkit.process.child import child_process
from perfkit.result.part import Part
from perfkit.units import NS_PER_S, write_duration_ns

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


BUILDS_WITHIN_NS = 3600 * NS_PER_S
_STOPS_WITHIN_S = 10
_LAST_BYTES = 2**14


class RevisionError(UsageError):
    """A revision that cannot be measured: it cannot be built, its server does not start, or it serves something else."""


class Worktrees:
    """The worktrees of a bisection; each is built once. An interrupted bisection finds those of the last time."""

    def __init__(self, repository: pathlib.Path, folder: pathlib.Path, build: str | None, build_within_ns: int = BUILDS_WITHIN_NS) -> None:
        self._repository, self._folder, self._build, self._within_ns = repository, folder.resolve(), build, build_within_ns

    def folder(self, revision: Revision) -> pathlib.Path:
        """Where a revision is checked out."""
        return self._folder / revision.short

    def log(self, revision: Revision) -> pathlib.Path:
        """The output of git and of the build command."""
        return self._folder / f"{revision.short}.log"

    def is_ready(self, revision: Revision) -> bool:
        """Whether a revision has been checked out and built."""
        return self._mark(revision).exists() and self.folder(revision).is_dir()

    async def prepare(self, revision: Revision) -> pathlib.Path:
        """Check out and build a revision, unless that has been done; returns its folder. Raises RevisionError."""
        place = self.folder(revision)
        if self.is_ready(revision):
            return place
        await self.remove(revision)  # one whose checkout or build was interrupted
        self._folder.mkdir(parents=True, exist_ok=True)
        # a hook of the user's may act on other folders
        words = ["git", "-c", "core.hooksPath=/dev/null", "worktree", "add", "--force", "--detach", str(place), revision.sha]
        await self._run(words, self._repository, revision, "could not be checked out")
        if self._build is not None:
            await self._run(["sh", "-c", self._build], place, revision, "could not be built")
        self._mark(revision).touch()
        return place

    async def remove(self, revision: Revision) -> None:
        """Remove the worktree of a revision, if there is one; its log stays."""
        place = self.folder(revision)
        self._mark(revision).unlink(missing_ok=True)
        if place.exists():
            await asyncio.to_thread(shutil.rmtree, place, ignore_errors=True)
            await self._run(["git", "worktree", "prune"], self._repository, revision, "could not be removed")

    def _mark(self, revision: Revision) -> pathlib.Path:
        return self._folder / f"{revision.short}.built"

    async def _run(self, words: list[str], folder: pathlib.Path, revision: Revision, failed: str) -> None:
        log = self.log(revision)
        begins_at = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            async with child_process(words, output=output, ends_with_stdin=False, stop_within_s=_STOPS_WITHIN_S, folder=folder) as child:
                await asyncio.wait([child.ended], timeout=self._within_ns / NS_PER_S)
                limit = f"did not end within {write_duration_ns(self._within_ns)} (--build-within)"
                how = await child.wait_for_end(0) if child.ended.done() else limit
                is_done = child.ended.done() and child.ended.result() == 0
        if not is_done:
            raise RevisionError(
                f"{failed}: `{words[-1] if words[0] == 'sh' else ' '.join(words[:4])}` {how}{quotation(_last_lines(log, begins_at))}"
            )


def _last_lines(log: pathlib.Path, begins_at: int) -> list[str]:
    """The last lines of what was written to a log from a place on."""
    with log.open("rb") as file:
        file.seek(max(begins_at, log.stat().st_size - _LAST_BYTES))
        content = file.read(_LAST_BYTES).decode(errors="replace")
    return [line for line in content.splitlines() if line.strip()]
