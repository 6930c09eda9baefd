"""What to measure for a plan, as a command that perfkit takes."""

import shlex

import pytest
import yaml

from perfkit.cli.main import main
from perfkit.plan.missing_measurement import MissingMeasurement
from perfkit.scenario.file import scenario_document
from perfkit.scenario.model import Scenario

URL = {"name": "m", "target": {"url": "http://127.0.0.1:8000", "model": "my model"}, "load": {"closed": {"concurrency": [1]}}}


def test_rates_have_two_digits_and_windows_are_half_a_minute_to_ten_minutes_long():
    one = MissingMeasurement.at([0.0, 33.333, 12.04, 33.4], 12.0)
    assert (one.rates_per_s, one.window_s, one.repetitions) == ((12.0, 33.0), 30, 1)
    long = MissingMeasurement.at([1.0], 4965.0)
    assert (long.repetitions, long.window_s) == (9, 552)


def test_a_scenario_of_a_running_server_is_one_by_its_url():
    assert MissingMeasurement.at([40.0, 55.5], 50).command(URL, "reports/x") == (
        "perfkit run http://127.0.0.1:8000 -m 'my model' --rate 40,56 --duration 50s --set measure.repetitions=1"
    )


def test_a_scenario_as_results_store_it_is_one_by_its_url_too_since_it_states_every_default():
    stored = scenario_document(Scenario.model_validate({**URL, "slo": {"p99": "50ms"}}))
    assert MissingMeasurement.at([1234567.0, 0.35], 50).command(stored) == (
        "perfkit run http://127.0.0.1:8000 -m 'my model' --rate 0.35,1200000 --duration 50s --set measure.repetitions=1"
    )
    batched = scenario_document(Scenario.model_validate({**URL, "workload": {"batch_size": 8}}))
    assert MissingMeasurement.at([40.0], 50).command(batched).startswith("perfkit run m.yaml --set ")


@pytest.mark.parametrize(
    ("changes", "load"),
    [
        ({"target": {"model": "m"}}, "load={open: {rate: [40, 56]}}"),
        ({"workload": {"inputs": {"x": {"file": "x.npy"}}}}, "load={open: {rate: [40, 56]}}"),
        ({"workload": {"batch_size": 8}}, "load={open: {rate: [40, 56]}}"),
        ({"target": {"url": "http://127.0.0.1:8000", "model": "my model", "version": "2"}}, "load={open: {rate: [40, 56]}}"),
        ({"stream": {}, "shared_memory": {"kind": "system"}}, "load={open: {rate: [40, 56]}}"),
        ({"shared_memory": {"kind": "system", "inputs": True}}, "load={open: {rate: [40, 56]}}"),
        ({"workloads": [{"model": "a"}]}, "load={open: {rate: [40, 56]}}"),
        ({"load": {"open": {"arrivals": "constant"}}}, "load={open: {rate: [40, 56], arrivals: constant}}"),
        ({"target": {"urls": {"http": "http://a", "grpc": "grpc://a"}, "model": "m"}}, "load={open: {rate: [40, 56]}}"),
        ({"target": {"model": "m"}, "load": {"open": {"arrivals": "constant"}}}, "load={open: {rate: [40, 56], arrivals: constant}}"),
        (
            {"target": {"model": "m"}, "load": {"search": {"arrivals": "gamma", "burstiness": 2.0}}},
            "load={open: {rate: [40, 56], arrivals: gamma, burstiness: 2}}",
        ),
    ],
)
def test_another_scenario_is_a_file_of_its_name_with_another_load(changes, load):
    command = MissingMeasurement.at([40.0, 55.5], 50).command({**URL, **changes}, "reports/x")
    assert command.endswith(" (the scenario of reports/x)")
    words = shlex.split(command.removesuffix(" (the scenario of reports/x)"))
    assert words == [
        "perfkit", "run", "m.yaml", "--set", load, "--set", "measure.duration=50s", "--set", "measure.repetitions=1"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "scenario", [URL, {**URL, "target": {"model": "m"}, "load": {"search": {"slo": {"p99": "1s"}, "arrivals": "constant"}}}]
)
def test_perfkit_takes_the_command(scenario, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(scenario))
    _, *words = shlex.split(MissingMeasurement.at([40.0, 55.0], 700).command(scenario))
    assert main([*words, "--print-scenario"]) == 0
    document = yaml.safe_load(capsys.readouterr().out)
    assert list(document["load"]) == ["open"]
    assert [float(rate) for rate in document["load"]["open"]["rate"]] == [40.0, 55.0]
    assert (document["measure"]["duration"], document["measure"]["repetitions"]) == ("350s", 2)
