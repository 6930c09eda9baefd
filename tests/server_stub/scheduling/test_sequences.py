"""Sequence batching: rows Q1 and Q2 of the conformance checklist, and the order of requests in the queue."""

import numpy as np
import pytest

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype
from server_stub.scheduling.batching import BatchingPolicy
from server_stub.scheduling.request_queue import QueuedRequest
from server_stub.scheduling.sequences import MAX_SEQUENCES, Control, ControlKind, SequencePolicy, SequenceQueue

CONTROLS = (
    Control("start", ControlKind.START),
    Control("end", ControlKind.END, Datatype.FP32, (-1, 2)),
    Control("ready", ControlKind.READY, Datatype.BOOL, (False, True)),
    Control("id", ControlKind.CORRID, Datatype.UINT64),
)


class QueueDriver:
    """A queue whose requests are written `ID`, with `<` before a start and `>` after an end."""

    def __init__(self, policy=None, *, instances=1, max_batch_size=2):
        self.queue = SequenceQueue("m", policy or DIRECT, instances, max_batch_size)

    def add(self, text, now_ns=0, batch_size=1):
        key = text.strip("<>")
        parameters = {
            "sequence_id": int(key) if key.isdigit() else key,
            "sequence_start": text.startswith("<"),
            "sequence_end": text.endswith(">"),
        }
        queued = QueuedRequest(InferRequest("m", (), id=text, parameters=parameters), batch_size, now_ns)
        self.queue.add(queued, now_ns)
        return queued

    def select(self, now_ns=0, instance=0):
        self.selection = self.queue.select(now_ns, instance)
        return " ".join(one.request.id for one in self.selection.batch)

    def done(self, now_ns=0):
        self.queue.finish(self.selection.batch, now_ns)


DIRECT = SequencePolicy()
OLDEST = SequencePolicy(oldest=BatchingPolicy(), max_candidates=2)


@pytest.mark.parametrize("policy", [DIRECT, OLDEST], ids=["direct", "oldest"])
def test_sequences_are_executed_in_order_and_concurrently(policy):
    queue = QueueDriver(policy)
    for text in ("<1", "1", "<2", "1>", "2>"):
        queue.add(text)
    seen = []
    while len(queue.queue):
        seen.append(queue.select())
        queue.done()
    assert seen == ["<1 <2", "1 2>", "1>"]


@pytest.mark.parametrize("policy", [DIRECT, OLDEST], ids=["direct", "oldest"])
def test_a_sequence_without_a_slot_waits_until_another_ends(policy):
    queue = QueueDriver(policy)
    for text in ("<1", "<2", "<3>", "<4>"):
        queue.add(text)
    assert queue.select() == "<1 <2"
    queue.done()
    assert (queue.select(), len(queue.queue)) == ("", 2)
    queue.add("1>")
    assert queue.select() == "1>"
    queue.done()
    assert queue.select() == "<3>"
    queue.done()
    assert queue.select() == "<4>"


def test_a_sequence_stays_with_its_instance():
    queue = QueueDriver(instances=2, max_batch_size=1)
    queue.add("<1")
    queue.add("<2")
    assert (queue.select(instance=0), queue.select(instance=1)) == ("<1", "<2")
    queue.add("2")
    assert (queue.select(instance=0), queue.select(instance=1)) == ("", "2")


def test_with_the_oldest_strategy_a_sequence_has_one_request_at_a_time():
    queue = QueueDriver(OLDEST)
    queue.add("<1")
    queue.add("1>")
    assert queue.select() == "<1"
    batch = queue.selection.batch
    assert (queue.select(), len(queue.queue)) == ("", 1)
    queue.queue.finish(batch, 0)
    assert queue.select() == "1>"


def test_with_the_oldest_strategy_as_many_sequences_are_served_as_there_may_be_candidates():
    queue = QueueDriver(SequencePolicy(oldest=BatchingPolicy(), max_candidates=3), instances=2, max_batch_size=2)
    for text in ("<1", "<2", "<3", "<4"):
        queue.add(text)
    assert [queue.select(), queue.select(), queue.select()] == ["<1 <2", "<3", ""]


def test_a_start_ends_the_previous_sequence_of_the_same_id():
    queue = QueueDriver(max_batch_size=1)
    queue.add("<1")
    queue.add("<1")
    assert [queue.select(), queue.select(), queue.select()] == ["<1", "<1", ""]
    queue.add("1>")
    assert queue.select() == "1>"


