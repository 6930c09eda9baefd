import pytest

from perfkit.machine.host import BusyMeter, cpu_quota, describe_host

FIRST_VERSION = "nr_periods {0}\nnr_throttled {0}\nthrottled_time {0}\n"
SECOND_VERSION = "usage_usec 9\nnr_periods {0}\nthrottled_usec {0}\nburst_usec 0\n"


class Clock:
    def __init__(self):
        self.ns = 0

    def now_ns(self):
        return self.ns

    async def sleep_until_ns(self, instant_ns):
        self.ns = max(self.ns, instant_ns)


@pytest.mark.parametrize(("form", "unit_ns"), [(FIRST_VERSION, 1), (SECOND_VERSION, 1000)])
def test_the_time_in_which_a_quota_stopped_us_is_read_in_both_versions(tmp_path, form, unit_ns):
    clock, stat = Clock(), tmp_path / "cpu.stat"
    stat.write_text(form.format(7_000_000 // unit_ns))
    meter = BusyMeter(clock, [tmp_path])
    stat.write_text(form.format(257_000_000 // unit_ns))
    clock.ns = 1_000_000_000
    assert meter.read().throttled == pytest.approx(0.25)


def test_of_several_groups_the_one_that_stopped_us_most_counts(tmp_path):
    clock, groups = Clock(), [tmp_path / "own", tmp_path / "above", tmp_path / "gone"]
    for folder in groups[:2]:
        folder.mkdir()
        (folder / "cpu.stat").write_text(FIRST_VERSION.format(0))
    meter = BusyMeter(clock, groups)
    (groups[0] / "cpu.stat").write_text(FIRST_VERSION.format(100))
    (groups[1] / "cpu.stat").write_text(FIRST_VERSION.format(600))
    clock.ns = 1000
    assert meter.read().throttled == pytest.approx(0.6)


def test_several_stopped_threads_are_not_more_than_all_of_the_time(tmp_path):
    clock, stat = Clock(), tmp_path / "cpu.stat"
    stat.write_text(FIRST_VERSION.format(0))
    meter = BusyMeter(clock, [tmp_path])
    stat.write_text(FIRST_VERSION.format(5000))
    clock.ns = 1000
    assert meter.read().throttled == 1.0


@pytest.mark.parametrize("text", ["", "throttled_time\n", "nr_periods 3\n"])
def test_a_system_that_does_not_say_has_no_quota(tmp_path, text):
    clock = Clock()
    (tmp_path / "cpu.stat").write_text(text)
    meter = BusyMeter(clock, [tmp_path])
    clock.ns = 1000
    assert meter.read().throttled == 0.0


def test_the_tightest_quota_of_either_version_counts(tmp_path):
    groups = [tmp_path / name for name in ("second", "free", "first", "unlimited", "gone")]
    for folder in groups[:4]:
        folder.mkdir()
    (groups[0] / "cpu.max").write_text("400000 100000\n")
    (groups[1] / "cpu.max").write_text("max 100000\n")
    (groups[2] / "cpu.cfs_quota_us").write_text("150000\n")
    (groups[2] / "cpu.cfs_period_us").write_text("100000\n")
    (groups[3] / "cpu.cfs_quota_us").write_text("-1\n")
    assert cpu_quota(groups) == 1.5
    assert cpu_quota(groups[:2]) == 4.0
    assert cpu_quota([groups[1], *groups[3:]]) is None


def test_a_host_is_the_same_host_each_time_and_may_be_named(monkeypatch):
    monkeypatch.delenv("PERFKIT_HOST_ID", raising=False)
    assert describe_host()["host_id"] == describe_host()["host_id"] != ""
    monkeypatch.setenv("PERFKIT_HOST_ID", "runner-7")
    assert describe_host()["host_id"] == "runner-7"
