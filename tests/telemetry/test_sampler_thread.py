"""Samplers in their threads: called when they want to be, by one thread, and never the run's end."""

import threading

import pytest

from perfkit.clock import MonotonicClock
from perfkit.telemetry.sampler_thread import SamplerThread
from perfkit.telemetry.series import SamplerReport

WAIT_S = 60


class Recorded:
    """Notes its calls; `due` says when it wants to be sampled, from its own count of samples."""

    def __init__(self, due=lambda _: None, *, starts=True, fails=()):
        self.notes, self.calls, self.threads = [], [], set()
        self.sampled, self._due, self._starts, self._fails = threading.Event(), due, starts, fails

    def _note(self, name):
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        if name in self._fails:
            raise ValueError(f"{name} broke")

    def start(self):
        self._note("start")
        return self._starts

    def sample(self):
        self._note("sample")
        count = self.calls.count("sample")
        if count == 3:
            self.sampled.set()
        return self._due(count)

    def window(self, start_ns, end_ns):
        self._note("window")
        return SamplerReport((start_ns, end_ns))

    def latest(self):
        return []

    def close(self):
        self._note("close")


@pytest.fixture
def drive():
    driven = []

    def make(sampler):
        driven.append(SamplerThread("thing", sampler, MonotonicClock()))
        return driven[-1]

    yield make
    for one in driven:
        one.close(WAIT_S)


def test_it_is_sampled_again_when_it_says_and_asked_in_between(drive):
    sampler = Recorded(lambda count: 0 if count < 3 else None)
    driven = drive(sampler)
    assert sampler.sampled.wait(WAIT_S)
    assert driven.ask(lambda one: one.window(1, 2)).result(WAIT_S).summary == (1, 2)
    driven.close(WAIT_S)
    assert sampler.calls == ["start", "sample", "sample", "sample", "window", "close"]
    assert len(sampler.threads - {threading.get_ident()}) == 1


def test_one_that_has_nothing_to_sample_is_not_sampled(drive):
    sampler = Recorded(starts=False)
    driven = drive(sampler)
    assert driven.take_notes().result(WAIT_S) == []
    driven.close(WAIT_S)
    assert sampler.calls == ["start", "close"]


@pytest.mark.parametrize("broken", ["start", "sample"])
def test_one_that_fails_is_noted_and_given_up(drive, broken):
    sampler = Recorded(lambda _: 0, fails=(broken,))
    driven = drive(sampler)
    notes: list[str] = []
    while not notes:
        notes = driven.take_notes().result(WAIT_S)
    assert notes == [f"Sampling of thing failed, and was given up: ValueError: {broken} broke."]
    assert driven.take_notes().result(WAIT_S) == []
    driven.close(WAIT_S)
    assert sampler.calls.count(broken) == 1


def test_a_failure_to_answer_is_raised_where_the_answer_is_awaited(drive):
    with pytest.raises(ValueError, match="window broke"):
        drive(Recorded(fails=("window",))).ask(lambda one: one.window(1, 2)).result(WAIT_S)
