"""The Python interface: the same result as from a shell, and an import that costs nothing."""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile

import pytest
import yaml

import perfkit
from perfkit.errors import ScenarioError, TargetError, UsageError
from perfkit.measurement.control import RunObserver


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "scenario.yaml"
    document = {
        "target": {"model": "simple"},
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
    result = perfkit.run(scenario, ["measure.requests=60"], out=tmp_path / "out", observer=listener)
    assert isinstance(result, perfkit.Result)
    assert [point.requests.ok for point in result.points] == [60, 60]
    assert listener.finished == list(result.points)
    kept = json.loads((tmp_path / "out" / "result.json").read_text())
    assert kept["points"] == result.model_dump(mode="json", by_alias=True)["points"]
    assert (tmp_path / "out" / "report.html").exists()


def test_without_out_nothing_is_left_behind(scenario, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = perfkit.run(perfkit.load_scenario(scenario, ["load.closed.concurrency=1"]))
    assert [point.load.level for point in result.points] == [1]
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


def test_run_refuses_a_running_event_loop_and_settings_for_a_loaded_scenario(scenario):
    async def main():
        perfkit.run(scenario)

    with pytest.raises(UsageError, match="event loop"):
        asyncio.run(main())
    with pytest.raises(UsageError, match="settings"):
        perfkit.run(perfkit.load_scenario(scenario), ["load.closed.concurrency=1"])


def test_importing_perfkit_imports_no_module_of_it():
    program = "import sys, perfkit; print([name for name in sys.modules if name.startswith('perfkit.')], perfkit.__all__)"
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout.strip() == "[] ['Result', '__version__', 'load_scenario', 'run']"
    with pytest.raises(AttributeError, match="measure"):
        assert perfkit.measure
