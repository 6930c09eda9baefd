"""Tensors in shared memory: where inputs and outputs lie in their regions, and answers completed from there.

Every tensor of every request has its own slot, written once before the load. Requests are sent in rounds, and place n of a round has slot
n for its outputs. A closed loop sends place n only from one of its slots, so that no two requests in flight share an output's bytes. An
open loop has as many places as memory allows: two of its requests share bytes only if they are the same request, a whole round apart.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Self

from perfkit.errors import ProtocolError
from perfkit.machine.shared_memory import RegionMemory, RegionReader
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, RequestedOutput, SharedSlot, TensorMetadata
from perfkit.protocol.tensor import Datatype, Tensor

# a cache line: no two slots share one, and neither do they all begin at the same place of a page
_ALIGNMENT = 64
_LEAST_OPEN_BYTES = 4096
# of an open loop, whose requests in flight are not bounded: as many as fit, and enough for most
_OPEN_PLACES, _OPEN_BYTES = 4096, 16 * 2**20


def aligned(byte_size: int) -> int:
    """The bytes from the start of one slot to that of the next."""
    return -(-byte_size // _ALIGNMENT) * _ALIGNMENT


def input_region_bytes(requests: Sequence[InferRequest]) -> int:
    """The size of a region with all inputs."""
    return sum(aligned(len(tensor.raw)) for request in requests for tensor in request.inputs)


def place_inputs(requests: Sequence[InferRequest], memory: RegionMemory) -> tuple[InferRequest, ...]:
    """Writes all inputs into a region; the requests then name their slots. Empty tensors stay in the requests."""
    placed, offset = [], 0
    for request in requests:
        slots = {}
        for tensor in request.inputs:
            if size := len(tensor.raw):
                memory.write(offset, bytes(tensor.raw))
                slots[tensor.name] = SharedSlot(memory.name, offset, size)
                offset += aligned(size)
        inputs = tuple(dataclasses.replace(tensor, raw=b"") for tensor in request.inputs)
        placed.append(dataclasses.replace(request, inputs=inputs, input_slots=slots))
    return tuple(placed)


def has_open_sizes(request: InferRequest, metadata: ModelMetadata) -> bool:
    """Whether the metadata leaves the size of a requested output open."""
    asked = {one.name for one in request.outputs}
    described = {one.name: one for one in metadata.outputs if not asked or one.name in asked}
    return not described or bool(asked - set(described)) or any(_fixed_bytes(one, 1) is None for one in described.values())


def _fixed_bytes(output: TensorMetadata, batch_size: int | None) -> int | None:
    """The size of an output; None if the metadata leaves it open."""
    shape = output.shape if batch_size is None else (batch_size, *output.shape[1:])
    return None if min(shape, default=0) < 0 else Datatype.parse(output.datatype).size_bytes(math.prod(shape))


@dataclasses.dataclass(frozen=True, slots=True)
class OutputSizes:
    """The space that one answer's outputs take, by name, in the order in which they are requested."""

    byte_sizes: Mapping[str, int]

    @classmethod
    def of(
        cls, request: InferRequest, metadata: ModelMetadata, batch_size: int | None, open_bytes: int | None, answer: InferResponse | None
    ) -> Self:
        """The sizes by the metadata; of an output whose size it leaves open, `open_bytes`, otherwise twice the size in an answer.

        `batch_size` is None for a model without a batch dimension. Empty if no output is named anywhere.
        """
        described = {one.name: one for one in metadata.outputs}
        answered = {} if answer is None else {one.name: len(one.raw) for one in answer.outputs}
        names = [one.name for one in request.outputs] or list(described or answered)
        sizes = {}
        for name in names:
            fixed_bytes = _fixed_bytes(described[name], batch_size) if name in described else None
            sizes[name] = fixed_bytes or open_bytes or max(2 * answered.get(name, 0), _LEAST_OPEN_BYTES)
        return cls(sizes)

    @property
    def stride(self) -> int:
        """The bytes of one place's slots."""
        return sum(map(aligned, self.byte_sizes.values()))

    def places(self, requests: int, in_flight: int | None) -> int:
        """The number of places in a round of so many different requests, with `in_flight` slots of a closed loop; None for an open loop."""
        if in_flight is not None:
            return math.lcm(requests, in_flight)
        return requests * max(1, min(-(-_OPEN_PLACES // requests), _OPEN_BYTES // (requests * self.stride)))


@dataclasses.dataclass(frozen=True, slots=True)
class OutputSlots:
    """The slots of all outputs in a region."""

    region: str
    reader: RegionReader
    sizes: OutputSizes

    def round_of(self, requests: Sequence[InferRequest], in_flight: int | None) -> tuple[InferRequest, ...]:
        """One round of requests, place by place, each with its outputs' slots; see `OutputSizes.places`."""
        places = self.sizes.places(len(requests), in_flight)
        return tuple(dataclasses.replace(requests[place % len(requests)], outputs=tuple(self._outputs(place))) for place in range(places))

    def complete(self, response: InferResponse, place: int) -> InferResponse:
        """The answer to the request at a place with its outputs read from the region; raises ProtocolError."""
        slots = {output.name: output.slot for output in self._outputs(place)}
        outputs = tuple(self._read(tensor, slots.get(tensor.name)) for tensor in response.outputs)
        return dataclasses.replace(response, outputs=outputs)

    def _outputs(self, place: int) -> Iterable[RequestedOutput]:
        offset = place * self.sizes.stride
        for name, byte_size in self.sizes.byte_sizes.items():
            yield RequestedOutput(name, slot=SharedSlot(self.region, offset, byte_size))
            offset += aligned(byte_size)

    def _read(self, tensor: Tensor, slot: SharedSlot | None) -> Tensor:
        if slot is None:
            return tensor
        if len(tensor.raw):
            raise ProtocolError(f"output '{tensor.name}' is in the answer, although it was requested in shared memory")
        fixed_bytes = tensor.datatype.size_bytes(tensor.element_count)
        size = slot.byte_size if fixed_bytes is None else fixed_bytes
        if size > slot.byte_size:
            raise ProtocolError(f"output '{tensor.name}' has {size:,} bytes, and its slot in shared memory {slot.byte_size:,}")
        try:
            raw = self.reader.read(slot.offset, size)
        except OSError as error:
            raise ProtocolError(f"output '{tensor.name}' cannot be read from shared memory: {error}") from None
        return dataclasses.replace(tensor, raw=raw if fixed_bytes is not None else _elements(raw, tensor.element_count))


def _elements(raw: bytes, count: int) -> bytes:
    """The encoded elements of a BYTES tensor at the start of a slot; as much as there is if they exceed it."""
    end = 0
    for _ in range(count):
        end += 4 + int.from_bytes(raw[end : end + 4], "little")
        if end > len(raw):
            break
    return raw[:end]
