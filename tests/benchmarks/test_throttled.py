import pytest

from benchmarks import throttled
from benchmarks.throttled import Group, QuotaError, Run, group


@pytest.mark.parametrize(
    ("version", "share", "files"),
    [
        (1, 0.05, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "5000"}),
        (1, None, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"}),
        (2, 0.05, {"cpu.max": "5000 100000"}),
        (2, None, {"cpu.max": "max 100000"}),
    ],
)
def test_a_quota_is_written_as_the_kernel_reads_it(tmp_path, version, share, files):
    Group(tmp_path, version).set_quota(share)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == files


def test_where_no_group_can_be_made_nothing_is_tried_and_nothing_passed(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(throttled, "HIERARCHY", tmp_path / "none")
    with pytest.raises(QuotaError, match="No such file"), group():
        pass
    monkeypatch.setattr("sys.argv", ["throttled.py", f"--out={tmp_path}/throttled.md"])
    assert throttled.main() == 0
    assert "**Not tried**" in (tmp_path / "throttled.md").read_text()
    assert "passed" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("run", "has_quota", "is_as_wanted"),
    [
        (Run(5, False, 0.5, ("throttled", "late_starts")), True, True),
        (Run(5, False, 0.5, ("late_starts",)), True, False),
        (Run(0, True, 0.0, ("throttled",)), True, False),
        (Run(0, True, 0.0, ("few_samples",)), False, True),
        (Run(5, False, 0.0, ("late_starts",)), False, False),
    ],
)
def test_a_run_is_held_against_its_quota(run, has_quota, is_as_wanted):
    assert run.is_as_wanted(has_quota=has_quota) is is_as_wanted
