"""The CPUs of this machine, from files as Linux has them, and the affinity of this process."""

import os
import pathlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from perfkit.machine.cpus import can_boost, count_numa_nodes, cpu_model, pinned, take_short_slices, usable_cpus


def test_a_process_is_pinned_while_the_block_lasts():
    before = os.sched_getaffinity(0)
    with pinned((min(before),)):
        assert usable_cpus() == [min(before)]
    assert os.sched_getaffinity(0) == before


def test_a_thread_takes_short_slices_and_keeps_its_nice_value():
    def take():
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + 1)
        before = os.getpriority(os.PRIO_PROCESS, thread)
        take_short_slices()
        scheduled = pathlib.Path(f"/proc/self/task/{thread}/sched")
        found = re.search(r"se\.slice +: +(\d+)", scheduled.read_text()) if scheduled.exists() else None
        return before, os.getpriority(os.PRIO_PROCESS, thread), os.sched_getscheduler(thread), found and int(found[1])

    with ThreadPoolExecutor(1) as thread:  # a thread of its own, since a raised nice value cannot be taken back
        before, after, policy, slice_ns = thread.submit(take).result()
    assert (after, policy) == (before, os.SCHED_OTHER)
    if slice_ns is None:
        pytest.skip("this kernel does not show the slices of its threads")
    assert slice_ns == 100_000


def test_without_cpus_a_process_is_not_pinned():
    before = usable_cpus()
    with pinned(()):
        assert usable_cpus() == before


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("cpufreq/boost", "1\n", True),
        ("cpufreq/boost", "0\n", False),
        ("intel_pstate/no_turbo", "0\n", True),
        ("intel_pstate/no_turbo", "1\n", False),
        ("other", "", None),
    ],
)
def test_boost_is_read_from_either_driver(write, file, text, expected):
    assert can_boost(write({f"sys/devices/system/cpu/{file}": text})) is expected


def test_the_cpu_model_and_numa_nodes_are_read(write):
    root = write(
        {
            "proc/cpuinfo": "processor\t: 0\nmodel name\t: Fast CPU 9000\n",
            "sys/devices/system/node/node0/x": "",
            "sys/devices/system/node/node1/x": "",
        }
    )
    assert (cpu_model(root), count_numa_nodes(root)) == ("Fast CPU 9000", 2)


def test_numa_nodes_that_the_system_does_not_report_are_unknown(tmp_path):
    assert count_numa_nodes(tmp_path) is None
