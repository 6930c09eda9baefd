"""Collected spans: which ones are kept, how long a report waits for them, and what is counted."""

import pytest

from perfkit.spans.formats import SpansRead, read_json
from perfkit.spans.server_times import server_times
from perfkit.telemetry.messages import SpanCounts
from perfkit.telemetry.spans.collected import CollectedSpans
from perfkit.units import NS_PER_S
from tests.clocks import SettableClock
from tests.spans.bodies import HTTP_SPANS, body, span

TIMES = server_times(read_json(body(HTTP_SPANS)).spans)
A, B, C = ("a" * 16 + letter * 16 for letter in "abc")
LATER = tuple("a" * 16 + digit * 16 for digit in "1234567")


def spans_of(trace, spans=HTTP_SPANS):
    return read_json(body([{**written, "traceId": trace} for written in spans]))


class Waited:
    """Collected spans on a clock that moves while a report waits; `coming` are bodies by the second at which they come."""

    def __init__(self, most_traces=10, coming=()):
        self.clock, self.coming, self.words = SettableClock(), dict(coming), 0
        self.collected = CollectedSpans(most_traces, self.clock, self.pause)

    def pause(self, _):
        self.clock.ns += NS_PER_S // 2
        if (read := self.coming.pop(self.clock.ns / NS_PER_S, None)) is not None:
            self.collected.add(read)

    def report(self, *trace_ids, within_s=10.0):
        def on_second():
            self.words += 1

        return self.collected.report(trace_ids, within_s, on_second)


def test_a_report_waits_for_all_spans_and_a_second_without_any():
    waited = Waited(coming={1: spans_of(A, HTTP_SPANS[:2]), 3: spans_of(A, HTTP_SPANS[2:]), 3.5: spans_of(B)})
    assert waited.report(A, B).times == {A: TIMES, B: TIMES}
    assert (waited.clock.ns, waited.words) == (4.5 * NS_PER_S, 4)


def test_a_report_waits_no_longer_than_it_may_for_the_last_requests_spans():
    waited = Waited(coming={2: spans_of(A)})
    assert waited.report(A, *LATER, within_s=7.0).times == {A: TIMES}
    assert waited.clock.ns == 7 * NS_PER_S


@pytest.mark.parametrize(("came_s", "until_s"), [(2, 5.5), (5.5, 6.5), (6, 7)])
def test_when_spans_of_the_last_requests_have_come_earlier_ones_are_waited_for_as_long_as_a_batch_takes(came_s, until_s):
    waited = Waited(coming={came_s: spans_of(A)})
    assert waited.report(*LATER, A, within_s=9.0).times == {A: TIMES}
    assert waited.clock.ns == until_s * NS_PER_S


def test_without_the_outer_span_a_trace_is_waited_for_and_not_reported():
    waited = Waited(coming={1: spans_of(A, HTTP_SPANS[:2])})
    assert waited.report(A, within_s=5.0).times == {}
    assert waited.clock.ns == 5 * NS_PER_S


def test_nothing_is_waited_for_if_no_trace_is_wanted():
    waited = Waited()
    assert (waited.report().times, waited.clock.ns) == ({}, 0)


def test_late_and_repeated_spans_are_counted_and_the_counts_begin_anew_with_each_report():
    waited = Waited()
    waited.collected.add(spans_of(A))
    waited.collected.add(spans_of(A))
    waited.collected.add(SpansRead(strangers=5, malformed=7))
    waited.collected.refuse()
    first = SpanCounts(received=6, strangers=5, malformed=7, duplicates=3, refused_bodies=1)
    assert waited.report(A).counts == first
    waited.collected.add(spans_of(A))
    second = waited.report(A, within_s=0.0)
    assert (second.times, second.counts) == ({}, SpanCounts(received=3, late=3))
    assert waited.report().counts == SpanCounts()


def test_above_the_most_traces_those_that_came_first_are_dropped_and_counted():
    waited = Waited(most_traces=2)
    for trace in (A, B, C):
        waited.collected.add(spans_of(trace))
    report = waited.report(A, B, C, within_s=0.0)
    assert (set(report.times), report.counts) == ({B, C}, SpanCounts(received=9, dropped=3))


@pytest.mark.parametrize(("count", "dropped"), [(64, 0), (65, 1), (1000, 936)])
def test_of_one_trace_at_most_64_spans_are_kept(count, dropped):
    waited = Waited()
    waited.collected.add(read_json(body([span(f"{number:016x}", "", "x", [], 1, 2, trace=A) for number in range(count)])))
    assert waited.report(A, within_s=0.0).counts == SpanCounts(received=count, dropped=dropped)
