"""An arm of a gate: a server reached at a URL, or started by a command for every run, and its runs."""

import asyncio
import contextlib
import dataclasses
import os
import pathlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from perfkit.clock import Clock
from perfkit.errors import PerfkitError, TargetError, UsageError
from perfkit.machine.host import usable_cpus
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.lifecycle import measure_scenario
from perfkit.result.model import Result
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import LoadSpec
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address, redacted_url
from perfkit.target.command_server import PORT, PREFIX, command_server, command_words, free_port
from perfkit.transport.factory import make_transport
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S
from perfkit.workers.cpu_placement import place

_SERVER_LOG = "server.log"
_SCRIPTS = {".jar", ".py", ".so"}


@dataclasses.dataclass(frozen=True, slots=True)
class Arm:
    """Where an arm is: a URL, or a command."""

    url: str | None = None
    command: str | None = None

    def __str__(self) -> str:
        return f"{PREFIX}{self.command}" if self.command is not None else redacted_url(self.url or "")

    @property
    def files(self) -> dict[str, str]:
        """The programs and scripts that a command names, each with its size and its last change: what changes when one is built anew.

        Other files are left out: a server may write them.
        """
        found = {}
        for number, word in enumerate(command_words(self.command) if self.command is not None else ()):
            path = pathlib.Path((shutil.which(word) if number == 0 else None) or word)
            with contextlib.suppress(OSError, ValueError):
                if path.is_file() and (os.access(path, os.X_OK) or path.suffix in _SCRIPTS):
                    about = path.stat()
                    found[str(path)] = f"{about.st_size} bytes, changed at {about.st_mtime_ns} ns"
        return found


def parse_arm(option: str, text: str, scenario: Scenario) -> Arm:
    """Reads a TARGET: `http://...`, `grpc://...`, or `cmd:...`; raises UsageError."""
    if not text.startswith(PREFIX):
        try:
            Address.parse(text)
        except ValueError as error:
            raise UsageError(f"{option}: {error}; or cmd: and a command that starts the server") from None
        return Arm(url=text)
    command = text.removeprefix(PREFIX)
    words = command_words(command)
    if not any(PORT in word for word in words) and scenario.target.url is None:
        raise UsageError(
            f"{option} {text}: perfkit does not know where that server listens: put {PORT} where it takes its port, or give target.url in "
            "the scenario"
        )
    if scenario.target.url is None and len(scenario.target.load_protocols) > 1:
        raise UsageError("target.protocols: a gate goes over one protocol at a time; name one of them")
    return Arm(command=command)


@dataclasses.dataclass(frozen=True, slots=True)
class GateContext:
    """What all runs of a gate share."""

    loaded: LoadedScenario
    interruption: Interruption
    clock: Clock
    folder: pathlib.Path
    """Where the runs' result folders go."""


@dataclasses.dataclass(frozen=True, slots=True)
class RunningTarget:
    """An arm whose server is there, and the CPUs that are left to the load generator; none for no pinning."""

    url: str
    cpus: tuple[int, ...]
    conflict: str = ""
    """The sentence for CPUs that server and load generator share, where perfkit placed them."""


@contextlib.asynccontextmanager
async def running_target(arm: Arm, bench: GateContext) -> AsyncIterator[RunningTarget]:
    """The arm's server for the length of the block, started and stopped where it is a command. Raises TargetError."""
    scenario = bench.loaded.scenario
    if arm.command is None:
        assert arm.url is not None
        yield RunningTarget(arm.url, scenario.measure.cpus or ())
        return
    url, command = scenario.target.url, arm.command
    if PORT in command:
        port = free_port()
        command, url = command.replace(PORT, str(port)), f"{scenario.target.load_protocols[0]}://127.0.0.1:{port}"
    assert url is not None
    without_url = scenario.model_copy(update={"target": scenario.target.model_copy(update={"url": None})})
    placement = place(without_url, usable_cpus())
    address = resolve_address(scenario.target, url, bench.loaded.folder)
    bench.folder.mkdir(parents=True, exist_ok=True)
    log = bench.folder / _SERVER_LOG
    async with command_server(command, _readiness_check(scenario, address, bench.clock), cpus=placement.server, log=log, clock=bench.clock):
        yield RunningTarget(url, placement.driver, placement.conflict)


def _readiness_check(scenario: Scenario, address: Address, clock: Clock) -> Callable[[], Awaitable[str]]:
    target = scenario.target
    timeout_ns = min(target.timeout_ns, 5 * NS_PER_S)

    async def why_not_ready() -> str:
        transport = make_transport(address, TransportOptions(engine=target.engine, timeout_ns=timeout_ns), clock)
        try:
            is_ready = await transport.is_ready(target.model, target.version)
        except PerfkitError as error:
            return str(error)
        finally:
            await transport.aclose()
        return "" if is_ready else f"its model '{target.model}' is not ready"

    return why_not_ready


@dataclasses.dataclass(frozen=True, slots=True)
class RunSpec:
    """What is run of one load on a served arm: None for what the scenario itself says."""

    load: LoadSpec
    seed: int | None = None
    warmup_ns: int | None = None
    window_ns: int | None = None


async def run_once(stint: RunSpec, at: RunningTarget, bench: GateContext, name: str) -> Result:
    """One run of one repetition, whose result is kept in the bench's folder under that name.

    Raises what `measure_scenario` raises, TargetError also where the target is lost in the middle, and CancelledError where it was
    interrupted.
    """
    variant = _variant(stint, at, bench.loaded)
    measured = await measure_scenario(
        variant, bench.folder / name, RunObserver(), bench.interruption, clock=bench.clock, keep_incomplete=False
    )
    result = measured.result
    if result.status == "interrupted" or bench.interruption.count:
        raise asyncio.CancelledError
    if result.status == "incomplete":
        raise TargetError(f"{at_text(at)}: {result.status_reason}")
    return result


async def run_in_turn(run_specs: Sequence[RunSpec], at: RunningTarget, bench: GateContext, name: str) -> tuple[Result, ...]:
    """One load after the other on the same server process."""
    return tuple([await run_once(stint, at, bench, f"{name}-{number}") for number, stint in enumerate(run_specs)])


def at_text(at: RunningTarget) -> str:
    """Where it is served, without secrets."""
    return redacted_url(at.url)


def _variant(stint: RunSpec, at: RunningTarget, loaded: LoadedScenario) -> LoadedScenario:
    scenario = loaded.scenario
    measure = scenario.measure.model_copy(
        update={
            "repetitions": 1,
            "cpus": at.cpus or None,
            **({} if stint.warmup_ns is None else {"warmup_ns": stint.warmup_ns}),
            **({} if stint.window_ns is None else {"duration_ns": stint.window_ns, "requests": None}),
        }
    )
    changed = {
        "target": scenario.target.model_copy(update={"url": at.url, "protocols": None}),
        "load": stint.load,
        "measure": measure,
        **({} if stint.seed is None else {"workload": scenario.workload.model_copy(update={"seed": stint.seed})}),
    }
    return dataclasses.replace(loaded, scenario=scenario.model_copy(update=changed))
