"""A paired gate from two targets to a verdict: the trial, control pairs, pairs, and what they come to. It prints nothing."""

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import perfkit
from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import MeasurementError, UsageError
from perfkit.gate.arm import Arm, GateContext, run_in_turn, running_target
from perfkit.gate.folder import GateFolder, GateInputs
from perfkit.gate.paired_decision import Decision, MetricChoice, decide_control, decide_pairs
from perfkit.gate.pairs import ArmName, ArmRun, Pair, PairKind, PairObserver, arm_run, run_pairs
from perfkit.gate.trial import run_specs, try_arms
from perfkit.gate.verdict import Comparison, Verdict
from perfkit.measurement.control import Interruption
from perfkit.result.fingerprint import fingerprint, fingerprint_differences
from perfkit.result.model import Result
from perfkit.scenario.document import scenario_document
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import ClosedLoadSpec, SearchLoadSpec
from perfkit.stats.paired import QUICK_LOOKS, Rule, rule_for

_MAY_DIFFER = {"model_config"}  # what a candidate may have changed; the requests and the machine are the same by construction


class GateObserver(PairObserver, Protocol):
    """Who is told how a gate goes on."""

    def message(self, text: str) -> None:
        """A line of its own."""

    def gate_started(self, looks: tuple[int, ...], control_pairs: int, done: int) -> None:
        """The pairs begin; so many are there already."""


@dataclasses.dataclass(frozen=True, slots=True)
class GateRequest:
    """What is asked of a gate; raises UsageError for metrics that no load point of it has."""

    loaded: LoadedScenario
    baseline: Arm
    candidate: Arm
    quick: bool = False
    control_pairs: int = 0

    def __post_init__(self) -> None:
        asked, there = self.choice.asked or (), {name for kind in self.kinds for name in self.choice.gated(kind)}
        if missing := [name for name in asked if name not in there]:
            raise UsageError(f"gate.metrics: no load point of this gate has {missing[0]}; a closed loop has throughput, an open one times")

    @property
    def arms(self) -> Mapping[ArmName, Arm]:
        """By name."""
        return {"baseline": self.baseline, "candidate": self.candidate}

    @property
    def choice(self) -> MetricChoice:
        """Which metrics have a say."""
        gate = self.loaded.scenario.gate
        return MetricChoice() if gate is None else MetricChoice(gate.profile == "standard", gate.metrics)

    @property
    def kinds(self) -> Sequence[Literal["closed", "open"]]:
        """Of its load points."""
        load = self.loaded.scenario.load
        if self.choice.is_standard:
            return ("closed", "open")
        if isinstance(load, ClosedLoadSpec):
            return ["closed" for _ in load.closed.concurrency]
        if isinstance(load, SearchLoadSpec):
            raise UsageError(
                "load.search decides its rates by what it measures, which no gate compares: give load.open or load.closed, or gate.profile: standard"
            )
        return ["open" for _ in load.open.rates_per_s or (0.0,)]  # a trace has no rate, and is one load point

    @property
    def rule(self) -> Rule:
        """With looks late enough for that many metrics."""
        return rule_for(sum(len(self.choice.gated(kind)) for kind in self.kinds), quick=self.quick)

    @property
    def asked(self) -> GateInputs:
        """As the gate's folder keeps it."""
        return GateInputs(
            scenario=scenario_document(self.loaded.scenario),
            baseline=str(self.baseline),
            candidate=str(self.candidate),
            quick=self.quick,
            control_pairs=self.control_pairs,
            perfkit=perfkit.__version__,
        )


async def gate(
    request: GateRequest,
    folder: GateFolder,
    observer: GateObserver,
    interruption: Interruption,
    clock: Clock | None = None,
) -> Verdict:
    """Measures until the verdict is settled; every pair is in the folder as soon as it ends, which the caller commits.

    Raises what a run raises, TargetError also where a server is lost in the middle, and CancelledError where it was interrupted:
    the same gate with the same folder then goes on where it was.
    """
    clock = clock or MonotonicClock()
    task = asyncio.current_task()
    assert task is not None
    interruption.set_task(task)
    bench = GateContext(request.loaded, interruption, clock, folder.runs)
    running = _Gate(request, folder, observer, bench)
    try:
        settled = await running.run()
    except MeasurementError as error:
        settled = Decision("invalid", (f"{error}.".replace("..", "."),))
    return running.verdict(settled)


