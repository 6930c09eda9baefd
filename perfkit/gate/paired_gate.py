"""The paired gate: measures two targets in turn, from the trial to the verdict. It prints nothing.

Trial (`trial`) → control pairs → pairs (`pairs`), each stored in the gate's folder (`folder`) → decision (`paired_decision`).
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import perfkit
from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import MeasurementError, UsageError
from perfkit.gate.arm import Arm, GateContext, measure_load, running_target
from perfkit.gate.folder import GateFolder, GateInputs
from perfkit.gate.paired_decision import Decision, MetricChoice, decide_control, decide_pairs
from perfkit.gate.pairs import ArmName, ArmRun, GateObserver, Pair, PairKind, arm_run, run_pairs
from perfkit.gate.trial import run_specs, run_trial
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.measurement.control import Interruption
from perfkit.result.fingerprint import fingerprint, fingerprint_differences
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, scenario_document
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec, ReplayLoadSpec, SearchLoadSpec
from perfkit.stats.paired import QUICK_LOOKS, Rule, rule_for

_MAY_DIFFER = {"model_config"}  # a candidate may change it; the requests and the machine are the same by construction


@dataclasses.dataclass(frozen=True, slots=True)
class GateRequest:
    """What to compare and how; raises UsageError for metrics that none of its load points has."""

    loaded: LoadedScenario
    baseline: Arm
    candidate: Arm
    quick: bool = False
    control_pairs: int = 0

    def __post_init__(self) -> None:
        available = {name for kind in self.load_kinds for name in self.choice.gated(kind)}
        if missing := [name for name in self.choice.names or () if name not in available]:
            raise UsageError(
                f"gate.metrics: no load point of this gate has {missing[0]}: closed loops have throughput, open loops have percentiles"
            )

    @property
    def arms(self) -> Mapping[ArmName, Arm]:
        """The arms by name."""
        return {"baseline": self.baseline, "candidate": self.candidate}

    @property
    def choice(self) -> MetricChoice:
        """Which metrics count for the verdict."""
        gate = self.loaded.scenario.gate
        return MetricChoice() if gate is None else MetricChoice(gate.profile == "standard", gate.metrics)

    @property
    def load_kinds(self) -> Sequence[Literal["closed", "open"]]:
        """The kind of each load point."""
        load = self.loaded.scenario.load
        if self.loaded.scenario.workloads is not None:
            raise UsageError(
                "workloads: a gate compares one workload, and this scenario is a mix; give each workload a scenario of its own"
            )
        if self.choice.is_standard:
            return ("closed", "open")
        if isinstance(load, ClosedLoadSpec):
            return ["closed" for _ in load.closed.concurrency]
        if isinstance(load, SearchLoadSpec):
            raise UsageError(
                "load.search: a gate needs the same rates for both arms, and a search chooses its own: use load.open or load.closed, or "
                "set gate.profile to standard"
            )
        if isinstance(load, ReplayLoadSpec):
            return ["open"]
        if not isinstance(load, OpenLoadSpec):
            raise UsageError("load: a gate compares closed and open loops: use load.closed or load.open, or set gate.profile to standard")
        return ["open" for _ in load.open.rates_per_s or (0.0,)]  # a trace has no rate, and is one load point

    @property
    def rule(self) -> Rule:
        """The decision rule, with looks late enough for this number of metrics."""
        return rule_for(sum(len(self.choice.gated(kind)) for kind in self.load_kinds), quick=self.quick)

    @property
    def inputs(self) -> GateInputs:
        """The request as the gate's manifest stores it."""
        return GateInputs(
            scenario=scenario_document(self.loaded.scenario),
            baseline=str(self.baseline),
            candidate=str(self.candidate),
            quick=self.quick,
            control_pairs=self.control_pairs,
            perfkit=perfkit.__version__,
        )


