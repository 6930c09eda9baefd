"""A sample of the answers: how many are read, and what becomes of wrong ones."""

import numpy as np
import pytest

from perfkit.clock import ManualClock
from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.scenario.workload import Check
from perfkit.transport.base import AnswerSigns, Outcome, Reply
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers.answer_check import AnswerCheck
from perfkit.workload.expectation import Expectation

S = 1_000_000_000
METADATA = ModelMetadata("m", ("1",), "", (), (TensorMetadata("OUT", "FP32", (2,)),))


def answer(*values):
    return InferResponse("m", "1", (tensor_from_array("OUT", Datatype.FP32, np.array(values, np.float32)),))


class Answering(ScriptedTransport):
    """Decodes a reply to the answer that is its payload, and is its own transport."""

    def __init__(self):
        super().__init__(ManualClock(), lambda _: (1, Outcome.OK))
        self.decoded = 0
        self.transport = self

    def signs(self, reply, response):
        return AnswerSigns(b"", None)

    def decode(self, reply):
        self.decoded += 1
        if isinstance(reply.payload, str):
            raise ProtocolError(reply.payload)
        return reply.payload


def make_check(tmp_path, transport, *, share=1.0, at_most_per_s=1e9, seed=0, **options):
    expectation = Expectation.of((InferRequest("m", ()),) * 4, METADATA, Check.model_validate(options), None, tmp_path)
    return AnswerCheck(transport, expectation, share=share, at_most_per_s=at_most_per_s, seed=seed)


def replies(count, payload, *, apart_ns=S):
    return [Reply(Outcome.OK, index * apart_ns, index * apart_ns + 1, payload) for index in range(count)]


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (answer(1, 2), ""),
        (answer(1, 2, 3), "the answer has shape [3] in output 'OUT', where the model's metadata says [2]"),
        (InferResponse("m", "1", ()), "the answer holds no outputs"),
    ],
)
def test_a_wrong_answer_becomes_an_invalid_output_with_its_reason(tmp_path, payload, error):
    check = make_check(tmp_path, Answering())
    (reply,) = replies(1, payload)
    assert check(reply)
    assert (reply.outcome, reply.error) == (Outcome.INVALID_OUTPUT if error else Outcome.OK, error)


def test_what_cannot_be_decoded_is_found_without_the_sample(tmp_path):
    check = make_check(tmp_path, Answering(), share=0.0)
    (reply,) = replies(1, "this is no JSON")
    assert not check(reply), "it is no part of the sample"
    assert (reply.outcome, reply.error) == (Outcome.INVALID_OUTPUT, "the answer is broken: this is no JSON")


def test_failed_replies_are_not_checked_and_keep_their_outcome(tmp_path):
    transport = Answering()
    check = make_check(tmp_path, transport)
    for outcome in set(Outcome) - {Outcome.OK}:
        reply = Reply(outcome, 0, 1, "garbage")
        assert not check(reply)
        assert reply.outcome is outcome
    assert transport.decoded == 0


@pytest.mark.parametrize("share", [1.0, 0.5, 0.01])
def test_the_given_share_is_checked_of_every_variant(tmp_path, share):
    """Gaps are uniform around 1/share: the count of 200/share replies is 200 with a standard deviation below 12; five of them here."""
    check = make_check(tmp_path, Answering(), share=share, seed=3)
    count = round(200 / share)
    read = []
    for index, reply in enumerate(replies(count, answer(1, 2))):
        reply.variant = index % 4
        if check(reply):
            read.append(reply.variant)
    assert len(read) == pytest.approx(200, abs=60 if share < 1 else 0)
    assert set(read) == {0, 1, 2, 3}


def test_a_share_of_zero_checks_nothing(tmp_path):
    check = make_check(tmp_path, Answering(), share=0.0)
    assert not any(check(reply) for reply in replies(1000, "garbage"))


def test_no_more_answers_are_checked_per_second_than_allowed(tmp_path):
    check = make_check(tmp_path, Answering(), at_most_per_s=20)
    read = [check(reply) for reply in replies(10_000, answer(1, 2), apart_ns=S // 1000)]
    assert sum(read) == pytest.approx(200, abs=10)


def test_expected_values_are_those_of_the_request_s_variant(tmp_path):
    for index in range(2):
        np.save(tmp_path / f"expected-{index}.npy", np.array([index, index], np.float32))
    check = make_check(tmp_path, Answering(), outputs={"OUT": {"file": "expected-*.npy"}})
    for variant, value, outcome in ((0, 0, Outcome.OK), (1, 1, Outcome.OK), (2, 0, Outcome.OK), (3, 0, Outcome.INVALID_OUTPUT)):
        (reply,) = replies(1, answer(value, value))
        reply.started_ns, reply.finished_ns, reply.variant = variant * S, variant * S + 1, variant
        check(reply)
        assert reply.outcome is outcome


def test_the_seed_decides_which_answers_are_checked(tmp_path):
    def read(seed):
        check = make_check(tmp_path, Answering(), share=0.1, seed=seed)
        return [check(reply) for reply in replies(500, answer(1, 2))]

    assert read(1) == read(1) != read(2)