class _Gate:
    """The state of one gate."""

    def __init__(self, request: GateRequest, folder: GateFolder, observer: GateObserver, bench: GateContext) -> None:
        self._request, self._folder, self._observer, self._bench = request, folder, observer, bench
        self._control: tuple[Comparison, ...] = ()

    async def run(self) -> Decision:
        """From the trial to what the pairs come to."""
        request, folder = self._request, self._folder
        fixed = folder.plan.fixed
        if fixed is None:
            trial = await try_arms(request.arms, self._bench, self._observer.message)
            if settled := _incomparable(trial.results):
                return settled
            notes = (*_differing(trial.results), *trial.notes)
            fixed = trial.fixed.model_copy(update={"notes": notes, "environment": _environment(trial.results)})
            folder.fix(fixed)
        self._observer.gate_started(request.rule.looks, request.control_pairs, len(folder.pairs))

        async def measure(arm: ArmName, *, run: str, seed: int) -> ArmRun:
            async with running_target(request.arms[arm], self._bench) as at:
                return arm_run(await run_in_turn(run_specs(request.loaded.scenario, fixed, seed), at, self._bench, run))

        async def pairs(kind: PairKind, decide_pairs: Callable[[Sequence[Pair]], Decision | None]) -> Decision:
            return await run_pairs(
                kind,
                seed=folder.plan.seed,
                done=folder.pairs,
                measure=measure,
                keep=folder.add,
                decide=decide_pairs,
                observer=self._observer,
                clock=self._bench.clock,
            )

        if request.control_pairs:
            control = await pairs("control", lambda found: decide_control(found, request.control_pairs, request.choice))
            self._control = control.comparisons
            if control.kind == "invalid":
                return dataclasses.replace(control, comparisons=())
        return await pairs("pair", lambda found: decide_pairs(request.rule, found, request.choice))

    def verdict(self, settled: Decision) -> Verdict:
        """What was settled, and what it rests on."""
        request, folder, rule = self._request, self._folder, self._request.rule
        pairs = [pair for pair in folder.pairs if pair.kind == "pair"]
        usable = sum(pair.invalid is None for pair in pairs)
        fixed = folder.plan.fixed
        return Verdict(
            kind=settled.kind,
            reasons=settled.reasons,
            notes=(*_coverage(request), *(fixed.notes if fixed else ())),
            mode="paired",
            scenario=request.loaded.scenario.name,
            baseline=str(request.baseline),
            candidate=str(request.candidate),
            false_alarm_rate=rule.false_alarm_rate,
            pairs=usable,
            looks=rule.looks,
            discarded_pairs=len(pairs) - usable,
            control_pairs=sum(pair.kind == "control" and pair.invalid is None for pair in folder.pairs),
            comparisons=settled.comparisons,
            control=self._control,
            started_at=folder.plan.started_at,
            perfkit_version=perfkit.__version__,
            environment=fixed.environment if fixed else {},
        )


def _coverage(request: GateRequest) -> list[str]:
    """What the verdict covers, to be read first."""
    notes = []
    if request.baseline.command is None:
        notes.append(
            "The servers at these URLs were not restarted: the verdict covers these two processes only. A restart alone can move "
            "figures by several per cent; with cmd: targets perfkit restarts them for every run."
        )
    if request.quick:
        notes.append(
            f"Quick: {QUICK_LOOKS[0]} pairs at most. False alarms stay as rare, but less is found: in simulation 86 of 100 gates find +10 % "
            "everywhere, 27 find +10 % in p99 alone, and 68 pass an unchanged candidate (99, 68 and 92 without --quick); what 9 of 10 gates "
            "are said to find, some 8 of 10 do."
        )
    if 0 < request.control_pairs < QUICK_LOOKS[0]:
        notes.append(f"{request.control_pairs} control pairs show how noisy the machine is, but are too few for an alarm: that takes 10.")
    return notes


def _incomparable(results: Mapping[ArmName, Result]) -> Decision | None:
    found = fingerprint_differences(fingerprint(results["baseline"]), fingerprint(results["candidate"]))
    reasons = tuple(f"Between the arms {difference.sentence}." for difference in found if difference.key not in _MAY_DIFFER)
    return Decision("incomparable", reasons) if reasons else None


def _differing(results: Mapping[ArmName, Result]) -> list[str]:
    """What differs between the arms but may."""
    found = fingerprint_differences(fingerprint(results["baseline"]), fingerprint(results["candidate"]))
    return [f"Between the arms {difference.sentence}." for difference in found if difference.key in _MAY_DIFFER]


def _environment(results: Mapping[ArmName, Result]) -> dict[str, Any]:
    """What both arms share, and their servers."""
    shared = {key: value for key, value in results["baseline"].environment.items() if key != "target"}
    return {**shared, **{arm: result.environment.get("target") for arm, result in results.items()}}
