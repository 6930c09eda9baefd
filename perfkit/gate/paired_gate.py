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
from perfkit.gate.accepted import acceptance_notes
from perfkit.gate.arm import Arm, GateContext, measure_loads, running_target
from perfkit.gate.cpu_metrics import why_unmeasurable
from perfkit.gate.fault import Fault, TrialError
from perfkit.gate.folder import FixedSettings, GateFolder, GateInputs
from perfkit.gate.pair_faults import generator_load
from perfkit.gate.paired_decision import Decision, decide_control, decide_pairs
from perfkit.gate.paired_values import MetricChoice
from perfkit.gate.pairs import ArmName, ArmRun, GateObserver, Pair, PairKind, Stage, arm_run, run_pairs
from perfkit.gate.trial import TrialOptions, run_specs, run_trial
from perfkit.gate.verdict import Comparison, GateFailure, Verdict
from perfkit.history.accepted import NOTHING_ACCEPTED, AcceptedChanges
from perfkit.measurement.control import Interruption
from perfkit.result.fingerprint import fingerprint, fingerprint_differences
from perfkit.result.json_file import as_mapping
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, scenario_document
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec, ReplayLoadSpec, SearchLoadSpec
from perfkit.stats.paired import Rule, rule_for

_MAY_DIFFER = {"model_config"}  # a candidate may change it; the requests and the machine are the same by construction


