"""Opens the target of a run, reads its model's metadata, and sends it one request before any load."""

import asyncio
import contextlib
import dataclasses
import functools
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from perfkit.clock import Clock
from perfkit.errors import ErrorKind, MeasurementWarning, ModelMismatchError, PerfkitError, ProtocolError, TargetError
from perfkit.machine.memory import MemoryBudget
from perfkit.measurement.offered_models import offered_instead
from perfkit.measurement.trial_requests import TrialRequests
from perfkit.protocol.message import ComposingModel, InferRequest, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.target.address import Address, WireProtocol
from perfkit.target.bundled_server import BundledServer, bundled_server
from perfkit.transport.base import Outcome, Transport, may_pass
from perfkit.transport.limits import AnswerLimit, limit_for_load
from perfkit.transport.other_protocol import other_protocol_named
from perfkit.workload.expectation import Expectation
from perfkit.workload.generated import Checkpoint
from perfkit.workload.requests import (
    are_inputs_declared,
    as_plain,
    check_omitted,
    make_requests,
    payload_sha256,
    reserve_plain,
    resolve_batch_size,
)

_T = TypeVar("_T")
_LONGEST_ERROR = 1000
_JSON_TENSORS = MeasurementWarning(
    "json_tensors", "The server refuses binary tensors: requests and responses carry JSON tensors, which cost both sides more CPU time."
)
_MAX_COMPOSING_MODELS = 50
# statuses of a wrong request; MLServer and KServe answer them for errors of the model, too
_MODEL_ERRORS = (400, "INVALID_ARGUMENT")
_BINARY_EXTENSION = "binary_tensor_data"


@dataclasses.dataclass(frozen=True)
class Target:
    """The target's addresses by protocol, and the bundled server if it was started for the run."""

    addresses: Mapping[WireProtocol, Address]
    server: BundledServer | None


@dataclasses.dataclass(frozen=True)
class ProbeResult:
    """The target's description over one protocol, and the requests made for its model."""

    name: str
    version: str
    requests: tuple[InferRequest, ...]
    payload_sha256: str
    """Digest of the requests."""
    expectation: Expectation
    probe_time_ns: int
    """The service time of the first request, which was sent alone."""
    config_sha256: str
    """Digest of the model's configuration; empty if the server does not report it."""
    answer_limit: AnswerLimit
    """The length from which an answer is refused under load."""
    warnings: tuple[MeasurementWarning, ...] = ()
    """The warnings of the probe, for the result."""
    composing_models: tuple[ComposingModel, ...] = ()
    """The models of an ensemble's steps, and of theirs."""


@contextlib.asynccontextmanager
async def open_target(
    loaded: LoadedScenario, server_cpus: tuple[int, ...], on_line: Callable[[str], None], clock: Clock | None = None
) -> AsyncIterator[Target]:
    """Gives the scenario's target; without URLs it is the bundled server, which runs for the length of the block.

    Raises ScenarioError if a header's variable or a TLS file is missing, TargetError if the server does not start.
    """
    scenario = loaded.scenario
    target, protocols = scenario.target, scenario.target.load_protocols
    if urls := target.urls_by_protocol:
        yield Target({protocol: resolve_address(target, url, loaded.folder) for protocol, url in urls.items()}, None)
        return
    threads = scenario.server.threads or max(1, len(server_cpus))
    options = scenario.server
    async with bundled_server(
        target.model,
        device=options.device,
        threads=threads,
        cpus=server_cpus,
        onnx=() if options.onnx is None else options.onnx.arguments(),
        synthetic=options.synthetic,
        on_line=on_line,
        clock=clock,
    ) as server:
        yield Target({protocol: resolve_address(target, server.urls[protocol], loaded.folder) for protocol in protocols}, server)


