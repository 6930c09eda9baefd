"""The hardware of a result in words."""

import pytest

from perfkit.result.fingerprint import hardware_of, is_on_gpu
from tests.stored_results import ENVIRONMENT, changed, point, result

H100 = {"name": "NVIDIA H100 80GB HBM3", "source": "nvml"}


def of(environment, gpus=()):
    found = result(points=[point(gpus=list(gpus))])
    return hardware_of(found.model_copy(update={"environment": environment}))


def test_the_gpus_that_the_target_uses_are_counted():
    gpus = [{**H100, "uuid": "a"}, {**H100, "uuid": "b", "used_by_server": True}, {**H100, "uuid": "c", "used_by_server": False}]
    cuda = changed(ENVIRONMENT, "target.bundled_server.device", "cuda")
    assert of(cuda, gpus) == "2 × H100 80GB HBM3"
    assert of(ENVIRONMENT, gpus) == "1 CPU (A)", "the server ran on the CPU"
    others = [{"name": name, "source": "nvml", "uuid": name} for name in ("Tesla T4", "NVIDIA Tesla V100")]
    assert of(cuda, [{**H100, "uuid": "a"}, *others]) == "1 × H100 80GB HBM3, 1 × T4, 1 × V100"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "1 CPU (Intel Xeon)"),
        ("AMD EPYC 7763 64-Core Processor", "1 CPU (AMD EPYC 7763)"),
    ],
)
def test_without_gpus_the_cpus_of_the_bundled_server_are_named(model, expected):
    assert of(changed(ENVIRONMENT, "generator.cpu_model", model)) == expected


def test_a_server_on_this_machine_has_all_its_cpus_and_one_elsewhere_is_unknown():
    external = changed(changed(ENVIRONMENT, "target.bundled_server", None), "gpus", [])
    assert of(external) == "8 CPUs (A)"
    assert of(changed(external, "target.protocols.http.path", "network")) == ""
    assert of({}) == ""
    assert of(changed(changed(ENVIRONMENT, "gpus", 5), "target.bundled_server.cpus", 5)) == "8 CPUs (A)"


def test_a_machine_with_gpus_that_were_not_sampled_says_no_more_than_is_known():
    cuda = changed(changed(ENVIRONMENT, "target.bundled_server.device", "cuda"), "gpus", [{"name": "NVIDIA L4"}, {"name": "NVIDIA L4"}])
    assert of(cuda) == "1 × L4", "the bundled server uses one"
    assert of(changed(ENVIRONMENT, "target.bundled_server", None)) == "", "another server may have used them or not"


@pytest.mark.parametrize(
    ("device", "gpus", "expected"),
    [
        ("cuda", [], True),
        ("cuda:1", [{"utilization_mean": 0.0}], True),
        ("cpu", [{"utilization_mean": 0.9}], False),  # the work of others
        (None, [], False),
        (None, [{"utilization_mean": 0.3}], True),
        (None, [{"utilization_mean": 0.3, "used_by_server": False}], False),
        (None, [{"utilization_mean": 0.03}], False),  # such as a screen
        (None, [{"utilization_mean": 0.03, "used_by_server": True}], True),
        (None, [{"utilization_mean": 0.0, "used_by_server": True}], False),
        (None, [{"utilization_mean": None, "used_by_server": True}], False),
    ],
)
def test_a_run_is_on_a_gpu_by_the_bundled_server_s_device_or_else_by_samples_of_work(device, gpus, expected):
    environment = changed(ENVIRONMENT, "target.bundled_server", None if device is None else {"device": device})
    sampled = [{**H100, "uuid": str(number), **one} for number, one in enumerate(gpus)]
    found = result(points=[point(gpus=sampled)])
    assert is_on_gpu(found.model_copy(update={"environment": environment})) == expected
