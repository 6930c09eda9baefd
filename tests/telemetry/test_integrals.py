import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.telemetry.integrals import counter_growth, held_mean, over_s, preceding_mean

SECOND = 10**9
instants = st.lists(st.integers(0, 400), min_size=1, max_size=12, unique=True).map(sorted)
spans = st.tuples(st.integers(0, 400), st.integers(0, 400)).filter(lambda span: span[0] < span[1])


@given(instants, spans, st.data())
def test_a_held_mean_is_that_of_the_values_at_every_nanosecond(times_ns, span, data):
    values = [data.draw(st.integers(-5, 5)) for _ in times_ns]
    held = [values[numpy.searchsorted(times_ns, ns, "right") - 1] for ns in range(*span) if ns >= times_ns[0]]
    found = held_mean(times_ns, values, span)
    assert found is None if not held else found == pytest.approx(numpy.mean(held))


@given(instants, spans, st.data())
def test_a_preceding_mean_is_that_of_the_values_at_every_nanosecond(times_ns, span, data):
    values = [data.draw(st.integers(-5, 5)) for _ in times_ns]
    behind = [values[numpy.searchsorted(times_ns, ns, "right")] for ns in range(*span) if times_ns[0] <= ns < times_ns[-1]]
    found = preceding_mean(times_ns, values, span)
    assert found is None if not behind else found == pytest.approx(numpy.mean(behind))


@given(st.lists(st.tuples(st.integers(1, SECOND), st.integers(0, 1000)), min_size=2, max_size=12), st.data())
def test_a_counter_that_is_sampled_anyhow_grows_by_its_law_between_samples(steps, data):
    times_ns = list(numpy.cumsum([step for step, _ in steps]))
    values = list(numpy.cumsum([growth for _, growth in steps]))
    start_ns = data.draw(st.integers(int(times_ns[0]), int(times_ns[-1]) - 1))
    end_ns = data.draw(st.integers(start_ns + 1, int(times_ns[-1])))
    expected = numpy.interp(end_ns, times_ns, values) - numpy.interp(start_ns, times_ns, values)
    assert counter_growth([int(ns) for ns in times_ns], [float(value) for value in values], (start_ns, end_ns)) == pytest.approx(expected)


def test_a_counter_goes_on_behind_its_last_sample_as_it_grew_before():
    # 100 J a second, read with jitter: the last step alone would say 200
    times_ns, values = [0, SECOND, 2 * SECOND, 2 * SECOND + SECOND // 2], [0.0, 100.0, 200.0, 300.0]
    assert counter_growth(times_ns[:3], values[:3], (0, 2 * SECOND + SECOND // 10)) == pytest.approx(210)
    assert counter_growth(times_ns, values, (0, 2 * SECOND + 6 * SECOND // 10)) == pytest.approx(300 + 0.1 * 100 / 0.5 * 1)


@pytest.mark.parametrize(
    ("times_ns", "values"),
    [
        ([], []),
        ([0], [1.0]),
        ([5, SECOND], [0.0, 1.0]),  # not from the start on
        ([0, SECOND], [0.0, 1.0]),  # not to the end
        ([0, SECOND, 3 * SECOND], [0.0, 5.0, 1.0]),  # back to nothing: the driver was loaded anew
    ],
)
def test_a_counter_that_does_not_cover_the_span_says_nothing(times_ns, values):
    assert counter_growth(times_ns, values, (1, 3 * SECOND)) is None


def test_a_rate_adds_up_over_a_span():
    assert over_s(250.0, (SECOND, 5 * SECOND)) == 1000.0
