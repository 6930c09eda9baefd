"""The trial of a gate: short runs of both arms that fix warm-up, concurrency, rate, window and number of pairs."""

import dataclasses
import math
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal

from perfkit.gate.arm import Arm, GateContext, RunningTarget, RunSpec, measure_loads, running_target
from perfkit.gate.folder import FixedSettings, GateInputs
from perfkit.gate.least_time import RESERVE_S, WINDOWS_OF_A_PROCESS, LeastTime
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import fewest_pairs
from perfkit.gate.paired_decision import TrialError, why_unmeasured
from perfkit.gate.pairs import ARMS, ArmName, RunPoint, Stage, blocking_warning, run_point
from perfkit.gate.schedule import SHORTEST_WINDOW_S, RunCost, TimeRequest, TrialMetric, describe_schedule, least_window_s, make_schedule
from perfkit.gate.verdict import Fault, Timing
from perfkit.measurement.connections import max_connections
from perfkit.result.model import Result
from perfkit.scenario.load import ClosedLoadSpec, LoadSpec, OpenLoadSpec, ReplayLoadSpec, closed_loop, poisson
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

SHARE_OF_CAPACITY = 0.7
_MINIMUM_GAIN, _MAXIMUM_CONCURRENCY = 1.05, 1024
_WINDOW_NS, _WARMUP_PROBE_NS = 2 * NS_PER_S, 10 * NS_PER_S
_REPLAY_WINDOW_NS = 20 * NS_PER_S
_SETTLE_NS = NS_PER_S // 4  # the server is warm already, but the queue of the new load has to build up
_NOTED_WARNINGS = {"json_tensors", "connections_limited"}
_WARMUP_STEP_NS = NS_PER_S // 10
_PROCESSES: tuple[ArmName, ...] = ("baseline", "candidate", "candidate", "baseline")


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a trial: the settings of all pairs, and one result per arm."""

    settings: FixedSettings
    results: Mapping[ArmName, Result]
    notes: tuple[str, ...]
    """The trial's warnings that hold for every run, as sentences."""


def given_window_ns(scenario: Scenario) -> int | None:
    """The window that the scenario gives; None if the trial chooses it, or if a number of requests ends it."""
    if scenario.measure.requests is not None:
        return None
    return scenario.measure.duration_ns or (_REPLAY_WINDOW_NS if isinstance(scenario.load, ReplayLoadSpec) else None)


async def run_trial(
    arms: Mapping[ArmName, Arm], context: GateContext, choice: MetricChoice, inputs: GateInputs, *, looks_early: bool = True
) -> Trial:
    """Measure both arms as the pairs will, in short windows; `choice` says which metrics count, `looks_early` whether there are early looks.

    With `warmup: auto` each arm's warm-up is detected, and the longer one is used in every run, since warm-ups of different lengths
    would favour one arm. Unless the scenario gives the window, two processes of each arm are measured twice each, from which follow
    the noise between restarts and that within a run. Raises TrialError if the load generator cannot keep up or the target stays
    cold, and UsageError if windows or time are too short.
    """
    return await _TrialRun(arms, context, choice, inputs, looks_early=looks_early).run()


