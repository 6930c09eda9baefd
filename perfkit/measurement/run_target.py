"""The target of a run: a server at a URL, one that the scenario's command starts, or the bundled server."""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import MissingEndpointError, PerfkitError
from perfkit.scenario.credentials import resolve_replicas
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import ColdStartLoadSpec
from perfkit.scenario.secret_values import SecretRereading
from perfkit.scenario.target import Target
from perfkit.target.address import Address, WireProtocol
from perfkit.target.command import takes_ports, with_ports
from perfkit.target.started_server import RunningServer, StartedServer, bundled_server, command_server, free_ports
from perfkit.target_client import make_client
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S, format_duration_ns, write_duration_ns

WorkloadKey = tuple[str | None, WireProtocol]
"""The name of a workload, None for a scenario that is no mix, and its protocol."""

_READINESS_TIMEOUT_NS = 5 * NS_PER_S


@dataclasses.dataclass(frozen=True)
class RunTarget:
    """The target's addresses by workload and protocol, and the server if it was started for the run."""

    addresses: Mapping[WorkloadKey, Address]
    server: StartedServer | None
    resolve: Callable[[SecretRereading], Mapping[WorkloadKey, Address]] = lambda _: {}
    """Gives the same addresses with the secrets read again; it may block, and raises ScenarioError."""
    started_urls: Mapping[WireProtocol, str] = dataclasses.field(default_factory=dict)
    """The URLs of a server that was started for the run, unless the scenario has its URLs."""

    def of(self, loaded: LoadedScenario) -> "RunTarget":
        """The same server as another scenario names it, which may speak another API or protocol."""
        return dataclasses.replace(self, addresses=_addresses(loaded, self.started_urls))


@contextlib.asynccontextmanager
async def open_target(
    loaded: LoadedScenario,
    server_cpus: tuple[int, ...],
    on_line: Callable[[str], None],
    log: pathlib.Path,
    clock: Clock | None = None,
    *,
    shares_memory: bool = False,
    trace_url: str | None = None,
) -> AsyncIterator[RunTarget]:
    """Gives the scenario's target; a server that its command starts, or the bundled one, runs for the length of the block.

    `on_line` gets what is said of the start, and `log` the output of a command. With `shares_memory` clients may register shared memory
    with the bundled server, which sends spans of traced requests to `trace_url`. Raises ScenarioError if a header's variable or a TLS file
    is missing, TargetError if the server does not start.
    """
    clock = clock or MonotonicClock()
    started = [one for one in _targets(loaded).values() if one.is_started]
    if not started:
        yield RunTarget(_addresses(loaded, {}), None, functools.partial(_addresses, loaded, {}))
        return
    if (command := started[0].command) is None:
        server = StartedServer(
            "bundled_server", _bundled(loaded, server_cpus, on_line, clock, shares_memory=shares_memory, trace_url=trace_url)
        )
    else:
        ready_within_ns = started[0].ready_within_ns
        command, urls = placed_command(command, list(dict.fromkeys(protocol for one in started for protocol in one.load_protocols)))
        asked = [(_targets(loaded)[name], address) for (name, _), address in _addresses(loaded, urls).items()]
        run = functools.partial(
            run_command, command, urls, [one for one in asked if one[0].is_started],
            cpus=server_cpus, log=log, clock=clock, ready_within_ns=ready_within_ns, on_line=on_line,
        )  # fmt: skip
        server = StartedServer("command_server", run)
        on_line(f"starting `{command}`, which has {write_duration_ns(ready_within_ns)} until its model is ready")
    try:
        running = await server.start()
        if command is not None:
            on_line(f"ready after {format_duration_ns(running.description['ready_after_s'] * NS_PER_S)}")
        yield RunTarget(_addresses(loaded, running.urls), server, functools.partial(_addresses, loaded, running.urls), running.urls)
    finally:
        await server.stop()


def placed_command(command: str, protocols: Sequence[WireProtocol]) -> tuple[str, dict[WireProtocol, str]]:
    """A command with free ports of the loopback, and its server's URLs; the command itself and no URL if it takes no ports."""
    if not takes_ports(command):
        return command, {}
    http_port, grpc_port = free_ports(2)
    ports: dict[WireProtocol, int] = {"http": http_port, "grpc": grpc_port}
    return with_ports(command, protocols, ports), {protocol: f"{protocol}://127.0.0.1:{ports[protocol]}" for protocol in protocols}


