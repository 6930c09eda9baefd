"""The requests of a replay: those that its trace holds, or requests made by the workload for what the trace leaves open."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.input_file import read_bounded
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import InferRequest, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Tensor, check_size
from perfkit.scenario.workload import Workload
from perfkit.trace.payloads import decode_payload, decode_request, is_payload_name
from perfkit.trace.recorded import Content, Indices, RecordedTrace
from perfkit.workload.generated import Checkpoint
from perfkit.workload.input_data import DataTensor
from perfkit.workload.requests import check_names, make_requests, parse_datatype, resolve_batch_size

_KEY = "load.replay.trace"
_LARGEST_PAYLOAD_BYTES = 2**28
# what a request takes besides its tensors
_REQUEST_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class TracedRequests:
    """The distinct requests of a replay, and for each request of the trace the index of the one to send."""

    requests: tuple[InferRequest, ...]
    indices: Indices

    def mean_batch_size(self, max_batch_size: int) -> float:
        """The inferences of a request on average; 1 for a model without batches, whose `max_batch_size` is 0."""
        if not max_batch_size:
            return 1.0
        sizes = [next((tensor.shape[0] for tensor in request.inputs if tensor.shape), 1) for request in self.requests]
        return max(1.0, float(np.mean(np.array(sizes)[self.indices])))


def make_traced_requests(
    trace: RecordedTrace,
    payloads: pathlib.Path,
    workload: Workload,
    metadata: ModelMetadata,
    max_batch_size: int,
    version: str,
    folder: pathlib.Path,
    *,
    budget: MemoryBudget | None = None,
    checkpoint: Checkpoint = lambda: None,
) -> TracedRequests:
    """The requests of a trace, each distinct one made once.

    A request that the trace has is sent as it was: by its payload in the folder `payloads`, or as written in the trace itself. For all others
    the workload makes requests, with the recorded shapes where the trace has them; equal payloads, whose digests alone were recorded,
    get equal requests, as far as `workload.variants` reaches. Raises ScenarioError if a payload is missing or damaged, or the requests
    would exceed the budget; ModelMismatchError if they do not fit the model.
    """
    maker = _Maker(payloads, workload, metadata, max_batch_size, version, folder, budget or MemoryBudget(), checkpoint)
    has_payloads, used = payloads.is_dir(), np.unique(trace.content_indices).tolist()
    held = [number for number in used if _holds_request(trace.contents[number], has_payloads=has_payloads)]
    requests = maker.recorded([trace.contents[number] for number in held])
    # for each content the index of its first request, and the number of requests that it uses in turn
    first, counts = np.zeros(len(trace.contents), dtype=np.int32), np.ones(len(trace.contents), dtype=np.int32)
    first[held] = np.arange(len(held))
    by_shapes: dict[str, list[int]] = {}
    for number in set(used).difference(held):
        by_shapes.setdefault(trace.contents[number].shapes, []).append(number)
    for shapes, numbers in by_shapes.items():
        made = maker.generated(shapes, max(1, workload.variants // len(by_shapes)))
        for rank, number in enumerate(numbers):
            is_digest = bool(trace.contents[number].payload)
            first[number] = len(requests) + (rank % len(made) if is_digest else 0)
            counts[number] = 1 if is_digest else len(made)
        requests += made
    return TracedRequests(
        tuple(requests), first[trace.content_indices] + _occurrence(trace.content_indices) % counts[trace.content_indices]
    )


def _holds_request(content: Content, *, has_payloads: bool) -> bool:
    return bool(content.request or content.tensors or (content.payload and has_payloads))


def _occurrence(contents: Indices) -> Indices:
    """For each request of the trace, how many before it carried the same."""
    by_content = np.argsort(contents, kind="stable")
    counts = np.bincount(contents)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    occurrence = np.empty(contents.size, dtype=np.int32)
    occurrence[by_content] = np.arange(contents.size, dtype=np.int32) - starts
    return occurrence


@dataclasses.dataclass
class _Maker:
    payloads: pathlib.Path
    workload: Workload
    metadata: ModelMetadata
    max_batch_size: int
    version: str
    folder: pathlib.Path
    budget: MemoryBudget
    checkpoint: Checkpoint

    def recorded(self, contents: Sequence[Content]) -> list[InferRequest]:
        """The requests that the trace holds."""
        sizes = [self._size_bytes(content) for content in contents]
        arithmetic = f"{len(sizes):,} distinct requests of {sum(sizes):,} bytes in all"
        self.budget.reserve(_KEY, 2 * sum(sizes) + len(sizes) * _REQUEST_BYTES, arithmetic, "the number of distinct payloads in the trace")
        requests = []
        for content in contents:
            self.checkpoint()
            requests.append(self._recorded(content))
        return requests

    def generated(self, shapes: str, variants: int) -> list[InferRequest]:
        """Requests of the workload, with the inputs' shapes if they are given."""
        workload = self.workload
        if shapes:
            given: Mapping[str, Any] = json.loads(shapes)
            if self.metadata.inputs:
                check_names(f"{_KEY}: shapes", "input", tuple(given), tuple(one.name for one in self.metadata.inputs))
            inputs, batch_size = dict(workload.inputs), workload.batch_size
            for name, shape in given.items():
                if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
                    raise ScenarioError(f"{_KEY}: shapes: expected the dimensions of input '{name}', found {shape!r}")
                if self.max_batch_size and shape:
                    batch_size, shape = max(shape[0], 1), shape[1:]  # noqa: PLW2901 - the rest of the same shape
                before = inputs.get(name, workload.other_input)
                inputs[name] = before.model_copy(update={"shape": tuple(shape)})
            workload = workload.model_copy(update={"inputs": inputs, "batch_size": batch_size})
        workload = workload.model_copy(update={"variants": variants})
        model = (self.metadata, self.max_batch_size, self.version, self.folder)
        try:
            return list(make_requests(workload, *model, budget=self.budget, checkpoint=self.checkpoint))
        except ModelMismatchError as error:
            if not shapes:
                raise
            raise ModelMismatchError(f"{_KEY}: requests with the recorded shapes {shapes:.200} do not fit the model: {error}") from None

    def _size_bytes(self, content: Content) -> int:
        if not content.payload:
            return len(content.request) + len(content.tensors)
        if not is_payload_name(content.payload):
            raise ScenarioError(
                f"{_KEY}: payload: expected 64 hexadecimal digits, the name of a file in {self.payloads}, found {content.payload!r}"
            )
        try:
            return (self.payloads / content.payload).stat().st_size
        except OSError:
            raise ScenarioError(
                f"{_KEY}: the payload {content.payload} is missing in {self.payloads}: restore it, or remove the folder to replay with "
                "requests of the workload"
            ) from None

    def _recorded(self, content: Content) -> InferRequest:
        if content.tensors:
            return self._from_tensors(json.loads(content.tensors))
        what = f"the payload {content.payload}" if content.payload else f"the request {content.request:.60}"
        decode: Callable[[], InferRequest] = (
            (
                lambda: decode_payload(
                    read_bounded(self.payloads / content.payload, _LARGEST_PAYLOAD_BYTES), self.metadata.name, self.version
                )
            )
            if content.payload
            else lambda: decode_request(content.request, self.metadata.name, self.version)
        )
        try:
            request = decode()
            for tensor in request.inputs:
                check_size(tensor)
        except (ProtocolError, OSError) as error:
            raise ScenarioError(f"{_KEY}: {what} is not a v2 infer request: {error}") from None
        if self.metadata.inputs:
            check_names(_KEY, "input", tuple(tensor.name for tensor in request.inputs), tuple(one.name for one in self.metadata.inputs))
        return request

    def _from_tensors(self, given: Mapping[str, Any]) -> InferRequest:
        """A request from the tensors of perf_analyzer's input data, which are those of a batch of 1."""
        if not self.metadata.inputs:
            raise ModelMismatchError(f"{_KEY}: perf_analyzer's input data needs a server that describes its model's inputs")
        described = {one.name: one for one in self.metadata.inputs}
        check_names(_KEY, "input", tuple(given), tuple(described))
        batch = (1,) if resolve_batch_size(1, self.metadata.name, self.max_batch_size) else ()
        tensors = tuple(self._tensor(described[name], value, batch) for name, value in given.items())
        return InferRequest(self.metadata.name, tensors, version=self.version)

    def _tensor(self, described: TensorMetadata, value: Any, batch: tuple[int, ...]) -> Tensor:
        name, chosen = described.name, self.workload.inputs.get(described.name)
        datatype = parse_datatype(_KEY, name, described.datatype, None)
        shape = described.shape[1:] if batch else described.shape
        read = DataTensor(name, datatype, shape, chosen.shape if chosen else None, f"workload.inputs.{name}.shape")
        tensor = read.read(f"{_KEY}: data: {name}", value)
        return dataclasses.replace(tensor, shape=(*batch, *tensor.shape))
