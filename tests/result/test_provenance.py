"""Which commit a result belongs to."""

import subprocess

import pytest

from perfkit.result.provenance import describe_source

NAMES = ("PERFKIT_COMMIT", "GITHUB_SHA", "CI_COMMIT_SHA", "PERFKIT_BRANCH", "GITHUB_REF_NAME", "CI_COMMIT_REF_NAME")
NOTHING = {"commit": "", "branch": "", "dirty": None}


@pytest.fixture(autouse=True)
def no_job(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository with one commit, whatever the user's own git is told."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    (tmp_path / "file").write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--no-gpg-sign", "-m", "one")
    return tmp_path, git("rev-parse", "HEAD")


def test_the_commit_is_that_of_the_scenarios_repository(repository):
    folder, commit = repository
    assert describe_source(folder) == {"commit": commit, "branch": "main", "dirty": False}
    (folder / "beside").write_text("git does not know this file, and it changes nothing")
    assert describe_source(folder)["dirty"] is False
    (folder / "file").write_text("two")
    assert describe_source(folder)["dirty"] is True


@pytest.mark.parametrize(
    "names", [("GITHUB_SHA", "GITHUB_REF_NAME"), ("CI_COMMIT_SHA", "CI_COMMIT_REF_NAME"), ("PERFKIT_COMMIT", "PERFKIT_BRANCH")]
)
def test_the_commit_of_the_ci_job_comes_first(repository, monkeypatch, names):
    for name, value in zip(names, ("c0ffee", "topic"), strict=True):
        monkeypatch.setenv(name, value)
    assert describe_source(repository[0]) == {"commit": "c0ffee", "branch": "topic", "dirty": None}


def test_outside_a_repository_and_without_git_the_commit_is_unknown(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert describe_source(tmp_path) == NOTHING
    assert describe_source(tmp_path / "nowhere") == NOTHING
    monkeypatch.setenv("PATH", str(tmp_path))
    assert describe_source(tmp_path) == NOTHING