async def run_gate(
    request: GateRequest, folder: GateFolder, observer: GateObserver, interruption: Interruption, clock: Clock | None = None
) -> Verdict:
    """Measure until there is a verdict; every pair is in the folder as soon as it ends. The caller commits the folder.

    Raises what a run raises, TargetError also if a server is lost during a run, and CancelledError if the gate is interrupted; the
    same request with the same folder then continues it.
    """
    clock = clock or MonotonicClock()
    interruption.task = asyncio.current_task()
    context = GateContext(request.loaded, interruption, clock, folder.runs)
    control: tuple[Comparison, ...] = ()

    try:
        if (settings := folder.manifest.settings) is None:
            trial = await run_trial(request.arms, context, observer.message)
            differences = _arm_differences(trial.results, may_differ=False)
            if differences:
                return _verdict(request, folder, Decision("incomparable", differences), control)
            notes = (*_arm_differences(trial.results, may_differ=True), *trial.notes)
            settings = trial.settings.model_copy(update={"notes": notes, "environment": _environment(trial.results)})
            folder.fix(settings)
        observer.gate_started(request.rule.looks, request.control_pairs, len(folder.pairs))

        async def run_arm(arm: ArmName, run: str, seed: int) -> ArmRun:
            specs = run_specs(request.loaded.scenario, settings, seed)
            async with running_target(request.arms[arm], context) as target:
                return arm_run([await measure_load(spec, target, context, f"{run}-{number}") for number, spec in enumerate(specs)])

        async def measure(kind: PairKind, decide: Callable[[Sequence[Pair]], Decision | None]) -> Decision:
            seed, pairs = folder.manifest.seed, folder.pairs
            return await run_pairs(
                kind, seed=seed, earlier=pairs, run_arm=run_arm, store=folder.add, decide=decide, observer=observer, clock=context.clock
            )

        if request.control_pairs:
            decision = await measure("control", lambda pairs: decide_control(pairs, request.control_pairs, request.choice))
            control = decision.comparisons
            if decision.kind == "invalid":
                return _verdict(request, folder, dataclasses.replace(decision, comparisons=()), control)
        decision = await measure("pair", lambda pairs: decide_pairs(request.rule, pairs, request.choice))
    except MeasurementError as error:
        decision = Decision("invalid", (f"{error}.".replace("..", "."),))
    return _verdict(request, folder, decision, control)


def _verdict(request: GateRequest, folder: GateFolder, decision: Decision, control: tuple[Comparison, ...]) -> Verdict:
    pairs = [pair for pair in folder.pairs if pair.kind == "pair"]
    usable = sum(pair.invalid is None for pair in pairs)
    settings, rule = folder.manifest.settings, request.rule
    return Verdict(
        kind=decision.kind,
        reasons=decision.reasons,
        notes=(*_scope_notes(request), *(settings.notes if settings else ())),
        mode="paired",
        scenario=request.loaded.scenario.name,
        baseline=str(request.baseline),
        candidate=str(request.candidate),
        false_alarm_rate=rule.false_alarm_rate,
        pairs=usable,
        looks=rule.looks,
        discarded_pairs=len(pairs) - usable,
        control_pairs=sum(pair.kind == "control" and pair.invalid is None for pair in folder.pairs),
        comparisons=decision.comparisons,
        parts=decision.parts,
        control=control,
        started_at=folder.manifest.started_at,
        perfkit_version=perfkit.__version__,
        environment=settings.environment if settings else {},
    )


def _scope_notes(request: GateRequest) -> list[str]:
    notes = []
    if request.baseline.command is None:
        notes.append(
            "The servers at these URLs were not restarted: the verdict covers these two processes only. A restart alone can change the "
            "figures by several per cent; perfkit restarts cmd: targets for every run."
        )
    if request.quick:
        notes.append(
            f"Quick gate, at most {QUICK_LOOKS[0]} pairs: the false-alarm rate is the same, but less is detected. In simulation 86 of 100 "
            "gates detect +10 % in all metrics, 27 detect +10 % in p99 alone, and 68 pass an unchanged candidate (without --quick 99, 68 and "
            "92); the minimum detectable effect is detected by about 8 of 10 gates instead of 9."
        )
    if 0 < request.control_pairs < QUICK_LOOKS[0]:
        notes.append(f"{request.control_pairs} control pairs show the machine's noise, but an alarm needs at least {QUICK_LOOKS[0]}.")
    return notes


def _arm_differences(results: Mapping[ArmName, Result], *, may_differ: bool) -> tuple[str, ...]:
    """What differs between the arms, as sentences: either what a candidate may change, or what makes the arms incomparable."""
    differences = fingerprint_differences(fingerprint(results["baseline"]), fingerprint(results["candidate"]))
    return tuple(f"Between the arms {one.sentence}." for one in differences if (one.key in _MAY_DIFFER) is may_differ)


def _environment(results: Mapping[ArmName, Result]) -> dict[str, Any]:
    shared = {key: value for key, value in results["baseline"].environment.items() if key != "target"}
    return {**shared, **{arm: result.environment.get("target") for arm, result in results.items()}}
