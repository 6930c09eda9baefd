"""The probe of a target before any load: makes the requests for its model, and sends the first one alone."""

import asyncio
import contextlib
import dataclasses
import os
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

from perfkit.clock import Clock
from perfkit.errors import (
    AnswerTooLargeError,
    ErrorKind,
    MeasurementWarning,
    ModelMismatchError,
    PerfkitError,
    ProtocolError,
    ScenarioError,
    TargetError,
)
from perfkit.load.load_plan import ClosedPlan
from perfkit.load.planned_loads import plan_sequences
from perfkit.load.sequence_requests import with_sequence
from perfkit.load.sequences import SequenceSource
from perfkit.machine.limits import MemoryBudget
from perfkit.measurement.answer_gap import answer_gap_ns
from perfkit.measurement.shared_memory import RunRegions, SharedTensors
from perfkit.measurement.target_metadata import TrialRequests, read_target_metadata
from perfkit.measurement.workload_requests import make_workload_requests
from perfkit.protocol.message import ComposingModel, InferRequest, InferResponse, ModelConfig
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address, WireProtocol
from perfkit.target.started_server import StartedServer
from perfkit.target_client import Client
from perfkit.trace.recorded import Indices
from perfkit.transport.base import Outcome, Reply, may_pass
from perfkit.transport.options import OWN_LIMIT
from perfkit.transport.streamed_answer import WITHOUT_RESPONSE
from perfkit.workload.expectation import Expectation
from perfkit.workload.generated import Checkpoint
from perfkit.workload.requests import (
    check_omitted,
    payload_sha256,
    reserve_plain,
    resolve_batch_size,
)

_T = TypeVar("_T")
_LONGEST_ERROR = 1000
_JSON_TENSORS = MeasurementWarning(
    "json_tensors", "The server refuses binary tensors: requests and responses carry JSON tensors, which cost both sides more CPU time."
)
# statuses of a wrong request; MLServer and KServe answer them for errors of the model, too
_MODEL_ERRORS = (400, "INVALID_ARGUMENT")
_BINARY_EXTENSION = "binary_tensor_data"
_SEQUENCE_EXTENSION = "sequence"
_NO_SEQUENCES = MeasurementWarning(
    "no_sequences", "The server does not announce the sequence extension: it may ignore the ids and flags of sequences."
)


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
    answer_gap_ns: int
    """The mean time between answers: of a search, from a short closed loop; otherwise the time of the first request."""
    config_sha256: str
    """Digest of the model's configuration; empty if the server does not report it."""
    config_keys: Mapping[str, str]
    """The configuration's keys and values as texts."""
    largest_bytes: int
    """The size of the first answer, or of the largest request, which a model may return."""
    warnings: tuple[MeasurementWarning, ...] = ()
    """The warnings of the probe, for the result."""
    note: str = ""
    """What the server does not say about itself and the model, and whether it names the model otherwise, in sentences; or empty."""
    composing_models: tuple[ComposingModel, ...] = ()
    """The models of an ensemble's steps, and of theirs."""
    shared: SharedTensors | None = None
    """What lies in shared memory; None without any."""
    batch_size: float = 1
    """The inferences of a request; of a replay, the mean."""
    highest_sequence_id: int | None = None
    """See `ModelConfig`."""
    request_indices: Indices | None = None
    """The index of the request for each arrival of a replay; None for requests that are used in turn."""
    stream_lengths: tuple[int, ...] = ()
    """The number of steps of each stream of `workload.data`, in the order of the requests; they apply to sequences."""


@dataclasses.dataclass(frozen=True)
class ProbedWorkload:
    """A workload, the address of its target, and what the probe of it gave."""

    scenario: Scenario
    address: Address
    probed: ProbeResult


