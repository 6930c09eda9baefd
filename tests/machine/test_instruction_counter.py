"""Perf events: the bytes that the kernel is given, what it says, and a count by the kernel itself of a figure that is known otherwise."""

import errno
import os
import struct
import subprocess
import sys

import pytest

from perfkit.machine.instruction_counter import INSTRUCTIONS, EventCounter, NotCountedError, PerfEvent, attributes

TASK_CLOCK = PerfEvent(1, 1)
"""PERF_TYPE_SOFTWARE and PERF_COUNT_SW_TASK_CLOCK: nanoseconds on a CPU, which the kernel counts itself."""


def test_the_attributes_have_the_layout_of_perf_event_attr():
    # linux/perf_event.h: type, size, config, sample_period, sample_type, read_format, flags, wakeup_events, bp_type, bp_addr
    expected = bytes.fromhex(
        "00000000 40000000 0100000000000000 0000000000000000 0000000000000000 0300000000000000"
        "6200000000000000"  # inherit (bit 1), exclude_kernel (5), exclude_hv (6)
        "00000000 00000000 0000000000000000"
    )
    assert attributes(INSTRUCTIONS) == expected
    assert attributes(PerfEvent(1, 1, with_kernel=True))[40:48] == bytes.fromhex("0200000000000000")


CHILD = """
import resource, subprocess, sys, threading, time
def burn():
    while time.thread_time() < 0.1: pass
print(flush=True)
sys.stdin.readline()
thread = threading.Thread(target=burn)
thread.start()
thread.join()
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.1: pass"])
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(sum(one.ru_utime + one.ru_stime for one in used), flush=True)
sys.stdin.readline()
"""


def test_the_kernel_counts_threads_and_processes_that_are_started_later_and_have_ended():
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        child.stdout.readline()
        try:
            counter = EventCounter([child.pid], TASK_CLOCK)
        except NotCountedError as error:
            pytest.skip(f"perf events cannot be used here: {error}")
        before_s = counter.read() / 1e9
        child.stdin.write("\n")
        child.stdin.flush()
        used_s = float(child.stdout.readline())
        counted_s = counter.read() / 1e9
        counter.close()
    finally:
        child.communicate("\n\n")
    assert before_s < 0.05
    assert used_s > 0.2
    # what it had used before the counter was opened is the start of Python
    assert 0.2 <= counted_s <= used_s + 0.02


@pytest.fixture
def threads(write):
    return write({"proc/5/task/5/x": "", "proc/5/task/6/x": ""})


def counts(*values):
    """The file descriptor of an event that reads these counts."""
    reader, writer = os.pipe()
    os.write(writer, struct.pack("=QQQ", *values))
    os.close(writer)
    return reader


def test_counts_of_all_threads_are_added_and_scaled_where_the_cpu_counted_a_part_of_the_time(threads):
    opened = {5: (1000, 80, 80), 6: (100, 200, 50)}
    counter = EventCounter([5], open_event=lambda _, thread: counts(*opened[thread]), root=threads)
    assert counter.read() == 1000 + 400
    counter.close()


def test_a_thread_that_never_ran_has_no_count(threads):
    counter = EventCounter([5], open_event=lambda *_: counts(0, 0, 0), root=threads)
    assert counter.read() == 0
    counter.close()


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EACCES, "set the sysctl kernel.perf_event_paranoid to 2"),
        (errno.ENOENT, "this machine offers no hardware counters"),
        (errno.ENOSYS, "the system has no perf events"),
        (errno.EMFILE, "raise the limit"),
        (errno.ESRCH, "its processes have ended"),
    ],
)
def test_what_cannot_be_counted_is_said_with_the_reason(threads, number, sentence):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    with pytest.raises(NotCountedError, match=sentence):
        EventCounter([5], open_event=refuse, root=threads)
