"""What a gate says of metrics of the server's CPU that it cannot have."""

import pytest

from perfkit.gate.arm import Arm
from perfkit.gate.cpu_metrics import why_unmeasurable, why_unmeasured
from perfkit.scenario.model import Scenario
from tests.stored_results import result

COMMANDS = {"baseline": Arm(command="old"), "candidate": Arm(command="new")}
URLS = {"baseline": Arm(url="http://a"), "candidate": Arm(url="http://b")}


def scenario(metrics=None, **other):
    gate = {} if metrics is None else {"gate": {"metrics": metrics}}
    return Scenario.model_validate({"name": "x", "target": {"model": "m"}, "load": {"closed": {"concurrency": 1}}, **gate, **other})


@pytest.mark.parametrize(
    ("asked", "arms", "sentence"),
    [
        (scenario(), URLS, ""),
        (scenario(["p50"]), URLS, ""),
        (scenario(["p50", "cpu_time"]), COMMANDS, ""),
        (scenario(["p50", "cpu_time"]), URLS, "gate.metrics: cpu_time is known of servers that perfkit starts; name both as cmd: targets"),
        (scenario(["instructions"], telemetry=False), COMMANDS, "gate.metrics: instructions is measured by telemetry, which the scenario turns off"),
    ],
)  # fmt: skip
def test_metrics_that_no_run_can_have_are_refused(asked, arms, sentence):
    found = why_unmeasurable(asked, arms)
    assert found.startswith(sentence)
    assert bool(found) == bool(sentence)


def test_a_trial_without_a_named_metric_says_why():
    note = "The server's instructions are not counted: this machine offers no hardware counters."
    stored = result(server_cpu={"cpus": 1.0, "time_per_request_ns": 5e5})
    measured = stored.model_copy(update={"environment": {**stored.environment, "telemetry": {"notes": ["No GPUs.", note]}}})
    assert why_unmeasured(scenario(["cpu_time"]), "baseline", measured) == ""
    expected = (
        f"gate.metrics names instructions, which the baseline's trial lacks at http, concurrency 4; leave it out, or mend the cause. {note}"
    )
    assert why_unmeasured(scenario(["instructions"]), "baseline", measured) == expected
