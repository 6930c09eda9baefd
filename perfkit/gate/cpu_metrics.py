"""What a gate needs for the metrics of the server's CPU use, if its scenario names them."""

from collections.abc import Mapping, Sequence

from perfkit.gate.arm import Arm
from perfkit.gate.metrics import SECONDARY_MARGINS
from perfkit.gate.pairs import ArmName, arm_run
from perfkit.result.model import Result
from perfkit.scenario.model import Scenario


def why_unmeasurable(scenario: Scenario, arms: Mapping[ArmName, Arm]) -> str:
    """Why no run can have the metrics that `gate.metrics` names, as a sentence; empty if it can."""
    if not (named := _named(scenario)):
        return ""
    if any(arm.command is None for arm in arms.values()):
        return f"gate.metrics: {named[0]} is known of servers that perfkit starts; name both as cmd: targets, or leave it out"
    return (
        ""
        if scenario.telemetry
        else f"gate.metrics: {named[0]} is measured by telemetry, which the scenario turns off; remove telemetry: false"
    )


def why_unmeasured(scenario: Scenario, arm: ArmName, result: Result) -> str:
    """Why an arm's trial lacks a metric that `gate.metrics` names, as sentences; empty if it does not."""
    for point in arm_run([result]).points:
        if missing := [name for name in _named(scenario) if point.figures[name] is None]:
            notes = (result.environment.get("telemetry") or {}).get("notes") or ()
            why = " ".join(note for note in notes if note.startswith("The server's"))
            return f"gate.metrics names {missing[0]}, which the {arm}'s trial lacks at {point.load_point}; leave it out, or mend the cause. {why}".rstrip()
    return ""


def _named(scenario: Scenario) -> Sequence[str]:
    names = (scenario.gate.metrics if scenario.gate is not None else None) or ()
    return [name for name in names if name in SECONDARY_MARGINS]
