"""Scenarios that are measured interleaved on one server: their order, and what ends one or all of them."""

import asyncio

import pytest
import yaml

from perfkit.clock import MonotonicClock
from perfkit.errors import ModelMismatchError, TargetError
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import InterleavedCase, RunProcesses, measure_interleaved
from perfkit.scenario.file import read_cases
from tests.children import children_running

PLAIN = {
    "target": {"model": "simple"},
    "load": {"closed": {"concurrency": [1, 2], "think_time": "1ms"}},
    "measure": {"warmup": "0s", "requests": 10, "repetitions": 2},
    "telemetry": False,
}


class Recorder(RunObserver):
    """Records what begins, and interrupts after some load points."""

    def __init__(self, interruption=None, after=0):
        self.points, self.servers, self.targets = [], [], []
        self._interruption, self._after = interruption, after

    def server_output(self, line):
        self.servers.append(line)

    def target_ready(self, description):
        self.targets.append(description)

    def point_started(self, index, total, description, seconds, seconds_left):
        self.points.append((index, total, description))

    def point_finished(self, point):
        self._after -= 1
        if self._after == 0:
            self._interruption.interrupt()


@pytest.fixture
def measure(tmp_path):
    """Measures the cases of a sweep over `choices`; keyword arguments replace sections."""

    def run(choices, observer, interruption=None, times=1, **sections):
        path = tmp_path / "scenario.yaml"
        path.write_text(yaml.safe_dump({**PLAIN, **sections, "sweep": {"choices": choices}}, sort_keys=False))
        cases = [
            InterleavedCase(case.values["choices"], case.loaded, tmp_path / case.values["choices"]) for case in read_cases(path, environ={})
        ]

        async def go():
            async with RunProcesses(MonotonicClock()) as processes:
                for _ in range(times):
                    results = await measure_interleaved(cases, observer, interruption or Interruption(), processes=processes)
            return results

        return asyncio.run(go())

    return run


def test_load_points_alternate_and_every_second_repetition_is_in_the_opposite_order(measure, tmp_path):
    observer = Recorder()
    a, b, c = measure({"a": {}, "b": {"workload.encoding": "json"}, "c": {"shared_memory": "system"}}, observer)
    one, two = "http, concurrency 1", "http, concurrency 2"
    order = [
        *((name, one) for name in "abc"),
        *((name, two) for name in "abc"),
        *((name, one) for name in "cba"),
        *((name, two) for name in "cba"),
    ]
    assert observer.points == [(number, 12, f"{name}: {point}") for number, (name, point) in enumerate(order)]
    assert sum("serving simple" in line for line in observer.servers) == 1
    assert len(observer.targets) == 1
    for measured, name in ((a, "a"), (b, "b"), (c, "c")):
        assert measured.folder == tmp_path / name
        assert [(point.repetition, point.load.concurrency) for point in measured.result.points] == [(0, 1), (0, 2), (1, 1), (1, 2)]
        assert measured.result.environment["target"]["name"]
        assert (tmp_path / name / "result.json").exists()
    assert "shared_memory" in c.result.environment["target"]["protocols"]["http"]


def test_processes_that_are_given_stay_from_run_to_run(measure):
    """A gate starts those that send the load and sample once."""
    names = ("worker_process", "sampler_process")

    class Observer(Recorder):
        def point_finished(self, point):
            self.points.append({child.pid for name in names for child in children_running(name)})

    observer = Observer()
    measure({"a": {}}, observer, times=2, telemetry=True)
    seen = [one for one in observer.points if isinstance(one, set)]
    assert len(seen) == 8
    assert all(one == seen[0] for one in seen)
    assert len(seen[0]) == 2
    assert not any(map(children_running, names))


def test_a_case_that_cannot_be_measured_does_not_end_the_others(measure, tmp_path):
    refused, measured = measure({"a": {"workload.batch_size": 99}, "b": {}}, Recorder())
    assert isinstance(refused, ModelMismatchError)
    assert "takes at most 8, found 99" in str(refused)
    assert len(measured.result.points) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"scenario.yaml", "b"}


def test_shorter_cases_end_and_longer_ones_go_on(measure):
    observer = Recorder()
    short, long = measure({"a": {"load.closed.concurrency": 1}, "b": {}}, observer)
    assert (len(short.result.points), len(long.result.points)) == (2, 4)


def test_an_interruption_ends_all_and_keeps_what_was_measured(measure, tmp_path):
    interruption = Interruption()
    a, b = measure({"a": {}, "b": {}}, Recorder(interruption, after=3), interruption)
    assert [one.result.status for one in (a, b)] == ["interrupted"] * 2
    assert [len(one.result.points) for one in (a, b)] == [2, 1]
    assert [one.folder for one in (a, b)] == [tmp_path / "a", tmp_path / "b"]


class InterruptingUnderLoad(Recorder):
    """Interrupts the run as soon as the second load point is under load."""

    def point_started(self, index, total, description, seconds, seconds_left):
        super().point_started(index, total, description, seconds, seconds_left)
        if index == 1:
            self._interrupt_under_load()

    def _interrupt_under_load(self):
        if self._interruption.loop is None:
            asyncio.get_running_loop().call_soon(self._interrupt_under_load)
        else:
            self._interruption.interrupt()


def test_an_interruption_under_load_lets_no_other_case_begin(measure):
    interruption = Interruption()
    observer = InterruptingUnderLoad(interruption)
    measured = measure({"a": {}, "b": {}, "c": {}}, observer, interruption)
    assert [one.result.status for one in measured] == ["interrupted"] * 3
    assert len(observer.points) == 2


def test_a_server_that_cannot_be_reached_is_the_error_of_each(measure, tmp_path):
    errors = measure({"a": {}, "b": {}}, Recorder(), target={"model": "simple", "url": "http://127.0.0.1:1"})
    assert all(isinstance(error, TargetError) for error in errors)
    assert [path.name for path in tmp_path.iterdir()] == ["scenario.yaml"]
