"""The target of a run: the addresses to which each workload is sent, and the bundled server where the scenario names none."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

from perfkit.clock import Clock, MonotonicClock
from perfkit.scenario.credentials import resolve_replicas
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import ColdStartLoadSpec
from perfkit.target.address import Address, WireProtocol
from perfkit.target.bundled_server import BundledServer, RestartableServer, bundled_server

WorkloadKey = tuple[str | None, WireProtocol]
"""The name of a workload, None for a scenario that is no mix, and its protocol."""


@dataclasses.dataclass(frozen=True)
class RunTarget:
    """The target's addresses by workload and protocol, and the bundled server if it was started for the run."""

    addresses: Mapping[WorkloadKey, Address]
    server: BundledServer | None
    restart: Callable[[], Awaitable[int]] | None = None
    """Restarts the bundled server at the same addresses; see `RestartableServer.restart`."""


@contextlib.asynccontextmanager
async def open_target(
    loaded: LoadedScenario,
    server_cpus: tuple[int, ...],
    on_line: Callable[[str], None],
    clock: Clock | None = None,
    *,
    shares_memory: bool = False,
) -> AsyncIterator[RunTarget]:
    """Gives the scenario's target; workloads without a URL are sent to the bundled server, which runs for the length of the block.

    With `shares_memory` clients may register shared memory there.
    Raises ScenarioError if a header's variable or a TLS file is missing, TargetError if the server does not start.
    """
    scenario = loaded.scenario
    names: list[str | None] = [entry.name for entry in scenario.workloads or ()] or [None]
    plain = list(zip(names, scenario.plain_scenarios(), strict=True))
    bundled = [one for _, one in plain if not one.target.urls_by_protocol]

    def addresses(urls_of_server: Mapping[WireProtocol, str]) -> dict[WorkloadKey, Address]:
        return {
            (name, protocol): resolve_replicas(
                one.target, one.target.urls_by_protocol.get(protocol) or (urls_of_server[protocol],), loaded.folder
            )
            for name, one in plain
            for protocol in one.target.load_protocols
        }

    if not bundled:
        yield RunTarget(addresses({}), None)
        return
    options = scenario.server
    start = scenario.load.cold_start.by if isinstance(scenario.load, ColdStartLoadSpec) else None

    def run_server(ports: tuple[int, int] = (0, 0)) -> AbstractAsyncContextManager[BundledServer]:
        return bundled_server(
            *dict.fromkeys(one.target.model for one in bundled),
            device=options.device,
            threads=options.threads or max(1, len(server_cpus)),
            cpus=server_cpus,
            onnx=() if options.onnx is None else options.onnx.arguments(),
            synthetic=options.synthetic,
            allow_client_shm=shares_memory,
            is_explicit=start == "reload",
            ports=ports,
            on_line=on_line,
            clock=clock,
        )

    if start == "restart":
        restartable = RestartableServer(run_server, clock or MonotonicClock())
        try:
            server = await restartable.start()
            yield RunTarget(addresses(server.urls), server, restartable.restart)
        finally:
            await restartable.stop()
        return
    async with run_server() as server:
        yield RunTarget(addresses(server.urls), server)
