"""Why the runs or the pairs of a gate allow no verdict. Pure."""

from collections.abc import Mapping, Sequence

from perfkit.errors import MeasurementError
from perfkit.gate.arm import Arm
from perfkit.gate.metrics import SECONDARY_MARGINS, MetricChoice
from perfkit.gate.pairs import ARMS, ArmName, ArmRun, Pair, RunPoint, arm_run, error_rate
from perfkit.gate.verdict import Fault, GeneratorLoad
from perfkit.result.model import Result
from perfkit.scenario.model import Scenario

MAXIMUM_FAILED_SHARE = 0.01
MAXIMUM_DISCARDED = 4  # pairs, plus one for every three usable ones


def find_fault(pairs: Sequence[Pair], usable: Sequence[Pair], choice: MetricChoice) -> Fault | None:
    """Why no verdict may be given on these pairs; None if one may."""
    discarded = [(pair, cause) for pair in pairs if (cause := pair.invalid) is not None]
    if len(discarded) > MAXIMUM_DISCARDED + len(usable) // 3:
        cause = discarded[-1][1]
        reason = f"The load generator could not keep up in {len(discarded)} of {len(pairs)} pairs; in the last one: {cause.first_sentence}"
        return Fault(code="generator", reason=reason, warning=cause.code, generator=generator_load([pair for pair, _ in discarded]))
    if usable and (missing := missing_metric(usable, choice)):
        return missing
    for arm in ARMS:
        runs = [pair.runs[arm] for pair in usable]
        if (rate := error_rate(runs)) > MAXIMUM_FAILED_SHARE:
            points = [point for run in runs for point in run.points]
            failed = next((warning.message for point in points for warning in point.warnings if warning.code == "failed_requests"), "")
            limit = f"more than {MAXIMUM_FAILED_SHARE:.0%}"
            reason = f"{rate:.1%} of the {arm}'s requests failed ({limit}), so its times do not measure its speed. {failed}".rstrip()
            worst = max(usable, key=lambda pair: error_rate([pair.runs[arm]]))
            return Fault(code="failed_requests", reason=reason, run=f"{worst.number:03}-{arm}-0")
        if message := _warning_in_most(runs, "not_steady"):
            return Fault(code="not_steady", reason=f"The {arm} was not steady in most of its runs. {message}")
        if arm == "baseline" and (message := _warning_in_most(runs, "overloaded")):
            reason = (
                f"The baseline was overloaded in most of its runs, so its times are those of a growing queue: lower the rate. {message}"
            )
            return Fault(code="overloaded", reason=reason)
    return None


def generator_load(pairs: Sequence[Pair]) -> GeneratorLoad | None:
    """The mean use of the load generator's machine over all runs of the pairs; None if it is unknown."""
    points = [point for pair in pairs for run in pair.runs.values() for point in run.points]
    return GeneratorLoad.mean([point.generator for point in points if point.generator is not None])


def missing_metric(pairs: Sequence[Pair], choice: MetricChoice) -> Fault | None:
    """A load point or gated metric that a run lacks."""
    expected = [(point.load_point, point.kind) for point in pairs[0].baseline.points]
    for pair in pairs:
        for arm, run in pair.runs.items():
            where = f"the {arm}'s run of pair {pair.number + 1}"
            if [(point.load_point, point.kind) for point in run.points] != expected:
                return Fault(code="missing_metric", reason=f"A load point is missing in {where}, so the runs cannot be compared.")
            for point in run.points:
                if missing := [name for name in choice.gated(point.kind) if not point.figures.get(name)]:
                    why = "it could not be measured" if missing[0] in SECONDARY_MARGINS else "too few requests"
                    reason = (
                        f"There is no {missing[0]} at {point.load_point} in {where}: {why}. Measure longer (measure.duration), "
                        "or choose other metrics (gate.metrics)."
                    )
                    return Fault(code="missing_metric", reason=reason, metric=missing[0])
    return None


def _warning_in_most(runs: Sequence[ArmRun], code: str) -> str:
    """The last such warning at a load point that has it in more than half of at least three runs; empty if there is none."""

    def messages(points: Sequence[RunPoint]) -> list[str]:
        return [f"{point.load_point}: {warning.message}" for point in points for warning in point.warnings if warning.code == code]

    if len(runs) < 3:
        return ""
    by_point = (messages(points) for points in zip(*(run.points for run in runs), strict=True))
    return next((found[-1] for found in by_point if len(found) > len(runs) / 2), "")


class TrialError(MeasurementError):
    """The trial could not be measured, because of a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault


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
