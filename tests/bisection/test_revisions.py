import asyncio

import pytest

from perfkit.bisection.revisions import Revision, RevisionError, Worktrees, read_path
from perfkit.errors import UsageError
from perfkit.units import NS_PER_S
from tests.git_repository import GitRepository


@pytest.fixture
def repository(tmp_path):
    return GitRepository(tmp_path / "repository")


def test_the_path_begins_with_the_good_revision_and_ends_with_the_bad_one(repository):
    repository.commit("Before")
    good = repository.commit("The good one")
    middle = repository.commit("Wait | for\tthe lock\n\nIts body.")
    bad = repository.commit("Grüße")
    repository.commit("After")
    date = "2026-01-02T03:04:05+00:00"
    assert read_path(repository.folder, "main~3", "main~1") == (
        Revision(sha=good, subject="The good one", author_date=date),
        Revision(sha=middle, subject="Wait | for\tthe lock", author_date=date),
        Revision(sha=bad, subject="Grüße", author_date=date),
    )


def test_a_merged_branch_is_one_revision_and_says_that_it_is_a_merge(repository):
    good = repository.commit("Base")
    repository.git("checkout", "--quiet", "-b", "side")
    on_side = [repository.commit(f"Side {number}") for number in range(3)]
    repository.git("checkout", "--quiet", "main")
    on_main = repository.commit("On main")
    merged = repository.merge("side")
    last = repository.commit("Last")
    path = read_path(repository.folder, good, "main")
    assert [one.sha for one in path] == [good, on_main, merged, last]
    assert [one.is_merge for one in path] == [False, False, True, False]
    # from within the branch, only the revisions that contain it
    assert [one.sha for one in read_path(repository.folder, on_side[1], "main")] == [on_side[1], merged, last]


def test_revisions_that_are_no_path_are_refused_with_the_fix(repository, tmp_path):
    first = repository.commit("First")
    repository.git("checkout", "--quiet", "-b", "side")
    repository.commit("Side")
    repository.git("checkout", "--quiet", "main")
    repository.commit("Second")
    refused = {
        ("main", "main~0"): "--good main and --bad main~0 are the same revision",
        ("main", "main~1"): "--bad main~1 comes before --good main: --good is the older, faster revision; swap them",
        ("side", "main"): f"--good side is not part of the history of --bad main; they part at {first[:10]}, which may serve as --good",
        ("v9", "main"): "--good v9: this repository has no such revision; a shallow clone has few: git fetch --unshallow",
        ("main~1", "--exec=x"): "--bad --exec=x: this repository has no such revision",
    }
    for (good, bad), sentence in refused.items():
        with pytest.raises(UsageError) as error:
            read_path(repository.folder, good, bad)
        assert str(error.value).startswith(sentence)
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UsageError, match=f"^{folder}: git rev-parse: "):
            read_path(folder, "main~1", "main")


@pytest.fixture
def built_repository(tmp_path):
    made = GitRepository(tmp_path / "repository")
    for number in range(3):
        made.commit(f"Change {number}", answer=f"print({number})\n")
    (made.folder / "unsaved.py").write_text("the user's own\n")
    (made.folder / "answer.py").write_text("edited\n")
    return made


@pytest.fixture
def path(built_repository):
    return read_path(built_repository.folder, "main~2", "main")


def worktrees(built_repository, tmp_path, build, **options):
    return Worktrees(built_repository.folder, tmp_path / "worktrees", build, **options)


def test_a_revision_is_checked_out_and_built_once_in_a_folder_of_its_own(built_repository, tmp_path, path):
    before = built_repository.git("status", "--porcelain"), built_repository.git("rev-parse", "HEAD")
    build = 'echo built >> ../count; . /dev/null && cp answer.py "built $(basename "$PWD").py"'
    made = worktrees(built_repository, tmp_path, build)
    places = [asyncio.run(made.prepare(revision)) for revision in (path[0], path[1], path[0])]
    again = asyncio.run(worktrees(built_repository, tmp_path, build).prepare(path[0]))  # by the next call that continues
    assert places == [tmp_path / "worktrees" / revision.short for revision in (path[0], path[1], path[0])]
    assert again == places[0]
    assert (places[0] / f"built {path[0].short}.py").read_text() == "print(0)\n"
    assert (tmp_path / "worktrees" / "count").read_text() == "built\n" * 2
    assert (built_repository.git("status", "--porcelain"), built_repository.git("rev-parse", "HEAD")) == before
    assert (built_repository.folder / "answer.py").read_text() == "edited\n"
    for revision in path:
        asyncio.run(made.remove(revision))
    assert built_repository.git("worktree", "list").count("\n") == 0
    assert not made.is_ready(path[0])
    assert made.log(path[0]).exists()


def test_a_failed_build_is_told_with_its_last_lines_and_tried_again(built_repository, tmp_path, path):
    build = "seq 9; echo no rule to make it >&2; test -e ../mended"
    made = worktrees(built_repository, tmp_path, build)
    for _ in range(2):
        with pytest.raises(RevisionError) as error:
            asyncio.run(made.prepare(path[1]))
        assert str(error.value) == f"could not be built: `{build}` ended with exit code 1; it said: 6 / 7 / 8 / 9 / no rule to make it"
    (tmp_path / "worktrees" / "mended").touch()
    assert asyncio.run(made.prepare(path[1])).is_dir()


def test_a_build_that_does_not_end_is_stopped(built_repository, tmp_path, path):
    made = worktrees(built_repository, tmp_path, "echo begun; exec sleep 600", build_within_ns=NS_PER_S // 5)
    with pytest.raises(RevisionError, match=r"could not be .*: .* did not end within 200ms \(--build-within\)"):
        asyncio.run(made.prepare(path[0]))


def test_no_hook_of_the_repository_runs(built_repository, tmp_path, path):
    hook = built_repository.folder / ".git" / "hooks" / "post-checkout"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path / 'hook'}\n")
    hook.chmod(0o755)
    asyncio.run(worktrees(built_repository, tmp_path, None).prepare(path[0]))
    assert not (tmp_path / "hook").exists()


def test_a_revision_that_is_gone_cannot_be_checked_out(built_repository, tmp_path, path):
    gone = path[0].model_copy(update={"sha": "1" * 40})
    with pytest.raises(RevisionError, match=r"could not be checked out: `git .* worktree` ended with exit code 128; it said: "):
        asyncio.run(worktrees(built_repository, tmp_path, None).prepare(gone))
