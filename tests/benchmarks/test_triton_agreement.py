import re

import pytest

from benchmarks.peers.triton import MODELS, TritonError, running_triton
from benchmarks.triton_agreement import CASES, Row, differences, page, write_scenario
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype, Tensor
from perfkit.scenario.file import read_scenario

SUM = Tensor("OUTPUT0", Datatype.INT32, (1, 2), b"\x01\0\0\0\x02\0\0\0")
DIFFERENCE = Tensor("OUTPUT1", Datatype.INT32, (1, 2), b"\0\0\0\0\0\0\0\0")


def answer(*outputs):
    return InferResponse("simple", "1", outputs)


def test_answers_agree_whatever_the_order_of_their_outputs_and_the_kind_of_their_buffers():
    same = Tensor(SUM.name, SUM.datatype, SUM.shape, memoryview(bytes(SUM.raw)))
    assert differences(answer(SUM, DIFFERENCE), answer(DIFFERENCE, same)) == []


@pytest.mark.parametrize(
    ("other", "found"),
    [
        (Tensor("OUTPUT0", Datatype.INT32, (1, 2), b"\x01\0\0\0\x03\0\0\0"), "the bytes of OUTPUT0 differ"),
        (Tensor("OUTPUT0", Datatype.UINT32, (1, 2), SUM.raw), "OUTPUT0 is INT32 [1, 2] and UINT32 [1, 2]"),
        (Tensor("OUTPUT0", Datatype.INT32, (2,), SUM.raw), "OUTPUT0 is INT32 [1, 2] and INT32 [2]"),
    ],
)
def test_every_way_in_which_an_output_differs_is_found(other, found):
    assert differences(answer(SUM, DIFFERENCE), answer(other, DIFFERENCE)) == [found]


def test_an_output_that_one_server_leaves_out_is_found():
    assert differences(answer(SUM, DIFFERENCE), answer(SUM)) == ["only one of them answers OUTPUT1"]
    assert differences(answer(SUM), answer(SUM, DIFFERENCE)) == ["only one of them answers OUTPUT1"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_a_cases_scenarios_can_be_read_and_triton_has_its_model(tmp_path, case):
    for inputs in (case.inputs, *case.further):
        scenario = read_scenario(write_scenario(tmp_path, case.model, inputs, 2, 0.5), (), {}).scenario
        assert (scenario.target.model, scenario.workload.batch_size, set(scenario.workload.inputs)) == (case.model, 2, set(inputs))
    config = (MODELS / case.model / "config.pbtxt").read_text(encoding="utf-8")
    assert config.startswith(f'name: "{case.model}"\n')
    assert (MODELS / case.model / "1" / "model.py").exists()


def test_the_page_tells_what_differs():
    good = Row("simple", "http", "wire", ["9 sent, 0 failed", "8 sent, 0 failed"], 3)
    bad = Row(
        "simple", "grpc", "wire", ["9 sent, 0 failed", "8 sent, 0 failed"], 3, ["inputs 0, batch 1, request 2: the bytes of OUTPUT0 differ"]
    )
    assert "differs" not in page([good], [], "2.51.0", 2)
    text = page([good, bad], [], "2.51.0", 2)
    assert "| simple | http | wire | 9 sent, 0 failed | 8 sent, 0 failed | 3 | yes |" in text
    assert "| simple | grpc | wire | 9 sent, 0 failed | 8 sent, 0 failed | 3 | no |" in text
    assert "- simple, grpc, wire: inputs 0, batch 1, request 2: the bytes of OUTPUT0 differ" in text


def test_of_many_faults_the_first_are_told():
    row = Row("simple", "http", "wire", faults=[f"request {number}" for number in range(51)])
    assert row.told_faults() == ["request 0", "request 1", "request 2", "request 3", "request 4", "and 46 more"]


def test_without_triton_the_installer_is_named(tmp_path):
    with pytest.raises(TritonError, match=re.escape("python3 benchmarks/peers/install.py")), running_triton(tmp_path):
        pass


def test_a_triton_that_ends_is_told_with_its_last_words(tmp_path):
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho failed to load all models >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(TritonError, match="ended with exit code 1; it said last:\nfailed to load all models"), running_triton(tmp_path):
        pass
