"""The lifecycle of a tune, from its candidates to the outcome. It prints nothing; an observer receives its progress.

Scan (`ladder`) in the first round → rounds of the race (`race`) → confirmation against the present configuration in pairs.
"""

import asyncio
import dataclasses
import pathlib
import random
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfkit.clock import MonotonicClock
from perfkit.errors import ModelMismatchError, TargetError
from perfkit.gate.arm import GateContext, RunningTarget, RunSpec, measure_loads
from perfkit.gate.pairs import GateObserver, Stage
from perfkit.gate.tune.configured_server import ConfiguredServer, RefusedCandidateError
from perfkit.gate.tune.folder import Phase, TuneFolder, Window
from perfkit.gate.tune.limits import constraints_of, excess, limit_texts, unknown, used_cpus, used_gpu_memory_bytes
from perfkit.gate.tune.moves import SearchSpace, is_stage_over
from perfkit.gate.tune.objective import objective_of
from perfkit.gate.tune.outcome import TuneOutcome, tune_outcome
from perfkit.gate.tune.progress import TuneState
from perfkit.gate.tune.race import is_confirmed
from perfkit.gate.tune.space import Candidate
from perfkit.gate.tune.window_lengths import (
    CONFIRMATION_SHARE,
    STEP_WARMUP_NS,
    first_window_s,
    scan_window_ns,
    usual_times_s,
    warmup_ns,
)
from perfkit.measurement.control import Interruption
from perfkit.measurement.lifecycle import RunProcesses
from perfkit.measurement.run_result import slo_limits
from perfkit.result.interval_log import read_times
from perfkit.result.model import Result
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.measure import TuneConstraints
from perfkit.stats.validity import INVALIDATING
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

if TYPE_CHECKING:
    from perfkit.telemetry.messages import PublishConfig

_GOOD_PAIRS = 8
_TOLD = ("shared_cpus", "busy_machine", "overloaded", "failed_requests")
"""The warnings that the outcome names where many windows have them."""


@dataclasses.dataclass(frozen=True, slots=True)
class TuneRequest:
    """What to tune and how."""

    loaded: LoadedScenario
    candidates: Sequence[Candidate]
    server: ConfiguredServer
    time_limit_ns: int
    ready_within_ns: int | None = None
    """See `GateContext`."""


async def run_tune(
    request: TuneRequest,
    folder: TuneFolder,
    observer: GateObserver,
    interruption: Interruption,
    publish_at: "PublishConfig | None" = None,
) -> TuneOutcome:
    """Measures until there is an answer or the time is used, and puts the server back; each window is in the folder as soon as it ends.

    Raises what a run raises, TargetError also if the server cannot be put back, and CancelledError if it is interrupted; the same request
    with the same folder then continues it. `publish_at` says where the live metrics of the windows are pushed.
    """
    clock = MonotonicClock()
    interruption.task = asyncio.current_task()
    async with RunProcesses(clock) as processes, request.server as server:
        context = GateContext(request.loaded, interruption, clock, folder.runs, observer, processes, request.ready_within_ns, publish_at)
        tune = _Tune(request, folder, server, context)
        await tune.run()
    shutil.rmtree(folder.runs, ignore_errors=True)
    return tune.outcome()


