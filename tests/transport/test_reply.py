"""What replies hold: defaults that are stored nowhere, and what the reply to a repeated request keeps of its last attempt."""

from perfkit.transport.base import Attempt, OkReply, Outcome, Reply, RetriedReply


def test_attributes_that_were_not_set_have_the_same_values_in_every_kind_of_reply():
    made, quick = Reply(Outcome.OK, 5, 9), OkReply()
    quick.outcome, quick.started_ns, quick.finished_ns = Outcome.OK, 5, 9
    quick.payload, quick.variant = None, 0
    names = [*Reply.__slots__[1:], *Reply.__annotations__]
    assert len(names) == 15
    assert [getattr(made, name) for name in names] == [getattr(quick, name) for name in names]


def test_an_attribute_that_is_set_is_that_of_one_reply_alone():
    one, other = OkReply(), Reply(Outcome.REJECTED, 0, 1, None, "busy", "503", replica=2)
    one.intended_ns, one.error = 7, "wrong"
    assert (one.intended_ns, one.error, one.status, one.replica) == (7, "wrong", "", 0)
    assert (other.intended_ns, other.error, other.status, other.replica) == (0, "busy", "503", 2)


def test_the_reply_to_a_repeated_request_has_all_of_its_last_one_from_the_start_of_the_first():
    last = Reply(Outcome.REJECTED, 30, 40, ["body"], "busy", "503", variant=3, responses_ns=(35,), is_own_limit=True)
    last.replica = 1
    attempts = [Attempt(Outcome.BROKEN, "", 10, 20), Attempt(Outcome.REJECTED, "503", 30, 40)]
    whole = RetriedReply.of(last, attempts, is_over_budget=True)
    assert (whole.outcome, whole.started_ns, whole.finished_ns, whole.payload) == (Outcome.REJECTED, 10, 40, ["body"])
    assert (whole.error, whole.status, whole.variant, whole.responses_ns) == ("busy", "503", 3, (35,))
    assert (whole.is_own_limit, whole.replica, whole.attempts, whole.is_over_budget) == (True, 1, attempts, True)
