"""Tensors in shared memory: slots that no two requests in flight share, and answers read from them."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, RequestedOutput, SharedSlot, TensorMetadata
from perfkit.protocol.tensor import Datatype, Tensor, tensor_from_array
from perfkit.scenario.workload import Check
from perfkit.workload.expectation import Expectation
from perfkit.workload.shared_tensors import OutputSizes, OutputSlots, has_open_sizes, input_region_bytes, place_inputs


class Memory:
    """A region of this process."""

    name, handle = "r", b""

    def __init__(self, byte_size):
        self.data = bytearray(byte_size)
        self.byte_size, self.reader = byte_size, self

    def write(self, offset, data):
        self.data[offset : offset + len(data)] = data

    def read(self, offset, byte_size):
        return bytes(self.data[offset : offset + byte_size])

    def close(self):
        pass


def request(*values, outputs=()):
    tensors = tuple(tensor_from_array(f"x{index}", Datatype.INT32, np.array(value)) for index, value in enumerate(values))
    return InferRequest("m", tensors, outputs)


def metadata(*outputs):
    return ModelMetadata("m", (), "", (), tuple(TensorMetadata(*one) for one in outputs))


def test_each_input_of_each_request_has_a_slot_with_its_bytes_and_nothing_is_sent():
    requests = (request([1, 2], np.zeros((0,))), request([3], [4, 5, 6]))
    memory = Memory(input_region_bytes(requests))
    placed = place_inputs(requests, memory)
    for before, after in zip(requests, placed, strict=True):
        for old, new in zip(before.inputs, after.inputs, strict=True):
            assert (new.name, new.datatype, new.shape, new.raw) == (old.name, old.datatype, old.shape, b"")
            if len(old.raw):
                slot = after.input_slots[old.name]
                assert memory.read(slot.offset, slot.byte_size) == old.raw
            else:
                assert old.name not in after.input_slots  # a server refuses a slot of no bytes
    slots = [slot for one in placed for slot in one.input_slots.values()]
    assert all(one.offset + one.byte_size <= other.offset for one, other in itertools.pairwise(slots))


@given(st.integers(1, 40), st.integers(1, 40))
def test_no_two_slots_of_a_closed_loop_ever_send_requests_with_the_same_output_slot(variants, concurrency):
    requests = tuple(request([index]) for index in range(variants))
    sent_round = OutputSlots("r", Memory(0), OutputSizes({"y": 100})).round_of(requests, concurrency)
    users: dict[SharedSlot, int] = {}  # of each place in the region
    for slot in range(concurrency):
        for index in itertools.islice(itertools.count(slot, concurrency), 3 * len(sent_round)):
            sent = sent_round[index % len(sent_round)]
            assert sent.inputs == requests[index % variants].inputs  # the order of the plain requests
            place = sent.outputs[0].slot
            assert place is not None
            assert users.setdefault(place, slot) == slot
    offsets = sorted(place.offset for place in users)
    assert all(two - one >= 100 for one, two in itertools.pairwise(offsets))


def test_an_open_loop_has_4096_places_or_those_of_16_mib_and_never_less_than_one_for_each_request():
    def places(requests, output_bytes):
        return OutputSizes({"y": output_bytes}).places(requests, None)

    assert places(16, 64) == 4096
    assert places(3, 2**20) == 15  # 3 × 5 × 1 MiB
    assert places(3, 2**30) == 3


def test_sizes_come_from_the_metadata_with_the_batch_and_otherwise_from_the_scenario_or_the_first_answer():
    described = metadata(("a", "FP32", (-1, 3)), ("b", "BYTES", (-1, 1)), ("c", "INT64", (-1, -1)))
    assert OutputSizes.of(request([1]), described, 4, 1000, None).byte_sizes == {"a": 48, "b": 1000, "c": 1000}
    asked = request([1], outputs=(RequestedOutput("c"), RequestedOutput("a")))
    assert list(OutputSizes.of(asked, described, 4, 1000, None).byte_sizes) == ["c", "a"]
    assert OutputSizes.of(request([1]), metadata(("a", "FP16", (2, 3))), None, 1000, None).byte_sizes == {"a": 12}
    answer = InferResponse("m", "1", (Tensor("b", Datatype.BYTES, (1, 1), bytes(8000)), Tensor("c", Datatype.INT64, (1, 2), bytes(16))))
    assert OutputSizes.of(request([1]), described, 4, None, answer).byte_sizes == {"a": 48, "b": 16000, "c": 4096}
    assert OutputSizes.of(request([1]), metadata(), None, None, answer).byte_sizes == {"b": 16000, "c": 4096}


def test_only_an_output_that_is_asked_for_and_of_open_size_needs_an_answer():
    described = metadata(("a", "FP32", (-1, 3)), ("b", "BYTES", (-1, 1)))
    assert has_open_sizes(request([1]), described)
    assert not has_open_sizes(request([1], outputs=(RequestedOutput("a"),)), described)
    assert has_open_sizes(request([1], outputs=(RequestedOutput("a"), RequestedOutput("unknown"))), described)
    assert has_open_sizes(request([1]), metadata())
    assert has_open_sizes(request([1]), metadata(("a", "INT8", (2, -1))))


def test_an_answer_is_completed_from_the_slots_of_its_place():
    memory = Memory(3 * 192)
    slots = OutputSlots("r", memory, OutputSizes({"text": 100, "number": 8}))
    assert slots.round_of([request([0])], 3)[2].outputs == (
        RequestedOutput("text", slot=SharedSlot("r", 384, 100)),
        RequestedOutput("number", slot=SharedSlot("r", 512, 8)),
    )
    memory.write(384, b"\x02\0\0\0ab\0\0\0\0" + b"left by an earlier, longer answer")
    memory.write(512, b"\x05\0\0\0\x06\0\0\0")
    answer = InferResponse("m", "1", (Tensor("number", Datatype.INT32, (2,), b""), Tensor("text", Datatype.BYTES, (2,), b"")))
    number, text = slots.complete(answer, 2).outputs
    assert (number.raw, text.raw) == (b"\x05\0\0\0\x06\0\0\0", b"\x02\0\0\0ab\0\0\0\0")


@pytest.mark.parametrize(
    ("tensor", "fault"),
    [
        (Tensor("y", Datatype.INT32, (100,), b""), "has 400 bytes, and its slot in shared memory 64"),
        (Tensor("y", Datatype.INT32, (1,), b"abcd"), "is in the answer, although it was requested in shared memory"),
    ],
)
def test_answers_that_do_not_fit_their_slots_are_faults(tensor, fault):
    slots = OutputSlots("r", Memory(64), OutputSizes({"y": 64}))
    with pytest.raises(ProtocolError, match=fault):
        slots.complete(InferResponse("m", "1", (tensor,)), 0)


def test_an_expectation_compares_what_the_server_wrote(tmp_path):
    requests = (request([1]), request([2]))
    np.save(tmp_path / "one.npy", np.array([10], np.int32))
    np.save(tmp_path / "two.npy", np.array([20], np.int32))
    check = Check.model_validate({"outputs": {"y": {"file": ["one.npy", "two.npy"]}}})
    expectation = Expectation.of(requests, metadata(("y", "INT32", (1,))), check, None, tmp_path)
    memory = Memory(6 * 64)
    expectation.slots = OutputSlots("r", memory, OutputSizes({"y": 4}))
    answer = InferResponse("m", "1", (Tensor("y", Datatype.INT32, (1,), b""),))
    memory.write(3 * 64, (20).to_bytes(4, "little"))  # place 3 of a round of 6 sends the second request
    assert expectation.fault(answer, 3) == ""
    assert "wrong values in output 'y'" in expectation.fault(answer, 4)

    def gone(*_):
        raise OSError("gone")

    memory.read = gone
    assert "cannot be read from shared memory: gone" in expectation.fault(answer, 3)
