"""Runs whose outcome no busy machine decides, for tests of anything else than the load generator's influence."""

import contextlib

import pytest

from perfkit.stats.validity import GeneratorVerdict


@contextlib.contextmanager
def undisturbed():
    """In this process the load generator's CPU use, stops and late starts count as harmless, and what others do on the machine.

    A machine that is busy with other tests would make load points invalid, as it should. That verdict has tests of its own:
    `tests/stats/test_validity.py`, `tests/points/test_influence.py`, `tests/cli/test_stops.py`. The other reasons
    against a point, such as a lost worker, stay.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfkit.points.influence.judge_generator", lambda *_, **__: GeneratorVerdict((), ()))
        patch.setattr("perfkit.points.point.busy_machine_warnings", lambda *_, **__: [])
        yield


@contextlib.contextmanager
def undisturbed_tunes():
    """As `undisturbed`; and tunes need little of their time: their windows are short, and a confirmed ratio need not be known to 3 %."""
    with undisturbed(), pytest.MonkeyPatch.context() as patch:
        patch.setattr("perfkit.gate.tune.window_lengths._LONGEST_FIRST_S", 0.1)
        patch.setattr("perfkit.gate.tune.race.NARROW", 0.5)
        yield