def rejection_message(queue, text, **keys):
    with pytest.raises(ProtocolError) as error:
        queue.add(text, **keys)
    assert error.value.kind is ErrorKind.INVALID_ARGUMENT
    return str(error.value)


def test_after_its_end_or_the_idle_timeout_a_sequence_must_be_started_again():
    sentence = "inference request for sequence 1 to model 'm' must specify the START flag on the first request of the sequence"
    queue = QueueDriver(SequencePolicy(max_idle_ns=100))
    queue.add("<1>")
    assert rejection_message(queue, "1") == sentence
    queue.select()
    queue.add("<1", 0)
    queue.add("1", 100)
    queue.add("1", 200)
    assert [queue.select(200), queue.select(200), queue.select(200)] == ["<1", "1", "1"]
    assert rejection_message(queue, "1", now_ns=301) == sentence


def test_an_idle_sequence_frees_its_slot_for_a_waiting_one():
    queue = QueueDriver(SequencePolicy(max_idle_ns=100), max_batch_size=1)
    queue.add("<1", 0)
    assert queue.select(0) == "<1"
    queue.add("<2", 50)
    assert queue.select(50) == ""
    wake_ns = queue.selection.wake_ns
    assert wake_ns == 101
    assert queue.select(wake_ns) == "<2"


def test_a_sequence_waiting_longer_than_the_idle_timeout_stays_and_causes_no_needless_wakeups():
    queue = QueueDriver(SequencePolicy(max_idle_ns=100), max_batch_size=1)
    queue.add("<1", 0)
    queue.add("<2", 0)
    queue.select(0)
    for now_ns in (90, 180, 270):
        queue.add("1", now_ns)
        assert queue.select(now_ns) == "1"
        assert queue.select(now_ns) == ""
        assert queue.selection.wake_ns is not None
        assert queue.selection.wake_ns > now_ns
    queue.add("1>", 280)
    assert (queue.select(280), queue.select(280)) == ("1>", "<2")
    queue.add("2", 285)
    assert queue.select(285) == "2"


@pytest.mark.parametrize("policy", [DIRECT, OLDEST], ids=["direct", "oldest"])
def test_a_cancelled_request_is_skipped_and_its_sequence_continues(policy):
    queue = QueueDriver(policy)
    queue.add("<1")
    left, last = queue.add("1"), queue.add("1>")
    assert queue.select() == "<1"
    queue.queue.discard(left)
    queue.done()
    assert (queue.select(), len(queue.queue)) == ("1>", 0)
    queue.done()
    gone = queue.add("<2>")
    queue.queue.discard(gone)
    assert (len(queue.queue), queue.select(), last.is_cancelled) == (0, "", False)


@pytest.mark.parametrize(
    ("starts", "ends", "expected"), [("<", "", (1, -1.0)), ("", "", (0, -1.0)), ("", ">", (0, 2.0)), ("<", ">", (1, 2.0))]
)
def test_controls_are_rows_of_their_types(starts, ends, expected):
    queue = QueueDriver(SequencePolicy(CONTROLS))
    if not starts:
        queue.add("<7")
    controls = queue.add(f"{starts}7{ends}").controls
    assert {name: (one.dtype, one.tolist()) for name, one in controls.items()} == {
        "start": (np.int32, [[expected[0]]]),
        "end": (np.float32, [[expected[1]]]),
        "ready": (np.bool_, [[True]]),
        "id": (np.uint64, [[7]]),
    }


def test_a_text_id_needs_a_string_control():
    assert rejection_message(QueueDriver(SequencePolicy(CONTROLS)), "<seven") == (
        "inference request for sequence seven to model 'm' must specify a correlation ID of type UINT64"
    )
    queue = QueueDriver(SequencePolicy((Control("id", ControlKind.CORRID, Datatype.BYTES),)))
    assert queue.add("<seven").controls["id"].tolist() == [[b"seven"]]


def test_requests_without_an_id_or_with_a_batch_are_rejected():
    sentence = "inference request to model 'm' must specify a non-zero or non-empty correlation ID"
    assert rejection_message(QueueDriver(), "0") == rejection_message(QueueDriver(), "<>") == sentence
    assert rejection_message(QueueDriver(), "<1", batch_size=2) == (
        "inference request to model 'm' must specify batch-size 1 due to requirements of sequence batcher"
    )


