"""The shared memory of a run: made and registered before the load, unregistered and removed however the run ends."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager

from perfkit.errors import ModelMismatchError, TargetError
from perfkit.load.load_plan import ClosedPlan, LoadPlan
from perfkit.machine.limits import MemoryBudget
from perfkit.machine.shared_memory import CudaDriver, CudaMemory, RegionMemory, SystemMemory, cuda_driver
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, RegionKind, RegionRefusal, SharedRegion
from perfkit.scenario.load import ClosedLoadSpec, LoadSpec
from perfkit.scenario.workload import SharedMemory
from perfkit.target.address import Address
from perfkit.target_client import Client
from perfkit.workload.shared_tensors import OutputSizes, OutputSlots, has_open_sizes, input_region_bytes, place_inputs

Connect = Callable[[Address], AbstractAsyncContextManager[Client]]
"""Connects a client to an address for the length of a block."""
_PIECE_BYTES = 2**20
_KINDS: tuple[RegionKind, ...] = ("system", "cuda")


@dataclasses.dataclass(frozen=True, slots=True)
class SharedTensors:
    """What of a target's requests lies in shared memory; sizes are 0 for what does not."""

    kind: RegionKind
    requests: tuple[InferRequest, ...]
    """The requests, with the slots of their inputs."""
    slots: OutputSlots | None
    input_bytes: int
    output_bytes: int

    def requests_for(self, load: LoadPlan) -> tuple[InferRequest, ...]:
        """The requests that a load sends round after round, with the slots of inputs and outputs."""
        if self.slots is None:
            return self.requests
        return self.slots.round_of(self.requests, load.concurrency if isinstance(load, ClosedPlan) else None)


class RunRegions:
    """The regions that a run has registered."""

    def __init__(self, spec: SharedMemory, load: LoadSpec, make_driver: Callable[[int], CudaDriver] = cuda_driver) -> None:
        self._spec, self._load, self._make_driver = spec, load, make_driver
        self._memories: list[tuple[Address, list[RegionMemory]]] = []

    async def share(
        self,
        client: Client,
        address: Address,
        requests: tuple[InferRequest, ...],
        metadata: ModelMetadata,
        batch_size: int | None,
        budget: MemoryBudget,
        first_answer: Callable[[], Awaitable[InferResponse]],
    ) -> SharedTensors:
        """Registers regions for the requests of a target, and writes the inputs.

        `first_answer` sends the largest request without shared memory, where only its answer tells how large the outputs are.
        Raises ModelMismatchError if the server refuses, ScenarioError if there is too little memory, UsageError without the GPU.
        """
        spec, first = self._spec, requests[0]
        input_bytes, output_bytes, slots = input_region_bytes(requests) if spec.inputs else 0, 0, None
        sizes = OutputSizes({})
        if spec.outputs:
            is_size_given = spec.output_bytes is not None and (first.outputs or metadata.outputs)
            answer = await first_answer() if not is_size_given and has_open_sizes(first, metadata) else None
            sizes = OutputSizes.of(first, metadata, batch_size, spec.output_bytes, answer)
            concurrency = self._load.closed.levels if isinstance(self._load, ClosedLoadSpec) else (None,)
            output_bytes = sizes.stride * max(sizes.places(len(requests), in_flight) for in_flight in concurrency)
        keys = "workload.variants, the inputs' shapes, or shared_memory.output_bytes"
        budget.reserve("shared_memory", input_bytes + output_bytes, "inputs and outputs", keys)
        memories: list[RegionMemory] = []
        self._memories.append((address, memories))
        if input_bytes:
            requests = place_inputs(requests, await self._region(client, memories, input_bytes))
        if output_bytes:
            memory = await self._region(client, memories, output_bytes)
            unwritten = b"\xff" * _PIECE_BYTES  # an output that the server does not write is then not zeros, which might be expected
            for offset in range(0, output_bytes, _PIECE_BYTES):
                memory.write(offset, unwritten[: output_bytes - offset])
            slots = OutputSlots(memory.name, memory.reader, sizes)
        return SharedTensors(spec.kind, requests, slots, input_bytes, output_bytes)

    async def _region(self, client: Client, memories: list[RegionMemory], byte_size: int) -> RegionMemory:
        spec = self._spec
        memory = SystemMemory(byte_size) if spec.kind == "system" else CudaMemory(byte_size, self._make_driver(spec.device))
        memories.append(memory)  # before it is registered: the answer may get lost
        if refusal := await client.register_region(SharedRegion(memory.name, byte_size, memory.handle, spec.device)):
            raise ModelMismatchError(_refused(refusal, spec.kind))
        return memory

    async def close(self, connect: Connect) -> None:
        """Unregisters the regions, as far as their servers can be reached, and removes them."""
        try:
            for address, memories in self._memories:
                async with connect(address) as client:
                    for memory in memories:
                        with contextlib.suppress(TargetError):
                            await client.unregister_region(self._spec.kind, memory.name)
        finally:
            with contextlib.ExitStack() as closing:  # all of them, even if one fails
                for memory in (memory for _, memories in self._memories for memory in memories):
                    closing.callback(memory.close)
                self._memories.clear()


@contextlib.asynccontextmanager
async def run_regions(spec: SharedMemory | None, load: LoadSpec, connect: Connect) -> AsyncIterator[RunRegions | None]:
    """The regions of a run, removed at the end of the block; None if the scenario has no shared memory."""
    if spec is None:
        yield None
        return
    regions = RunRegions(spec, load)
    try:
        yield regions
    finally:
        await regions.close(connect)


async def unregister_abandoned(names: tuple[str, ...], client: Client) -> None:
    """Unregisters regions of killed runs, as far as the server has them; the objects are those of `remove_abandoned`."""
    with contextlib.suppress(TargetError):
        for kind in _KINDS:
            for name in set(names).intersection(await client.region_names(kind)):
                await client.unregister_region(kind, name)


def describe_abandoned(names: tuple[str, ...]) -> str:
    """The note on removed regions."""
    what = "a shared memory region" if len(names) == 1 else f"{len(names):,} shared memory regions"
    return f"{what[0].upper()}{what[1:]} of a perfkit that was killed {'is' if len(names) == 1 else 'are'} removed: {', '.join(names)}"


def _refused(refusal: RegionRefusal, kind: RegionKind) -> str:
    """The message about a server that does not register a region."""
    if refusal.is_unsupported:
        start = "start Triton with --allow-client-shm=true, or perfkit serve with --allow-client-shm"
        return f"shared_memory: the server does not let clients register shared memory ({refusal.reason}): {start}"
    if kind == "cuda":
        return f"shared_memory: the server cannot open the GPU's memory ({refusal.reason}): it needs this GPU, see shared_memory.device"
    needs = "it must run on this machine, as root or as this user, and a container needs --ipc=host"
    return f"shared_memory: the server cannot open the region ({refusal.reason}): {needs}"
