"""The lifecycle of a run, from a scenario to a stored result. It prints nothing; a `RunObserver` receives its progress."""

import asyncio
import contextlib
import dataclasses
import functools
import importlib
import pathlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from perfkit.clock import Clock, MonotonicClock, utc_now
from perfkit.errors import PerfkitError, ResultError, UsageError
from perfkit.machine.cpus import pinned
from perfkit.measurement.connections import check_connections, connect_for_statistics
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.run_result import why_not_resumable
from perfkit.measurement.run_target import RunTarget, open_target
from perfkit.measurement.scenario_run import MeasuredScenario, ScenarioRun
from perfkit.measurement.secret_renewal import SecretRenewal
from perfkit.measurement.shared_memory import Connect, run_regions
from perfkit.process.start_module import DRAWING, SAMPLER, end_started_ahead, is_started_ahead, start_ahead, wait_until_idle
from perfkit.result.file import ResultWriter
from perfkit.result.output_folder import locked
from perfkit.scenario.file import LoadedScenario, scenario_document
from perfkit.workers.local import LocalWorkers

if TYPE_CHECKING:
    from perfkit.measurement.observation import Observation
    from perfkit.measurement.point_run import PointRun
    from perfkit.measurement.reply_spool import ReplySpool
    from perfkit.measurement.request_traces import SpanSource
    from perfkit.telemetry.client import SamplerProcess
    from perfkit.telemetry.messages import PublishConfig

_IDLE_WITHIN_S = 60


async def measure_scenario(
    loaded: LoadedScenario,
    folder: pathlib.Path,
    observer: RunObserver,
    interruption: Interruption,
    *,
    clock: Clock | None = None,
    publish_at: "PublishConfig | None" = None,
    spool: "ReplySpool | None" = None,
    resume: bool = False,
    added_ns: int | None = None,
) -> MeasuredScenario:
    """Measures every load point of a scenario, or searches its capacity, and stores the result in a folder.

    With `resume` the load points that an unfinished result of the folder has as a whole are taken from there; see `find_unfinished`.
    With `added_ns` an undecided search there is given so much more time, whether it had ended or not.

    `publish_at` says where live metrics are served or pushed. `spool` gets every reply, for a profile export. A result without any
    load point is not stored.

    Raises ModelMismatchError, ScenarioError, TargetError and UsageError if nothing was measured, also because the folder cannot be
    written or another process writes to it; a failure after the first load point ends in a result whose status says so, and which is
    not stored if the disk is full. If an error is raised after something was measured, the partial result stays in
    `<folder>.partial`.
    """
    with locked(folder):
        run = _new_run(loaded, folder, observer, interruption, clock or MonotonicClock(), spool=spool, resume=resume, added_ns=added_ns)
        await _conclude_on_errors([run], _execute([run], publish_at))
        return run.conclude()


