"""Readings of counters, from files as Linux has them and from given CPU times."""

import asyncio
import os

import pytest

from perfkit.machine.idle import observe_idle
from perfkit.machine.readings import (
    BusyMeter,
    CpuTimes,
    ProcessTimes,
    read_machine_counters,
    read_process_counters,
    read_process_times,
    read_tcp_sockets,
)
from tests.clocks import SettableClock

THROTTLED = "nr_periods {0}\nnr_throttled {0}\nthrottled_time {0}\n"
SNMP = "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm OutSegs RetransSegs InErrs\nTcp: 1 1234567 89 0\nUdp: InDatagrams\nUdp: 5\n"


@pytest.fixture
def clock():
    return SettableClock()


def test_the_share_of_time_that_a_quota_stopped_the_process_is_measured(write, clock):
    root = write({"cpu.stat": THROTTLED.format(7_000_000)})
    meter = BusyMeter(clock, [root])
    write({"cpu.stat": THROTTLED.format(257_000_000)})
    clock.ns = 1_000_000_000
    assert meter.read().throttled == pytest.approx(0.25)


def test_the_control_group_with_the_most_throttling_counts(write, clock):
    root = write({f"{name}/cpu.stat": THROTTLED.format(0) for name in ("own", "parent")})
    meter = BusyMeter(clock, [root / "own", root / "parent", root / "missing"])
    write({"own/cpu.stat": THROTTLED.format(100), "parent/cpu.stat": THROTTLED.format(600)})
    clock.ns = 1000
    assert meter.read().throttled == pytest.approx(0.6)


def test_several_throttled_threads_count_at_most_once(write, clock):
    root = write({"cpu.stat": THROTTLED.format(0)})
    meter = BusyMeter(clock, [root])
    write({"cpu.stat": THROTTLED.format(5000)})
    clock.ns = 1000
    assert meter.read().throttled == 1.0


def test_tcp_counters_are_read_by_name(write):
    root = write({
        "proc/net/snmp": SNMP,
        "proc/net/sockstat": "sockets: used 300\nTCP: inuse 5 orphan 0 tw 2 alloc 7 mem 1\nUDP: inuse 3 mem 2\n",
        "proc/net/sockstat6": "TCP6: inuse 4\nUDP6: inuse 0\n",
    })  # fmt: skip
    counters, sockets = read_machine_counters(root), read_tcp_sockets(root)
    assert (counters.tcp_segments_sent, counters.tcp_retransmits, counters.tcp_sockets) == (1234567, 89, 11)
    assert sockets == {"inuse": 9, "tw": 2}


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/net/snmp": "", "proc/net/sockstat": ""},
        {"proc/net/snmp": "Tcp: OutSegs\n", "proc/net/sockstat": "TCP: inuse\n"},
        {"proc/net/snmp": "Tcp: OutSegs\nTcp: many\n", "proc/net/sockstat": "TCP: inuse 5 orphan\n"},
    ],
)
def test_tcp_counters_that_the_system_does_not_report_are_none(write, tmp_path, files):
    write(files)
    counters = read_machine_counters(tmp_path)
    assert (counters.tcp_segments_sent, counters.tcp_retransmits, counters.tcp_sockets) == (None, None, None)


def test_this_process_and_machine_can_be_read():
    own, machine = read_process_counters(os.getpid()), read_machine_counters()
    assert own.cpu_s > 0
    assert own.open_files >= 3
    assert 0 < machine.cpu_s <= machine.total_s
    assert read_process_counters(os.getpid()).cpu_s >= own.cpu_s
    assert read_process_counters(2**22 + 1) is None


class SteppingClock:
    """Returns the start and the end of each sleep in turn, so that sleeps take as long as the list says."""

    def __init__(self, sleeps_ns):
        self._instants = iter([0, 0, *(instant for end in sleeps_ns for instant in (0, end)), 10**9, 10**9])

    def now_ns(self):
        return next(self._instants)

    async def sleep_until_ns(self, instant_ns):
        raise AssertionError("the sleeps must use the event loop's timers, which are what is observed")


def test_late_sleeps_and_other_work_are_reported():
    sleeps_ns = [1_000_000 + 1000 * late for late in range(100)]
    times = iter([CpuTimes(idle_s=49.0, steal_s=1.0, total_s=100.0), CpuTimes(idle_s=51.5, steal_s=1.5, total_s=104.0)])
    observation = asyncio.run(observe_idle(SteppingClock(sleeps_ns), 1, lambda: next(times)))
    assert (observation.late_p50_ns, observation.late_p99_ns) == (50_000, 99_000)
    assert observation.busy_share == 1.5 / 4  # the host's other work counts as busy


def test_a_machine_whose_counters_did_not_move_is_not_busy():
    times = CpuTimes(50.0, 1.0, 100.0)
    assert asyncio.run(observe_idle(SteppingClock([1_000_000]), 1, lambda: times)).busy_share == 0


def test_all_processes_are_read_by_number_whatever_their_names_hold(write):
    ticks = os.sysconf("SC_CLK_TCK")
    stat = "{} ({}) S 7 1 1 0 -1 4194304 100 0 0 0 {} {} {} {} 20 0 1 0 4242 1000 10"
    texts = {
        "proc/12/stat": stat.format(12, "a (b) c", 3 * ticks, ticks, 5 * ticks, 2 * ticks),
        "proc/13/stat": "13 (gone",
        "proc/self/stat": stat.format(1, "x", 1, 1, 1, 1),
    }
    assert read_process_times(write(texts)) == {12: ProcessTimes("a (b) c", 7, 4.0, 4242, 7.0)}


def test_this_process_is_among_those_read():
    assert read_process_times()[os.getpid()].parent == os.getppid()
