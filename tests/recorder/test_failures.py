"""Kinds of failures: distinct messages in bounded memory."""

import pytest

from perfkit.recorder.failures import DISTINCT_MESSAGES, FailureKind, FailureKinds
from perfkit.transport.base import Outcome, Reply


def rejected(message, status=503):
    return Reply(Outcome.REJECTED, 0, 1, message.encode(), status=status)


class Describe:
    """Decodes payloads, and counts how often."""

    def __init__(self):
        self.calls = 0

    def __call__(self, reply):
        self.calls += 1
        return reply.payload.decode()


@pytest.fixture
def describe():
    return Describe()


@pytest.fixture
def kinds(describe):
    return FailureKinds(describe, lambda reply: reply.payload)


def test_a_message_is_decoded_once(kinds, describe):
    found = {kinds.kind(rejected(message)) for message in ["full"] * 1000 + ["late"] * 1000}
    assert found == {FailureKind(Outcome.REJECTED, "503", "full"), FailureKind(Outcome.REJECTED, "503", "late")}
    assert describe.calls == 2


def test_one_message_with_two_statuses_is_two_kinds(kinds):
    assert [kinds.kind(rejected("no", status)).status for status in (500, 503, "UNAVAILABLE")] == ["500", "503", "UNAVAILABLE"]


def test_beyond_ten_messages_of_a_status_the_rest_are_others_and_known_ones_stay(kinds):
    found = [kinds.kind(rejected(f"message {number}")) for number in range(30)]
    assert [kind.message for kind in found] == [f"message {number}" for number in range(DISTINCT_MESSAGES)] + [None] * 20
    assert kinds.kind(rejected("message 3")) == found[3]
    assert kinds.kind(rejected("another", 500)).message == "another"


def test_messages_that_never_repeat_cost_bounded_memory_and_decoding(kinds, describe):
    for number in range(20_000):
        kinds.kind(rejected(f"message {number}", 500 + number % 20))
    assert describe.calls == 10_000
    assert sum(kinds.kind(rejected(f"message {number}", 500 + number % 20)).message is not None for number in range(200)) == 50


def test_request_ids_do_not_make_messages_distinct_and_other_digits_do(kinds):
    found = {kinds.kind(rejected(f"[request id: run-{number}] Exceeds maximum queue size")) for number in range(100)}
    assert found == {FailureKind(Outcome.REJECTED, "503", "Exceeds maximum queue size")}
    assert kinds.kind(rejected("port 1")) != kinds.kind(rejected("port 2"))


@pytest.mark.parametrize(
    ("message", "cause"),
    [("[request id: <id_unknown>] Exceeds maximum queue size", "queue_full"), ("Request timeout expired", "queue_timeout"), ("out of memory", None), (None, None)],
)  # fmt: skip
def test_a_full_queue_and_a_time_out_in_it_are_told_apart(message, cause):
    assert FailureKind(Outcome.REJECTED, "503", message).cause == cause