@contextlib.asynccontextmanager
async def run_command(
    command: str,
    urls: Mapping[WireProtocol, str],
    asked: Sequence[tuple[Target, Address]],
    *,
    cpus: tuple[int, ...],
    log: pathlib.Path,
    clock: Clock,
    ready_within_ns: int,
    limit_key: str = "target.ready_within",
    on_line: Callable[[str], None] = lambda _: None,
    folder: pathlib.Path | None = None,
) -> AsyncIterator[RunningServer]:
    """Runs a command for the length of the block, which begins when the model of each target is ready at its address; see `command_server`.

    Raises TargetError if the server does not start, UsageError for TLS files that cannot be used.
    """

    async def why_not_ready() -> str:
        for target, address in asked:
            if reason := await _why_not_ready(target, address, clock):
                return reason
        return ""

    def redact(text: str) -> str:
        return functools.reduce(lambda redacted, one: one[1].redact(redacted), asked, text)

    async with command_server(
        command,
        why_not_ready,
        cpus=cpus,
        log=log,
        clock=clock,
        ready_within_ns=ready_within_ns,
        limit_key=limit_key,
        ports={address.port for _, address in asked if address.port},
        on_line=on_line,
        redact=redact,
        folder=folder,
    ) as running:
        yield dataclasses.replace(running, urls=urls)


async def _why_not_ready(target: Target, address: Address, clock: Clock) -> str:
    """Why the target's model is not ready at the address; empty if it is. Raises UsageError for TLS files that cannot be used."""
    options = TransportOptions(engine=target.engine, timeout_ns=min(target.timeout_ns, _READINESS_TIMEOUT_NS))
    async with contextlib.aclosing(make_client(address, options, clock)) as client:  # raises what waiting does not mend
        try:
            return "" if await client.is_ready(target.model, target.version) else f"its model '{target.model}' is not ready"
        except MissingEndpointError:  # it answers, and the run's first request shows the rest
            return ""
        except PerfkitError as error:
            return str(error)


def _targets(loaded: LoadedScenario) -> dict[str | None, Target]:
    """The target of each workload by its name, None for a scenario that is no mix."""
    names: list[str | None] = [entry.name for entry in loaded.scenario.workloads or ()] or [None]
    return dict(zip(names, (plain.target for plain in loaded.scenario.plain_scenarios()), strict=True))


def _addresses(
    loaded: LoadedScenario, urls_of_server: Mapping[WireProtocol, str], rereading: SecretRereading | None = None
) -> dict[WorkloadKey, Address]:
    return {
        (name, protocol): resolve_replicas(one, one.urls_by_protocol.get(protocol) or (urls_of_server[protocol],), loaded.folder, rereading)
        for name, one in _targets(loaded).items()
        for protocol in one.load_protocols
    }


def _bundled(
    loaded: LoadedScenario,
    cpus: tuple[int, ...],
    on_line: Callable[[str], None],
    clock: Clock,
    *,
    shares_memory: bool,
    trace_url: str | None,
) -> Callable[[], AbstractAsyncContextManager[RunningServer]]:
    """Runs the bundled server with the models that are sent to it, on the same ports if it is to be restarted."""
    options, load = loaded.scenario.server, loaded.scenario.load
    start = load.cold_start.by if isinstance(load, ColdStartLoadSpec) else None
    http_port, grpc_port = free_ports(2) if start == "restart" else (0, 0)
    return lambda: bundled_server(
        *dict.fromkeys(one.model for one in _targets(loaded).values() if one.is_started),
        device=options.device,
        threads=options.threads or max(1, len(cpus)),
        cpus=cpus,
        onnx=() if options.onnx is None else options.onnx.arguments(),
        synthetic=options.synthetic,
        allow_client_shm=shares_memory,
        is_explicit=start == "reload",
        trace_url=trace_url,
        ports=(http_port, grpc_port),
        on_line=on_line,
        clock=clock,
    )
