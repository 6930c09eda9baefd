"""`perfkit run` on a machine with GPUs: the result holds what the driver reports."""

import shutil

import pytest
import yaml

import perfkit
from perfkit.measurement.observation import telemetry_config
from perfkit.measurement.run_target import RunTarget
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from tests.telemetry.fake_nvml.library import FakeNvml

GPUS = """
gpu
name Fake A100
uuid GPU-a
power_mw 250000
utilization 50
throttle_reasons 4
gpu
uuid GPU-b
power_mw 50000
mig
uuid MIG-0
memory_used 777
"""
SCENARIO = {
    "name": "gpus",
    "target": {"model": "simple"},
    "load": {"closed": {"concurrency": [2]}},
    "measure": {"warmup": "0s", "duration": "1s", "repetitions": 2, "workers": 1},
    "gpu": {"sample_rate": "50/s", "idle": "200ms"},
}


@pytest.fixture(scope="module")
def result(compiled_nvml, tmp_path_factory):
    fake_nvml = FakeNvml(tmp_path_factory.mktemp("run"))
    shutil.copy(compiled_nvml, fake_nvml.folder)
    script, scenario = fake_nvml.folder / "gpus.txt", fake_nvml.folder / "gpus.yaml"
    script.write_text(GPUS)
    scenario.write_text(yaml.safe_dump(SCENARIO))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fake_nvml.environment(script).items():
            patch.setenv(name, value)
        return perfkit.run(scenario).model_dump(mode="json", by_alias=True)


def test_the_result_has_each_gpus_figures_per_repetition_and_pooled(result):
    first, second = result["points"]
    (pooled,) = result["summary"]
    for point in (first, second, pooled):
        assert [(gpu["uuid"], gpu["mig"], gpu["source"]) for gpu in point["gpus"]] == [
            ("GPU-a", False, "nvml"), ("GPU-b", False, "nvml"), ("MIG-0", True, "nvml"),
        ]  # fmt: skip
        a, b, instance = point["gpus"]
        assert (a["utilization_mean"], a["throttled_share"]) == pytest.approx((0.5, 1.0))
        assert (a["power_mean_w"], a["idle_power_w"]) == pytest.approx((250.0, 250.0), rel=0.05)
        assert a["energy_j"] == pytest.approx(250 * point["duration_s"], rel=0.05)
        assert (b["utilization_mean"], instance["memory_used_max_bytes"], instance["energy_j"]) == (None, 777, None)
        inferences = point["inferences_per_s"] * point["duration_s"]
        assert point["energy_per_inference_j"] == pytest.approx((a["energy_j"] + b["energy_j"]) / inferences)
        assert "gpu_throttled" in {warning["code"] for warning in point["warnings"]}
    assert pooled["gpus"][0]["energy_j"] == pytest.approx(first["gpus"][0]["energy_j"] + second["gpus"][0]["energy_j"])


def test_each_note_about_the_gpus_is_reported_once(result):
    notes = result["environment"]["telemetry"]["notes"]
    assert [note[:24] for note in notes if "GPU 1" in note] == ["GPU 1 (Fake GPU) is divi", "GPU 1 (Fake GPU): the dr"]


@pytest.mark.parametrize(
    ("url", "is_read"),
    [("http://127.0.0.1:8000", True), ("unix:/run/v2.sock", True), ("grpc://10.0.0.7:8001", False), ("https://models.example", False)],
)
def test_nvml_is_used_only_for_a_target_on_this_machine(url, is_read):
    scenario, address = Scenario.model_validate({**SCENARIO, "target": {"model": "simple", "url": url}}), Address.parse(url)
    wanted = telemetry_config(scenario, RunTarget({(None, address.protocol): address}, None))
    gpus = wanted.gpus
    assert (gpus is not None) == wanted.may_see_gpus == is_read
    if gpus is not None:
        assert (gpus.rate_per_s, gpus.idle_ns) == (50.0, 200_000_000)
    assert wanted.addresses == (address,), "an address that is no loopback may be this machine's, too"


def test_the_gpus_of_a_server_elsewhere_may_be_in_its_metrics():
    target = {"model": "simple", "url": "http://10.0.0.7:8000", "metrics_url": "http://10.0.0.7:8002/metrics"}
    scenario, address = Scenario.model_validate({**SCENARIO, "target": target}), Address.parse(target["url"])
    wanted = telemetry_config(scenario, RunTarget({(None, "http"): address}, None))
    assert wanted.gpus is None
    assert wanted.may_see_gpus