def infer(wire, model, value, **parameters):
    document = {"inputs": [{"name": "INPUT", "datatype": "INT32", "shape": [1, 1], "data": [value]}], "parameters": parameters}
    answer = wire.infer(document, model=model)
    return answer.json["outputs"][0]["data"][0] if answer.status == 200 else (answer.status, answer.json["error"])


def test_Q1_a_request_without_id_or_start(wire):
    assert infer(wire, "simple_sequence", 1)[0] == 400
    assert infer(wire, "simple_sequence", 1, sequence_id=0)[0] == 400
    status, text = infer(wire, "simple_sequence", 1, sequence_id=10**6)
    assert (status, text.partition(" to model")[0]) == (400, "inference request for sequence 1000000")


@pytest.mark.parametrize("key", [11, "eleven"])
def test_Q2_the_example_sequence(wire, key):
    sent = [(0, {"sequence_start": True}), (11, {}), (7, {"sequence_end": True})]
    assert [infer(wire, "simple_sequence", value, sequence_id=key, **flags) for value, flags in sent] == [1, 11, 7]


def test_Q2_the_example_sequence_with_its_id_at_the_end(wire):
    sent = [(0, {"sequence_start": True}), (11, {}), (7, {"sequence_end": True})]
    assert [infer(wire, "simple_dyna_sequence", value, sequence_id=1001, **flags) for value, flags in sent] == [1, 11, 1008]


def test_the_config_has_what_perf_analyzer_reads_and_no_other_batching(wire):
    config = wire.get("/v2/models/simple_dyna_sequence/config").json
    assert "dynamic_batching" not in config
    assert config["sequence_batching"]["oldest"]["max_candidate_sequences"] == 4096
    assert [one["name"] for one in config["sequence_batching"]["control_input"]] == ["START", "READY", "END", "CORRID"]
    assert [one["name"] for one in wire.get("/v2/models/simple_dyna_sequence").json["inputs"]] == ["INPUT"]


def test_the_config_over_grpc_has_tritons_controls(triton_grpc):
    config = triton_grpc.get_model_config("simple_sequence").config
    start, ready = config.sequence_batching.control_input
    assert (start.control[0].kind, list(start.control[0].int32_false_true), ready.control[0].kind) == (0, [0, 1], 1)
    assert config.sequence_batching.WhichOneof("strategy_choice") == "direct"


@pytest.mark.parametrize("policy", [DIRECT, OLDEST], ids=["direct", "oldest"])
def test_sequences_that_are_never_ended_push_the_longest_idle_one_out(policy):
    queue = QueueDriver(policy)
    for key in range(1, MAX_SEQUENCES + 3):
        queue.add(f"<{key}")
        if key <= 2:  # these two have their answers; the others wait for the slots, which the two keep
            assert queue.select() == f"<{key}"
            queue.done()
    assert len(queue.queue._known) == MAX_SEQUENCES
    for key in (1, 2):
        with pytest.raises(ProtocolError, match=f"sequence {key} to model 'm' must specify the START flag"):
            queue.add(str(key))
    queue.add("5")  # the others continue


def test_a_new_sequence_is_refused_if_all_have_requests_and_no_request_is_lost():
    queue = QueueDriver()
    for key in range(1, MAX_SEQUENCES + 1):
        queue.add(f"<{key}")
    with pytest.raises(ProtocolError, match="model 'm' has 10,000 sequences with requests") as refusal:
        queue.add("<10001")
    assert refusal.value.kind is ErrorKind.UNAVAILABLE
    queue.add("<7")  # starting one of them again is no further one
    assert len(queue.queue) == MAX_SEQUENCES + 1
    assert queue.select() == "<1 <2"
    queue.done()
    queue.add("<10001")
    assert queue.select() == "<3"  # in the slot of the sequence that has made room; the other slot is still taken


def test_sequences_whose_clients_left_while_they_waited_leave_nothing_behind():
    queue = QueueDriver()
    queue.add("<1")
    queue.add("<2")
    for _ in range(100):
        queue.queue.discard(queue.add("<3"))
    for key in range(4, 104):
        queue.queue.discard(queue.add(f"<{key}>"))
    assert len(queue.queue._backlog) == 1


def test_a_correlation_id_has_at_most_128_characters():
    queue = QueueDriver()
    queue.add("<" + "x" * 128)
    with pytest.raises(ProtocolError, match="has a correlation ID of 129 characters, and 128 are the most"):
        queue.add("<" + "x" * 129)
