"""An arm of a gate: a server at a URL, or one that a command starts anew for every run; and the runs against it."""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import AsyncIterator

from perfkit.clock import Clock
from perfkit.errors import MeasurementError, TargetError, UsageError
from perfkit.machine.cpus import usable_cpus
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.measurement.run_target import placed_command, run_command
from perfkit.result.file import SERVER_LOG
from perfkit.result.model import Result
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import LoadSpec
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address, redacted_url
from perfkit.target.command import check_ports, command_words, takes_ports
from perfkit.workers.cpu_placement import place

PREFIX = "cmd:"
_SCRIPTS = {".jar", ".py", ".so"}


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """The target of an arm: a URL, or a command that starts a server."""

    url: str | None = None
    command: str | None = None

    def __str__(self) -> str:
        return f"{PREFIX}{self.command}" if self.command is not None else redacted_url(self.url or "")

    @property
    def files(self) -> dict[str, str]:
        """The programs and scripts that the command names, each with size and modification time, which change with a new build.

        Other files are left out, since the server may write them.
        """
        files = {}
        for number, word in enumerate(command_words(self.command) if self.command is not None else ()):
            path = pathlib.Path((shutil.which(word) if number == 0 else None) or word)
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
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from None
    return Arm(command=command)


@dataclasses.dataclass(frozen=True, slots=True)
class GateContext:
    """What all runs of a gate share."""

    loaded: LoadedScenario
    interruption: Interruption
    clock: Clock
    folder: pathlib.Path
    """Receives the runs' result folders."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunningTarget:
    """The target of an arm while it can be measured."""

    url: str
    cpus: tuple[int, ...]
    """The load generator's CPUs; empty for no pinning."""
    conflict: str = ""
    """A sentence if perfkit placed server and load generator on the same CPUs."""

    def __str__(self) -> str:
        return redacted_url(self.url)


@contextlib.asynccontextmanager
async def running_target(arm: Arm, context: GateContext) -> AsyncIterator[RunningTarget]:
    """The arm's target for the length of the block; a command is started and stopped. Raises TargetError."""
    scenario = context.loaded.scenario
    if arm.command is None:
        assert arm.url is not None
        yield RunningTarget(arm.url, scenario.measure.cpus or ())
        return
    target = scenario.target
    command, urls = placed_command(arm.command, target.load_protocols)
    (url,) = urls.values() or (given[0] for given in target.urls_by_protocol.values())
    started = scenario.model_copy(update={"target": target.model_copy(update={"command": arm.command})})
    placement = place(started, usable_cpus())
    address = resolve_address(target, url, context.loaded.folder)
    context.folder.mkdir(parents=True, exist_ok=True)
    log, limit_ns = context.folder / SERVER_LOG, target.ready_within_ns
    async with run_command(
        command, urls, [(target, address)], cpus=placement.server, log=log, clock=context.clock, ready_within_ns=limit_ns
    ):
        yield RunningTarget(url, placement.driver, placement.conflict)


@dataclasses.dataclass(frozen=True, slots=True)
class RunSpec:
    """One load to measure on a running target; None stands for the scenario's own value."""

    load: LoadSpec
    seed: int | None = None
    warmup_ns: int | None = None
    window_ns: int | None = None


async def measure_load(spec: RunSpec, target: RunningTarget, context: GateContext, name: str) -> Result:
    """Measure one repetition of a load, and store its result under `name` in the context's folder.

    Raises what `measure_scenario` raises, TargetError also if the target is lost during the run, and CancelledError if it was
    interrupted.
    """
    variant = _with_spec(context.loaded, spec, target)
    measured = await measure_scenario(
        variant, context.folder / name, RunObserver(), context.interruption, clock=context.clock, keep_incomplete=False
    )
    result = measured.result
    if measured.not_stored:
        raise MeasurementError(measured.not_stored)
    if result.status == "interrupted" or context.interruption.count:
        raise asyncio.CancelledError
    if result.status == "incomplete":
        raise TargetError(f"{target}: {result.status_reason}")
    return result


def _with_spec(loaded: LoadedScenario, spec: RunSpec, target: RunningTarget) -> LoadedScenario:
    scenario = loaded.scenario
    measure = scenario.measure.model_copy(
        update={
            "repetitions": 1,
            "cpus": target.cpus or None,
            **({} if spec.warmup_ns is None else {"warmup_ns": spec.warmup_ns}),
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
