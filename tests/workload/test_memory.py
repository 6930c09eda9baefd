"""What requests need is multiplied before anything is made, and refused with the arithmetic."""

import io
import math
import pathlib
import tracemalloc

import numpy as np
import pytest

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.scenario.workload import FileInput, LiteralInput, StringsInput, Workload
from perfkit.workload.generated import generate_tensor, generate_values
from perfkit.workload.inputs import TensorSource
from perfkit.workload.requests import make_requests

GIB = 2**30


def make(shape, datatype="FP32", *, available_bytes=8 * GIB, max_batch_size=0, checkpoint=lambda: None, **workload):
    """The requests for a model with one input."""
    metadata = ModelMetadata("m", ("1",), "p", (TensorMetadata("X", datatype, shape),), ())
    return make_requests(
        Workload.model_validate(workload), metadata, max_batch_size, "", pathlib.Path("/nowhere"),
        budget=MemoryBudget(available_bytes), checkpoint=checkpoint,
    )  # fmt: skip


def test_tensors_are_refused_with_tensor_shape_bytes_variants_total_and_available_memory():
    with pytest.raises(ScenarioError) as refusal:
        make((1_000_000_000,))
    assert str(refusal.value) == (
        "workload.inputs.X: shape [1000000000] of FP32 is 1,000,000,000 values × 4 bytes = 3.73 GiB each, × 16 requests = 59.6 GiB of "
        "memory; a run may take 2.00 GiB, a quarter of the 8.00 GiB that are available: reduce workload.inputs.X.shape, "
        "workload.batch_size or workload.variants"
    )


@pytest.mark.parametrize("datatype", [datatype.value for datatype in Datatype])
@pytest.mark.parametrize("kind", ["random", "zeros", "ones", "arange"])
def test_nothing_is_allocated_before_a_refusal(datatype, kind):
    tracemalloc.start()
    try:
        with pytest.raises(ScenarioError, match=r"^workload\.inputs\.X: .* GiB of memory"):
            make((10**10,), datatype, inputs={"X": {"generate": kind}})
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shape", [(2**62, 2**62), (10**9, 10**9, 10**9)])
def test_dimensions_whose_product_overflows_64_bits_are_refused(shape):
    with pytest.raises(ScenarioError, match=f"{math.prod(shape):,} values"):
        make(shape)


def test_a_shape_with_a_zero_needs_nothing_however_large_the_others_are():
    assert {(tensor.shape, len(tensor.raw)) for request in make((0, 2**40)) for tensor in request.inputs} == {((0, 2**40), 0)}


def test_a_batch_multiplies():
    make((-1, 2**16), max_batch_size=2**16, batch_size=8, available_bytes=4 * 2**16 * 4 * 8 * 17)
    with pytest.raises(ScenarioError, match=r"shape \[9, 65536\]"):
        make((-1, 2**16), max_batch_size=2**16, batch_size=9, available_bytes=4 * 2**16 * 4 * 8 * 17)


def test_the_inputs_together_are_held_against_the_memory():
    tensors = tuple(TensorMetadata(name, "FP32", (2**20,)) for name in "AB")
    metadata, budget = ModelMetadata("m", ("1",), "p", tensors, ()), MemoryBudget(4 * 100 * 2**20)
    with pytest.raises(ScenarioError, match=r"^workload\.inputs\.B: .*besides 64\.1 MiB for others"):
        make_requests(Workload(), metadata, 0, "", pathlib.Path("/nowhere"), budget=budget)


def test_very_many_variants_of_small_tensors_are_refused():
    with pytest.raises(ScenarioError, match=r"^workload\.variants: 1,000,000,000 requests × 4,096 bytes"):
        make((1,), variants=10**9)


def test_the_text_of_json_counts():
    make((2**20,), variants=1, available_bytes=4 * 10 * 2**20)
    with pytest.raises(ScenarioError, match="1,048,576 values × 24 bytes"):
        make((2**20,), variants=1, available_bytes=4 * 10 * 2**20, encoding="json")


def test_a_quarter_of_the_memory_may_be_used_and_not_a_byte_more():
    MemoryBudget(400).reserve("k", 100, "", "")
    with pytest.raises(ScenarioError):
        MemoryBudget(400).reserve("k", 101, "", "")


def source(given, datatype=Datatype.FP32, shape=(-1,), batch_size=None, folder=pathlib.Path("/nowhere")):
    return TensorSource("X", datatype, given, shape, batch_size, folder, budget=MemoryBudget(4 * 2**20))


def test_texts_dealt_to_a_large_shape_are_refused():
    with pytest.raises(ScenarioError, match=r"3 tensors of shape \[1000000000\] of texts of up to 6 bytes"):
        source(StringsInput(strings=("a", "b", "ccää"), shape=(10**9,)), Datatype.BYTES)


def test_a_value_in_a_large_batch_is_refused():
    with pytest.raises(ScenarioError, match="1 batches of 1,000,000,000 arrays of"):
        source(LiteralInput(value=[1.0]), batch_size=10**9)


@pytest.mark.parametrize("shape", [(2**62,), (10**10, 10**10), (4,)])
def test_values_that_do_not_fill_their_shape_are_a_sentence(shape):
    with pytest.raises(ModelMismatchError, match=r"workload\.inputs\.X: 3 values cannot have the shape"):
        source(LiteralInput(value=[1.0, 2.0, 3.0], shape=shape))


def test_an_npy_file_whose_head_declares_more_than_it_holds_is_refused_before_it_is_read(tmp_path):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (10**13,)})
    (tmp_path / "x.npy").write_bytes(head.getvalue())
    with pytest.raises(ScenarioError, match=r"its head declares 40,000,000,000,000 bytes of values, but the file has 128"):
        source(FileInput(file=("x.npy",)), folder=tmp_path)


def test_an_npy_file_that_is_too_large_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(2**18 + 1, np.float32))
    with pytest.raises(ScenarioError, match=r"^workload\.inputs\.X\.file: .*x\.npy holds 1\.00 MiB"):
        source(FileInput(file=("x.npy",)), folder=tmp_path)


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.FP64, Datatype.BF16, Datatype.UINT8, Datatype.INT64, Datatype.BOOL])
@pytest.mark.parametrize("kind", ["random", "arange"])
def test_a_tensor_made_in_pieces_holds_the_values_made_at_once(datatype, kind):
    shape = (2**20 + 3, 2)
    pieces = generate_tensor("X", kind, datatype, shape, np.random.default_rng(7), lambda: None)
    whole = tensor_from_array("X", datatype, generate_values(kind, datatype, shape, np.random.default_rng(7)))
    assert (pieces.shape, bytes(pieces.raw)) == (shape, bytes(whole.raw))


def test_the_checkpoint_is_called_before_every_piece_and_can_end_the_work():
    calls = []

    def checkpoint():
        calls.append(1)
        if len(calls) == 5:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        make((3 * 2**20,), "UINT8", checkpoint=checkpoint)
