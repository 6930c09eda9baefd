"""The commit that a result belongs to: that of the CI job, otherwise that of the scenario's repository."""

import os
import pathlib
import subprocess
from typing import Any

# the job's commit, and the branch or tag it was started for
_COMMITS, _BRANCHES = ("PERFKIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA"), ("PERFKIT_BRANCH", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
_TARGET_BRANCHES = ("GITHUB_BASE_REF", "CI_MERGE_REQUEST_TARGET_BRANCH_NAME")  # empty in jobs without a merge
_GIT_WITHIN_S = 10


def describe_source(folder: pathlib.Path) -> dict[str, Any]:
    """`commit`, `branch` and `dirty`, whether there are uncommitted changes; empty and None where unknown."""
    commit = next((os.environ[name] for name in _COMMITS if os.environ.get(name)), "")
    if commit:
        return {"commit": commit, "branch": branch_of_job(), "dirty": None}
    commit, _, branch = _git(folder, "rev-parse", "HEAD", "--abbrev-ref", "HEAD").partition("\n")
    if not commit:
        return {"commit": "", "branch": "", "dirty": None}
    return {"commit": commit, "branch": branch, "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def branch_of_job() -> str:
    """The branch or tag that a CI job was started for; empty outside of one."""
    return next((os.environ[name] for name in _BRANCHES if os.environ.get(name)), "")


def target_branch_of_job() -> str:
    """The branch that a CI job's change is to be merged into; empty if there is none."""
    return next((os.environ[name] for name in _TARGET_BRANCHES if os.environ.get(name)), "")


def _git(folder: pathlib.Path, *arguments: str) -> str:
    """The output of git; empty without git, and outside a repository."""
    try:
        done = subprocess.run(
            # a repository's own configuration may name programs to run
            ["git", "-C", str(folder), "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments],  # noqa: S607 - the user's own git
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_GIT_WITHIN_S,
        )
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip()
