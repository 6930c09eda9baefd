"""Errors over HTTP: rows E1 to E14 of the conformance checklist, with Triton's codes and messages."""

import pytest

VALUES = list(range(16))


def tensor(name="INPUT0", **members):
    given = {"name": name, "datatype": "INT32", "shape": [1, 16], "data": VALUES, **members}
    return {key: value for key, value in given.items() if value is not None}


def request(first, **members):
    return {"inputs": [first, tensor("INPUT1")], **members}


def binary(size_bytes, **members):
    return tensor(data=None, parameters={"binary_data_size": size_bytes}, **members)


REFUSALS = {
    "E2_broken_json": (b"{", b"", 500, "failed to parse the request JSON buffer"),
    "I10_no_body_for_two_inputs": (b"", b"", 400, "must only have 1 input"),
    "E2_not_an_object": ([], b"", 500, "failed to parse the request JSON buffer"),
    "E2_no_inputs": ({}, b"", 500, "Unable to parse 'inputs'"),
    "E3_an_input_missing": (
        {"inputs": [tensor()]},
        b"",
        400,
        "[request id: <id_unknown>] expected 2 inputs but got 1 inputs for model 'simple'. Got input(s) ['INPUT0'], but missing required input(s) ['INPUT1']",
    ),
    "E3_an_unknown_input": (request(tensor("INPUT9")), b"", 400, "unexpected inference input 'INPUT9' for model 'simple'"),
    "E3_an_input_twice": (request(tensor("INPUT1")), b"", 400, "input 'INPUT1' already exists in request"),
    "an_unknown_region_for_an_input": (
        {"inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [1, 16], "parameters": {"shared_memory_region": "r"}}]},
        b"",
        404,
        "Unable to find shared memory region: 'r'",
    ),
    "an_unknown_region_for_an_output": (
        {**request(tensor()), "outputs": [{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r"}}]},
        b"",
        404,
        "Unable to find shared memory region: 'r'",
    ),
    "E12_data_and_a_region": (request(tensor(parameters={"shared_memory_region": "r"})), b"", 400, "But set 'data' 'shared_memory_region'"),
    "E4_another_datatype": (
        request(tensor(datatype="FP32")),
        b"",
        400,
        "inference input 'INPUT0' data-type is 'FP32', but model 'simple' expects 'INT32'",
    ),
    "E4_no_datatype_of_that_name": (request(tensor(datatype="INT5")), b"", 400, "invalid datatype 'INT5'"),
    "E5_another_shape": (
        request(tensor(shape=[1, 15], data=VALUES[:15])),
        b"",
        400,
        "unexpected shape for input 'INPUT0' for model 'simple'. Expected [-1,16], got [1,15]. NOTE: ",
    ),
    "E5_no_batch_dimension": (request(tensor(shape=[], data=[1])), b"", 400, "input 'INPUT0' has no shape but model requires batch dimension for 'simple'"),
    "E6_too_large_a_batch": (
        {"inputs": [tensor(name, shape=[9, 16], data=VALUES * 9) for name in ("INPUT0", "INPUT1")]},
        b"",
        400,
        "inference request batch-size must be <= 8 for 'simple'",
    ),
    "E6_batches_that_differ": (request(tensor(shape=[2, 16], data=VALUES * 2)), b"", 400, "batch size does not match other inputs for 'simple'"),
    "E6_an_empty_batch": ({"inputs": [tensor(name, shape=[0, 16], data=[]) for name in ("INPUT0", "INPUT1")]}, b"", 400, "must be >= 1"),
    "E7_too_few_bytes": (
        request(binary(32)),
        bytes(32),
        400,
        "input byte size mismatch for input 'INPUT0' for model 'simple'. Expected 64, got 32",
    ),
    "E8_bytes_left_over": (request(binary(64)), bytes(65), 400, "unexpected additional input data for model 'simple'"),
    "E8_bytes_missing": (request(binary(64)), bytes(60), 400, "unexpected size for input 'INPUT0', expecting 4 additional bytes"),
    "E10_an_unknown_output": (request(tensor(), outputs=[{"name": "OUTPUT9"}]), b"", 400, "unexpected inference output 'OUTPUT9' for model 'simple'"),
    "E11_FP16_as_JSON": (request(tensor(datatype="FP16")), b"", 400, "FP16"),
    "E12_data_twice": (
        request(tensor(parameters={"binary_data_size": 64})),
        bytes(64),
        400,
        "Input must set only one of the following fields: ",
    ),
    "E12_no_data": (request(tensor(data=None)), b"", 400, "Input must set only one of the following fields: "),
    "E13_a_negative_dimension": (request(tensor(shape=[-1, 16])), b"", 500, "Unable to parse 'shape'"),
    "E13_more_values_than_the_shape_has": (request(tensor(data=VALUES * 2)), b"", 500, "does not match true shape"),
    "E13_a_fraction_as_an_integer": (request(tensor(data=[*VALUES[:15], 1.5])), b"", 500, "INPUT0"),
    "E13_an_integer_too_large": (request(tensor(data=[*VALUES[:15], 2**40])), b"", 500, "INPUT0"),
}  # fmt: skip


@pytest.mark.parametrize("row", REFUSALS)
def test_an_invalid_request_is_rejected_and_E14_the_next_one_answered(wire, row):
    document, blob, status, text = REFUSALS[row]
    answer = wire.infer(document, binary=blob)
    assert answer.status == status
    assert list(answer.json) == ["error"]
    assert text in answer.json["error"]
    assert wire.infer(request(tensor())).status == 200


def test_E1_an_unknown_model(wire):
    answer = wire.infer(request(tensor()), model="nope")
    assert (answer.status, answer.json) == (404, {"error": "Request for unknown model: 'nope' is not found"})
    assert wire.infer(request(tensor())).status == 200


@pytest.mark.parametrize("length", [100_000, -1])
def test_E9_a_header_length_outside_the_body_is_rejected(wire, length):
    answer = wire.infer(request(tensor()), header_length=length)
    assert answer.status == 400
    assert "inference header size should be in range (0, " in answer.json["error"]
    assert answer.json["error"].endswith(f"got: {length}")


def test_a_header_length_that_is_not_a_number_is_rejected(wire):
    answer = wire.send("POST", "/v2/models/simple/infer", b"{}", {"Inference-Header-Content-Length": "two"})
    assert answer.status == 400
    assert "two" in answer.json["error"]


def test_the_error_contains_the_request_id(wire):
    assert wire.infer({"id": "42", "inputs": []}).json["error"].startswith("[request id: 42] expected 2 inputs but got 0 inputs")
