"""The Python interface: the same result as from a shell, and an import that costs nothing."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest
import yaml

import perfkit
from perfkit.errors import ScenarioError, TargetError, UsageError
from perfkit.measurement.control import RunObserver
from tests.bundled_server import bundled_server


@pytest.fixture(scope="module")
def server():
    with bundled_server("--model", "simple") as urls:
        yield urls.http


@pytest.fixture
def scenario(tmp_path, server):
    path = tmp_path / "scenario.yaml"
    document = {
        "target": {"model": "simple", "url": server},
        "telemetry": False,
        "load": {"closed": {"concurrency": [1, 2], "think_time": "1ms"}},
        "measure": {"warmup": "50ms", "requests": 50, "repetitions": 1},
    }
    path.write_text(yaml.safe_dump(document))
    return path


class Listener(RunObserver):
    def __init__(self):
        self.finished = []

    def point_finished(self, point):
        self.finished.append(point)


def test_run_returns_the_result_that_it_writes(scenario, tmp_path):
    listener = Listener()
    result = perfkit.run(scenario, ["measure.requests=60", "target.url=", "telemetry=true"], out=tmp_path / "out", observer=listener)
    assert isinstance(result, perfkit.Result)
    assert [point.requests.ok for point in result.points] == [60, 60]
    assert listener.finished == list(result.points)
    kept = json.loads((tmp_path / "out" / "result.json").read_text())
    assert kept["points"] == result.model_dump(mode="json", by_alias=True)["points"]
    assert (tmp_path / "out" / "report.html").exists()


def test_without_out_nothing_is_left_behind(scenario, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = perfkit.run(perfkit.load_scenario(scenario, ["load.closed.concurrency=1", "target.url=", "telemetry=true"]))
    assert [point.load.level for point in result.points] == [1]
    assert result.histograms()["count"].sum() == 50
    copied, folder = result.model_copy(), result.folder
    del result
    assert folder.exists()
    del copied
    assert list(tmp_path.iterdir()) == [scenario]


def test_errors_are_raised_and_leave_nothing_behind(scenario, tmp_path):
    with pytest.raises(ScenarioError, match="requests"):
        perfkit.run(scenario, ["measure.requests=many"])
    with pytest.raises(TargetError):
        perfkit.run(scenario, ["target.url=http://127.0.0.1:1"], out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == [scenario]


class Interrupting(RunObserver):
    def point_finished(self, point):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture
def enabled_interrupts():
    """Restores SIGINT handling, which a shell disables for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("enabled_interrupts")
def test_an_interrupted_run_leaves_a_partial_result_marked_as_interrupted(scenario, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        perfkit.run(scenario, out=tmp_path / "out", observer=Interrupting())
    kept = json.loads((tmp_path / "out.partial" / "result.json").read_text())
    assert (kept["status"], len(kept["points"])) == ("interrupted", 1)


def test_settings_are_refused_beside_a_scenario_that_is_read_already(scenario):
    loaded = perfkit.load_scenario(scenario)
    for given in (loaded, loaded.scenario):
        with pytest.raises(UsageError, match="settings"):
            perfkit.run(given, ["load.closed.concurrency=1"])


def test_a_scenario_is_a_path_a_mapping_or_a_model(scenario):
    document = yaml.safe_load(scenario.read_text())
    loaded = perfkit.load_scenario(scenario)
    assert perfkit.load_scenario({"name": "scenario", **document}).scenario == loaded.scenario
    assert perfkit.load_scenario(perfkit.Scenario.model_validate({"name": "scenario", **document})).scenario == loaded.scenario
    numbers = {"closed": {"concurrency": tuple(np.array([1, 2])), "think_time": "1ms"}}
    assert perfkit.load_scenario({**document, "load": numbers}).scenario.load == loaded.scenario.load
    assert perfkit.load_scenario(document, ["load.closed.concurrency=7"]).overrides == ("load.closed.concurrency=7",)


def test_a_mapping_is_refused_with_the_key_and_what_was_found():
    with pytest.raises(
        ScenarioError, match=r"scenario: load\.closed\.concurrency: expected text, a number, a list or a mapping, found ndarray"
    ):
        perfkit.load_scenario({"target": {"model": "m"}, "load": {"closed": {"concurrency": np.array([1, 2])}}})
    with pytest.raises(ScenarioError, match=r"scenario: target\.modell: .*did you mean 'model'"):
        perfkit.load_scenario({"target": {"modell": "m"}, "load": {"closed": {"concurrency": 1}}})
    with pytest.raises(ScenarioError, match="sweep over 2 scenarios"):
        perfkit.load_scenario({"target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}, "sweep": {"workload.seed": [1, 2]}})


def test_run_measures_where_an_event_loop_runs_and_arun_lets_it_go_on(scenario, tmp_path):
    async def main():
        blocking = perfkit.run(scenario, ["load.closed.concurrency=1"])
        turns, task = 0, asyncio.ensure_future(perfkit.arun(scenario, ["load.closed.concurrency=1"], out=tmp_path / "out", report=False))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        return blocking, turns, await task

    blocking, turns, awaited = asyncio.run(main())
    assert [point.requests.ok for point in (*blocking.points, *awaited.points)] == [50, 50]
    assert turns > 50
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"result.json", "latency.hlog"}
    assert not (tmp_path / "out" / "report.html").exists()


def test_a_cancelled_arun_has_ended_and_leaves_a_partial_result(scenario, tmp_path):
    class Finished(RunObserver):
        def __init__(self, loop):
            self.loop, self.event = loop, asyncio.Event()

        def point_finished(self, point):
            self.loop.call_soon_threadsafe(self.event.set)

    async def main():
        finished = Finished(asyncio.get_running_loop())
        task = asyncio.ensure_future(
            perfkit.arun(scenario, ["measure.duration=60s", "measure.requests="], out=tmp_path / "out", observer=finished)
        )
        settings = ["load.closed.concurrency=[1, 2]", "measure.requests=50"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):  # before anything was measured
            await task
        assert [path.name for path in tmp_path.iterdir()] == ["scenario.yaml"]
        task = asyncio.ensure_future(perfkit.arun(scenario, settings, out=tmp_path / "out", observer=finished))
        await finished.event.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not [thread for thread in threading.enumerate() if thread.name == "perfkit"]

    asyncio.run(main())
    kept = json.loads((tmp_path / "out.partial" / "result.json").read_text())
    assert (kept["status"], len(kept["points"])) == ("interrupted", 1)


@pytest.mark.usefixtures("enabled_interrupts")
def test_an_interrupt_in_a_notebook_ends_the_run_of_the_other_thread(scenario, tmp_path):
    class Interrupting(RunObserver):
        def point_finished(self, point):
            os.kill(os.getpid(), signal.SIGINT)

    async def main():
        perfkit.run(scenario, out=tmp_path / "out", observer=Interrupting())

    loop = asyncio.new_event_loop()  # asyncio.run would handle the signal itself
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(main())
    loop.close()
    assert json.loads((tmp_path / "out.partial" / "result.json").read_text())["status"] == "interrupted"


def test_importing_perfkit_imports_no_module_of_it():
    program = "import sys, perfkit; print([name for name in sys.modules if name.startswith('perfkit.')], perfkit.__all__)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[] ['Result', 'Scenario', '__version__', 'arun', 'load_result', 'load_scenario', 'run']"
    with pytest.raises(AttributeError, match="measure"):
        assert perfkit.measure
