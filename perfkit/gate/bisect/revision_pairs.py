"""The pairs of a bisection on real servers: revisions checked out, built and served from worktrees of their own."""

import asyncio
import dataclasses
import itertools
import pathlib
import random
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from perfkit.bisection.folder import BisectionFolder
from perfkit.bisection.revisions import Revision, RevisionError, Worktrees
from perfkit.bisection.search import LOOKS
from perfkit.clock import Clock, utc_now
from perfkit.errors import MeasurementError, TargetError, UsageError
from perfkit.gate.arm import Arm, GateContext, measure_loads, running_target
from perfkit.gate.bisect.bisection import ATTEMPTS, PairSource
from perfkit.gate.folder import MANIFEST_FILE, SCHEMA, VERDICT_FILE, FixedSettings, GateFolder, GateManifest, read_pairs, read_verdict
from perfkit.gate.paired_gate import GateRequest, arm_differences, run_gate
from perfkit.gate.pairs import ArmName, ArmRun, GateObserver, Pair, Stage, arm_run, run_pairs
from perfkit.gate.trial import run_specs
from perfkit.gate.verdict import Verdict
from perfkit.measurement.control import Interruption
from perfkit.measurement.lifecycle import RunProcesses
from perfkit.override import override
from perfkit.result.model import Result
from perfkit.result.output_folder import put_in_place
from perfkit.result.part import read_part

_T = TypeVar("_T")
DIRECTORY = "{dir}"
"""In a command that serves a revision, the place of its folder."""


