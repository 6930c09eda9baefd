import pytest

from benchmarks import throttled
from benchmarks.throttled import ControlGroup, QuotaError, Run, control_group


@pytest.mark.parametrize(
    ("version", "share", "files"),
    [
        (1, 0.05, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "5000"}),
        (1, None, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"}),
        (2, 0.05, {"cpu.max": "5000 100000"}),
        (2, None, {"cpu.max": "max 100000"}),
    ],
)
def test_a_quota_is_written_in_the_kernels_format(tmp_path, version, share, files):
    ControlGroup(tmp_path, version).set_quota(share)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == files


def test_without_a_control_group_the_report_says_that_nothing_was_measured(tmp_path, monkeypatch, capsys):
    with pytest.raises(QuotaError, match="No such file"), control_group(tmp_path / "none"):
        pass
    monkeypatch.setattr("sys.argv", ["throttled", f"--hierarchy={tmp_path}/none", f"--out={tmp_path}/throttled.md"])
    assert throttled.main() == 0
    assert "**Not measured**" in (tmp_path / "throttled.md").read_text()
    assert "as expected" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("run", "has_quota", "is_as_expected"),
    [
        (Run(5, False, 0.5, ("throttled", "late_starts")), True, True),
        (Run(5, False, 0.5, ("late_starts",)), True, False),
        (Run(0, True, 0.0, ("throttled",)), True, False),
        (Run(0, True, 0.0, ("few_samples",)), False, True),
        (Run(5, False, 0.0, ("late_starts",)), False, False),
    ],
)
def test_a_run_is_expected_to_be_invalid_only_under_a_quota(run, has_quota, is_as_expected):
    assert run.is_as_expected(has_quota=has_quota) is is_as_expected
