"""Series and their integrals, against values computed at every nanosecond or by NumPy."""

import threading

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.clock import MonotonicClock
from perfkit.telemetry.series import (
    SamplerReport,
    SamplerThread,
    Series,
    SeriesBuffer,
    counter_growth,
    held_mean,
    preceding_mean,
    rate_integral,
    take_notes,
)

SECOND = 10**9
samples = st.lists(st.tuples(st.integers(0, 50), st.integers(-5, 5)), max_size=20)
instants = st.lists(st.integers(0, 400), min_size=1, max_size=12, unique=True).map(sorted)
spans = st.tuples(st.integers(0, 400), st.integers(0, 400)).filter(lambda span: span[0] < span[1])


def filled(pairs):
    buffer = SeriesBuffer("power", "W", {"gpu": "0"})
    for time_ns, value in pairs:
        buffer.add(time_ns, value)
    return buffer


@given(samples, st.integers(-5, 55), st.integers(-5, 55))
def test_a_span_has_the_samples_between_its_ends(pairs, start_ns, end_ns):
    newer = [pair for index, pair in enumerate(pairs) if all(pair[0] > earlier for earlier, _ in pairs[:index])]
    expected = tuple(pair for pair in newer if start_ns <= pair[0] <= end_ns)
    buffer = filled(pairs)
    for series in (buffer.between(start_ns, end_ns), buffer.whole().between(start_ns, end_ns)):
        assert tuple(zip(series.times_ns, series.values, strict=True)) == expected
        assert (series.name, series.unit, series.labels) == ("power", "W", {"gpu": "0"})
    assert buffer.latest == (newer[-1][1] if newer else None)
    assert buffer.last() == (Series("power", "W", {"gpu": "0"}, (newer[-1][0],), (newer[-1][1],)) if newer else None)
    assert buffer.span_ns == ((newer[0][0], newer[-1][0]) if newer else None)


def test_values_are_linear_between_samples_and_constant_beyond_them():
    buffer = filled([(10, 100.0), (20, 200.0), (40, 100.0)])
    assert [buffer.at(instant) for instant in (0, 10, 15, 20, 30, 40, 99)] == [100, 100, 150, 200, 150, 100, 100]
    assert filled([]).at(5) is None


@given(samples, st.integers(0, 50), st.integers(0, 50))
def test_forgetting_samples_changes_no_later_window(pairs, start_ns, instant_ns):
    whole, buffer = filled(pairs), filled(pairs)
    buffer.forget_before(start_ns)
    assert buffer.between(start_ns, 60) == whole.between(start_ns, 60)
    if instant_ns >= start_ns:
        assert buffer.at(instant_ns) == whole.at(instant_ns)
    assert len(buffer.between(0, start_ns - 1).times_ns) <= 1


def test_a_series_may_begin_with_the_sample_in_effect():
    series = filled([(10, 1.0), (20, 2.0), (30, 3.0)]).whole()
    assert [series.effective_from(instant).times_ns for instant in (5, 10, 25, 99)] == [(10, 20, 30), (10, 20, 30), (20, 30), (30,)]


def test_a_span_may_be_taken_with_its_neighbouring_samples():
    buffer = filled([(10, 1.0), (20, 2.0), (30, 3.0), (40, 4.0)])
    assert [buffer.around(*span).times_ns for span in ((21, 29), (20, 30), (0, 5), (45, 50))] == [(20, 30), (20, 30), (10,), (40,)]


def test_the_mean_of_a_series_is_unweighted():
    assert Series("x", "", {}, (1, 2, 9), (1.0, 2.0, 6.0)).mean == pytest.approx(3.0)
    assert Series("x", "", {}, (), ()).mean is None


@given(instants, spans, st.data())
def test_a_held_mean_is_that_of_the_values_at_every_nanosecond(times_ns, span, data):
    values = [data.draw(st.integers(-5, 5)) for _ in times_ns]
    held = [values[numpy.searchsorted(times_ns, ns, "right") - 1] for ns in range(*span) if ns >= times_ns[0]]
    assert held_mean(times_ns, values, span) == (pytest.approx(numpy.mean(held)) if held else None)


@given(instants, spans, st.data())
def test_a_preceding_mean_is_that_of_the_values_at_every_nanosecond(times_ns, span, data):
    values = [data.draw(st.integers(-5, 5)) for _ in times_ns]
    preceding = [values[numpy.searchsorted(times_ns, ns, "right")] for ns in range(*span) if times_ns[0] <= ns < times_ns[-1]]
    assert preceding_mean(times_ns, values, span) == (pytest.approx(numpy.mean(preceding)) if preceding else None)