async def probe(transport: Transport, address: Address, loaded: LoadedScenario, clock: Clock) -> ProbeResult:
    """Reads the model's metadata, makes the requests, and sends the first one.

    What failed for a reason that may pass is sent again; see `TrialRequests`. If the server refuses the request with binary
    tensors, does not list their extension, and the scenario leaves the encoding open, the requests carry JSON instead. Raises
    TargetError if the target is not ready or its answer is not v2, ModelMismatchError if it refuses the request; neither message
    shows the target's secrets.
    """
    trials, scenario = TrialRequests(clock), loaded.scenario
    workload, target = scenario.workload, scenario.target
    with _redacted(address):
        described = await _describe(transport, address, loaded, trials)
        metadata, config = described.metadata, described.config
        check_omitted(workload, target.model, config.required_inputs)
        budget = MemoryBudget()

        def make(checkpoint: Checkpoint) -> tuple[tuple[InferRequest, ...], Expectation]:
            folder, max_batch_size = loaded.folder, config.max_batch_size
            requests = make_requests(workload, metadata, max_batch_size, target.version, folder, budget=budget, checkpoint=checkpoint)
            batch_size = resolve_batch_size(workload.batch_size, target.model, max_batch_size)
            return requests, Expectation(requests, metadata, scenario.check, batch_size, folder, budget)

        requests, expectation = await _in_thread(make)
        is_binary_announced = _BINARY_EXTENSION in described.server.extensions
        may_fall_back = address.protocol == "http" and workload.encoding == "auto" and not is_binary_announced
        notes = [] if described.gap is None else [described.gap]
        send = functools.partial(_probe_once, transport, address, expectation)
        try:
            if may_fall_back:
                requests, (probe_time_ns, answer_bytes), is_json = await _choose_encoding(send, requests, trials, budget)
                if is_json:
                    notes.append(_JSON_TENSORS)
            else:
                probe_time_ns, answer_bytes = await trials.run(lambda: send(requests[0]))
        except (ModelMismatchError, TargetError) as error:
            raise type(error)(" ".join((f"{error}.", *(note.message for note in notes))) if notes else str(error)) from None
        notes += trials.warnings()
        return ProbeResult(
            name=address.sanitize(described.server.name),
            version=address.sanitize(described.server.version),
            requests=requests,
            payload_sha256=await _in_thread(lambda checkpoint: payload_sha256(requests, checkpoint)),
            expectation=expectation,
            probe_time_ns=probe_time_ns,
            config_sha256=config.sha256,
            answer_limit=AnswerLimit(target.max_answer_bytes) if target.max_answer_bytes else _limit_for_load(answer_bytes, requests),
            composing_models=described.composing_models,
            warnings=tuple(MeasurementWarning(note.code, address.sanitize(note.message, _LONGEST_ERROR)) for note in notes),
        )


async def _choose_encoding(
    send: Callable[[InferRequest], Awaitable[_T]], requests: tuple[InferRequest, ...], trials: TrialRequests, budget: MemoryBudget
) -> tuple[tuple[InferRequest, ...], _T, bool]:
    """The requests with binary tensors or, if the server refuses them, with JSON; the answer to the first; whether it is JSON.

    A server that fails some of its requests is not one that takes only JSON: if JSON succeeds, binary tensors are sent twice more.
    """
    try:
        return requests, await send(requests[0]), False
    except (ModelMismatchError, TargetError) as error:
        refusal = error
    reserve_plain(requests, budget)
    plain = tuple(as_plain(request) for request in requests)
    try:
        answered = await trials.run(lambda: send(plain[0]))
    except PerfkitError:
        raise refusal from None
    for _ in range(2 if refusal.may_pass else 0):
        with contextlib.suppress(ModelMismatchError, TargetError):
            answered = await send(requests[0])
            trials.note(refusal)
            return requests, answered, False
    return plain, answered, True


async def _in_thread(make: Callable[[Checkpoint], _T]) -> _T:
    """Runs `make` in a thread, so that interrupts are handled meanwhile; if cancelled, it ends at its next checkpoint."""
    is_cancelled = threading.Event()

    def checkpoint() -> None:
        if is_cancelled.is_set():
            raise asyncio.CancelledError

    try:
        return await asyncio.to_thread(make, checkpoint)
    finally:
        is_cancelled.set()


@dataclasses.dataclass(frozen=True, slots=True)
class _Description:
    """The server's and the model's metadata; empty where the server gives none."""

    server: ServerMetadata
    metadata: ModelMetadata
    config: ModelConfig
    composing_models: tuple[ComposingModel, ...]
    gap: MeasurementWarning | None
    """Why the requests are made from the scenario alone; None if the server describes the model."""