async def probe(client: Client, address: Address, loaded: LoadedScenario, clock: Clock, regions: RunRegions | None = None) -> ProbeResult:
    """Reads the model's metadata, makes the requests, and sends the first one.

    What failed for a reason that may pass is sent again; see `TrialRequests`. If the server refuses the request with binary
    tensors, does not list their extension, and the scenario leaves the encoding open, the requests carry JSON instead. With `regions`
    they use shared memory. Raises TargetError if the target is not ready or its answer is not v2, ModelMismatchError if it refuses the
    request; neither message shows the target's secrets.
    """
    trials, scenario = TrialRequests(clock), loaded.scenario
    workload, target = scenario.workload, scenario.target
    with _redacted(address):
        described = await read_target_metadata(client, address, loaded, trials)
        metadata, config = described.metadata, described.config
        check_omitted(workload, target.model, config.required_inputs)
        _check_ids(scenario, config)
        if config.is_decoupled and scenario.stream is None:
            reason = "a request may have none or many responses, so it answers on streams only"
            raise ModelMismatchError(f"{address}: model '{target.model}' is decoupled: {reason}. Add `stream: {{}}` to the scenario")
        budget = MemoryBudget()

        made = await _in_thread(lambda checkpoint: make_workload_requests(loaded, metadata, config, budget, checkpoint))
        requests, expectation = made.requests, made.expectation
        if scenario.stream is not None and address.protocol == "http" and scenario.stream.body == "generate":
            expectation = expectation.of_events(is_decoupled=config.is_decoupled)
        # of an ensemble, the models of its steps may be decoupled; a server without the endpoint says nothing
        declares_one = scenario.stream is not None and bool(config.sha256) and not (config.is_decoupled or config.composing_models)
        expectation.has_one_response = declares_one
        expectation.learn_model(described.answers_as)
        shared, whole = None, requests
        if regions is not None:
            if made.indices is not None:
                raise ScenarioError("load.replay: recorded requests cannot be put into shared memory: remove shared_memory")
            batch_size = resolve_batch_size(workload.batch_size, target.model, config.max_batch_size)

            largest = max(whole, key=_input_bytes)

            async def first_answer() -> InferResponse:
                return (await trials.run(lambda: _answer(client, address, _as_sequence(largest, scenario, config))))[1]

            shared = await regions.share(client, address, whole, metadata, batch_size, budget, first_answer)
            requests, expectation.slots = shared.requests_for(ClosedPlan(1, 0)), shared.slots
        is_binary_announced = _BINARY_EXTENSION in described.server.extensions
        is_plain = shared is None and scenario.stream is None and not target.spoken_api.takes_prompts
        may_fall_back = is_plain and workload.encoding == "auto" and address.protocol == "http" and not is_binary_announced
        notes = [] if described.gap is None else [described.gap]
        if scenario.sequences is not None and described.server.name and _SEQUENCE_EXTENSION not in described.server.extensions:
            notes.append(_NO_SEQUENCES)

        async def send(request: InferRequest) -> tuple[int, int]:
            return await _probe_once(client, address, expectation, _as_sequence(request, scenario, config))

        try:
            if may_fall_back:
                requests, (probe_time_ns, answer_bytes), is_json = await _choose_encoding(send, requests, trials, budget)
                if is_json:
                    notes.append(_JSON_TENSORS)
            else:
                probe_time_ns, answer_bytes = await trials.run(lambda: send(requests[0]))
        except (ModelMismatchError, TargetError) as error:
            hint = ": shared_memory.output_bytes sets the size" if "shared memory size" in str(error) else ""
            raise type(error)(" ".join((f"{error}{hint}.", *(note.message for note in notes))) if notes else f"{error}{hint}") from None
        notes += trials.warnings()
        renamed = "" if expectation.model else f"The server has other names for model '{target.model}': those in answers are not compared."
        recounted = ""
        if declares_one and not expectation.has_one_response:
            recounted = (
                "By the model's configuration a request has one response, and the first request had several: their number is not compared."
            )
        return ProbeResult(
            name=address.sanitize(described.server.name),
            version=address.sanitize(described.server.version),
            requests=requests,
            highest_sequence_id=config.highest_sequence_id,
            batch_size=made.batch_size,
            request_indices=made.indices,
            stream_lengths=made.stream_lengths,
            payload_sha256=await _in_thread(lambda checkpoint: payload_sha256(requests if shared is None else whole, checkpoint)),
            expectation=expectation,
            probe_time_ns=probe_time_ns,
            answer_gap_ns=await answer_gap_ns(lambda: send(requests[0]), scenario, clock, probe_time_ns),
            config_sha256=config.sha256,
            config_keys={address.sanitize(key): address.sanitize(value) for key, value in config.keys.items()},
            largest_bytes=max(answer_bytes, *map(_input_bytes, requests)),
            composing_models=described.composing_models,
            shared=shared,
            warnings=tuple(MeasurementWarning(note.code, address.sanitize(note.message, _LONGEST_ERROR)) for note in notes),
            note=address.sanitize(" ".join(filter(None, (described.note, renamed, recounted, made.note))), _LONGEST_ERROR),
        )


def _check_ids(scenario: Scenario, config: ModelConfig) -> None:
    """Raises ModelMismatchError if the scenario's ids of sequences do not fit the model's control input."""
    given, highest_id = scenario.sequences, config.highest_sequence_id
    if given is None or highest_id is None:
        return
    for key, found in (("first_id", given.first_id), ("end_id", given.end_id and given.end_id - 1)):
        if found is not None and found > highest_id:
            raise ModelMismatchError(
                f"sequences.{key}: the control input of model '{scenario.target.model}' has 32 bits, so that the server would cut ids above "
                f"{highest_id:,}: found {found:,}; give a lower one, or none"
            )


