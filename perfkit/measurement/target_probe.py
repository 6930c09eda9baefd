"""Opens the target of a run, reads its model's metadata, and sends it one request before any load."""

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from perfkit.errors import ErrorKind, ModelMismatchError, PerfkitError, ProtocolError, TargetError
from perfkit.protocol.message import InferRequest
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.target.address import Address, WireProtocol
from perfkit.target.bundled_server import BundledServer, bundled_server
from perfkit.transport.base import Outcome, Transport
from perfkit.workload.expectation import Expectation
from perfkit.workload.requests import as_plain, make_requests, payload_sha256, resolve_batch_size

_LONGEST_ERROR = 1000
_BINARY_EXTENSION = "binary_tensor_data"


@dataclasses.dataclass(frozen=True)
class Target:
    """The target's addresses by protocol, and the bundled server if it was started for the run."""

    addresses: Mapping[WireProtocol, Address]
    server: BundledServer | None


@dataclasses.dataclass(frozen=True)
class ProbeResult:
    """What the target says about itself over one protocol, and the requests made for its model."""

    name: str
    version: str
    requests: tuple[InferRequest, ...]
    expectation: Expectation
    probe_time_ns: int
    """The service time of the first request, which was alone."""
    config_sha256: str
    """Digest of the model's configuration; empty if the server does not report it."""
    note: str = ""
    """A sentence for the result's warnings."""


@contextlib.asynccontextmanager
async def open_target(loaded: LoadedScenario, server_cpus: tuple[int, ...], on_line: Callable[[str], None]) -> AsyncIterator[Target]:
    """Gives the scenario's target; without a URL it is the bundled server, which runs for the length of the block.

    Raises ScenarioError if a header's variable or a TLS file is missing, TargetError if the server does not start.
    """
    scenario = loaded.scenario
    target, protocols = scenario.target, scenario.target.load_protocols
    if target.url is not None:
        yield Target({protocols[0]: resolve_address(target, target.url, loaded.folder)}, None)
        return
    threads = scenario.server.threads or max(1, len(server_cpus))
    options = scenario.server
    async with bundled_server(
        target.model, device=options.device, threads=threads, cpus=server_cpus, synthetic=options.synthetic, on_line=on_line
    ) as server:
        yield Target({protocol: resolve_address(target, server.urls[protocol], loaded.folder) for protocol in protocols}, server)


async def probe(transport: Transport, address: Address, loaded: LoadedScenario) -> ProbeResult:
    """Reads the model's metadata, makes the requests, and sends the first one.

    If the server refuses it with binary tensors, does not list their extension, and the scenario leaves the encoding open, the
    requests carry JSON instead. Raises TargetError if the target is not ready or its answer is not v2, ModelMismatchError if it
    refuses the request; neither message shows the target's secrets.
    """
    with _redacted(address):
        scenario = loaded.scenario
        model, version = scenario.target.model, scenario.target.version
        server = await transport.server_metadata()
        # requests name the model as the scenario does, whatever name the metadata has
        metadata = dataclasses.replace(await transport.model_metadata(model, version), name=model)
        config = await transport.model_config(model, version)
        if not await transport.is_ready(model, version):
            raise TargetError(f"{address}: the server, or its model '{model}', is not ready")
        requests = make_requests(scenario.workload, metadata, config.max_batch_size, version, loaded.folder)
        batch_size = resolve_batch_size(scenario.workload.batch_size, model, config.max_batch_size)
        expectation = Expectation(requests, metadata, scenario.check, batch_size, loaded.folder)
        server_name, server_version = address.sanitize(server.name), address.sanitize(server.version)
        may_fall_back = address.protocol == "http" and scenario.workload.encoding == "auto" and _BINARY_EXTENSION not in server.extensions
        note = ""
        try:
            probe_time_ns = await _probe_once(transport, address, requests[0], expectation)
        except (ModelMismatchError, TargetError) as refusal:
            if not may_fall_back:
                raise
            requests = tuple(as_plain(request) for request in requests)
            try:
                probe_time_ns = await _probe_once(transport, address, requests[0], expectation)
            except PerfkitError:
                raise refusal from None
            note = "The server refuses binary tensors: requests and responses carry JSON tensors, which cost both sides more CPU time."
        return ProbeResult(server_name, server_version, requests, expectation, probe_time_ns, config.sha256, note)


async def _probe_once(transport: Transport, address: Address, request: InferRequest, expectation: Expectation) -> int:
    """Sends one request and returns its service time, so that a refusal is reported before any load is sent."""
    outcome = Outcome.REJECTED
    try:
        prepared = transport.prepare(request)
        reply = await transport.send(prepared)
        outcome = reply.outcome
        response = transport.decode(reply)
    except ProtocolError as error:
        kind = ModelMismatchError if outcome is Outcome.REJECTED and error.kind is ErrorKind.INVALID_ARGUMENT else TargetError
        raise kind(f"{address}: the probe request failed: {address.sanitize(str(error))}") from None
    if fault := expectation.fault(response):
        raise TargetError(f"{address}: the response to the probe request {fault}")
    return reply.finished_ns - reply.started_ns


@contextlib.contextmanager
def _redacted(address: Address) -> Iterator[None]:
    """Removes the target's secrets from errors, which may quote the server's answer."""
    try:
        yield
    except PerfkitError as error:
        raise type(error)(address.sanitize(str(error), _LONGEST_ERROR)) from None


def describe_target(probed: ProbeResult, address: Address, engine: str, server: BundledServer | None) -> dict[str, Any]:
    """The target as a result describes it; the caller fills `protocols` with `describe_protocol`."""
    return {
        "name": probed.name,
        "version": probed.version,
        "build": os.environ.get("PERFKIT_SERVER_BUILD", ""),
        "url": str(address),
        "engine": engine,
        "protocols": {},
        "bundled_server": None if server is None else server.description,
    }


def describe_protocol(probed: ProbeResult, address: Address) -> dict[str, Any]:
    """The connection to the target over one protocol, and digests of the requests and of the model's configuration."""
    return {
        "path": address.network_path,
        "tls": address.tls is not None,
        "payload_sha256": payload_sha256(probed.requests),
        "model_config_sha256": probed.config_sha256,
    }
