"""A git repository for tests, with commits of known content."""

import os
import pathlib
import subprocess

ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.org", "GIT_AUTHOR_DATE": "2026-01-02T03:04:05+00:00",
    "GIT_COMMITTER_NAME": "C", "GIT_COMMITTER_EMAIL": "c@example.org", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
}  # fmt: skip


class GitRepository:
    """A repository in a folder, which is made."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> str:
        """What a git command prints."""
        return self.git_in(self.folder, *words)

    @staticmethod
    def git_in(folder: pathlib.Path, *words: str) -> str:
        """What a git command prints in the repository of a folder."""
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, env={**os.environ, **ENVIRONMENT}, capture_output=True, text=True, check=True).stdout.strip()

    def commit(self, subject: str, **files: str) -> str:
        """Commits files, whose names end in `.py`; returns the commit's name."""
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        return self.git("rev-parse", "HEAD")

    def merge(self, branch: str) -> str:
        """Merges a branch by a commit; returns its name."""
        self.git("merge", "--quiet", "--no-ff", "-m", f"Merge {branch}", branch)
        return self.git("rev-parse", "HEAD")
