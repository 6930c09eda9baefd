"""The server's CPU use over windows, from known counters."""

import pytest

from perfkit.figures.resources import ServerCpuUse
from perfkit.machine.instruction_counter import NotCountedError
from perfkit.machine.process_tree import TreeCpuTime
from perfkit.telemetry.host.other_processes import TargetProcesses
from perfkit.telemetry.host.server_cpu import ServerCpuSampler

MS, S = 1_000_000, 1_000_000_000


class Tree:
    """A server that uses `busy` CPUs until `until_ns`; `reading_ns` is how long a reading takes."""

    pids = (7, 8)

    def __init__(self, clock, busy=0.5, until_ns=10**18, reading_ns=0):
        self.clock, self.busy, self.until_ns, self.reading_ns = clock, busy, until_ns, reading_ns
        self.found, self.ended_ns, self.lost_ns, self.is_there = 0, 0, 0, True

    def find(self):
        self.found += 1
        return self.read()

    def read(self):
        self.clock.ns += self.reading_ns
        cpu_ns = 3 * S + round(min(self.clock.ns, self.until_ns) * self.busy)
        return TreeCpuTime(cpu_ns, self.ended_ns, self.lost_ns, 20 * MS) if self.is_there else None


class Listeners(TargetProcesses):
    """Known processes at the target's addresses, but for those that `may_be_hidden`."""

    may_be_hidden = False

    def __init__(self, pids, *, may_be_hidden):
        self.pids, self.may_be_hidden = set(pids), may_be_hidden

    def __call__(self):
        return self.pids


def sampler_of(tree, clock, listeners=(8, 99), *, may_be_hidden=False, **options):
    return ServerCpuSampler(tree, Listeners(listeners, may_be_hidden=may_be_hidden), clock, **options)


def run(sampler, clock, until_ns):
    due_ns = sampler.sample()
    while due_ns is not None and due_ns <= until_ns:
        clock.ns = due_ns
        due_ns = sampler.sample()
    clock.ns = until_ns


def test_a_window_has_the_time_used_between_its_ends(clock):
    sampler = sampler_of(Tree(clock), clock)
    assert sampler.start()
    run(sampler, clock, 5 * S)
    assert sampler.window(1 * S + 7 * MS, 4 * S + 3 * MS).summary == ServerCpuUse(round(0.5 * (3 * S - 4 * MS)))
    assert sampler.notes == []


def test_the_idle_time_after_the_load_does_not_count(clock):
    end_ns = 3 * S + 11 * MS
    sampler = sampler_of(Tree(clock, until_ns=end_ns), clock)
    assert sampler.start()
    run(sampler, clock, 5 * S)
    assert sampler.window(1 * S, end_ns).summary.cpu_ns == pytest.approx(0.5 * (end_ns - S), rel=1e-6)


@pytest.mark.parametrize("found", [{"listeners": (99,)}, {"may_be_hidden": True}])
def test_processes_that_are_not_the_ones_that_listen_are_not_measured(clock, found):
    sampler = sampler_of(Tree(clock), clock, **found)
    assert not sampler.start()
    assert sampler.notes[0].startswith("The server's CPU time is not measured: the processes that listen at its address are not those")


def test_a_system_that_does_not_show_the_process_is_named(clock):
    tree = Tree(clock)
    tree.is_there = False
    sampler = sampler_of(tree, clock)
    assert not sampler.start()
    assert sampler.notes == ["The server's CPU time is not measured: this system does not show its process (/proc of Linux)."]


def test_a_reading_takes_at_most_a_two_hundredth_of_a_cpu(clock):
    tree = Tree(clock, reading_ns=MS // 5)
    sampler = sampler_of(tree, clock)
    assert sampler.start()
    before_ns = clock.ns
    assert sampler.sample() - before_ns - tree.reading_ns == 200 * tree.reading_ns
    tree.reading_ns = MS // 100
    assert sampler.sample() - clock.ns == 20 * MS


def test_processes_are_searched_once_a_second(clock):
    tree = Tree(clock)
    sampler = sampler_of(tree, clock)
    assert sampler.start()
    run(sampler, clock, 10 * S)
    assert tree.found in (11, 12)


@pytest.mark.parametrize(("cpu_s", "is_known"), [(3.9, False), (4.1, True)])
def test_ended_processes_make_a_short_window_too_coarse(clock, cpu_s, is_known):
    tree = Tree(clock, busy=1.0)
    sampler = sampler_of(tree, clock)
    assert sampler.start()
    run(sampler, clock, 2 * S)
    tree.ended_ns = 10 * MS
    run(sampler, clock, 10 * S)
    assert (sampler.window(S, S + round(cpu_s * S)).summary is not None) is is_known
    assert sampler.notes == [] if is_known else "20.0 ms only, more than 0.5%" in sampler.notes[0]
    run(sampler, clock, 15 * S)
    assert sampler.window(11 * S, 13 * S).summary is not None, "none ended in this one"


def test_a_window_with_lost_times_is_unknown(clock):
    tree = Tree(clock)
    sampler = sampler_of(tree, clock)
    assert sampler.start()
    run(sampler, clock, 2 * S)
    tree.lost_ns = 1
    run(sampler, clock, 4 * S)
    assert sampler.window(S, 3 * S).summary is None
    assert "took its times with it" in sampler.notes[0]


def test_a_window_of_which_less_than_half_was_sampled_is_unknown(clock):
    tree = Tree(clock)
    sampler = sampler_of(tree, clock)
    assert sampler.start()
    run(sampler, clock, 2 * S)
    tree.is_there = False
    assert sampler.sample() is None
    assert sampler.window(S, 4 * S).summary is None
    assert sampler.window(S, 2 * S + 500 * MS).summary.cpu_ns == pytest.approx(0.75 * S, rel=1e-6)


class Counter:
    def __init__(self, clock):
        self.clock, self.pids, self.is_closed = clock, None, False

    def __call__(self, pids):
        self.pids = pids
        return self

    def read(self):
        return 3 * self.clock.ns

    def close(self):
        self.is_closed = True


def test_instructions_are_counted_where_they_are_wanted(clock):
    counter = Counter(clock)
    sampler = sampler_of(Tree(clock), clock, count=counter)
    assert sampler.start()
    run(sampler, clock, 4 * S)
    assert sampler.window(S, 3 * S + MS).summary.instructions == pytest.approx(3 * (2 * S + MS), rel=1e-9)
    assert counter.pids == (7, 8)
    sampler.close()
    assert counter.is_closed


def test_why_instructions_are_not_counted_is_noted_once(clock):
    def refuse(_):
        raise NotCountedError("this machine offers no hardware counters")

    sampler = sampler_of(Tree(clock), clock, count=refuse)
    assert sampler.start()
    run(sampler, clock, 4 * S)
    assert sampler.window(S, 3 * S).summary.instructions is None
    assert sampler.notes == ["The server's instructions are not counted: this machine offers no hardware counters."]
