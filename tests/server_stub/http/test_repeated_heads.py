"""Requests and responses whose heads repeat are read and written as `perfkit.protocol.rest` does it, which does not remember anything."""

import functools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.errors import ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype, Tensor
from server_stub.http.repeated_heads import RepeatedHeads
from server_stub.inference.layouts import whole_request
from server_stub.inference.repetition import MAX_REMEMBERED, remember

NAMES = st.sampled_from(["a", "b", "INPUT0", "ü\"'"])
ENTRIES = st.fixed_dictionaries(
    {"name": NAMES, "datatype": st.sampled_from(["INT8", "BYTES", "FP32", "NOPE"]), "shape": st.lists(st.integers(0, 9), max_size=2)}
)
BINARY = st.tuples(ENTRIES, st.integers(0, 40)).map(lambda one: {**one[0], "parameters": {"binary_data_size": one[1]}})
PLAIN = st.lists(st.integers(-128, 127), max_size=4).map(lambda data: {"name": "j", "datatype": "INT8", "shape": [len(data)], "data": data})
OUTPUTS = st.fixed_dictionaries(
    {"name": NAMES},
    optional={"parameters": st.fixed_dictionaries({}, optional={"binary_data": st.booleans(), "classification": st.integers(0, 3)})},
)
PARAMETERS = st.dictionaries(st.sampled_from(["binary_data_output", "sequence_end", "mine"]), st.booleans(), max_size=2)
DOCUMENTS = st.fixed_dictionaries(
    {"inputs": st.lists(BINARY | BINARY | PLAIN, max_size=3)},
    optional={"id": st.sampled_from(["", "1", "x"]), "outputs": st.lists(OUTPUTS, max_size=2), "parameters": PARAMETERS},
)  # fmt: skip


def read(heads, *arguments):
    """The whole request; it is remembered, as the front end does it once it has answered it."""
    known = heads.find(*arguments)
    if known is not None:
        return whole_request(known)
    request = rest.decode_infer_request(*arguments)
    heads.add(*arguments, request)
    return request


def outcome(decode, *arguments):
    """The decoded request, or the error's kind and text."""
    try:
        request = decode(*arguments)
    except ProtocolError as error:
        return error.kind, str(error)
    return request, [bytes(tensor.raw) for tensor in request.inputs]


def data_bytes(document):
    return sum(one.get("parameters", {}).get("binary_data_size", 0) for one in document["inputs"])


def filler(length, seed):
    return bytes((seed + index) % 251 for index in range(length))


@settings(max_examples=50)
@given(
    st.lists(DOCUMENTS, min_size=1, max_size=2),
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from([0, 0, 0, 1, -1, 7])), min_size=2, max_size=6),
)
def test_repeated_requests_are_decoded_as_if_they_were_new(documents, sent):
    """Each with other data, and some with more or less data than before."""
    heads = RepeatedHeads()
    for number, (which, more_bytes) in enumerate(sent):
        document = documents[which % len(documents)]
        head = json.dumps(document).encode()
        body = head + filler(max(0, data_bytes(document) + more_bytes), number)
        for arguments in (("m", "1", body, len(head)), ("m", "", bytearray(body), len(head)), ("n", "1", body, len(head))):
            assert outcome(functools.partial(read, heads), *arguments) == outcome(rest.decode_infer_request, *arguments)
        assert outcome(functools.partial(read, heads), "m", "1", body, None) == outcome(rest.decode_infer_request, "m", "1", body, None)


ONE = {"inputs": [{"name": "a", "datatype": "INT8", "shape": [4], "parameters": {"binary_data_size": 4}}]}
HEAD = json.dumps(ONE).encode()
NOTHING = b'{"inputs":[]}'


def test_a_repeated_head_is_parsed_once(monkeypatch):
    heads, parsed = RepeatedHeads(), []
    decode = rest.decode_infer_request

    def counted(*arguments):
        parsed.append(arguments)
        return decode(*arguments)

    monkeypatch.setattr(rest, "decode_infer_request", counted)
    requests = [read(heads, "m", "1", HEAD + bytes([number] * 4), len(HEAD)) for number in range(9)]
    assert [bytes(request.inputs[0].raw) for request in requests] == [bytes([number] * 4) for number in range(9)]
    assert len(parsed) == 1
    read(heads, "m", "2", HEAD + bytes(4), len(HEAD))
    read(heads, "other", "1", HEAD + bytes(4), len(HEAD))
    assert len(parsed) == 3


@pytest.mark.parametrize("length", [0, 3, 5, 1000])
def test_a_known_head_with_other_data_gets_the_error_of_a_new_one(length):
    heads, body = RepeatedHeads(), HEAD + bytes(length)
    expected = outcome(rest.decode_infer_request, "m", "1", body, len(HEAD))
    assert isinstance(expected[1], str)
    for _ in range(2):
        read(heads, "m", "1", HEAD + b"abcd", len(HEAD))
        assert outcome(functools.partial(read, heads), "m", "1", body, len(HEAD)) == expected


@pytest.mark.parametrize("wrong", [-1, -4, len(NOTHING) + 1, 10_000])
def test_a_length_of_the_head_that_is_wrong_is_refused_for_known_heads_too(wrong):
    heads = RepeatedHeads()
    for _ in range(2):
        read(heads, "m", "1", NOTHING, len(NOTHING))
        read(heads, "m", "1", HEAD + b"abcd", len(HEAD))
        for body in (NOTHING, HEAD + b"abcd"):
            assert outcome(functools.partial(read, heads), "m", "1", body, wrong) == outcome(
                rest.decode_infer_request, "m", "1", body, wrong
            )


