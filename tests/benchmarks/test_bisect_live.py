from benchmarks.bisect_live import make_repository, report
from perfkit.bisection.revisions import read_path
from tests.git_repository import GitRepository
from tests.simulated_revisions import SimulatedRevisions, bisect, slower_from


def test_the_service_time_is_longer_from_the_planted_revision_on(tmp_path):
    make_repository(tmp_path / "repository", 4, 3, 1.1)
    path = read_path(tmp_path / "repository", "main~4", "main")
    assert [one.subject for one in path] == [f"Revision {number}" for number in range(5)]
    shown = [GitRepository.git_in(tmp_path / "repository", "show", f"{one.sha}:settings.py").splitlines()[1] for one in path]
    assert shown == ["SERVICE_US = 40000"] * 3 + ["SERVICE_US = 44000"] * 2


def test_the_report_says_what_was_planted_and_found(tmp_path):
    found = bisect(SimulatedRevisions(slower_from(5, 8, throughput=1.5), faults={6: "broken"}), tmp_path / "out")
    text = "\n".join(report(found, 5, 1.1, "1s", 12.4, "a machine"))
    assert "from revision 5 on" in text
    assert "- Found: **change 5**, 0000000000 (Change 5) is the first revision that is slower." in text
    assert "4 gates in 12 minutes" in text
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert [row[1] for row in rows[1:]] == ["8", "4", "6", "5"]
    assert "| – | skipped |" in text
