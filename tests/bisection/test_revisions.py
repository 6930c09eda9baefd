import pytest

from perfkit.bisection.revisions import Revision, read_path
from perfkit.errors import UsageError
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
