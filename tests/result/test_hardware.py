"""The hardware of a result in words."""

import pytest

from perfkit.result.hardware import hardware_of
from tests.stored_results import ENVIRONMENT, changed, point, result

H100 = {"name": "NVIDIA H100 80GB HBM3", "source": "nvml"}


def of(environment, gpus=()):
    found = result(points=[point(gpus=list(gpus))])
    return hardware_of(found.model_copy(update={"environment": environment}))


def test_the_gpus_that_the_target_uses_are_counted():
    gpus = [{**H100, "uuid": "a"}, {**H100, "uuid": "b", "used_by_server": True}, {**H100, "uuid": "c", "used_by_server": False}]
    assert of(ENVIRONMENT, gpus) == "2 × H100 80GB HBM3"
    assert of(ENVIRONMENT, [{**H100, "uuid": "a"}, {"name": "Tesla T4", "source": "nvml", "uuid": "b"}]) == "1 × H100 80GB HBM3, 1 × T4"


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "1 × Intel Xeon CPU"),
        ("AMD EPYC 7763 64-Core Processor", "1 × AMD EPYC 7763 CPU"),
    ],
)
def test_without_gpus_the_cpus_of_the_bundled_server_are_named(model, expected):
    assert of(changed(ENVIRONMENT, "generator.cpu_model", model)) == expected


def test_a_server_on_this_machine_has_all_its_cpus_and_one_elsewhere_is_unknown():
    external = changed(ENVIRONMENT, "target.bundled_server", None)
    assert of(external) == "8 × A CPU"
    assert of(changed(external, "target.protocols.http.path", "network")) == ""
    assert of({}) == ""
