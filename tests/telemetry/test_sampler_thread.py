"""Samplers in threads: sampled when due, called from one thread, and no danger to the run."""

import threading

import pytest

from perfkit.clock import MonotonicClock
from perfkit.telemetry.sampler_thread import SamplerThread, take_notes
from perfkit.telemetry.series import SamplerReport

WAIT_S = 60


class RecordingSampler:
    """Records its calls; `due` returns when the next sample is due, given the number of samples so far."""

    def __init__(self, due=lambda _: None, *, starts=True, fails=()):
        self.notes, self.calls, self.threads = [], [], set()
        self.sampled, self._due, self._starts, self._fails = threading.Event(), due, starts, fails

    def _record(self, name):
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        if name in self._fails:
            raise ValueError(f"{name} failed")

    def start(self):
        self._record("start")
        return self._starts

    def sample(self):
        self._record("sample")
        count = self.calls.count("sample")
        if count == 3:
            self.sampled.set()
        return self._due(count)

    def window(self, start_ns, end_ns):
        self._record("window")
        return SamplerReport((start_ns, end_ns))

    def latest(self):
        return []

    def close(self):
        self._record("close")


@pytest.fixture
def start():
    threads = []

    def make(sampler):
        threads.append(SamplerThread("thing", sampler, MonotonicClock()))
        return threads[-1]

    yield make
    for thread in threads:
        thread.close(WAIT_S)


def test_a_sampler_is_sampled_when_due_and_called_in_between(start):
    sampler = RecordingSampler(lambda count: 0 if count < 3 else None)
    thread = start(sampler)
    assert sampler.sampled.wait(WAIT_S)
    assert thread.submit(lambda own: own.window(1, 2)).result(WAIT_S).summary == (1, 2)
    thread.close(WAIT_S)
    assert sampler.calls == ["start", "sample", "sample", "sample", "window", "close"]
    assert len(sampler.threads - {threading.get_ident()}) == 1


def test_a_sampler_without_a_source_is_not_sampled(start):
    sampler = RecordingSampler(starts=False)
    thread = start(sampler)
    assert thread.submit(take_notes).result(WAIT_S) == []
    thread.close(WAIT_S)
    assert sampler.calls == ["start", "close"]


@pytest.mark.parametrize("broken", ["start", "sample"])
def test_a_sampler_that_raises_is_noted_and_no_longer_sampled(start, broken):
    sampler = RecordingSampler(lambda _: 0, fails=(broken,))
    thread = start(sampler)
    notes: list[str] = []
    while not notes:
        notes = thread.submit(take_notes).result(WAIT_S)
    assert notes == [f"Sampling of thing failed and has ended: ValueError: {broken} failed."]
    assert thread.submit(take_notes).result(WAIT_S) == []
    thread.close(WAIT_S)
    assert sampler.calls.count(broken) == 1


def test_an_exception_of_a_call_is_raised_where_its_result_is_awaited(start):
    with pytest.raises(ValueError, match="window failed"):
        start(RecordingSampler(fails=("window",))).submit(lambda own: own.window(1, 2)).result(WAIT_S)