async def _describe(transport: Transport, address: Address, loaded: LoadedScenario, trials: TrialRequests) -> _Description:
    """Reads the metadata, which may be missing if the scenario declares every input, and checks that the model is ready."""
    target = loaded.scenario.target
    model, version = target.model, target.version
    server, metadata, reason = ServerMetadata("", ""), ModelMetadata(model, (), "", (), ()), ""
    try:
        async with other_protocol_named(address):
            server = await trials.run(transport.server_metadata)
        # requests name the model as the scenario does, whatever name the metadata has
        metadata = dataclasses.replace(await trials.run(lambda: transport.model_metadata(model, version)), name=model)
    except TargetError as error:
        if error.may_pass or not are_inputs_declared(loaded.scenario.workload):
            raise TargetError(f"{error}{await offered_instead(transport, model) if server.name else ''}", may_pass=error.may_pass) from None
        reason = f" ({error})"
    config = await _configuration(transport, trials, ComposingModel(model, version))
    if not reason and not await trials.run(lambda: transport.is_ready(model, version)):
        raise TargetError(f"{address}: the server, or its model '{model}', is not ready")
    gap = None
    if not metadata.inputs:
        message = f"The server does not describe the inputs of model '{model}'{reason}: the requests are made from the scenario alone."
        gap = MeasurementWarning("no_metadata", message)
    return _Description(server, metadata, config, await _composing_models(transport, trials, config), gap)


async def _configuration(transport: Transport, trials: TrialRequests, model: ComposingModel) -> ModelConfig:
    """The model's configuration; an empty one if the server does not give it in any attempt, which the warnings then say."""
    try:
        return await trials.run(lambda: transport.model_config(model.name, model.version))
    except TargetError as error:
        if not error.may_pass:
            raise
        return ModelConfig()


async def _composing_models(transport: Transport, trials: TrialRequests, config: ModelConfig) -> tuple[ComposingModel, ...]:
    """The models of an ensemble's steps; a step may be an ensemble itself."""
    found = dict.fromkeys(config.composing_models)
    unread = list(found)
    while unread and len(found) <= _MAX_COMPOSING_MODELS:
        model = unread.pop(0)
        steps = (await _configuration(transport, trials, model)).composing_models
        unread += [step for step in steps if step not in found]
        found |= dict.fromkeys(steps)
    return tuple(found)[:_MAX_COMPOSING_MODELS]


def _limit_for_load(answer_bytes: int, requests: Sequence[InferRequest]) -> AnswerLimit:
    """The limit by the first answer and the largest request, which a model may return."""
    return limit_for_load(max(answer_bytes, *(sum(len(tensor.raw) for tensor in request.inputs) for request in requests)))


async def _probe_once(transport: Transport, address: Address, expectation: Expectation, request: InferRequest) -> tuple[int, int]:
    """Sends one request, so that a refusal is reported before any load is sent; its service time in ns, and the answer's bytes."""
    reply = None
    try:
        prepared = transport.prepare(request)
        reply = await transport.send(prepared)
        response = transport.decode(reply)
    except ProtocolError as error:
        message = f"{address}: the probe request failed: {address.sanitize(str(error))}"
        if reply is None:
            raise TargetError(message) from None
        if reply.outcome is Outcome.REJECTED and error.kind is ErrorKind.INVALID_ARGUMENT:
            raise ModelMismatchError(message, may_pass=reply.status in _MODEL_ERRORS) from None
        is_lost = reply.outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN)
        raise TargetError(message, may_pass=is_lost or (reply.outcome is Outcome.REJECTED and may_pass(reply.status))) from None
    if fault := expectation.fault(response):
        raise TargetError(f"{address}: the response to the probe request {fault}")
    decoded_bytes = sum(len(output.raw) for output in response.outputs)
    return reply.finished_ns - reply.started_ns, max(transport.answer_bytes(reply), decoded_bytes)


@contextlib.contextmanager
def _redacted(address: Address) -> Iterator[None]:
    """Removes the target's secrets from errors, which may quote the server's answer."""
    try:
        yield
    except PerfkitError as error:
        message = address.sanitize(str(error), _LONGEST_ERROR)
        raise (TargetError if isinstance(error, TargetError) else type(error))(message) from None


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
        "payload_sha256": probed.payload_sha256,
        "model_config_sha256": probed.config_sha256,
    }