class _Tune:
    def __init__(self, request: TuneRequest, folder: TuneFolder, server: ConfiguredServer, context: GateContext) -> None:
        self._request, self._folder, self._server, self._context = request, folder, server, context
        slo = request.loaded.scenario.slo
        self._space = SearchSpace([one.values for one in request.candidates])
        limits, inputs = None if slo is None else slo_limits(slo), folder.progress.inputs
        self._objective = objective_of(inputs.objective, inputs.rate_per_s)
        self._state = TuneState(folder.progress.first, inputs.ladder, limits, most=self._space.most, objective=self._objective)
        self._state.open(folder.progress.opened)
        self._clock, self._seed = context.clock, folder.progress.seed
        self._began_s = self._clock.now_ns() / NS_PER_S
        self._last_s = 0.0
        if folder.windows:
            for window in folder.windows:
                self._state.add(window)
            self._last_s = folder.windows[-1].elapsed_s
            self._began_s -= self._last_s
            context.observer.message(f"continuing after {len(folder.windows):,} windows")
        self._limit_s = request.time_limit_ns / NS_PER_S
        self._visits_s: list[float] = []
        """How long applying a configuration and the warm-up took, of each visit of this session."""
        self._scans_s: list[float] = []
        self._stage_round, self._stage_ends_s = 1, 0.0
        """The first round since the last configurations joined, and when others may join though nothing is decided."""

    async def run(self) -> None:
        """Races and confirms, again if the confirmation shows that a configuration misses the SLO, or that it takes further rounds."""
        while True:
            windows = len(self._folder.windows)
            await self._race()
            self._state.close_round()
            if await self._confirm(may_race=len(self._folder.windows) > windows):
                return

    def outcome(self) -> TuneOutcome:
        """What the windows say."""
        slo = self._request.loaded.scenario.slo
        limits = {} if slo is None else slo.model_dump(mode="json", by_alias=True, exclude_none=True)
        windows = [one for one in self._folder.windows if not one.refusal and not one.has_failed]
        counts = {code: sum(code in one.warnings for one in windows) for code in _TOLD}
        notes = [
            f"{count:,} of {len(windows):,} windows have the warning {code}." for code, count in counts.items() if count > len(windows) / 4
        ]
        return tune_outcome(
            self._state, self._space, self._request.candidates, self._folder.progress,
            {name: str(limit) for name, limit in limits.items()}, self._elapsed_s(), notes=[*notes, *self._cache_notes(windows)],
            constraints=limit_texts(constraints_of(self._request.loaded.scenario)),
        )  # fmt: skip

    def _cache_notes(self, windows: Sequence[Window]) -> list[str]:
        """What a response cache makes of requests that repeat."""
        variants = self._request.loaded.scenario.workload.variants
        tuned = any(key.endswith("response_cache.enable") for one in self._request.candidates for key in one.values)
        if not tuned or max((one.scheduled for one in windows), default=0) <= variants:
            return []
        note = (
            f"response_cache.enable: the {variants:,} different requests of the workload (workload.variants) repeat, so that a cache answers nearly "
            "all of them: the answer holds for clients whose requests repeat as often."
        )
        return [note]

    def _elapsed_s(self) -> float:
        return self._clock.now_ns() / NS_PER_S - self._began_s

    async def _race(self) -> None:
        """Rounds, until the answer is known or the time for them is over."""
        state, ends_s = self._state, self._limit_s * (1 - CONFIRMATION_SHARE)
        number = state.closed_round + 1
        self._start_stage(number, ends_s)
        while state.left():
            is_raced = number > 2 and state.is_raced(self._folder.progress.inputs.indifference)
            is_over = is_stage_over(number - self._stage_round, is_out_of_time=self._elapsed_s() > self._stage_ends_s)
            if (is_raced or is_over) and self._open_neighbours(number, ends_s):
                is_raced = False
            if is_raced:
                return
            done = {one.candidate for one in self._folder.windows if one.phase == "race" and one.round == number}
            window_s, measured = self._window_s(len(state.left())), state.in_round(number)
            order = [one for one in self._order(number) if one in measured and one not in done]
            order.sort(key=lambda one: not state.entries[one].is_pending)  # the time may be over before those that joined are compared
            self._context.observer.message(
                f"round {number}: {len(measured)} configurations, windows of {window_s:g} s, {self._elapsed_s():.0f} s of {self._limit_s:.0f} s"
            )
            for candidate in order:
                if self._elapsed_s() + self._expected_s(window_s, scans=state.entries[candidate].state == "waiting") > ends_s:
                    return
                await self._visit(candidate, "race", number, window_s)
            state.close_round(number)
            number += 1

    def _open_neighbours(self, number: int, ends_s: float) -> bool:
        """Has the neighbours of the leader join the race, as many as there is time for; false if none does."""
        state = self._state
        if state.leader is None:
            return False
        joining = self._space.joining(state.leader, state.levels(), state.entries)
        visit_s, first_s = (self._expected_s(self._first_s, scans=scans) for scans in (False, True))
        # those that join are compared in two rounds, with the better ones
        left_s = ends_s - self._elapsed_s() - len(state.better_half()) * visit_s
        joining = joining[: max(int(left_s / (first_s + visit_s)), 0)]
        if not joining:
            return False
        self._folder.open(joining)
        state.open(joining)
        self._start_stage(number, ends_s)
        self._context.observer.message(
            f"{self._request.candidates[state.leader].title} leads: {len(joining)} more configurations, {len(state.entries)} of {len(self._space)} in all"
        )
        return True

    def _start_stage(self, number: int, ends_s: float) -> None:
        """A stage has half of the time that is left."""
        self._stage_round, self._stage_ends_s = number, (self._elapsed_s() + ends_s) / 2

    async def _confirm(self, *, may_race: bool) -> bool:
        """Measures the leader and the present configuration in pairs, with fresh windows; false if it takes more of the race, if that can go on.

        That is if one misses the SLO or cannot be applied, or if pairs alone do not decide it.
        """
        state, indifference = self._state, self._folder.progress.inputs.indifference
        best, _, _ = state.choice(indifference)
        if best is None or not state.is_confirmable(best):
            return True
        steps = state.entries[best].step, state.entries[0].step
        begun = [one.round for one in self._folder.windows if one.phase == "confirmation"]
        number = max(begun, default=0) + 1
        self._context.observer.message(f"confirmation: {self._request.candidates[best].title} and the present configuration in pairs")
        while True:
            if is_confirmed(state.ratio(best), state.bound(best), indifference):
                _, _, answer = state.choice(indifference)
                if answer is None or state.shows_slo(best if answer == "better" else 0):
                    return True
            if may_race and state.needs_rounds(indifference):
                return False
            left_s = self._limit_s - self._elapsed_s()
            missing = max(_GOOD_PAIRS - len(state.pairs(best)), 1)
            first_s = self._first_s
            window_s = next((n * first_s for n in (8, 4, 2) if 2 * missing * self._expected_s(n * first_s) <= left_s), first_s)
            if 2 * self._expected_s(window_s) > left_s:
                return True
            pair = [best, 0]
            random.Random(f"pair {self._seed} {number}").shuffle(pair)
            for candidate in pair:
                await self._visit(candidate, "confirmation", number, window_s)
                if (state.entries[best].step, state.entries[0].step) != steps or not state.is_confirmable(best):
                    return self._elapsed_s() > self._limit_s * (1 - CONFIRMATION_SHARE)
            number += 1

    def _order(self, number: int) -> list[int]:
        """A random order of all configurations; in the first round the present one is the first, from whose scan those of the others start."""
        order = list(self._state.entries)
        random.Random(f"round {self._seed} {number}").shuffle(order)
        return sorted(order, key=lambda one: one != 0) if number == 1 else order

    def _window_s(self, left: int) -> float:
        """The length of a round's windows, with so many configurations left."""
        first_s = self._first_s
        return next(
            (
                length * first_s
                for most, length in ((2, 8), (4, 4), (8, 2))
                if left <= most and 20 * left * length * first_s <= self._limit_s
            ),
            first_s,
        )

    @property
    def _first_s(self) -> float:
        return first_window_s(self._limit_s, self._objective)

    def _expected_s(self, window_s: float, *, scans: bool = False) -> float:
        """How long a visit will take, by those before; the first ones by the scenario."""

        def mean(values: list[float], default: float) -> float:
            return sum(values) / len(values) if values else default

        scan_s, visit_s = usual_times_s(self._request.loaded.scenario, len(self._ladder), self._first_s, self._objective)
        return window_s + mean(self._visits_s, visit_s) + (mean(self._scans_s, scan_s) if scans else 0.0)

    async def _visit(self, candidate: int, phase: Phase, number: int, window_s: float) -> None:
        """Applies a configuration, scans it if that was not done yet, and measures one window."""
        one, state = self._request.candidates[candidate], self._state
        stage = Stage("candidate", f"{phase} {number}", f"{phase}-{number}-{candidate}")
        began_s, measured_s, is_applied = self._elapsed_s(), 0.0, False
        try:
            async with self._server.applied(one, self._context, stage) as target:
                is_applied = True
                warm_ns = self._warmup_ns
                while (step := state.scan_step(candidate, self._first_step)) is not None:
                    scan_s = self._elapsed_s()
                    if not self._fits(warm_ns + self._scan_ns):
                        return
                    await self._measure(candidate, "scan", number, self._ladder[step], self._scan_ns, warm_ns, target)
                    warm_ns, measured_s = min(STEP_WARMUP_NS, warm_ns), measured_s + self._elapsed_s() - scan_s
                if measured_s:
                    self._scans_s.append(measured_s)
                step = state.entries[candidate].step
                length_ns = round(window_s * NS_PER_S)
                if step is not None and self._fits(warm_ns + length_ns):
                    await self._measure(candidate, phase, number, self._ladder[step], length_ns, warm_ns, target)
                    self._visits_s.append(self._elapsed_s() - began_s - measured_s - window_s)
        except RefusedCandidateError as error:
            if candidate == 0:
                raise TargetError(f"the present configuration: {error}") from error
            self._add(Window(candidate=candidate, phase=phase, round=number, refusal=str(error)))
        except (ModelMismatchError, TargetError) as error:
            entry = state.entries[candidate]
            if not is_applied or (candidate == 0 and not entry.scans):  # the server is gone, or the request is wrong for it
                raise
            self._add(Window(candidate=candidate, phase=phase, round=number, has_failed=True, reason=str(error)))

    def _fits(self, duration_ns: int) -> bool:
        """Whether a window with its warm-up ends before the time is over."""
        return self._elapsed_s() + duration_ns / NS_PER_S <= self._limit_s

    @property
    def _scan_ns(self) -> int:
        return scan_window_ns(self._first_s, self._objective)

    @property
    def _ladder(self) -> Sequence[int]:
        return self._state.ladder

    @property
    def _warmup_ns(self) -> int:
        return warmup_ns(self._request.loaded.scenario)

    @property
    def _first_step(self) -> int:
        """Where the scan of another configuration begins: a step below the present one's best."""
        return max((self._state.entries[0].step or 0) - 1, 0)

    async def _measure(
        self, candidate: int, phase: Phase, number: int, concurrency: int, window_ns: int, warm_ns: int, target: RunningTarget
    ) -> None:
        spec = RunSpec(self._objective.load(concurrency), self._seed, warm_ns, window_ns)
        name = f"{phase}-{number}-{candidate}-{concurrency}"
        (result,) = await measure_loads([spec], target, self._context, name)
        folder, place = self._context.folder / f"{name}-0", (candidate, phase, number, concurrency)
        constraints = constraints_of(self._request.loaded.scenario)
        self._add(_window_of(result, read_seconds(folder, result) if result.points else (), place, constraints))
        shutil.rmtree(folder, ignore_errors=True)

    def _add(self, window: Window) -> None:
        self._last_s = self._elapsed_s()
        window = window.model_copy(update={"elapsed_s": self._last_s})
        self._folder.add(window)
        self._state.add(window)
        title = self._request.candidates[window.candidate].title
        self._context.observer.message(f"  {describe_window(window, title)}")


