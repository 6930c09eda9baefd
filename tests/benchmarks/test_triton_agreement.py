import re

import pytest

from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import MODELS, running_triton
from benchmarks.processes import write_scenario
from benchmarks.triton_agreement import CASES, Row, differences, page, scenario
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype, Tensor
from perfkit.scenario.file import read_scenario

SUM = Tensor("OUTPUT0", Datatype.INT32, (1, 2), b"\x01\0\0\0\x02\0\0\0")
DIFFERENCE = Tensor("OUTPUT1", Datatype.INT32, (1, 2), b"\0\0\0\0\0\0\0\0")


def answer(*outputs):
    return InferResponse("simple", "1", outputs)


def test_answers_agree_whatever_the_order_of_outputs_and_the_type_of_buffers():
    same = Tensor(SUM.name, SUM.datatype, SUM.shape, memoryview(bytes(SUM.raw)))
    assert differences(answer(SUM, DIFFERENCE), answer(DIFFERENCE, same)) == []


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (Tensor("OUTPUT0", Datatype.INT32, (1, 2), b"\x01\0\0\0\x03\0\0\0"), "the bytes of OUTPUT0 differ"),
        (Tensor("OUTPUT0", Datatype.UINT32, (1, 2), SUM.raw), "OUTPUT0 is INT32 [1, 2] and UINT32 [1, 2]"),
        (Tensor("OUTPUT0", Datatype.INT32, (2,), SUM.raw), "OUTPUT0 is INT32 [1, 2] and INT32 [2]"),
    ],
)
def test_differences_in_bytes_datatype_or_shape_are_found(other, difference):
    assert differences(answer(SUM, DIFFERENCE), answer(other, DIFFERENCE)) == [difference]


def test_an_output_of_only_one_server_is_a_difference():
    assert differences(answer(SUM, DIFFERENCE), answer(SUM)) == ["only one server returns OUTPUT1"]
    assert differences(answer(SUM), answer(SUM, DIFFERENCE)) == ["only one server returns OUTPUT1"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.model)
def test_a_cases_scenarios_are_valid_and_triton_has_its_model(tmp_path, case):
    for inputs in (case.inputs, *case.further):
        read = read_scenario(write_scenario(tmp_path, scenario(case.model, inputs, 2, 0.5)), (), {}).scenario
        assert (read.target.model, read.workload.batch_size, set(read.workload.inputs)) == (case.model, 2, set(inputs))
    config = (MODELS / case.model / "config.pbtxt").read_text(encoding="utf-8")
    assert config.startswith(f'name: "{case.model}"\n')
    assert (MODELS / case.model / "1" / "model.py").exists()


def test_the_page_lists_differences():
    good = Row("simple", "http", "wire", ["9 sent, 0 failed", "8 sent, 0 failed"], 3)
    bad = Row(
        "simple", "grpc", "wire", ["9 sent, 0 failed", "8 sent, 0 failed"], 3, ["inputs 0, batch 1, request 2: the bytes of OUTPUT0 differ"]
    )
    assert "Differences:" not in page([good], [], "2.51.0", 2)
    text = "\n".join(page([good, bad], [], "2.51.0", 2))
    assert "| simple | http | wire | 9 sent, 0 failed | 8 sent, 0 failed | 3 | yes |" in text
    assert "| simple | grpc | wire | 9 sent, 0 failed | 8 sent, 0 failed | 3 | no |" in text
    assert "- simple, grpc, wire: inputs 0, batch 1, request 2: the bytes of OUTPUT0 differ" in text


def test_only_the_first_of_many_faults_are_shown():
    row = Row("simple", "http", "wire", faults=[f"request {number}" for number in range(51)])
    assert row.shown_faults() == ["request 0", "request 1", "request 2", "request 3", "request 4", "and 46 more"]


def test_without_triton_the_error_names_the_installer(tmp_path):
    with pytest.raises(PeerError, match=re.escape("python3 benchmarks/peers/install.py")), running_triton(tmp_path):
        pass


def test_if_triton_ends_the_error_quotes_its_log(tmp_path):
    program = tmp_path / "bin" / "tritonserver"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho failed to load all models >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(PeerError, match="ended with exit code 1; its last output:\nfailed to load all models"), running_triton(tmp_path):
        pass
