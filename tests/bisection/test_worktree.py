import asyncio

import pytest

from perfkit.bisection.revisions import read_path
from perfkit.bisection.worktree import RevisionError, Worktrees
from perfkit.units import NS_PER_S
from tests.git_repository import GitRepository


@pytest.fixture
def repository(tmp_path):
    made = GitRepository(tmp_path / "repository")
    for number in range(3):
        made.commit(f"Change {number}", answer=f"print({number})\n")
    (made.folder / "unsaved.py").write_text("the user's own\n")
    (made.folder / "answer.py").write_text("edited\n")
    return made


@pytest.fixture
def path(repository):
    return read_path(repository.folder, "main~2", "main")


def worktrees(repository, tmp_path, build, **options):
    return Worktrees(repository.folder, tmp_path / "worktrees", build, **options)


def test_a_revision_is_checked_out_and_built_once_in_a_folder_of_its_own(repository, tmp_path, path):
    before = repository.git("status", "--porcelain"), repository.git("rev-parse", "HEAD")
    build = 'echo built >> ../count; . /dev/null && cp answer.py "built $(basename "$PWD").py"'
    made = worktrees(repository, tmp_path, build)
    places = [asyncio.run(made.prepare(revision)) for revision in (path[0], path[1], path[0])]
    again = asyncio.run(worktrees(repository, tmp_path, build).prepare(path[0]))  # by the next call that continues
    assert places == [tmp_path / "worktrees" / revision.short for revision in (path[0], path[1], path[0])]
    assert again == places[0]
    assert (places[0] / f"built {path[0].short}.py").read_text() == "print(0)\n"
    assert (tmp_path / "worktrees" / "count").read_text() == "built\n" * 2
    assert (repository.git("status", "--porcelain"), repository.git("rev-parse", "HEAD")) == before
    assert (repository.folder / "answer.py").read_text() == "edited\n"
    for revision in path:
        asyncio.run(made.remove(revision))
    assert repository.git("worktree", "list").count("\n") == 0
    assert not made.is_ready(path[0])
    assert made.log(path[0]).exists()


def test_a_failed_build_is_told_with_its_last_lines_and_tried_again(repository, tmp_path, path):
    build = "seq 9; echo no rule to make it >&2; test -e ../mended"
    made = worktrees(repository, tmp_path, build)
    for _ in range(2):
        with pytest.raises(RevisionError) as error:
            asyncio.run(made.prepare(path[1]))
        assert str(error.value) == f"could not be built: `{build}` ended with exit code 1; it said: 6 / 7 / 8 / 9 / no rule to make it"
    (tmp_path / "worktrees" / "mended").touch()
    assert asyncio.run(made.prepare(path[1])).is_dir()


def test_a_build_that_does_not_end_is_stopped(repository, tmp_path, path):
    made = worktrees(repository, tmp_path, "echo begun; exec sleep 600", build_within_ns=NS_PER_S // 5)
    with pytest.raises(RevisionError, match=r"could not be .*: .* did not end within 200ms \(--build-within\)"):
        asyncio.run(made.prepare(path[0]))


def test_no_hook_of_the_repository_runs(repository, tmp_path, path):
    hook = repository.folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'hook'}\n")
    hook.chmod(0o755)
    asyncio.run(worktrees(repository, tmp_path, None).prepare(path[0]))
    assert not (tmp_path / "hook").exists()


def test_a_revision_that_is_gone_cannot_be_checked_out(repository, tmp_path, path):
    gone = path[0].model_copy(update={"sha": "1" * 40})
    with pytest.raises(RevisionError, match=r"could not be checked out: `git .* worktree` ended with exit code 128; it said: "):
        asyncio.run(worktrees(repository, tmp_path, None).prepare(gone))
