"""The description of this machine and the facts about it, from files as Linux has them."""

import psutil

from perfkit.machine.cpus import usable_cpus
from perfkit.machine.description import describe_host, read_machine_facts

DEVICES = "sys/devices/system"


def test_the_facts_are_read_from_the_system_files(write):
    files = {f"{DEVICES}/cpu/cpu{cpu}/topology/thread_siblings_list": "0-127\n" for cpu in usable_cpus()}
    files |= {f"{DEVICES}/cpu/cpu{cpu}/cpufreq/scaling_governor": "schedutil\n" for cpu in usable_cpus()}
    root = write({
        **files,
        f"{DEVICES}/cpu/intel_pstate/no_turbo": "0\n",
        f"{DEVICES}/clocksource/clocksource0/current_clocksource": "tsc\n",
        "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
        "proc/net/sockstat": "sockets: used 300\nTCP: inuse 5 orphan 0 tw 42 alloc 6 mem 3\nUDP: inuse 1 mem 0\n",
        "proc/self/cgroup": "0::/a/b\n",
        "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
    })  # fmt: skip
    facts = read_machine_facts(root)
    assert (facts.cpus, facts.cores) == (len(usable_cpus()), 1)
    assert facts.governors == {"schedutil"}
    assert facts.can_boost is True
    assert facts.clock_source == "tsc"
    assert (facts.ephemeral_ports, facts.time_wait_sockets) == (28_232, 42)
    assert facts.quota_cpus == 1.5
    assert facts.open_files > 0


def test_facts_that_no_file_reports_are_unknown(tmp_path):
    facts = read_machine_facts(tmp_path)
    assert (facts.quota_cpus, facts.can_boost, facts.clock_source) == (None, None, None)
    assert (facts.ephemeral_ports, facts.time_wait_sockets) == (None, None)
    assert facts.cores == facts.cpus


def test_this_machine_can_be_read():
    facts = read_machine_facts()
    assert 1 <= facts.cores <= facts.cpus == len(usable_cpus())
    assert 0 < facts.memory_available_bytes <= psutil.virtual_memory().total
    assert 0 <= facts.swap_used_bytes <= psutil.swap_memory().total


def test_a_hosts_id_is_stable_and_can_be_set(monkeypatch):
    monkeypatch.delenv("PERFKIT_HOST_ID", raising=False)
    assert describe_host()["host_id"] == describe_host()["host_id"] != ""
    monkeypatch.setenv("PERFKIT_HOST_ID", "runner-7")
    assert describe_host()["host_id"] == "runner-7"