@pytest.mark.parametrize("length", [4000, 4096, 4097, 100_000])
def test_heads_of_every_length_are_read(length):
    heads, head = RepeatedHeads(), HEAD + b" " * (length - len(HEAD))
    for data in (b"abcd", b"efgh", b"ijkl"):
        (tensor,) = read(heads, "m", "1", head + data, length).inputs
        assert bytes(tensor.raw) == data


def test_a_body_that_is_reused_does_not_change_a_known_request():
    heads, body = RepeatedHeads(), bytearray(HEAD + b"abcd")
    read(heads, "m", "1", body, len(HEAD))
    body[:] = b"x" * len(body)
    (tensor,) = read(heads, "m", "1", HEAD + b"efgh", len(HEAD)).inputs
    assert (tensor.name, bytes(tensor.raw)) == ("a", b"efgh")


def test_ids_that_are_all_different_are_forgotten():
    heads = RepeatedHeads()
    most = 0
    for number in range(3000):
        head = json.dumps({"id": str(number), **ONE}).encode()
        request = read(heads, "m", "1", head + b"abcd", len(head))
        assert request.id == str(number)
        heads.encode(InferResponse("m", "1", request.inputs, request.id))
        most = max(most, len(heads._requests), len(heads._responses))
    assert most == 1024


def test_what_is_remembered_of_a_request_does_not_hold_its_data():
    heads = RepeatedHeads()
    read(heads, "m", "1", HEAD + b"abcd", len(HEAD))
    (known,) = heads._requests.values()
    assert [tensor.raw for tensor in known.template.request.inputs] == [b""]


@pytest.mark.parametrize(("output_count", "is_known"), [(15, True), (16, False)])
def test_a_head_of_many_tensors_is_not_remembered(output_count, is_known):
    heads, head = RepeatedHeads(), json.dumps({**ONE, "outputs": [{"name": "b"}] * output_count}).encode()
    place = ("m", "1", head + b"abcd", len(head))
    assert len(read(heads, *place).outputs) == output_count
    assert (heads.find(*place) is not None) == is_known


def test_a_known_head_does_not_empty_a_full_cache():
    known = dict.fromkeys(range(MAX_REMEMBERED), 0)
    remember(known, 7, 1)
    assert known == {number: int(number == 7) for number in range(MAX_REMEMBERED)}
    remember(known, -1, 1)
    assert known == {-1: 1}


TENSORS = st.builds(
    Tensor,
    NAMES,
    st.sampled_from([Datatype.INT8, Datatype.FP32, Datatype.BYTES]),
    st.lists(st.integers(0, 9), max_size=2).map(tuple),
    st.sampled_from([0, 1, 4, 40]).map(bytes),
)
RESPONSES = st.builds(
    InferResponse,
    st.sampled_from(["m", "n"]),
    st.sampled_from(["1", "2"]),
    st.lists(TENSORS, max_size=2, unique_by=lambda tensor: tensor.name).map(tuple),
    st.sampled_from(["", "1"]),
    st.just({}) | st.dictionaries(st.sampled_from(["sequence_id", "p"]), st.integers(0, 2), max_size=1),
)


@settings(max_examples=50)
@given(st.lists(RESPONSES, min_size=1, max_size=3), st.lists(st.integers(0, 2), min_size=2, max_size=6))
def test_repeated_responses_are_encoded_as_if_they_were_new(responses, sent):
    heads = RepeatedHeads()
    for number, which in enumerate(sent):
        response = responses[which % len(responses)]
        outputs = tuple(Tensor(one.name, one.datatype, one.shape, memoryview(filler(len(one.raw), number))) for one in response.outputs)
        response = InferResponse(response.model, response.version, outputs, response.id, response.parameters)
        headers, body = heads.encode(response)
        expected_headers, expected = rest.encode_infer_response(response, dict.fromkeys((one.name for one in outputs), True))
        assert headers == expected_headers
        assert b"".join(body) == b"".join(expected)


def test_a_response_whose_head_is_long_is_encoded_every_time():
    heads, tensor = RepeatedHeads(), Tensor("a" * 5000, Datatype.INT8, (1,), b"x")
    for _ in range(2):
        headers, body = heads.encode(InferResponse("m", "1", (tensor,)))
        assert (int(headers[rest.HEADER_LENGTH]), bytes(body[1])) == (len(body[0]), b"x")
    assert len(heads._responses) == 0


def test_what_a_caller_does_with_its_headers_is_its_own():
    heads, response = RepeatedHeads(), InferResponse("m", "1", (Tensor("a", Datatype.INT8, (1,), b"x"),))
    for _ in range(3):
        headers, body = heads.encode(response)
        assert set(headers) == {"Content-Type", rest.HEADER_LENGTH}
        assert len(body) == 2
        body.append(b"more")


def test_through_the_server(wire):
    """Data of other values, and then of another length, behind one head."""
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": 64}} for name in ("INPUT0", "INPUT1")
    ]
    document = json.dumps({"inputs": inputs, "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}]}).encode()
    for value in range(4):
        answer = wire.infer(document, binary=value.to_bytes(4, "little") * 16 + (10).to_bytes(4, "little") * 16)
        assert (answer.status, answer.body[-64:]) == (200, (10 + value).to_bytes(4, "little") * 16)
        short = wire.infer(document, binary=bytes(127))
        assert (short.status, short.json) == (
            400,
            {"error": "unexpected size for input 'INPUT1', expecting 1 additional bytes for model 'simple'"},
        )
        long = wire.infer(document, binary=bytes(129))
        assert (long.status, long.json) == (400, {"error": "unexpected additional input data for model 'simple'"})
