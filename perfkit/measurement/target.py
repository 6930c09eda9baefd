"""The target of a run: reached or started, asked what it is, and tried with one request before any load."""

import contextlib
import dataclasses
import os
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from perfkit.errors import ErrorKind, ModelMismatchError, PerfkitError, ProtocolError, TargetError
from perfkit.protocol.message import InferRequest
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.target.address import Address, Protocol
from perfkit.target.bundled_server import BundledServer, bundled_server
from perfkit.transport.base import Outcome, Transport
from perfkit.workload.expectation import Expectation
from perfkit.workload.requests import as_plain, make_requests, payload_sha256, size_of_batches

_LONGEST_ERROR = 1000
_BINARY_EXTENSION = "binary_tensor_data"


@dataclasses.dataclass(frozen=True)
class Target:
    """Addresses by protocol, and the bundled server if that is what stands behind them."""

    addresses: Mapping[Protocol, Address]
    server: BundledServer | None


@dataclasses.dataclass(frozen=True)
class Probed:
    """What the target said of itself over one protocol, the requests that suit it and what answers them.

    `note` is for the result's reader.
    """

    name: str
    version: str
    requests: tuple[InferRequest, ...]
    expectation: Expectation
    probe_time_ns: int
    """How long the first request took."""
    config_sha256: str
    """Of the model's configuration; empty where the server does not tell it."""
    note: str = ""


@contextlib.asynccontextmanager
async def open_target(loaded: LoadedScenario, server_cpus: tuple[int, ...], on_line: Callable[[str], None]) -> AsyncIterator[Target]:
    """The scenario's target, for the length of the block; where it has no URL the bundled server is started.

    Raises ScenarioError where headers or TLS files are not there, TargetError where the server does not start.
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


async def probe(transport: Transport, address: Address, loaded: LoadedScenario) -> Probed:
    """Asks the target for the model's metadata, makes the requests and sends the first one.

    A server that refuses binary tensors, and does not say that it takes them, gets JSON where the scenario leaves that
    open. Raises TargetError where the target is not ready or its answer is not v2, ModelMismatchError where it refuses
    the request; neither shows the target's secrets.
    """
    with _redacted(address):
        scenario = loaded.scenario
        model, version = scenario.target.model, scenario.target.version
        server = await transport.server_metadata()
        # asked for by the scenario's name, whatever the server calls it
        metadata = dataclasses.replace(await transport.model_metadata(model, version), name=model)
        config = await transport.model_config(model, version)
        if not await transport.is_ready(model, version):
            raise TargetError(f"{address}: the server, or its model '{model}', is not ready")
        requests = make_requests(scenario.workload, metadata, config.max_batch_size, version, loaded.folder)
        batch_size = size_of_batches(scenario.workload.batch_size, model, config.max_batch_size)
        expectation = Expectation(requests, metadata, scenario.check, batch_size, loaded.folder)
        name, its_version = address.sanitize(server.name), address.sanitize(server.version)
        may_fall_back = address.protocol == "http" and scenario.workload.encoding == "auto" and _BINARY_EXTENSION not in server.extensions
        try:
            probe_time_ns = await _probe_once(transport, address, requests[0], expectation)
            return Probed(name, its_version, requests, expectation, probe_time_ns, config.sha256)
        except (ModelMismatchError, TargetError):
            plain = tuple(as_plain(request) for request in requests)
            taken_ns = await _takes(transport, address, plain[0], expectation) if may_fall_back else None
            if taken_ns is None:
                raise
            note = "The server refuses binary tensors: requests and answers carry them as JSON, which costs both sides more."
            return Probed(name, its_version, plain, expectation, taken_ns, config.sha256, note)


async def _takes(transport: Transport, address: Address, request: InferRequest, expectation: Expectation) -> int | None:
    try:
        return await _probe_once(transport, address, request, expectation)
    except PerfkitError:
        return None


async def _probe_once(transport: Transport, address: Address, request: InferRequest, expectation: Expectation) -> int:
    """One request before any load, and its time: a target that refuses it is told before minutes are spent."""
    outcome = Outcome.REJECTED
    try:
        prepared = transport.prepare(request)
        reply = await transport.send(prepared)
        outcome = reply.outcome
        response = transport.decode(reply)
    except ProtocolError as error:
        kind = ModelMismatchError if outcome is Outcome.REJECTED and error.kind is ErrorKind.INVALID_ARGUMENT else TargetError
        raise kind(f"{address}: the first request, sent to try, failed: {address.sanitize(str(error))}") from None
    if wrong := expectation.fault(response):
        raise TargetError(f"{address}: the answer to the first request, sent to try, {wrong}")
    return reply.finished_ns - reply.started_ns


@contextlib.contextmanager
def _redacted(address: Address) -> Iterator[None]:
    """Takes the target's secrets out of whatever a server's answer puts into an error."""
    try:
        yield
    except PerfkitError as error:
        raise type(error)(address.sanitize(str(error), _LONGEST_ERROR)) from None


def describe_target(probed: Probed, address: Address, engine: str, server: BundledServer | None) -> dict[str, Any]:
    """The target as a result keeps it; `protocols` is filled by `describe_protocol`."""
    return {
        "name": probed.name,
        "version": probed.version,
        "build": os.environ.get("PERFKIT_SERVER_BUILD", ""),
        "url": str(address),
        "engine": engine,
        "protocols": {},
        "bundled_server": None if server is None else server.description,
    }


def describe_protocol(probed: Probed, address: Address) -> dict[str, Any]:
    """How the target was reached over one protocol, and what was sent to what, by digest."""
    return {
        "path": address.network_path,
        "tls": address.tls is not None,
        "payload_sha256": payload_sha256(probed.requests),
        "model_config_sha256": probed.config_sha256,
    }