class _TrialRun:
    def __init__(
        self, arms: Mapping[ArmName, Arm], context: GateContext, choice: MetricChoice, inputs: GateInputs, *, looks_early: bool
    ) -> None:
        self._looks_early = looks_early
        self._arms, self._context, self._choice, self._inputs, self._message = arms, context, choice, inputs, context.observer.message
        self._scenario = context.loaded.scenario
        self._is_standard = self._scenario.gate is not None and self._scenario.gate.profile == "standard"
        self._counts_requests = self._scenario.measure.requests is not None
        self._given_ns = given_window_ns(self._scenario)
        self._studies_noise = not self._counts_requests and (self._given_ns is None or inputs.time_limit_ns is not None)
        self._window_ns = None if self._counts_requests else min(_WINDOW_NS, self._given_ns or _WINDOW_NS)
        self._concurrency: int | None = None
        self._capacity_per_s = math.inf
        self._warmups_s: dict[ArmName, float] = {}
        self._results: dict[ArmName, Result] = {}
        self._points: dict[ArmName, list[list[tuple[RunPoint, ...]]]] = {arm: [] for arm in ARMS}
        self._overheads_s: list[float] = []
        self._starts_s: list[float] = []
        self._least_time = least_time(self._scenario, choice, inputs, starts_servers=arms["baseline"].command is not None)
        self._notes: list[str] = []
        self._started_ns = context.clock.now_ns()

    async def run(self) -> Trial:
        for number, name in enumerate(_PROCESSES if self._studies_noise else ARMS):
            self._message(f"trial: {name}, {self._arms[name]}")
            await self._measure_process(name, f"trial-{number}-{name}")
        if self._is_standard:
            if not 0 < self._capacity_per_s < math.inf:
                raise TrialError(
                    Fault(code="trial", reason="The baseline completed no request in its trial: measure longer (measure.duration).")
                )
            capacity = f"{format_rate_per_s(self._capacity_per_s)} with {self._concurrency} requests in flight"
            self._message(f"capacity of the baseline: {capacity}; rate of the open loop: {format_rate_per_s(self._rate_per_s)}")
        self._message(f"warm-up of every run: {format_duration_ns(self._warmup_ns)}")
        pairs, timing = self._choose_time()
        settings = FixedSettings(
            warmup_ns=self._warmup_ns,
            window_ns=None if timing.window_s is None else round(timing.window_s * NS_PER_S),
            concurrency=self._concurrency,
            rate_per_s=self._rate_per_s if self._is_standard else None,
            capacity_per_s=self._capacity_per_s if self._is_standard else None,
            pairs=pairs,
            timing=timing,
        )
        return Trial(settings, self._results, tuple(dict.fromkeys(self._notes)))

    async def _measure_process(self, name: ArmName, run: str) -> None:
        """Start the arm, and measure each load point; in its first process find the warm-up before that, if it is to be found."""
        clock, other_ns = self._context.clock, 0
        start_ns = clock.now_ns()
        points = list[tuple[RunPoint, ...]]()
        async with running_target(self._arms[name], self._context, Stage(name, "trial", run)) as target:
            began_ns = clock.now_ns()
            self._starts_s.append((began_ns - start_ns) / NS_PER_S)
            if self._least_time is not None:
                self._least_time.check(self._starts_s)
            if self._is_standard and self._concurrency is None:
                self._concurrency = await self._saturating_concurrency(target)
            if name not in self._warmups_s:
                await self._find_warmup(name, target)
            other_ns += clock.now_ns() - began_ns
            for index in range(len(self._loads)):
                spec = self._specs[index]
                result = await self._measure(spec, target, f"{run}-{index}", name)
                points.append(tuple(run_point(point) for point in result.points))
                other_ns += round(sum(point.duration_s for point in result.points) * NS_PER_S)
                if index == 0 and name == "baseline":
                    self._capacity_per_s = min(self._capacity_per_s, *(point.throughput_per_s for point in result.points))
        self._points[name].append(points)
        self._overheads_s.append((clock.now_ns() - start_ns - other_ns) / NS_PER_S)

    async def _find_warmup(self, name: ArmName, target: RunningTarget) -> None:
        self._warmups_s[name] = 0.0
        if self._scenario.measure.warmup_ns != "auto":
            return
        length_ns = None if self._counts_requests else min(_WARMUP_PROBE_NS, self._given_ns or _WARMUP_PROBE_NS)
        first = self._loads[0]
        result = await self._measure(RunSpec(first, window_ns=length_ns), target, f"trial-warm-up-{name}", name)
        self._warmups_s[name] = max(point.warmup_s for point in result.points)

    async def _measure(self, spec: RunSpec, target: RunningTarget, run: str, name: ArmName) -> Result:
        """One measurement; repeated once if its figures cannot be used."""
        for attempt in range(2):
            (result,) = await measure_loads([spec], target, self._context, f"{run}-{attempt}")
            blocked = next((point for point in result.points if blocking_warning(point) is not None), None)
            if blocked is None:
                if reason := why_unmeasured(self._scenario, name, result):
                    raise TrialError(Fault(code="trial", reason=reason))
                self._results.setdefault(name, result)
                noted = _NOTED_WARNINGS if self._arms[name].command is not None else {*_NOTED_WARNINGS, "shared_cpus"}
                self._notes += [warning.message for point in result.points for warning in point.warnings if warning.code in noted]
                self._notes += [target.conflict] if target.conflict else []
                return result
        assert blocked is not None
        cause = blocking_warning(blocked)
        assert cause is not None
        reason = f"The {name}'s trial was not valid in two attempts, at {blocked.load.title}: {cause.first_sentence}"
        raise TrialError(Fault(code="trial", reason=reason, warning=cause.code, generator=run_point(blocked).generator))

    @property
    def _loads(self) -> tuple[LoadSpec, ...]:
        if not self._is_standard:
            return single_points(self._scenario.load)
        assert self._concurrency is not None
        return closed_loop(self._concurrency), poisson(self._rate_per_s)

    @property
    def _rate_per_s(self) -> float:
        """The rate of the standard profile's open loop; until the capacity is known, any rate stands for it."""
        return float(f"{SHARE_OF_CAPACITY * self._capacity_per_s:.3g}") if 0 < self._capacity_per_s < math.inf else 1.0

    @property
    def _specs(self) -> tuple[RunSpec, ...]:
        specs = load_specs(self._scenario, self._loads, self._warmup_ns, self._window_ns, None)
        return tuple(dataclasses.replace(spec, repetitions=WINDOWS_OF_A_PROCESS if self._studies_noise else 1) for spec in specs)

    @property
    def _warmup_ns(self) -> int:
        return common_warmup_ns(self._scenario, tuple(self._warmups_s.values()))

    def _choose_time(self) -> tuple[int | None, Timing]:
        cost = RunCost(max(statistics.fmean(self._overheads_s), 0.0), len(self._loads))
        if self._counts_requests:
            timing = Timing(window_s=None, window_chosen_by="scenario", run_overhead_s=cost.overhead_s, load_points=cost.load_points)
            return self._inputs.pairs, timing
        limit_s = None if self._inputs.time_limit_ns is None else self._inputs.time_limit_ns / NS_PER_S
        spent_s = (self._context.clock.now_ns() - self._started_ns) / NS_PER_S
        request = TimeRequest(
            window_s=None if self._given_ns is None else self._given_ns / NS_PER_S,
            pairs=self._inputs.pairs,
            limit_s=limit_s,
            spent_s=spent_s,
            left_s=None if limit_s is None else limit_s - spent_s - RESERVE_S,
            control_pairs=self._inputs.control_pairs,
        )
        metrics = self._trial_metrics()
        schedule, timing = make_schedule(metrics, request, cost)
        for sentence in describe_schedule(metrics, timing, schedule.pairs, looks_early=self._looks_early):
            self._message(sentence)
        return schedule.pairs, timing

    def _trial_metrics(self) -> list[TrialMetric]:
        return [
            TrialMetric(metric, tuple(tuple(process[index] for process in self._points[arm]) for arm in ARMS))
            for index, windows in enumerate(self._points["baseline"][0])
            for metric in self._choice.gated_metrics(windows[0].load_point, windows[0].kind)
        ]

    async def _saturating_concurrency(self, target: RunningTarget) -> int:
        """The scenario's highest concurrency, or for other loads the one that `find_saturating_concurrency` returns."""
        if isinstance(self._scenario.load, ClosedLoadSpec):
            return max(self._scenario.load.closed.levels)
        warmup_ns = min(self._scenario.warmup_ns, (self._window_ns or _WINDOW_NS) // 4)

        async def throughput_per_s(concurrency: int) -> float:
            spec = RunSpec(closed_loop(concurrency), warmup_ns=warmup_ns, window_ns=self._window_ns)
            (result,) = await measure_loads([spec], target, self._context, f"trial-concurrency-{concurrency}")
            measured_per_s = result.points[0].throughput_per_s
            self._message(f"trial: {concurrency} in flight, {format_rate_per_s(measured_per_s)}")
            return measured_per_s

        return await find_saturating_concurrency(throughput_per_s, min(_MAXIMUM_CONCURRENCY, max_connections(self._scenario)))


def least_time(scenario: Scenario, choice: MetricChoice, inputs: GateInputs, *, starts_servers: bool) -> LeastTime | None:
    """What is known of the time of a gate before its trial; None without a limit."""
    if inputs.time_limit_ns is None:
        return None
    loads = (closed_loop(1), poisson(1.0)) if choice.is_standard else single_points(scenario.load)
    kinds: list[Literal["closed", "open"]] = ["closed" if isinstance(load, ClosedLoadSpec) else "open" for load in loads]
    given_ns, warmup = given_window_ns(scenario), scenario.measure.warmup_ns
    fewest = fewest_pairs(sum(len(choice.gated(kind)) for kind in kinds))
    windows_s = [
        least_window_s(name, load.open.rates_per_s[0], is_enough=False)
        for load in loads
        if not choice.is_standard and isinstance(load, OpenLoadSpec) and load.open.rates_per_s and load.open.shape is None
        for name in choice.gated("open")
    ]
    keys = {"measure.duration": given_ns is not None, "measure.warmup": bool(scenario.warmup_ns), "--control": inputs.control_pairs > 0}
    keys["--pairs"] = inputs.pairs is not None and inputs.pairs > fewest
    return LeastTime(
        limit_s=inputs.time_limit_ns / NS_PER_S,
        pairs=inputs.pairs or fewest,
        control_pairs=inputs.control_pairs,
        window_s=max([SHORTEST_WINDOW_S, *windows_s]) if given_ns is None else given_ns / NS_PER_S,
        trial_window_s=min(_WINDOW_NS, given_ns or _WINDOW_NS) / NS_PER_S,
        warmups_s=tuple((spec.warmup_ns or 0) / NS_PER_S for spec in load_specs(scenario, loads, scenario.warmup_ns, None, None)),
        probe_s=min(_WARMUP_PROBE_NS, given_ns or _WARMUP_PROBE_NS) / NS_PER_S if warmup == "auto" else 0.0,
        starts_servers=starts_servers,
        keys=tuple(key for key, shortens in keys.items() if shortens),
    )


def run_specs(scenario: Scenario, settings: FixedSettings, seed: int) -> tuple[RunSpec, ...]:
    """The loads of every run, in order."""
    loads = single_points(scenario.load)
    if settings.concurrency is not None and settings.rate_per_s is not None:
        loads = (closed_loop(settings.concurrency), poisson(settings.rate_per_s))
    return load_specs(scenario, loads, settings.warmup_ns, settings.window_ns, seed)


def load_specs(
    scenario: Scenario, loads: Sequence[LoadSpec], warmup_ns: int, window_ns: int | None, seed: int | None
) -> tuple[RunSpec, ...]:
    """Loads measured one after the other on one process, each after the scenario's warm-up; of one that was detected, only the first has all."""
    later_ns = min(warmup_ns, _SETTLE_NS) if scenario.measure.warmup_ns == "auto" else warmup_ns
    return tuple(RunSpec(load, seed, later_ns if index else warmup_ns, window_ns) for index, load in enumerate(loads))


def single_points(load: LoadSpec) -> tuple[LoadSpec, ...]:
    """A load with several load points as loads with one each."""
    if isinstance(load, ClosedLoadSpec):
        closed = load.closed
        return tuple(load.model_copy(update={"closed": closed.model_copy(update={"concurrency": (one,)})}) for one in closed.levels)
    if isinstance(load, OpenLoadSpec) and load.open.rates_per_s:
        return tuple(
            load.model_copy(update={"open": load.open.model_copy(update={"rates_per_s": (one,)})}) for one in load.open.rates_per_s
        )
    return (load,)


async def find_saturating_concurrency(throughput_per_s: Callable[[int], Awaitable[float]], maximum: int) -> int:
    """Double the concurrency from 1 until the throughput rises by less than 5 %, or the next step exceeds `maximum`."""
    concurrency, previous_per_s = 1, 0.0
    while (measured_per_s := await throughput_per_s(concurrency)) >= _MINIMUM_GAIN * previous_per_s and 2 * concurrency <= maximum:
        concurrency, previous_per_s = 2 * concurrency, measured_per_s
    return concurrency


def common_warmup_ns(scenario: Scenario, detected_s: Sequence[float]) -> int:
    """The warm-up of every run: the scenario's with that of a load of its own, or with `auto` the longest one detected, rounded up to 0.1 s."""
    if scenario.measure.warmup_ns != "auto":
        return scenario.warmup_ns
    return math.ceil(round(max(detected_s) * NS_PER_S) / _WARMUP_STEP_NS) * _WARMUP_STEP_NS
