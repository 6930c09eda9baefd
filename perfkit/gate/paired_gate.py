"""The paired gate: measures two targets in turn, from the trial to the verdict. It prints nothing.

Trial (`trial`) → control pairs → pairs (`pairs`), each stored in the gate's folder (`folder`) → decision (`paired_decision`).
"""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import perfkit
from perfkit.clock import Clock, Date, MonotonicClock, utc_now
from perfkit.errors import UsageError
from perfkit.gate.accepted import acceptance_notes
from perfkit.gate.arm import Arm, GateContext, measure_loads, running_target
from perfkit.gate.folder import FixedSettings, GateFolder, GateInputs
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import Rule, rule_for
from perfkit.gate.paired_decision import Decision, TrialError, decide_control, decide_pairs, generator_load, why_unmeasurable
from perfkit.gate.pairs import ARMS, ArmName, ArmRun, ArmRunner, GateObserver, Pair, PairKind, Stage, arm_run, mean_length_s, run_pairs
from perfkit.gate.sentences import DECIDED, changes_since, describe_resumption, resumption_notes
from perfkit.gate.trial import least_time, run_specs, run_trial
from perfkit.gate.verdict import Comparison, GateFailure, Verdict
from perfkit.history.accepted import NOTHING_ACCEPTED, AcceptedChanges
from perfkit.measurement.control import Interruption
from perfkit.measurement.lifecycle import RunProcesses
from perfkit.result.fingerprint import fingerprint, fingerprint_differences, model_config_difference
from perfkit.result.json_file import as_mapping
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario, scenario_document
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec, ReplayLoadSpec, SearchLoadSpec
from perfkit.units import NS_PER_S

if TYPE_CHECKING:
    from perfkit.telemetry.messages import PublishConfig

_MAY_DIFFER = {"model_config"}  # a candidate may change it; the requests and the machine are the same by construction


@dataclasses.dataclass(frozen=True, slots=True)
class GateRequest:
    """What to compare and how; raises UsageError for metrics that none of its load points has, and for a time limit that cannot be kept."""

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
    looks_early: bool = True
    """Whether a gross regression or a clear pass ends it before its first full look."""
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
        if self.needs_kept_machines and (fleet := self.loaded.scenario.fleet) is not None and fleet.listen_at(target_is_local=True)[1] == 0:
            raise UsageError(
                f"fleet.listen: {fleet.listen}: port 0 is another one for each run, and a gate is many runs, for which "
                "`perfkit worker --keep` stays: give a port"
            )
        if self.pairs is not None:
            try:
                rule_for(self.metrics, self.pairs)
            except ValueError as error:
                raise UsageError(f"--pairs: {error}") from None
        if (
            least := least_time(self.loaded.scenario, self.choice, self.inputs, starts_servers=self.baseline.command is not None)
        ) is not None:
            least.check()

    @property
    def arms(self) -> Mapping[ArmName, Arm]:
        """The arms by name."""
        return {"baseline": self.baseline, "candidate": self.candidate}

    @property
    def needs_kept_machines(self) -> bool:
        """Whether machines that were started by hand must stay from one run to the next; Dask starts its own for each run."""
        fleet = self.loaded.scenario.fleet
        return fleet is not None and fleet.kind == "worker"

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
        if isinstance(load, ClosedLoadSpec) and load.closed.ramp is None:
            return ["closed" for _ in load.closed.levels]
        if isinstance(load, SearchLoadSpec):
            raise UsageError(
                "load.search: a gate needs the same rates for both arms, and a search chooses its own: use load.open or load.closed, or "
                "set gate.profile to standard"
            )
        if isinstance(load, ReplayLoadSpec):
            return ["open"]
        if not isinstance(load, OpenLoadSpec):
            raise UsageError(
                "load: a gate compares closed and open loops at given loads: use load.closed or load.open, or set gate.profile to standard"
            )
        return ["open" for _ in load.open.rates_per_s or (0.0,)]  # a trace has no rate, and is one load point

    @property
    def metrics(self) -> int:
        """The number of metrics that count, without the error rate."""
        return sum(len(self.choice.gated(kind)) for kind in self.load_kinds)

    def rule(self, settings: FixedSettings | None = None) -> Rule:
        """The decision rule: with the pairs that the trial chose, or those asked for, or the default."""
        rule = rule_for(self.metrics, settings.pairs if settings is not None and settings.pairs is not None else self.pairs)
        return rule if self.looks_early else dataclasses.replace(rule, early=())

    def as_of(self, day: Date) -> "GateRequest":
        """The request of a gate that began on this day: what was accepted then is accepted to its end."""
        return dataclasses.replace(self, accepted=dataclasses.replace(self.accepted, today=day))

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
            accepted=self.choice.accepted.changes,
            perfkit=perfkit.__version__,
        )