class RunProcesses:
    """The processes of this machine that send the load and sample, of one run or of several; leaving the context ends them."""

    def __init__(self, clock: Clock, *, are_of_one_run: bool = False) -> None:
        self.workers, self.are_of_one_run = LocalWorkers(clock), are_of_one_run
        self._sampler: SamplerProcess | None = None
        self._ending = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._ending.enter_async_context(self.workers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.aclose()

    def start_sampler_ahead(self) -> None:
        """Starts the sampler process, if it is not there yet, so that it imports its libraries before it is waited for."""
        if self._sampler is None:
            start_ahead(SAMPLER)

    async def sampler(self) -> "SamplerProcess":
        """The sampler process, which starts with its first run."""
        if self._sampler is None:
            from perfkit.telemetry.client import SamplerProcess  # only now: the first request leaves earlier

            self._sampler = await self._ending.enter_async_context(SamplerProcess())
        return self._sampler


@dataclasses.dataclass(frozen=True, slots=True)
class InterleavedCase:
    """One of several scenarios that are measured interleaved; `title` names it in the progress."""

    title: str
    loaded: LoadedScenario
    folder: pathlib.Path
    extends_in_doubt: bool = True
    """Whether `measure.warmup: auto` measures a load point again also where it is only in doubt whether the target was warm."""


async def measure_interleaved(
    cases: Sequence[InterleavedCase],
    observer: RunObserver,
    interruption: Interruption,
    *,
    clock: Clock | None = None,
    publish_at: "PublishConfig | None" = None,
    server_pid: int | None = None,
    resume: bool = False,
    processes: RunProcesses | None = None,
) -> list[MeasuredScenario | PerfkitError]:
    """Measures scenarios on one server, interleaved load point by load point, so that drift affects all of them alike.

    `server_pid` is the first process of a server that the caller has started at the target's URL. `processes` are used if given, and stay.

    Every second repetition goes through them in the opposite order. They must agree in what `server_keys` gives. An error of one, such as
    a model that does not take its requests, is returned in its place, and the others go on; otherwise like `measure_scenario`.
    """
    clock = clock or MonotonicClock()
    runs: list[ScenarioRun | PerfkitError] = []
    with contextlib.ExitStack() as locks:
        for case in cases:
            try:
                locks.enter_context(locked(case.folder))
                run = _new_run(case.loaded, case.folder, observer, interruption, clock, case.title, resume=resume)
                run.extends_in_doubt = case.extends_in_doubt
                runs.append(run)
            except PerfkitError as error:
                runs.append(error)
        started = [run for run in runs if isinstance(run, ScenarioRun)]
        if started:
            await _conclude_on_errors(started, _execute(started, publish_at, server_pid, processes))
        return [_concluded(run) if isinstance(run, ScenarioRun) else run for run in runs]


def _concluded(run: ScenarioRun) -> MeasuredScenario | PerfkitError:
    try:
        return run.conclude()
    except PerfkitError as error:
        return error


async def _conclude_on_errors(runs: Sequence[ScenarioRun], executing: Awaitable[None]) -> None:
    """Awaits the runs; what is not an error of perfkit's own kinds is raised after what was measured is kept."""
    try:
        await executing
    except BaseException as error:
        for run in runs:
            run.failure = error
            with contextlib.suppress(BaseException):
                run.conclude()
        raise


def _new_run(
    loaded: LoadedScenario,
    folder: pathlib.Path,
    observer: RunObserver,
    interruption: Interruption,
    clock: Clock,
    title: str = "",
    spool: "ReplySpool | None" = None,
    *,
    resume: bool = False,
    added_ns: int | None = None,
) -> ScenarioRun:
    unfinished = None
    if resume:
        if reason := why_not_resumable(loaded):
            raise UsageError(reason)
        from perfkit.result.unfinished import find_unfinished
        from perfkit.result.whole_points import UnfinishedResult

        found = find_unfinished(folder, scenario_document(loaded.scenario), adds_time=added_ns is not None)
        if added_ns is not None and not isinstance(found, UnfinishedResult):
            raise ResultError(
                f"--budget: {folder} has no search that more time could continue: there is none, or it has ended with an answer"
            )
        if isinstance(found, str):
            observer.note_added(f"--resume: {title and f'{title}: '}{found}")
        unfinished = found if isinstance(found, UnfinishedResult) else None
    writer = ResultWriter(folder, utc_now().timestamp(), unfinished)
    try:
        return ScenarioRun(loaded, writer, observer, interruption, clock, title, spool, added_ns)
    except BaseException:
        writer.discard()
        raise


async def _execute(
    runs: Sequence[ScenarioRun],
    publish_at: "PublishConfig | None",
    server_pid: int | None = None,
    processes: RunProcesses | None = None,
) -> None:
    """Measures the load points of all runs interleaved, and saves a run's result after each of its own; an error of one is its `failure`."""
    first = runs[0]
    scenario, observer, interruption, clock, placement = first.scenario, first.observer, first.interruption, first.clock, first.placement
    source = _span_source(first.loaded)
    for run in runs:
        run.follow(runs, source)
    interruption.task = asyncio.current_task()
    if not (active := [run for run in runs if run.is_active]):
        return
    if scenario.fleet is not None and observer.is_quiet:
        from perfkit.fleet.token import check_known_token

        check_known_token(scenario.fleet, first.loaded.folder)
    connect_to_read = functools.partial(connect_for_statistics, scenario, clock=clock)
    trace_url = None if source is None else source.url
    shares_memory = any(one.scenario.shared_memory is not None for run in runs for one in run.plain.values())
    try:
        async with (
            open_target(
                first.loaded,
                placement.server,
                observer.server_output,
                first.server_log,
                clock,
                shares_memory=shares_memory,
                trace_url=trace_url,
            ) as target,
            RunProcesses(clock, are_of_one_run=True) if processes is None else contextlib.nullcontext(processes) as used,
            contextlib.AsyncExitStack() as ending,
        ):
            await _start_children(active, used, ending)
            with pinned(placement.driver):  # after server, workers and perhaps a sampler have started, which would inherit it
                for run in active:  # before the samplers are waited for, so that a wrong target is reported at once
                    with run.ending():
                        check_connections(run.scenario)
                        shared = {
                            name: await ending.enter_async_context(
                                run_regions(one.scenario.shared_memory, one.scenario.load, connect_to_read)
                            )
                            for name, one in run.plain.items()
                        }
                        await run.probe_target(target if run is first else target.of(run.loaded), shared)
            if not _prepare_load(runs, used):
                return
            await _join_fleet(runs, target, ending, clock)
            # the sampler starts while this process imports; what will draw the report has imported before the load begins
            observation, point_runs, _ = await asyncio.gather(
                _observe(first, target, used, ending, connect_to_read, publish_at, source, server_pid),
                _point_runs(runs),
                wait_until_idle(DRAWING, _IDLE_WITHIN_S),
            )
            async with first.screen(observation):
                if observation.url:
                    observer.metrics_published(observation.url)
                for run in runs:
                    run.add_notes(observation)
                renewal = SecretRenewal(runs, target, clock, observer.note_added)
                with pinned(placement.driver), renewal.follow():
                    while active := [run for run in runs if run.is_active]:
                        least = min(run.measured for run in active)
                        for run in active if active[0].repetition_after(least) % 2 == 0 else reversed(active):
                            with run.ending():
                                # those that are ahead were resumed in the middle of a round
                                if run.measured == least and run.is_active:  # an interruption of another ends it, too
                                    await point_runs[run].measure_next(target, observation, renewal)
                for run in runs:
                    with run.ending():
                        await run.join_traces(observation)
                observation.note_lost_spans()
                for run in runs:
                    run.add_notes(observation)
    except asyncio.CancelledError as error:
        for run in runs:
            run.cancel(error)
        if not interruption.count:
            raise
    except PerfkitError as error:
        for run in runs:
            run.end_by(error)
    finally:
        for run in runs:
            with run.ending():
                run.save()


def _prepare_load(runs: Sequence[ScenarioRun], processes: RunProcesses) -> bool:
    """Starts a sampler, and adds the load generator to the environments; returns whether any probed run has load points left to measure."""
    if runs[0].scenario.telemetry and any(run.is_active for run in runs):
        processes.start_sampler_ahead()
    for run in runs:
        with run.ending():
            if run.is_active:
                run.describe_environment()
    return any(run.is_active for run in runs)


def _span_source(loaded: LoadedScenario) -> "SpanSource | None":
    if loaded.scenario.traces is None:
        return None
    from perfkit.measurement.request_traces import SpanSource  # whose modules other runs do without

    return SpanSource(loaded.scenario.traces, loaded.scenario.workload.seed, loaded.folder)


async def _observe(
    run: ScenarioRun,
    target: RunTarget,
    processes: RunProcesses,
    ending: contextlib.AsyncExitStack,
    connect_to_read: Connect,
    publish_at: "PublishConfig | None",
    source: "SpanSource | None",
    server_pid: int | None,
) -> "Observation":
    """Starts the samplers, which end with the stack."""
    from perfkit.measurement.observation import observe  # only now, as below: the first request leaves earlier

    client = await ending.enter_async_context((await processes.sampler()).run(is_wanted=run.scenario.telemetry))
    if processes.are_of_one_run:
        ending.callback(processes.workers.close)  # they end while the samplers do
    spans = None if source is None else source.config
    return await observe(run.scenario, target, client, connect_to_read, run.clock, publish_at, run.observer.screen, spans, server_pid)


async def _point_runs(runs: Sequence[ScenarioRun]) -> "Mapping[ScenarioRun, PointRun]":
    """What measures the load points of each run, once the fleet has joined."""
    from perfkit.measurement.point_run import PointRun
    from perfkit.result.model import Result

    importlib.import_module("perfkit.points.point")  # now, while the sampler starts, and not after the last answer
    Result.model_rebuild()  # as well: it takes 10 ms
    return {run: PointRun(run) for run in runs}


async def _start_children(runs: Sequence[ScenarioRun], processes: RunProcesses, ending: contextlib.AsyncExitStack) -> None:
    """Starts processes that import their libraries while the target is probed: a worker, unless a fleet sends the load, and a sampler.

    Two CPUs are busy with this process and a worker, then with the one that will draw the report; the sampler waits for that one, if there is one.
    """
    ending.callback(end_started_ahead, SAMPLER)
    if runs[0].scenario.fleet is None:
        processes.workers.start_ahead()
        for run in runs:
            run.local = processes.workers
    if runs[0].scenario.telemetry and not is_started_ahead(DRAWING):
        processes.start_sampler_ahead()
    if any(run.is_search for run in runs):
        await wait_until_idle(DRAWING, _IDLE_WITHIN_S)  # its imports would slow the answers that say where a search begins


async def _join_fleet(runs: Sequence[ScenarioRun], target: RunTarget, machines: contextlib.AsyncExitStack, clock: Clock) -> None:
    """Has the machines of the scenario's fleet send the load, if it has one; they are released with the stack."""
    first = runs[0]
    if first.scenario.fleet is None:
        return
    from perfkit.fleet.fleet import open_fleet  # whose modules other runs do without

    targets = [one for address in target.addresses.values() for one in (address, *address.replicas)]
    fleet = await machines.enter_async_context(
        open_fleet(first.scenario.fleet, clock, first.loaded.folder, first.observer.note_added, targets)
    )
    for run in runs:
        run.use_fleet(fleet)
