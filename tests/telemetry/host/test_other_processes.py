"""The processes that use a generator's machine besides perfkit and the target, from known CPU times."""

import pytest

from perfkit.figures.resources import BusyProcess
from perfkit.machine.readings import ProcessTimes
from perfkit.telemetry.host.other_processes import OtherProcessesMeter
from perfkit.telemetry.host.target_processes import TargetProcesses

S = 1_000_000_000
RUN, WORKER, SERVER, COMPILER, OLD, NEW = 10, 11, 12, 20, 30, 31


class KnownTarget(TargetProcesses):
    """A target whose processes are known, but for those that `may_be_hidden`."""

    may_be_hidden = False

    def __init__(self, *pids, may_be_hidden=False):
        self.pids, self.may_be_hidden = set(pids), may_be_hidden

    def __call__(self):
        return self.pids


def measured(before, after, **options):
    """What others used over ten seconds, in which the machine used 15 s of CPU time."""
    readings = iter((before, after))
    meter = OtherProcessesMeter(lambda: next(readings), own_pid=RUN, **options)
    meter.begin(5 * S, 100.0)
    return meter.end(15 * S, 115.0)


def times(name, parent, cpu_s, started=1):
    return ProcessTimes(name, parent, cpu_s, started)


def test_the_busiest_others_are_named_and_perfkit_and_the_target_are_not():
    before = {
        RUN: times("perfkit", 1, 1.0),
        WORKER: times("perfkit", RUN, 0.0),
        SERVER: times("tritonserver", 1, 50.0),
        COMPILER: times("cc1plus", 1, 7.0),
    }
    after = {
        RUN: times("perfkit", 1, 2.0),
        WORKER: times("perfkit", RUN, 3.0),
        SERVER: times("tritonserver", 1, 52.0),
        COMPILER: times("cc1plus", 1, 14.0),
    }
    others = measured(before, after, target=KnownTarget(SERVER))
    assert others.busiest == (BusyProcess("cc1plus", COMPILER, 0.7),)
    assert others.cpus == pytest.approx((15 - 1 - 3 - 2) / 10), "what ended meanwhile is in the total"
    assert not others.may_include_target
    assert measured(before, after, target=KnownTarget(may_be_hidden=True)).may_include_target


def test_workers_that_have_ended_are_not_others():
    before = {RUN: ProcessTimes("perfkit", 1, 1.0, 1, ended_children_s=4.0), SERVER: times("server", RUN, 2.0)}
    after = {RUN: ProcessTimes("perfkit", 1, 2.0, 1, ended_children_s=19.0)}  # two workers used 10 s, and the server 3 s more
    others = measured(before, after)
    assert others.busiest == ()
    assert others.cpus == pytest.approx((15 - 1 - 13) / 10)


def test_a_number_given_to_a_new_process_counts_from_its_start_and_idle_ones_are_left_out():
    before = {RUN: times("perfkit", 1, 0.0), OLD: times("old", 1, 500.0), NEW: times("idle", 1, 3.0)}
    after = {RUN: times("perfkit", 1, 0.0), OLD: times("new", 1, 4.0, started=9), NEW: times("idle", 1, 3.1)}
    assert measured(before, after).busiest == (BusyProcess("new", OLD, 0.4),)


def test_five_are_named_at_most():
    names = range(100, 108)
    after = {pid: times(f"p{pid}", 1, float(pid - 99)) for pid in names}
    assert [one.pid for one in measured({1: times("init", 0, 0.0)}, after).busiest] == [107, 106, 105, 104, 103]


def test_without_a_list_of_processes_nothing_is_known():
    assert measured({}, {}) is None
    assert OtherProcessesMeter(dict).end(1, 1.0) is None