def describe_window(window: Window, title: str) -> str:
    """A window on one line."""
    if window.refusal:
        return f"{title}: refused: {window.refusal}"
    if window.has_failed:
        return f"{title}: failed: {window.reason}"
    p99 = "" if window.p99_ns is None else f", p99 {format_duration_ns(window.p99_ns)}"
    not_valid = "" if window.is_valid else ", NOT VALID"
    in_flight = f"{window.concurrency} in flight, " if window.concurrency else ""
    return f"{'scan, ' * (window.phase == 'scan')}{title}: {in_flight}{format_rate_per_s(window.throughput_per_s)}{p99}{not_valid}"


def _window_of(
    result: Result, seconds: Sequence[tuple[tuple[int, int], ...]], place: tuple[int, Phase, int, int], constraints: TuneConstraints
) -> Window:
    candidate, phase, number, concurrency = place
    if not result.points:  # no request was answered after the warm-up
        reason = result.status_reason
        return Window(candidate=candidate, phase=phase, round=number, concurrency=concurrency, reason=reason)
    point = result.points[0]
    answers = point.checked_answers
    failed = ", ".join(f"{one.message or one.outcome}" for one in point.failures[:1])
    cpus, memory_bytes = used_cpus(point), used_gpu_memory_bytes(point)
    missing = unknown(constraints, cpus, memory_bytes)
    why = missing or next((warning.first_sentence for warning in point.warnings if warning.code in INVALIDATING), "")
    return Window(
        candidate=candidate,
        phase=phase,
        round=number,
        concurrency=concurrency,
        length_s=point.duration_s,
        is_valid=point.valid and not missing,
        throughput_per_s=point.throughput_per_s,
        p50_ns=point.times.p50,
        p99_ns=point.times.p99,
        server_cpus=cpus,
        gpu_memory_bytes=memory_bytes,
        over=excess(constraints, cpus, memory_bytes),
        scheduled=point.requests.judged,
        failed=point.requests.failed,
        answers=answers.answers,
        checked=answers.checked,
        wrong=answers.wrong,
        refused=answers.refused,
        times=tuple(seconds),
        warnings=tuple(warning.code for warning in point.warnings),
        reason=why or (f"most requests failed: {failed}" if point.has_mostly_failed else ""),
    )


def read_seconds(folder: pathlib.Path, result: Result) -> list[tuple[tuple[int, int], ...]]:
    """The times of each second of a stored window: indices of buckets with their counts."""
    return [
        tuple(zip(times.indices.tolist(), times.counts.tolist(), strict=True)) for _, _, times in read_times(folder, result) if times.count
    ]