async def run_gate(
    request: GateRequest,
    folder: GateFolder,
    observer: GateObserver,
    interruption: Interruption,
    clock: Clock | None = None,
    publish_at: "PublishConfig | None" = None,
) -> Verdict:
    """Measure until there is a verdict; every pair is in the folder as soon as it ends. The caller commits the folder.

    `publish_at` says where the live metrics of the runs are pushed.

    Raises what a run raises, TargetError also if a server is lost during a run, and CancelledError if the gate is interrupted; the
    same request with the same folder then continues it.
    """
    clock = clock or MonotonicClock()
    interruption.task = asyncio.current_task()
    async with RunProcesses(clock) as processes:
        context = GateContext(request.loaded, interruption, clock, folder.runs, observer, processes, request.ready_within_ns, publish_at)
        return await _run_gate(request, folder, context)


async def _run_gate(request: GateRequest, folder: GateFolder, context: GateContext) -> Verdict:
    observer, clock = context.observer, context.clock
    if folder.resumption is not None:
        observer.message(describe_resumption(folder.resumption))
    if request.needs_kept_machines:
        observer.message("a gate is many runs: give `perfkit worker` the option --keep, and each machine stays for the next run")
    if (settings := folder.manifest.settings) is None:
        begin_ns = clock.now_ns()
        try:
            trial = await run_trial(request.arms, context, request.choice, request.inputs, looks_early=request.looks_early)
        except TrialError as error:
            return _verdict(request, folder, Decision("invalid", (error.fault.reason,), fault=error.fault), ())
        differences = arm_differences(trial.results, may_differ=False)
        if differences:
            return _verdict(request, folder, Decision("incomparable", differences), ())
        settings = trial.settings.model_copy(
            update={
                "trial_s": (clock.now_ns() - begin_ns) / NS_PER_S,
                "ended_at": utc_now().isoformat(timespec="milliseconds"),
                "notes": (*arm_differences(trial.results, may_differ=True), *trial.notes),
                "environment": _environment(trial.results),
            }
        )
        folder.fix(settings)
    unchecked = set(ARMS if folder.resumption is not None else ())

    async def run_arm(stage: Stage, seed: int) -> ArmRun:
        specs = run_specs(request.loaded.scenario, settings, seed)
        async with running_target(request.arms[stage.arm], context, stage) as target:
            results = await measure_loads(specs, target, context, stage.run)
        if stage.arm in unchecked:
            unchecked.discard(stage.arm)
            folder.note_changes(changes_since(settings.environment, stage.arm, results[0]))
        return arm_run(results)

    return await measure_pairs(request, folder, run_arm, observer, clock)