class RevisionPairs(PairSource):
    """Measures the revisions of a path with real servers; see `perfkit.gate.bisect.bisection.PairSource`.

    `request` is that of the first gate, whose arms are replaced. The settings that its trial fixes hold for all gates.
    """

    def __init__(
        self,
        path: Sequence[Revision],
        serve: str,
        request: GateRequest,
        folder: BisectionFolder,
        worktrees: Worktrees,
        *,
        observer: GateObserver,
        interruption: Interruption,
        clock: Clock,
        keeps_worktrees: bool = False,
    ) -> None:
        self._path, self._serve, self._request, self._folder, self._worktrees = path, serve, request, folder, worktrees
        self._observer, self._interruption, self._clock = observer, interruption, clock
        self._keeps_worktrees = keeps_worktrees
        self._settings: FixedSettings | None = None
        self._attempts = set[pathlib.Path]()
        """The gates that have ended since this perfkit was started."""

    @override
    async def gate_of_bad(self) -> Verdict:
        """Raises UsageError if one of the two cannot be built."""
        bad = len(self._path) - 1
        for place in itertools.islice(self._places(bad, 1), ATTEMPTS):
            if (place / VERDICT_FILE).exists():
                verdict = read_verdict(place)
            else:
                request = await self._gate_request(bad)
                folder = self._open(place, request)
                try:
                    verdict = await run_gate(request, folder, self._observer, self._interruption, self._clock)
                except TargetError as error:
                    raise TargetError(f"the gate of {self._path[bad].short}: {error}; the servers' logs are in {folder.runs}") from None
                folder.commit(verdict)
            if verdict.kind != "invalid":
                break
        self._settings = _read_settings(place)
        return verdict

    @override
    async def measure(self, position: int, number: int, decide: Callable[[Sequence[Pair]], _T | None]) -> _T:
        assert self._settings is not None  # by `gate_of_bad`
        for place in self._places(position, number):
            if not place.exists():
                break
            if place not in self._attempts:  # perfkit was killed after its last pair, before the bisection stored what it says
                self._attempts.add(place)
                if (stored := decide(read_pairs(place))) is not None:
                    return stored
        self._attempts.add(place)
        request = await self._gate_request(position)
        folder = self._open(place, request)
        folder.fix(self._settings)
        try:
            async with RunProcesses(self._clock) as processes:
                decision = await self._run_pairs(request, folder, self._settings, decide, processes)
        except RevisionError:
            _put_in_place(folder)  # with the log of the server that failed
            raise
        _put_in_place(folder)
        if not self._keeps_worktrees:
            await self._worktrees.remove(self._path[position])
        return decision

    @override
    async def finish(self) -> None:
        if not self._keeps_worktrees:
            for revision in self._path:
                await self._worktrees.remove(revision)

    async def _gate_request(self, position: int) -> GateRequest:
        """The request of a gate of a revision, which is built by then; raises UsageError if the good one, or the bad one, cannot be built."""
        self._interruption.task = asyncio.current_task()
        arms = []
        for at in (0, position):
            revision = self._path[at]
            if not self._worktrees.is_ready(revision):
                self._observer.message(f"  building {revision.short} in {self._worktrees.folder(revision)}")
            try:
                place = await self._worktrees.prepare(revision)
            except RevisionError as error:
                if at not in (0, len(self._path) - 1):
                    raise
                raise UsageError(
                    f"the {'bad' if at else 'good'} revision {revision.short} {error}; its log: {self._worktrees.log(revision)}"
                ) from None
            arms.append(Arm(command=self._serve.replace(DIRECTORY, shlex.quote(str(place))), folder=place))
        return dataclasses.replace(self._request, baseline=arms[0], candidate=arms[1])

    def _places(self, position: int, number: int) -> Iterator[pathlib.Path]:
        """The folders of the attempts at a gate."""
        name = f"{number:02}-{self._path[position].short}"
        yield self._folder.gates / name
        for attempt in itertools.count(2):
            yield self._folder.gates / f"{name}-attempt-{attempt}"

    def _open(self, place: pathlib.Path, request: GateRequest) -> GateFolder:
        seed = random.Random(f"{place.name} {self._folder.progress.seed}").randrange(2**31)
        started_at = utc_now().isoformat(timespec="milliseconds")
        return GateFolder(place, GateManifest(inputs=request.inputs, seed=seed, started_at=started_at))

    async def _run_pairs(
        self,
        request: GateRequest,
        folder: GateFolder,
        settings: FixedSettings,
        decide: Callable[[Sequence[Pair]], _T | None],
        processes: RunProcesses,
    ) -> _T:
        context = GateContext(
            request.loaded, self._interruption, self._clock, folder.runs, self._observer, processes, request.ready_within_ns
        )
        results = dict[ArmName, Result]()

        async def run_arm(stage: Stage, seed: int) -> ArmRun:
            specs = run_specs(request.loaded.scenario, settings, seed)
            try:
                async with running_target(request.arms[stage.arm], context, stage) as target:
                    measured = await measure_loads(specs, target, context, stage.run)
            except TargetError as error:
                if stage.arm == "candidate":
                    raise RevisionError(f"could not be measured: {error}") from None
                raise TargetError(f"the good revision {self._path[0].short}: {error}") from None
            results.setdefault(stage.arm, measured[0])
            if len(results) == len(request.arms) and (differences := arm_differences(results, may_differ=False)):
                raise RevisionError(f"is not comparable: {differences[0].removesuffix('.')}")
            return arm_run(measured)

        self._observer.gate_started(LOOKS, 0, len(folder.pairs))
        return await run_pairs(
            "pair",
            seed=folder.manifest.seed,
            earlier=folder.pairs,
            run_arm=run_arm,
            store=folder.add,
            decide=decide,
            observer=self._observer,
            clock=self._clock,
        )


def _read_settings(place: pathlib.Path) -> FixedSettings | None:
    """The settings that the trial of a finished gate fixed; None if it had none, because the two cannot be compared."""
    return read_part(place / MANIFEST_FILE, GateManifest, SCHEMA).settings


def _put_in_place(folder: GateFolder) -> None:
    try:
        put_in_place(folder.partial, folder.folder.resolve())
    except OSError as error:
        raise MeasurementError(f"{folder.folder} cannot be written: {error.strerror}; its pairs are in {folder.partial}") from None
