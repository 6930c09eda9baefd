"""The scenarios that a command measures, with an engine that only notes them."""

import json
import pathlib
import types

import pytest

from perfkit.errors import MeasurementWarning
from perfkit.perf_analyzer.measurement import ScenarioMeasurement, warm_up_and_rest
from perfkit.perf_analyzer.options import LoadRange, Options, SequenceOptions, TraceOptions
from perfkit.perf_analyzer.server_calls import ModelTraits


class Engine:
    def __init__(self, **traits):
        self.traits, self.asked, self.traced, self.scenarios, self.warnings = traits, [], [], [], []

    def run(self, loaded, folder, spool):
        self.scenarios.append(loaded.scenario)
        return types.SimpleNamespace(
            result=types.SimpleNamespace(status="complete", summary=[types.SimpleNamespace(warnings=self.warnings)]), folder=folder
        )

    def model_traits(self, loaded):
        self.asked.append(loaded.scenario.target.model)
        return self.traits.get(self.asked[-1], ModelTraits())

    def change_trace_settings(self, loaded, options):
        self.traced.append((loaded.scenario.target.model, options.level))


def test_the_first_entries_of_a_fixed_schedule_are_its_warm_up(tmp_path):
    file = tmp_path / "data.json"
    file.write_text('{"data": [{"timestamp": [0]}, {"timestamp": [30]}, {"timestamp": [70]}]}')
    options = Options("m", load_mode="fixed_schedule", input_data=(str(file),), warmup_request_count=2)
    warm_up, rest = warm_up_and_rest(options, tmp_path / "parts")
    parts = [json.loads(pathlib.Path(one.input_data[0]).read_text()) for one in (warm_up, rest)]
    assert parts == [{"data": [{"timestamp": [0]}, {"timestamp": [30]}]}, {"data": [{"timestamp": [70]}]}]


@pytest.mark.parametrize("warm_up", [0, 2])
def test_the_entries_of_several_schedules_are_joined_by_their_times(tmp_path, warm_up):
    names = []
    for number, times_ms in enumerate([[0, 100, 200], [50, 150]]):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps({"data": [{"timestamp": [time_ms], "INPUT0": [number]} for time_ms in times_ms]}))
        names.append(str(path))
    options = Options("m", load_mode="fixed_schedule", input_data=tuple(names), request_count=5 - warm_up, warmup_request_count=warm_up)
    parts = [json.loads(pathlib.Path(one.input_data[0]).read_text())["data"] for one in warm_up_and_rest(options, tmp_path / "parts")]
    joined = [(0, 0), (50, 1), (100, 0), (150, 1), (200, 0)]
    assert [[(*entry["timestamp"], *entry["INPUT0"]) for entry in part] for part in parts] == [joined[:warm_up], joined[warm_up:]]


def test_warnings_advise_options_and_are_about_percentiles_that_are_reported(monkeypatch):
    monkeypatch.setattr("perfkit.perf_analyzer.measurement.measured_windows", lambda *_: [[]])
    few = [
        MeasurementWarning("few_samples", f"Too few samples for {name}: at least 900 are needed; measure longer.")
        for name in ("p99.9", "p95")
    ]
    engine, notes = Engine(), list[str]()
    engine.warnings = [*few, MeasurementWarning("cache_hits", "It answered 3: increase workload.variants, or disable the cache.")]
    with ScenarioMeasurement([Options("m")], engine, notes.append) as measurement:
        measurement.ask_servers()
        assert measurement.measure(1, 3) == [[]]
    assert notes == [
        "few_samples: Too few samples for p95: at least 900 are needed; raise --measurement-interval (-p).",
        "cache_hits: It answered 3: give more --input-data, or disable the cache.",
    ]


def test_the_models_of_a_mix_are_warmed_up_one_by_one_after_their_server_was_asked():
    commands = [
        Options("plain", load_range=LoadRange(3, 3), warmup_request_count=20, trace=TraceOptions(level="TIMESTAMPS")),
        Options("cold", sequences=SequenceOptions(is_given=True)),
        Options("counter", load_mode="request_rate", load_range=LoadRange(40, 40), warmup_request_count=7),
    ]
    engine = Engine(counter=ModelTraits(has_sequences=True))
    with ScenarioMeasurement(commands, engine, print) as measurement:
        measurement.ask_servers()
        measurement.warm_up(3)
        measurement.warm_up(3)
    assert engine.asked == ["plain", "cold", "counter"]
    assert engine.traced == [("plain", "TIMESTAMPS")]
    sent = [(one.target.model, one.measure.requests, one.sequences is not None) for one in engine.scenarios]
    assert sent == 2 * [("plain", 20, False), ("counter", 7, True)]
    assert engine.scenarios[0].load.closed.concurrency == (3,)
    assert engine.scenarios[1].load.open.rates_per_s == (40,)