async def measure_pairs(request: GateRequest, folder: GateFolder, run_arm: ArmRunner, observer: GateObserver, clock: Clock) -> Verdict:
    """Measure pairs until there is a verdict, after those that the folder has; its settings are fixed.

    What ends the gate depends on the stored pairs alone, also with a time limit, which counts the lengths of trial and pairs. So a gate
    that is continued decides as one that was never interrupted.
    """
    settings = folder.manifest.settings
    assert settings is not None  # by the trial
    rule = request.rule(settings)
    observer.gate_started(rule.all_looks, request.control_pairs, len(folder.pairs))

    async def measure(kind: PairKind, decide: Callable[[Sequence[Pair]], Decision | None]) -> Decision:
        seed, pairs = folder.manifest.seed, folder.pairs
        return await run_pairs(
            kind, seed=seed, earlier=pairs, run_arm=run_arm, store=folder.add, decide=decide, observer=observer, clock=clock
        )

    control: tuple[Comparison, ...] = ()
    if request.control_pairs:
        control_choice = dataclasses.replace(request.choice, accepted=NOTHING_ACCEPTED)
        decision = await measure("control", lambda pairs: decide_control(pairs, request.control_pairs, control_choice))
        control = decision.comparisons
        if decision.kind == "invalid":
            return _verdict(request, folder, dataclasses.replace(decision, comparisons=()), control)

    def decide(pairs: Sequence[Pair]) -> Decision | None:
        next_ends_s = settings.trial_s + sum(pair.took_s for pair in folder.pairs) + (mean_length_s(pairs) or 0.0)
        is_over = request.time_limit_ns is not None and next_ends_s * NS_PER_S > request.time_limit_ns
        return decide_pairs(rule, pairs, request.choice, time_is_over=is_over)

    return _verdict(request, folder, await measure("pair", decide), control)


def error_verdict(request: GateRequest, folder: GateFolder, failure: GateFailure) -> Verdict:
    """What a gate says that ended without a verdict, or has none yet."""
    return _verdict(request, folder, Decision("error", (failure.reason,)), ()).model_copy(update={"failure": failure})


def _verdict(request: GateRequest, folder: GateFolder, decision: Decision, control: tuple[Comparison, ...]) -> Verdict:
    pairs = [pair for pair in folder.pairs if pair.kind == "pair"]
    usable = sum(pair.invalid is None for pair in pairs)
    settings = folder.manifest.settings
    rule = request.rule(settings)
    is_before_last = usable not in rule.all_looks or (decision.kind == "inconclusive" and usable < rule.looks[-1])
    ended_by_time = decision.kind in DECIDED and is_before_last
    return Verdict(
        kind=decision.kind,
        reasons=decision.reasons,
        notes=(
            *_scope_notes(request),
            *resumption_notes(folder.manifest.resumptions),
            *(settings.notes if settings else ()),
            *acceptance_notes(decision.comparisons, request.choice.accepted),
        ),
        mode="paired",
        scenario=request.loaded.scenario.name,
        baseline=str(request.baseline),
        candidate=str(request.candidate),
        false_alarm_rate=rule.false_alarm_rate,
        pairs=usable,
        looks=(rule.ending_at(usable) if ended_by_time else rule).all_looks,
        discarded_pairs=len(pairs) - usable,
        disturbed_pairs=sum(pair.invalid is None and pair.is_disturbed for pair in pairs),
        control_pairs=sum(pair.kind == "control" and pair.invalid is None for pair in folder.pairs),
        comparisons=decision.comparisons,
        parts=decision.parts,
        fault=decision.fault,
        generator=generator_load(pairs),
        control=control,
        started_at=folder.manifest.started_at,
        resumptions=folder.manifest.resumptions,
        pair_ended_at=tuple(pair.ended_at for pair in pairs if pair.invalid is None),
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
    keys = model_config_difference(results["baseline"], results["candidate"])
    sentences = {one.key: keys if keys and one.key == "model_config" else one.sentence for one in differences}
    return tuple(f"Between the arms {sentence}." for key, sentence in sentences.items() if (key in _MAY_DIFFER) is may_differ)


def _environment(results: Mapping[ArmName, Result]) -> dict[str, Any]:
    shared = {key: value for key, value in results["baseline"].environment.items() if key != "target"}
    target = as_mapping(results["baseline"].scenario.get("target"))
    shared["model"] = [target.get("model"), target.get("version")]
    return {**shared, **{arm: result.environment.get("target") for arm, result in results.items()}}
