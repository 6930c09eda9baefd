"""Facts read from files as Linux writes them, and a moment watched in virtual time."""

import asyncio

import pytest

from perfkit.machine.conditions import observe_idle, read_machine_facts
from perfkit.machine.host import usable_cpus

STAT = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_the_facts_are_those_of_the_files(tmp_path):
    devices = "sys/devices/system/cpu"
    per_cpu = {f"{devices}/cpu{cpu}/topology/thread_siblings_list": "0-127\n" for cpu in usable_cpus()}
    per_cpu |= {f"{devices}/cpu{cpu}/cpufreq/scaling_governor": "schedutil\n" for cpu in usable_cpus()}
    write(
        tmp_path,
        {
            **per_cpu,
            f"{devices}/intel_pstate/no_turbo": "0\n",
            "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc\n",
            "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
            "proc/net/sockstat": "sockets: used 300\nTCP: inuse 5 orphan 0 tw 42 alloc 6 mem 3\nUDP: inuse 1 mem 0\n",
            "proc/meminfo": "MemTotal:  16 kB\nMemAvailable:    8 kB\nSwapTotal:     4 kB\nSwapFree:  1 kB\nHugePages_Total:   0\n",
            "proc/self/cgroup": "0::/a/b\n",
            "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
        },
    )
    machine = read_machine_facts(tmp_path)
    assert (machine.cpus, machine.cores) == (len(usable_cpus()), 1)
    assert machine.governors == {"schedutil"}
    assert machine.can_boost is True
    assert machine.clock_source == "tsc"
    assert (machine.ephemeral_ports, machine.time_wait_sockets) == (28_232, 42)
    assert (machine.memory_available_bytes, machine.swap_used_bytes) == (8192, 3072)
    assert machine.quota_cpus == 1.5
    assert machine.open_files > 0


@pytest.mark.parametrize(("quota", "cpus"), [("50000\n", 0.5), ("-1\n", None)])
def test_a_quota_of_the_older_control_groups_is_read_as_well(tmp_path, quota, cpus):
    group = "sys/fs/cgroup/cpu/x"
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:cpu,cpuacct:/x\n2:memory:/y\n",
            f"{group}/cpu.cfs_quota_us": quota,
            f"{group}/cpu.cfs_period_us": "100000\n",
        },
    )
    assert read_machine_facts(tmp_path).quota_cpus == cpus


def test_what_no_file_says_is_unknown(tmp_path):
    machine = read_machine_facts(tmp_path)
    assert (machine.quota_cpus, machine.can_boost, machine.clock_source, machine.ephemeral_ports) == (None, None, None, None)
    assert machine.cores == machine.cpus


class SlowSteps:
    """A clock that tells another instant at each look: sleeps take as long as the list says."""

    def __init__(self, taken_ns):
        self._instants = iter([0, 0, *(value for end in taken_ns for value in (0, end)), 10**9, 10**9])

    def now_ns(self):
        return next(self._instants)

    async def sleep_until_ns(self, instant_ns):
        raise AssertionError("it sleeps on the event loop, whose timers are what is looked at")


def test_late_sleeps_and_the_work_of_others_are_told(tmp_path):
    write(tmp_path, {"proc/stat": STAT})
    taken_ns = [1_000_000 + 1000 * late for late in range(100)]
    watched = asyncio.run(observe_idle(SlowSteps(taken_ns), 1, tmp_path))
    assert (watched.late_p50_ns, watched.late_p99_ns) == (50_000, 99_000)
    assert watched.busy_share == 0, "no tick went by in that file"


def test_the_real_machine_is_read():
    machine = read_machine_facts()
    assert 1 <= machine.cores <= machine.cpus == len(usable_cpus())