def _as_sequence(request: InferRequest, scenario: Scenario, config: ModelConfig) -> InferRequest:
    """A request as a sequence of one step, since a model with sequences may refuse any other request."""
    plan = plan_sequences(scenario)
    if plan is None:
        return request
    source = SequenceSource(plan.within(config.highest_sequence_id))
    return with_sequence(request, source.next().id, starts=True, ends=True)


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
    plain = tuple(request.as_plain() for request in requests)
    try:
        answered = await trials.run(lambda: send(plain[0]))
    except (ModelMismatchError, TargetError):
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


def _input_bytes(request: InferRequest) -> int:
    return sum(len(tensor.raw) for tensor in request.inputs)


async def _probe_once(client: Client, address: Address, expectation: Expectation, request: InferRequest) -> tuple[int, int]:
    """Sends one request, so that a refusal is reported before any load is sent; its service time in ns, and the answer's bytes."""
    reply, response = await _answer(client, address, request)
    if reply.payload is None:
        if expectation.needs_response:
            raise TargetError(f"{address}: the probe request failed: {WITHOUT_RESPONSE}")
        return reply.finished_ns - reply.started_ns, 0
    expectation.learn_model(response.model)
    expectation.has_one_response &= len(reply.responses_ns) <= 1
    if fault := expectation.fault(response):
        raise TargetError(f"{address}: the response to the probe request {fault}")
    decoded_bytes = sum(len(output.raw) for output in response.outputs)
    return reply.finished_ns - reply.started_ns, max(client.answer_bytes(reply), decoded_bytes)


async def _answer(client: Client, address: Address, request: InferRequest) -> tuple[Reply, InferResponse]:
    """Sends one request; raises TargetError, or ModelMismatchError if it is refused as wrong."""
    reply = None
    try:
        prepared = client.prepare(request)
        reply = await client.transport.send(prepared)
        if reply.outcome is Outcome.OK and reply.payload is None:  # a stream without a response
            return reply, InferResponse(request.model, request.version, ())
        return reply, client.decode(reply)
    except ProtocolError as error:
        message = f"{address}: the probe request failed: {address.sanitize(str(error))}"
        if reply is None:
            raise TargetError(message) from None
        if reply.is_own_limit or isinstance(error, AnswerTooLargeError):
            raise ScenarioError(f"{message}: {OWN_LIMIT}") from None
        if reply.outcome is Outcome.REJECTED and error.kind is ErrorKind.INVALID_ARGUMENT:
            raise ModelMismatchError(message, may_pass=reply.status in _MODEL_ERRORS) from None
        is_lost = reply.outcome in (Outcome.CONNECT_FAILED, Outcome.BROKEN)
        raise TargetError(message, may_pass=is_lost or (reply.outcome is Outcome.REJECTED and may_pass(reply.status))) from None


@contextlib.contextmanager
def _redacted(address: Address) -> Iterator[None]:
    """Removes the target's secrets from errors, which may quote the server's answer."""
    try:
        yield
    except PerfkitError as error:
        message = address.sanitize(str(error), _LONGEST_ERROR)
        raise (TargetError if isinstance(error, TargetError) else type(error))(message) from None


def describe_target(probed: ProbeResult, address: Address, engine: str, server: StartedServer | None) -> dict[str, Any]:
    """The target as a result describes it; the caller fills `protocols` with `describe_protocol`."""
    return {
        "name": probed.name,
        "version": probed.version,
        "build": os.environ.get("PERFKIT_SERVER_BUILD", ""),
        "url": str(address),
        "engine": engine,
        "protocols": {},
        "bundled_server": None,
        **({} if server is None else {server.kind: server.description}),
    }


def describe_protocol(probed: ProbeResult, address: Address) -> dict[str, Any]:
    """The connection to the target over one protocol, and digests of the requests and of the model's configuration."""
    shared = probed.shared
    return {
        "path": address.network_path,
        "tls": address.tls is not None,
        "payload_sha256": probed.payload_sha256,
        "model_config_sha256": probed.config_sha256,
        **({"model_config": dict(probed.config_keys)} if probed.config_keys else {}),
        **({} if shared is None else {"shared_memory": {name: getattr(shared, name) for name in ("kind", "input_bytes", "output_bytes")}}),
    }


def describe_workloads(workloads: Mapping[tuple[str | None, WireProtocol], ProbedWorkload]) -> dict[str, dict[str, object]]:
    """The targets of a mix's workloads as a result describes them."""
    return {
        str(name): {
            "model": one.scenario.target.model,
            "protocol": protocol,
            "url": str(one.address),
            "path": one.address.network_path,
            "payload_sha256": one.probed.payload_sha256,
            "model_config_sha256": one.probed.config_sha256,
        }
        for (name, protocol), one in workloads.items()
    }


@contextlib.contextmanager
def named(workload: str | None) -> Iterator[None]:
    """Adds a workload's name to errors of its probe."""
    try:
        yield
    except PerfkitError as error:
        if workload is None:
            raise
        raise type(error)(f"workload '{workload}': {error}") from None
