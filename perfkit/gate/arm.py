"""An arm of a gate: a server at a URL, or one that a command starts anew for every run; and the runs against it."""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import shlex
import shutil
from collections.abc import AsyncIterator, Sequence

from perfkit.clock import Clock
from perfkit.errors import MeasurementError, PerfkitError, ServerFailedError, TargetError, UsageError
from perfkit.gate.pairs import GateObserver, Stage
from perfkit.load.loop import StopCause
from perfkit.machine.cpus import usable_cpus
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import InterleavedCase, RunProcesses, measure_interleaved
from perfkit.measurement.run_target import placed_command, run_command
from perfkit.override import override
from perfkit.result.model import Result
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import LoadSpec
from perfkit.scenario.measure import WarmUp
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address, redacted_url
from perfkit.target.command import COMMAND_PREFIX, ShellSyntaxError, check_ports, command_words, takes_ports
from perfkit.target.started_server import RunningServer, ServerEnd
from perfkit.telemetry.messages import PUSH_FAILED, PublishConfig
from perfkit.units import NS_PER_S
from perfkit.workers.local import place

PREFIX = COMMAND_PREFIX
READY_WITHIN_NS = 60 * NS_PER_S
_SCRIPTS = {".jar", ".py", ".so"}
_ENDS_WITHIN_S = 2
_KEPT_LOG_BYTES = 2**16


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """The target of an arm: a URL, or a command that starts a server."""

    url: str | None = None
    command: str | None = None
    folder: pathlib.Path | None = None
    """The command's working folder; None: that of perfkit."""

    def __str__(self) -> str:
        if self.command is None:
            return redacted_url(self.url or "")
        return f"{PREFIX}{self.command}{'' if self.folder is None else f' in {self.folder}'}"

    @property
    def files(self) -> dict[str, str]:
        """The programs and scripts that the command names, each with size and modification time, which change with a new build.

        Other files are left out, since the server may write them.
        """
        files = {}
        for number, word in enumerate(command_words(self.command) if self.command is not None else ()):
            path = pathlib.Path(self.folder or "", (shutil.which(word) if number == 0 else None) or word)
            with contextlib.suppress(OSError, ValueError):
                if path.is_file() and (os.access(path, os.X_OK) or path.suffix in _SCRIPTS):
                    status = path.stat()
                    files[str(path)] = f"{status.st_size} bytes, changed at {status.st_mtime_ns} ns"
        return files


def parse_arm(option: str, text: str, scenario: Scenario) -> Arm:
    """Read a target: `http://...`, `grpc://...`, or `cmd:...`; raises UsageError."""
    if not text.startswith(PREFIX):
        try:
            Address.parse(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}; or cmd: followed by a command that starts the server") from None
        return Arm(url=text)
    command = text.removeprefix(PREFIX)
    if len(scenario.target.load_protocols) > 1:
        raise UsageError(f"target.{'urls' if scenario.target.urls else 'protocols'}: a gate uses one protocol; name one of them")
    try:
        command_words(command)
        if takes_ports(command) or not scenario.target.urls_by_protocol:
            check_ports(command, scenario.target.load_protocols)
    except ShellSyntaxError as error:
        quoted = _in_double_quotes(f"{PREFIX}{error.instead}")
        raise UsageError(f"{option} {text}: {error.what}, and perfkit runs a command without a shell: write {option} {quoted}") from None
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    return Arm(command=command)


def _in_double_quotes(text: str) -> str:
    """A word for a shell, in double quotes where they leave it readable."""
    return shlex.quote(text) if set(text) & set('"$`\\!') else f'"{text}"'


@dataclasses.dataclass(frozen=True, slots=True)
class GateContext:
    """What all runs of a gate share."""

    loaded: LoadedScenario
    interruption: Interruption
    clock: Clock
    folder: pathlib.Path
    """Receives the runs' result folders and the servers' logs."""
    observer: GateObserver
    processes: RunProcesses
    ready_within_ns: int | None = None
    """How long a server has until its model is ready; None for the scenario's `target.ready_within`, or 60 s."""
    publish_at: PublishConfig | None = None
    """Where the live metrics of its runs are pushed."""
    said: set[str] = dataclasses.field(default_factory=set)
    """What was said about the machines of a fleet, and about what is pushed; each run says the same."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunningTarget:
    """The target of an arm while it can be measured."""

    url: str
    cpus: tuple[int, ...]
    """The load generator's CPUs; empty for no pinning."""
    pid: int | None = None
    """The first process of a server that a command started."""
    conflict: str = ""
    """A sentence if perfkit placed server and load generator on the same CPUs."""

    def __str__(self) -> str:
        return redacted_url(self.url)


@contextlib.asynccontextmanager
async def running_target(arm: Arm, context: GateContext, stage: Stage) -> AsyncIterator[RunningTarget]:
    """The arm's target for the length of the block; a command is started and stopped. Raises TargetError."""
    scenario = context.loaded.scenario
    context.observer.run_started(stage)
    if arm.command is None:
        assert arm.url is not None
        yield RunningTarget(arm.url, scenario.measure.cpus or ())
        return
    target = scenario.target
    given_ns = target.ready_within_ns if "ready_within_ns" in target.model_fields_set else READY_WITHIN_NS
    command, urls = placed_command(arm.command, target.load_protocols)
    (url,) = urls.values() or (given[0] for given in target.urls_by_protocol.values())
    started = scenario.model_copy(update={"target": target.model_copy(update={"command": arm.command})})
    placement = place(started, usable_cpus())
    address = resolve_address(target, url, context.loaded.folder)
    context.folder.mkdir(parents=True, exist_ok=True)
    log = context.folder / stage.log_name
    log.unlink(missing_ok=True)  # an earlier attempt's
    async with (
        run_command(
            command,
            urls,
            [(target, address)],
            cpus=placement.server,
            log=log,
            clock=context.clock,
            ready_within_ns=context.ready_within_ns or given_ns,
            limit_key="--ready-timeout",
            on_line=lambda line: context.observer.message(f"{stage.phase}, {stage.arm}: {line}"),
            folder=arm.folder,
        ) as server,
        _watched(server, context.interruption),
    ):
        yield RunningTarget(url, placement.driver, server.pid, placement.conflict)
    _shorten(log)


