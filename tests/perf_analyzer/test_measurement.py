"""The scenarios that a command measures, with an engine that only notes them."""

import json
import pathlib
import types

from perfkit.perf_analyzer.measurement import ScenarioMeasurement
from perfkit.perf_analyzer.options import LoadRange, Options, SequenceOptions, TraceOptions
from perfkit.perf_analyzer.server_calls import ModelTraits
from perfkit.perf_analyzer.warm_up import warm_up_and_rest


class Engine:
    def __init__(self, **traits):
        self.traits, self.asked, self.traced, self.scenarios = traits, [], [], []

    def run(self, loaded, folder, spool):
        self.scenarios.append(loaded.scenario)
        return types.SimpleNamespace(result=types.SimpleNamespace(status="complete", summary=[None]), folder=folder)

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
