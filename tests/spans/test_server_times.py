"""Times read from spans as Triton 2.51 sent them; the expected figures are differences of the literals, in microseconds."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.spans.formats import read_json
from perfkit.spans.server_times import ServerTimes, server_times
from perfkit.spans.span import Span, event_times
from tests.spans.bodies import HTTP_SPANS, at, body, compute, http_front_end, model, span

CLIENT, FRONT, MODEL, WORK = "00000000000000a1", "f" * 16, "a" * 16, "c" * 16


def times_of(spans):
    return server_times(read_json(body(spans)).spans)


def in_ns(received, answered, began, ended, queue, compute_input, infer, output):
    return ServerTimes(at(received), at(answered), at(began), at(ended), queue * 1000, compute_input * 1000, infer * 1000, output * 1000)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_one_model_over_http_whose_compute_ends_after_its_answer_left(order):
    expected = in_ns(810_650, 938_233, 811_091, 938_191, 112, 182, 126_736, 70)
    assert times_of([HTTP_SPANS[index] for index in order]) == expected


def test_over_grpc_the_server_had_waited_for_any_request_since_long_before():
    events = [("GRPC_WAITREAD_START", 675), ("GRPC_WAITREAD_END", 946_743), ("INFER_RESPONSE_COMPLETE", 968_332),
              ("GRPC_SEND_START", 968_334), ("GRPC_SEND_END", 968_574)]  # fmt: skip
    spans = [
        compute(WORK, MODEL, 947_617, 947_638, 968_289, 968_444),
        model(MODEL, FRONT, "bounded_queue", 946_859, 947_044, 968_489),
        span(FRONT, CLIENT, "InferRequest", events, 946_792, 968_599),
    ]
    assert times_of(spans) == in_ns(946_743, 968_334, 947_044, 968_332, 573, 21, 20_651, 43)


def test_a_request_that_timed_out_in_the_queue_was_there_until_its_answer():
    spans = [
        model(MODEL, FRONT, "bounded_queue", 974_084, 974_114, 1_493_140),
        http_front_end(FRONT, 974_035, 974_066, 1_492_773, 1_492_776, 1_493_156),
    ]
    assert times_of(spans) == in_ns(974_035, 1_492_776, 974_114, 1_492_773, 518_659, 0, 0, 0)


def test_the_models_of_an_ensemble_count_each_instant_once_and_the_ensemble_has_no_queue_of_its_own():
    # as measured: `classify` began while `resize` was still writing its output
    spans = [
        compute("c" * 16, "a" * 16, 495_548, 495_579, 586_502, 620_344),
        model("a" * 16, "e" * 16, "resize", 495_471, 495_497, 620_632),
        compute("d" * 16, "b" * 16, 597_937, 597_967, 875_001, 875_642),
        model("b" * 16, "e" * 16, "classify", 595_809, 595_966, 875_732),
        model("e" * 16, FRONT, "pipeline", 495_411, 495_431, 878_244),
        http_front_end(FRONT, 495_276, 495_338, 875_602, 878_308, 878_340),
    ]
    infer = (586_502 - 495_579) + (875_001 - 597_967)
    compute_input, output = (495_579 - 495_548) + (597_967 - 597_937), (597_937 - 586_502) + (875_602 - 875_001)
    times = times_of(spans)
    assert times == in_ns(495_276, 878_308, 495_431, 875_602, 495_548 - 495_497, compute_input, infer, output)


def test_a_server_with_an_outer_span_alone_tells_when_it_received_and_answered():
    assert times_of([span(FRONT, CLIENT, "POST /v2/models/{name}/infer", [], 100, 5000)]) == ServerTimes(at(100), at(5000))
    inner = span(MODEL, FRONT, "predict", [], 200, 4000)
    assert times_of([inner, span(FRONT, CLIENT, "POST", [], 100, 5000)]) == ServerTimes(at(100), at(5000))


HOUR_US = 3_600_000_000


@pytest.mark.parametrize(("send", "answered"), [(-3 * HOUR_US, 900), (950, 950), (3 * HOUR_US, 900)])
def test_events_far_outside_of_their_span_are_not_believed(send, answered):
    """As Triton's generate endpoints write them, whose sending starts hours before the request."""
    f, m, c = ("0" * 15 + digit for digit in "123")
    front_end = http_front_end(f, receive=-2 * HOUR_US, start=10, complete=900, send=send, end=1000)
    times = times_of([front_end, model(m, f, "simple", 20, 30, 800), compute(c, m, 100, 200, 700, 800)])
    assert (times.received_ns, times.answered_ns) == (at(10), at(answered))


@pytest.mark.parametrize("spans", [[], HTTP_SPANS[:1], HTTP_SPANS[:2], HTTP_SPANS[1:2]])
def test_without_the_outer_span_there_are_no_times(spans):
    assert times_of(spans) is None


def test_spans_that_are_each_others_parents_have_no_times():
    assert times_of([span(MODEL, FRONT, "a", [], 1, 2), span(FRONT, MODEL, "b", [], 1, 2)]) is None


@given(st.lists(st.lists(st.integers(1, 10**6), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(0, 10**6))
def test_whatever_the_spans_say_no_instant_of_the_work_counts_twice(models, complete):
    spans = [http_front_end(FRONT, 1, 1, complete, complete, 2 * 10**6)]
    for number, instants in enumerate(models):
        name, (queue, start, end, *inner) = f"{number:016x}", sorted(instants)[:3] + instants[:2]
        spans += [model(name, FRONT, "m", queue, queue, end), compute(f"c{number:015x}", name, start, inner[0], inner[1], end)]
    times = times_of(spans)
    parts = (times.queue_ns, times.compute_input_ns, times.compute_infer_ns, times.compute_output_ns)
    assert min(parts) >= 0
    assert sum(parts) <= times.work_ended_ns - times.work_began_ns


def test_no_text_of_a_span_is_in_what_is_kept_of_it():
    """A server may repeat a credential in any name: only instants leave the spans."""
    told = "s3cr3t-planted"
    outer = Span("a" * 32, "1" * 16, "", told, 10, 100, event_times([(told, 20), ("HTTP_RECV_START", 12)]))
    inner = Span("a" * 32, "2" * 16, "1" * 16, f"{told}/compute", 30, 60, event_times([(f"QUEUE_START {told}", 31)]))
    found = server_times([outer, inner])
    assert found is not None
    assert told not in repr(found)
