"""The generator's figures, computed from known counters."""

import gc
import os

import pytest

from perfkit.clock import ManualClock
from perfkit.figures.resources import EVENT_LOOP_LAG, GC_PAUSE
from perfkit.machine.readings import MachineCounters, ProcessCounters
from perfkit.target.address import Address
from perfkit.telemetry.host.generator import EventLoopMonitor, GeneratorSampler
from perfkit.telemetry.host.other_processes import OtherProcessesMeter, TargetProcesses

S = 1_000_000_000


class Machine:
    """Four CPUs, of which two are busy and a fifth of one is stolen; `busy` is each worker's share of a core."""

    def __init__(self, clock, busy):
        self.clock, self.busy = clock, busy

    def process(self, pid):
        s = self.clock.ns / S
        return None if pid not in self.busy else ProcessCounters(7 + s * self.busy[pid], int(100 * s), int(3 * s), 40 + pid)

    def machine(self):
        s = self.clock.ns / S
        return MachineCounters(2 * s, 0.2 * s, 4 * s, int(5000 * s), int(2 * s), 12 + int(s) % 2)


@pytest.fixture
def make_sampler(clock):
    def make(busy, **options):
        machine = Machine(clock, busy)
        sampler = GeneratorSampler(clock, machine.process, machine.machine, **{"file_limit": 1000, **options})
        assert sampler.start()
        sampler.follow(sorted(busy))
        return sampler

    return make


def run(sampler, clock, seconds):
    while clock.ns < seconds * S:
        clock.ns = sampler.sample()


def test_shares_and_counts_of_a_window(make_sampler, clock):
    sampler = make_sampler({1: 0.25, 2: 0.75})
    run(sampler, clock, 10)
    figures = sampler.window(3 * S, 9 * S).summary
    assert (figures.cpu_share, figures.steal_share) == (pytest.approx(0.5), pytest.approx(0.05))
    assert figures.worker_cpu_shares == (pytest.approx(0.25), pytest.approx(0.75))
    assert (figures.voluntary_switches, figures.involuntary_switches) == (1200, pytest.approx(36, abs=2))
    assert (figures.tcp_segments_sent, figures.tcp_retransmits) == (30_000, 12)
    assert (figures.sockets_max, figures.open_files_max, figures.open_files_limit) == (13, 42, 1000)


def test_counters_are_linear_between_samples(make_sampler, clock):
    sampler = make_sampler({1: 0.5})
    run(sampler, clock, 3)
    figures = sampler.window(int(1.1 * S), int(1.3 * S)).summary
    assert figures.worker_cpu_shares == (pytest.approx(0.5),)
    assert figures.tcp_segments_sent == pytest.approx(1000, abs=1)


def test_series_are_rates_between_samples(make_sampler, clock):
    sampler = make_sampler({1: 0.5})
    run(sampler, clock, 3)
    series = {series.name: series for series in sampler.window(0, 3 * S).series}
    assert series["worker_cpu_share"].values == (pytest.approx(0.5),) * 6
    assert series["worker_cpu_share"].labels == {"worker": "1"}
    assert series["worker_cpu_share"].times_ns == tuple(range(S // 2, 3 * S + 1, S // 2))
    assert set(series["tcp_retransmits_per_s"].values) <= {0, 2, 4}
    assert series["machine_cpu_share"].values == (pytest.approx(0.5),) * 6
    assert series["worker_open_files"].unit == "count"
    assert {newest.name for newest in sampler.latest()} == set(series)


def test_a_worker_that_ended_counts_while_half_the_window_was_sampled(make_sampler, clock):
    busy = {1: 0.5, 2: 0.5}
    sampler = make_sampler(busy)
    run(sampler, clock, 4)
    del busy[2]
    run(sampler, clock, 5)
    assert sampler.window(0, 5 * S).summary.worker_cpu_shares == (pytest.approx(0.5), pytest.approx(0.5))
    run(sampler, clock, 9)
    assert sampler.window(5 * S, 9 * S).summary.worker_cpu_shares == (pytest.approx(0.5), None)


def test_nearly_all_files_open_is_a_warning(make_sampler, clock):
    sampler = make_sampler({60: 0.1}, file_limit=110)
    run(sampler, clock, 1)
    assert [warning.code for warning in sampler.window(0, S).warnings] == ["file_limit"]
    assert "100 open files and sockets, close to its limit of 110" in sampler.window(0, S).warnings[0].message


def test_following_other_workers_replaces_those_before(make_sampler, clock):
    sampler = make_sampler({1: 0.5})
    run(sampler, clock, 2)
    sampler.follow([])
    run(sampler, clock, 4)
    assert sampler.window(2 * S, 4 * S).summary.worker_cpu_shares == ()


MS = 1_000_000


def test_the_lag_of_each_timer_is_recorded():
    clock = ManualClock()
    late_ms = iter([0, 3, 0, 7])

    class LateClock:
        """Wakes sleepers as late as the list says."""

        now_ns = staticmethod(clock.now_ns)

        async def sleep_until_ns(self, instant_ns):
            await clock.sleep_until_ns(instant_ns + next(late_ms) * MS)

    async def go():
        with EventLoopMonitor(LateClock()) as monitor:
            try:
                await monitor.measure_lag(10 * MS)
            except (StopIteration, RuntimeError):  # the list has ended
                return monitor.series(1)

    (lag,) = [series for series in clock.run(go()) if series.name == EVENT_LOOP_LAG]
    assert lag.times_ns == (10 * MS, 63 * MS, 113 * MS, 170 * MS)
    assert (lag.values, lag.unit, lag.labels) == ((0, 3 * MS, 0, 7 * MS), "ns", {"worker": "2"})


def test_garbage_collections_are_recorded_while_the_block_lasts():
    clock = ManualClock()
    ticks = iter(range(0, 10**9, 5 * MS))

    class TickingClock:
        """Advances by 5 ms at each reading."""

        sleep_until_ns = clock.sleep_until_ns

        def now_ns(self):
            return next(ticks)

    was_enabled, before = gc.isenabled(), list(gc.callbacks)
    gc.disable()
    try:
        with EventLoopMonitor(TickingClock()) as monitor:
            gc.collect()
            gc.collect()
        gc.collect()
    finally:
        if was_enabled:
            gc.enable()
    (pauses,) = monitor.series(0)
    assert (pauses.name, pauses.values) == (GC_PAUSE, (5 * MS, 5 * MS))
    assert gc.callbacks == before


def test_the_targets_processes_are_searched_before_the_load_and_not_again(make_sampler, clock):
    searches = []

    def listeners():
        searches.append(clock.ns)
        return [(8000, os.getpid())]

    target = TargetProcesses([Address.parse("http://127.0.0.1:8000")], listeners)
    sampler = make_sampler({1: 0.5}, others=OtherProcessesMeter(target=target))
    run(sampler, clock, 3)
    assert sampler.window(1 * S, 3 * S).summary.others is not None
    assert searches == [0]