@dataclasses.dataclass(frozen=True, slots=True)
class GateRequest:
    """What to compare and how; raises UsageError for metrics that none of its load points has."""

    loaded: LoadedScenario
    baseline: Arm
    candidate: Arm
    pairs: int | None = None
    """The pairs of the last look; None for the default, or for as many as `time_limit_ns` allows."""
    time_limit_ns: int | None = None
    """The time for the whole gate; None for as long as it takes."""
    control_pairs: int = 0
    accepted: AcceptedChanges = NOTHING_ACCEPTED
    """Known and accepted changes, of every scenario."""
    ready_within_ns: int | None = None
    """See `GateContext`."""

    def __post_init__(self) -> None:
        if reason := why_unmeasurable(self.loaded.scenario, self.arms):
            raise UsageError(reason)
        available = {name for kind in self.load_kinds for name in self.choice.gated(kind)}
        if missing := [name for name in self.choice.names or () if name not in available]:
            raise UsageError(
                f"gate.metrics: no load point of this gate has {missing[0]}: closed loops have throughput, open loops have percentiles"
            )
        if self.time_limit_ns is not None and self.loaded.scenario.measure.requests is not None:
            raise UsageError("--time: measure.requests ends each window after a number of requests: give measure.duration, or neither")
        if self.pairs is not None:
            try:
                rule_for(self.metrics, self.pairs)
            except ValueError as error:
                raise UsageError(f"--pairs: {error}") from None

    @property
    def arms(self) -> Mapping[ArmName, Arm]:
        """The arms by name."""
        return {"baseline": self.baseline, "candidate": self.candidate}

    @property
    def choice(self) -> MetricChoice:
        """Which metrics count for the verdict."""
        gate = self.loaded.scenario.gate
        is_standard, names = (False, None) if gate is None else (gate.profile == "standard", gate.metrics)
        return MetricChoice(is_standard, names, self.accepted.of(self.loaded.scenario.name))

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
    def metrics(self) -> int:
        """The number of metrics that count, without the error rate."""
        return sum(len(self.choice.gated(kind)) for kind in self.load_kinds)

    @property
    def inputs(self) -> GateInputs:
        """The request as the gate's manifest stores it."""
        return GateInputs(
            scenario=scenario_document(self.loaded.scenario),
            baseline=str(self.baseline),
            candidate=str(self.candidate),
            pairs=self.pairs,
            time_limit_ns=self.time_limit_ns,
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
    start_ns = clock.now_ns()
    interruption.task = asyncio.current_task()
    context = GateContext(request.loaded, interruption, clock, folder.runs, observer, request.ready_within_ns)
    control: tuple[Comparison, ...] = ()

    try:
        if (settings := folder.manifest.settings) is None:
            options = TrialOptions(request.choice, request.pairs, request.time_limit_ns, request.control_pairs)
            trial = await run_trial(request.arms, context, observer.message, options)
            differences = arm_differences(trial.results, may_differ=False)
            if differences:
                return _verdict(request, folder, Decision("incomparable", differences), control)
            notes = (*arm_differences(trial.results, may_differ=True), *trial.notes)
            settings = trial.settings.model_copy(update={"notes": notes, "environment": _environment(trial.results)})
            folder.fix(settings)
        rule = _rule(request, settings)
        observer.gate_started(rule.looks, request.control_pairs, len(folder.pairs))

        async def run_arm(stage: Stage, seed: int) -> ArmRun:
            specs = run_specs(request.loaded.scenario, settings, seed)
            async with running_target(request.arms[stage.arm], context, stage) as target:
                return arm_run(await measure_loads(specs, target, context, stage.run))

        async def measure(kind: PairKind, decide: Callable[[Sequence[Pair]], Decision | None]) -> Decision:
            seed, pairs = folder.manifest.seed, folder.pairs
            return await run_pairs(
                kind, seed=seed, earlier=pairs, run_arm=run_arm, store=folder.add, decide=decide, observer=observer, clock=context.clock
            )

        if request.control_pairs:
            control_choice = dataclasses.replace(request.choice, accepted=NOTHING_ACCEPTED)
            decision = await measure("control", lambda pairs: decide_control(pairs, request.control_pairs, control_choice))
            control = decision.comparisons
            if decision.kind == "invalid":
                return _verdict(request, folder, dataclasses.replace(decision, comparisons=()), control)
        measured_before, begin_ns = len(folder.pairs), clock.now_ns()

        def decide(pairs: Sequence[Pair]) -> Decision | None:
            now_ns, measured = clock.now_ns(), len(folder.pairs) - measured_before
            pair_ns = (now_ns - begin_ns) / measured if measured else 0.0
            is_over = request.time_limit_ns is not None and now_ns + pair_ns > start_ns + request.time_limit_ns
            return decide_pairs(rule, pairs, request.choice, time_is_over=is_over)

        decision = await measure("pair", decide)
    except MeasurementError as error:
        reason = f"{error}.".replace("..", ".")
        decision = Decision(
            "invalid", (reason,), fault=error.fault if isinstance(error, TrialError) else Fault(code="trial", reason=reason)
        )
    return _verdict(request, folder, decision, control)


def _rule(request: GateRequest, settings: FixedSettings | None) -> Rule:
    """The decision rule: with the pairs that the trial chose, or those asked for, or the default."""
    return rule_for(request.metrics, settings.pairs if settings is not None and settings.pairs is not None else request.pairs)


def error_verdict(request: GateRequest, folder: GateFolder, failure: GateFailure) -> Verdict:
    """What a gate says that ended without a verdict, or has none yet."""
    return _verdict(request, folder, Decision("error", (failure.reason,)), ()).model_copy(update={"failure": failure})


def _verdict(request: GateRequest, folder: GateFolder, decision: Decision, control: tuple[Comparison, ...]) -> Verdict:
    pairs = [pair for pair in folder.pairs if pair.kind == "pair"]
    usable = sum(pair.invalid is None for pair in pairs)
    settings = folder.manifest.settings
    rule = _rule(request, settings)
    ended_by_time = decision.kind in ("pass", "regressed", "inconclusive") and usable not in rule.looks
    return Verdict(
        kind=decision.kind,
        reasons=decision.reasons,
        notes=(
            *_scope_notes(request),
            *(settings.notes if settings else ()),
            *acceptance_notes(decision.comparisons, request.choice.accepted),
        ),
        mode="paired",
        scenario=request.loaded.scenario.name,
        baseline=str(request.baseline),
        candidate=str(request.candidate),
        false_alarm_rate=rule.false_alarm_rate,
        pairs=usable,
        looks=rule.ending_at(usable).looks if ended_by_time else rule.looks,
        discarded_pairs=len(pairs) - usable,
        disturbed_pairs=sum(pair.invalid is None and pair.is_disturbed for pair in pairs),
        control_pairs=sum(pair.kind == "control" and pair.invalid is None for pair in folder.pairs),
        comparisons=decision.comparisons,
        parts=decision.parts,
        fault=decision.fault,
        generator=generator_load(pairs),
        control=control,
        started_at=folder.manifest.started_at,
        perfkit_version=perfkit.__version__,
        timing=settings.timing if settings else None,
        environment=settings.environment if settings else {},
    )


def _scope_notes(request: GateRequest) -> list[str]:
    notes = []
    if request.baseline.command is None:
        notes.append(
            "The servers at these URLs were not restarted: the verdict covers these two processes only. A restart alone can change the "
            "figures by several per cent; perfkit restarts cmd: targets for every run."
        )
    if 0 < request.control_pairs < (fewest := Rule.at(1).fewest_pairs(request.metrics)):
        notes.append(f"{request.control_pairs} control pairs show the machine's noise, but an alarm needs at least {fewest}.")
    return notes


def arm_differences(results: Mapping[ArmName, Result], *, may_differ: bool) -> tuple[str, ...]:
    """What differs between the arms, as sentences: either what a candidate may change, or what makes the arms incomparable."""
    differences = fingerprint_differences(fingerprint(results["baseline"]), fingerprint(results["candidate"]))
    return tuple(f"Between the arms {one.sentence}." for one in differences if (one.key in _MAY_DIFFER) is may_differ)


def _environment(results: Mapping[ArmName, Result]) -> dict[str, Any]:
    shared = {key: value for key, value in results["baseline"].environment.items() if key != "target"}
    target = as_mapping(results["baseline"].scenario.get("target"))
    shared["model"] = [target.get("model"), target.get("version")]
    return {**shared, **{arm: result.environment.get("target") for arm, result in results.items()}}
