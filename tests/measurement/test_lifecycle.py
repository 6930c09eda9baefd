"""The lifecycle of a run: which result it stores, and what it leaves behind when it ends early."""

import asyncio

import pytest
import yaml

from perfkit.errors import TargetError
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.load_points import FixedPoints, load_point_source
from perfkit.measurement.request_traces import RequestTraces
from perfkit.scenario.file import read_scenario
from perfkit.search.capacity_search import CapacitySearch
from tests.undisturbed import undisturbed


@pytest.fixture
def load(tmp_path):
    """Reads a short scenario; keyword arguments replace whole sections."""

    def read(**sections):
        document = {
            "target": {"model": "simple"},
            "load": {"closed": {"concurrency": [1, 2], "think_time": "1ms"}},
            "measure": {"warmup": "0s", "requests": 20},
            "telemetry": False,
            **sections,
        }
        path = tmp_path / "scenario.yaml"
        path.write_text(yaml.safe_dump(document))
        return read_scenario(path, environ={})

    return read


class InterruptingObserver(RunObserver):
    """Interrupts the run after its first load point."""

    def __init__(self, interruption):
        self.interruption = interruption

    def point_finished(self, point):
        self.interruption.interrupt()


def measure(loaded, folder, interruption, observer, **options):
    with undisturbed():
        return asyncio.run(measure_scenario(loaded, folder, observer, interruption, **options))


def test_an_interrupted_run_stores_what_it_measured(load, tmp_path):
    interruption, folder = Interruption(), tmp_path / "out"
    measured = measure(load(), folder, interruption, InterruptingObserver(interruption))
    assert (measured.result.status, len(measured.result.points)) == ("interrupted", 1)
    assert measured.folder == folder
    assert (folder / "result.json").exists()


def test_an_interrupt_while_spans_are_taken_keeps_the_load_point(load, tmp_path, monkeypatch):
    interruption = Interruption()

    async def interrupted(*_):
        interruption.interrupt()
        await asyncio.sleep(0)

    monkeypatch.setattr(RequestTraces, "collect", interrupted)
    measured = measure(load(traces={"share": "100%"}, telemetry=True), tmp_path / "out", interruption, RunObserver())
    assert (measured.result.status, len(measured.result.points)) == ("interrupted", 1)
    (point,) = measured.result.points
    assert point.breakdown is not None
    assert (point.breakdown.sampled, point.breakdown.without_spans) == (0, point.requests.ok)


def test_an_interrupt_of_the_last_wait_for_spans_leaves_the_run_complete_and_is_said(load, tmp_path, monkeypatch):
    interruption, notes = Interruption(), list[str]()

    class Observer(RunObserver):
        def note_added(self, note):
            notes.append(note)

    async def interrupted(*within_s):
        if len(within_s) > 2:  # with a time to wait
            interruption.interrupt()
            await asyncio.sleep(0)

    monkeypatch.setattr(RequestTraces, "collect", interrupted)
    measured = measure(load(traces={}, telemetry=True), tmp_path / "out", interruption, Observer())
    assert measured.result.status == "complete"
    assert [note for note in notes if "wait for the server's spans was interrupted" in note]


def test_a_run_that_measures_nothing_leaves_nothing(load, tmp_path):
    loaded = load(target={"model": "simple", "url": "http://127.0.0.1:1"})
    with pytest.raises(TargetError, match="cannot be reached"):
        measure(loaded, tmp_path / "out", Interruption(), RunObserver())
    assert [path.name for path in tmp_path.iterdir()] == ["scenario.yaml"]


def test_a_search_load_is_searched_and_any_other_has_fixed_points(load):
    search = load(load={"search": {"slo": {"p99": "50ms"}}}, measure={"duration": "1s"})
    assert isinstance(load_point_source(search), CapacitySearch)
    source = load_point_source(load(measure={"requests": 20, "repetitions": 2}))
    assert isinstance(source, FixedPoints)
    points = [source.next_point(probe_time_ns=1) for _ in range(5)]
    assert [(point.repetition, point.loads[0].concurrency) for point in points[:4]] == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert points[4] is None