@contextlib.asynccontextmanager
async def _watched(server: RunningServer, interruption: Interruption) -> AsyncIterator[None]:
    """Ends the load when the server ends during the block, and then raises ServerFailedError, also in place of what else was raised."""

    def stop_load(ended: "asyncio.Task[ServerEnd]") -> None:
        if not ended.cancelled() and interruption.loop is not None:
            interruption.loop.stop(f"the server {ended.result().how}", StopCause.TARGET_LOST)

    server.ended.add_done_callback(stop_load)
    failure: PerfkitError | None = None
    try:
        yield
    except PerfkitError as error:
        failure = error
    finally:
        server.ended.remove_done_callback(stop_load)
    if isinstance(failure, TargetError):
        await asyncio.wait([server.ended], timeout=_ENDS_WITHIN_S)  # a connection breaks before the process has ended
    if server.ended.done():
        end = server.ended.result()
        raise ServerFailedError(f"the server {end.how} while it was measured", status=end.status, last_lines=end.last_lines) from failure
    if isinstance(failure, TargetError):
        raise ServerFailedError(str(failure), last_lines=server.last_lines()) from failure
    if failure is not None:
        raise failure


def _shorten(log: pathlib.Path) -> None:
    """Keeps the end of the log of a run that did not fail."""
    with log.open("r+b") as file:
        if file.seek(0, os.SEEK_END) > _KEPT_LOG_BYTES:
            file.seek(-_KEPT_LOG_BYTES, os.SEEK_END)
            end = file.read()
            file.seek(0)
            file.write(end)
            file.truncate()


@dataclasses.dataclass(frozen=True, slots=True)
class RunSpec:
    """One load to measure on a running target; None stands for the scenario's own value."""

    load: LoadSpec
    seed: int | None = None
    warmup_ns: int | None = None
    window_ns: int | None = None
    repetitions: int = 1


class _RunNotes(RunObserver):
    """Passes on what a run says of its fleet, such as what to run on its machines, and that metrics are not pushed: each sentence once in a gate."""

    def __init__(self, context: GateContext) -> None:
        self._context = context

    @override
    def note_added(self, note: str) -> None:
        context = self._context
        if (context.loaded.scenario.fleet is not None or note.startswith(PUSH_FAILED)) and note not in context.said:
            context.said.add(note)
            context.observer.message(note)


async def measure_loads(specs: Sequence[RunSpec], target: RunningTarget, context: GateContext, name: str) -> list[Result]:
    """Measure loads one after the other, and store their results under `name` and a number in the context's folder.

    Raises what `measure_scenario` raises, TargetError also if the target is lost during the run, and CancelledError if it was
    interrupted.
    """
    cases = [
        # what is only in doubt in the trial would lengthen every run
        InterleavedCase("", _with_spec(context.loaded, spec, target), context.folder / f"{name}-{number}", extends_in_doubt=False)
        for number, spec in enumerate(specs)
    ]
    results = []
    outcomes = await measure_interleaved(
        cases,
        _RunNotes(context),
        context.interruption,
        clock=context.clock,
        publish_at=context.publish_at and dataclasses.replace(context.publish_at, run=name),
        server_pid=target.pid,
        processes=context.processes,
    )
    for measured in outcomes:
        if isinstance(measured, PerfkitError):
            raise measured
        if measured.not_stored:
            raise MeasurementError(measured.not_stored)
        if measured.result.status == "interrupted" or context.interruption.count:
            raise asyncio.CancelledError
        if measured.result.status == "incomplete":
            raise TargetError(f"{target}: {measured.result.status_reason}")
        results.append(measured.result)
    return results


def _with_spec(loaded: LoadedScenario, spec: RunSpec, target: RunningTarget) -> LoadedScenario:
    scenario = loaded.scenario
    measure = scenario.measure.model_copy(
        update={
            "repetitions": spec.repetitions,
            "until_decided": False,
            "cpus": target.cpus or None,
            **({} if spec.warmup_ns is None else {"warmup": _warm_up(scenario.model_copy(update={"load": spec.load}), spec.warmup_ns)}),
            **({} if spec.window_ns is None else {"duration_ns": spec.window_ns, "requests": None}),
        }
    )
    changed = {
        "target": scenario.target.model_copy(update={"url": target.url, "urls": None, "protocols": None, "command": None}),
        "load": spec.load,
        "measure": measure,
        **({} if spec.seed is None else {"workload": scenario.workload.model_copy(update={"seed": spec.seed})}),
    }
    return dataclasses.replace(loaded, scenario=scenario.model_copy(update=changed))


def _warm_up(scenario: Scenario, length_ns: int) -> WarmUp:
    """The scenario's warm-up with this length in all; a load of its own is sent if more than that of the load point fits in."""
    given, load_ns = scenario.measure.warmup, length_ns - scenario.own_warmup_ns
    has_load = given.load is not None and load_ns > 0
    return given.model_copy(update={"for_ns": load_ns} if has_load else {"for_ns": length_ns, "load": None})
