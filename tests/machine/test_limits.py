"""The limits of this process, read from files as Linux has them."""

import errno
import pathlib
import resource

import pytest

from perfkit import machine
from perfkit.errors import StorageError
from perfkit.machine.limits import (
    available_memory_bytes,
    count_ephemeral_ports,
    cpu_cgroups,
    cpu_quota,
    environment_fault,
    hard_open_file_limit,
    raise_open_file_limit,
    throttled_ns,
)


def test_the_smallest_quota_of_either_version_counts(write):
    root = write({
        "second/cpu.max": "400000 100000\n",
        "free/cpu.max": "max 100000\n",
        "broken/cpu.max": "100000\n",
        "first/cpu.cfs_quota_us": "150000\n",
        "first/cpu.cfs_period_us": "100000\n",
        "unlimited/cpu.cfs_quota_us": "-1\n",
        "unlimited/cpu.cfs_period_us": "100000\n",
    })  # fmt: skip
    second, free, broken, first, unlimited, missing = (
        root / name for name in ("second", "free", "broken", "first", "unlimited", "missing")
    )
    assert cpu_quota([second, free, broken, first, unlimited, missing]) == 1.5
    assert cpu_quota([second, free]) == 4.0
    assert cpu_quota([free, broken, unlimited, missing]) is None


def test_the_control_groups_are_the_processs_own_and_their_parents(write):
    root = write({"proc/self/cgroup": "4:cpu,cpuacct:/x\n2:memory:/y\n0::/a/b\n"})
    first, second = root / "sys/fs/cgroup/cpu", root / "sys/fs/cgroup"
    assert list(cpu_cgroups(root)) == [first / "x", first, second / "a/b", second / "a", second]


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("nr_periods 9\nnr_throttled 3\nthrottled_time 7000000\n", 7_000_000),
        ("usage_usec 9\nnr_periods 9\nthrottled_usec 7000\nburst_usec 0\n", 7_000_000),
        ("", 0),
        ("throttled_time\n", 0),
        ("nr_periods 3\n", 0),
    ],
)
def test_throttled_time_is_read_in_both_versions(write, text, time_ns):
    root = write({"cpu.stat": text})
    assert throttled_ns([root, root / "missing"]) == [time_ns, 0]


@pytest.mark.parametrize(("text", "ports"), [("32768\t60999\n", 28_232), ("", None)])
def test_ephemeral_ports_are_counted(write, text, ports):
    assert count_ephemeral_ports(write({"proc/sys/net/ipv4/ip_local_port_range": text})) == ports


def test_the_open_file_limit_is_raised_to_the_hard_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024) - 1, hard))
    try:
        limit = raise_open_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert limit == hard_open_file_limit() == (1 << 20 if hard == resource.RLIM_INFINITY else hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


MEMORY = "MemTotal:  8000 kB\nMemAvailable:  4000 kB\n"


@pytest.mark.parametrize(
    ("files", "available_bytes"),
    [
        ({}, 4000 * 1024),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n", "sys/fs/cgroup/a/memory.current": "9\n"}, 4000 * 1024),
        ({"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "5000\n", "sys/fs/cgroup/a/memory.current": "4000\n"}, 1000),
        (  # the parent's limit is narrower, and part of what it counts are files that the kernel forgets
            {
                "proc/self/cgroup": "0::/a\n",
                "sys/fs/cgroup/a/memory.max": "5000\n",
                "sys/fs/cgroup/a/memory.current": "4000\n",
                "sys/fs/cgroup/memory.max": "4100\n",
                "sys/fs/cgroup/memory.current": "4050\n",
                "sys/fs/cgroup/memory.stat": "anon 3\nactive_file 700\ninactive_file 20\n",
            },
            70,
        ),
        (
            {
                "proc/self/cgroup": "2:memory:/y\n",
                "sys/fs/cgroup/memory/y/memory.limit_in_bytes": "300\n",
                "sys/fs/cgroup/memory/y/memory.usage_in_bytes": "100\n",
            },
            200,
        ),
    ],
)
def test_the_available_memory_is_the_machines_or_what_a_control_group_leaves(write, files, available_bytes):
    assert available_memory_bytes(write({"proc/meminfo": MEMORY, **files})) == available_bytes


def test_memory_is_unknown_where_the_system_does_not_report_it(write):
    assert available_memory_bytes(write({"proc/version": ""})) is None


def raised(error, cause=None):
    try:
        raise error from cause
    except type(error) as caught:
        return caught


def raised_while_handling(error, handled):
    try:
        raise handled
    except type(handled):
        return raised(error)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/stat"), "this environment does not show /proc/stat"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "the environment does not allow what perfkit needs"),
        (MemoryError(), "there is not enough memory"),
        (RuntimeError("can't start new thread"), "there is not enough memory"),
        (
            raised(ImportError("numpy cannot be imported"), ImportError("x.so: failed to map segment from shared object")),
            "not enough memory",
        ),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "there is not enough memory"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/home/x"), ""),
        (ValueError("a bug"), ""),
        (raised(ValueError("a bug"), KeyError("x")), ""),
        (
            raised(StorageError("x"), PermissionError(errno.EPERM, "Operation not permitted", "/x")),
            "does not allow what perfkit needs: [Errno 1]",
        ),
        (raised_while_handling(AttributeError("a bug"), PermissionError(errno.EACCES, "Permission denied", "/x")), ""),
        (raised_while_handling(ValueError("a bug"), MemoryError()), ""),
        (PermissionError(errno.EPERM, "Operation not permitted"), ""),
        (PermissionError(errno.EACCES, "Permission denied", str(pathlib.Path(machine.__file__).parent / "x")), ""),
    ],
)
def test_what_the_environment_lacks_is_told_from_a_bug(error, sentence):
    found = environment_fault(error)
    assert sentence in found
    assert bool(found) is bool(sentence)