@given(st.lists(st.tuples(st.integers(1, SECOND), st.integers(0, 1000)), min_size=2, max_size=12), st.data())
def test_a_counter_grows_linearly_between_samples(steps, data):
    times_ns = [int(ns) for ns in numpy.cumsum([step for step, _ in steps])]
    values = [float(value) for value in numpy.cumsum([growth for _, growth in steps])]
    start_ns = data.draw(st.integers(times_ns[0], times_ns[-1] - 1))
    end_ns = data.draw(st.integers(start_ns + 1, times_ns[-1]))
    expected = numpy.interp(end_ns, times_ns, values) - numpy.interp(start_ns, times_ns, values)
    assert counter_growth(times_ns, values, (start_ns, end_ns)) == pytest.approx(expected)


def test_a_counter_continues_beyond_its_last_sample_at_its_rate():
    # 100 J per second, sampled at uneven times: the last step alone would say 200
    times_ns, values = [0, SECOND, 2 * SECOND, 2 * SECOND + SECOND // 2], [0.0, 100.0, 200.0, 300.0]
    assert counter_growth(times_ns[:3], values[:3], (0, 2 * SECOND + SECOND // 10)) == pytest.approx(210)
    assert counter_growth(times_ns, values, (0, 2 * SECOND + 6 * SECOND // 10)) == pytest.approx(300 + 0.1 * 100 / 0.5 * 1)


@pytest.mark.parametrize(
    ("times_ns", "values"),
    [
        ([], []),
        ([0], [1.0]),
        ([5, SECOND], [0.0, 1.0]),  # begins after the span
        ([0, SECOND], [0.0, 1.0]),  # ends before it
        ([0, SECOND, 3 * SECOND], [0.0, 5.0, 1.0]),  # fell: the driver was reloaded
    ],
)
def test_a_counter_that_fell_or_does_not_cover_the_span_has_no_growth(times_ns, values):
    assert counter_growth(times_ns, values, (1, 3 * SECOND)) is None


def test_a_rate_adds_up_over_a_span():
    assert rate_integral(250.0, (SECOND, 5 * SECOND)) == 1000.0


WAIT_S = 60


class RecordingSampler:
    """Records its calls; `due` returns when the next sample is due, given the number of samples so far."""

    def __init__(self, due=lambda _: None, *, starts=True, fails=()):
        self.notes, self.calls, self.threads = [], [], set()
        self.sampled, self._due, self._starts, self._fails = threading.Event(), due, starts, fails

    def _record(self, name):
        self.calls.append(name)
        self.threads.add(threading.get_ident())
        if name in self._fails:
            raise ValueError(f"{name} failed")

    def start(self):
        self._record("start")
        return self._starts

    def sample(self):
        self._record("sample")
        count = self.calls.count("sample")
        if count == 3:
            self.sampled.set()
        return self._due(count)

    def window(self, start_ns, end_ns):
        self._record("window")
        return SamplerReport((start_ns, end_ns))

    def latest(self):
        return []

    def close(self):
        self._record("close")


@pytest.fixture
def start():
    threads = []

    def make(sampler):
        threads.append(SamplerThread("thing", sampler, MonotonicClock()))
        return threads[-1]

    yield make
    for thread in threads:
        thread.close(WAIT_S)


def test_a_sampler_is_sampled_when_due_and_called_in_between(start):
    sampler = RecordingSampler(lambda count: 0 if count < 3 else None)
    thread = start(sampler)
    assert sampler.sampled.wait(WAIT_S)
    assert thread.submit(lambda own: own.window(1, 2)).result(WAIT_S).summary == (1, 2)
    thread.close(WAIT_S)
    assert sampler.calls == ["start", "sample", "sample", "sample", "window", "close"]
    assert len(sampler.threads - {threading.get_ident()}) == 1


def test_a_sampler_without_a_source_is_not_sampled(start):
    sampler = RecordingSampler(starts=False)
    thread = start(sampler)
    assert thread.submit(take_notes).result(WAIT_S) == []
    thread.close(WAIT_S)
    assert sampler.calls == ["start", "close"]


@pytest.mark.parametrize("broken", ["start", "sample"])
def test_a_sampler_that_raises_is_noted_and_no_longer_sampled(start, broken):
    sampler = RecordingSampler(lambda _: 0, fails=(broken,))
    thread = start(sampler)
    notes: list[str] = []
    while not notes:
        notes = thread.submit(take_notes).result(WAIT_S)
    assert notes == [f"Sampling of thing failed and has ended: ValueError: {broken} failed."]
    assert thread.submit(take_notes).result(WAIT_S) == []
    thread.close(WAIT_S)
    assert sampler.calls.count(broken) == 1


def test_an_exception_of_a_call_is_raised_where_its_result_is_awaited(start):
    with pytest.raises(ValueError, match="window failed"):
        start(RecordingSampler(fails=("window",))).submit(lambda own: own.window(1, 2)).result(WAIT_S)
