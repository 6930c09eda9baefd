"""Revisions checked out into git worktrees of their own, and built there; the user's checkout is never touched."""

import asyncio
import pathlib
import shutil

from perfkit.bisection.revisions import Revision
from perfkit.errors import UsageError, quotation
from perfkit.process.child import child_process
from perfkit.units import NS_PER_S, write_duration_ns

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
    content = log.read_bytes()[begins_at:][-_LAST_BYTES:].decode(errors="replace")
    return [line for line in content.splitlines() if line.strip()]
