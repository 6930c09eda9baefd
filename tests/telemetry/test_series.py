import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.telemetry.series import Series, SeriesBuffer

samples = st.lists(st.tuples(st.integers(0, 50), st.integers(-5, 5)), max_size=20)


def filled(pairs):
    track = SeriesBuffer("power", "W", {"gpu": "0"})
    for time_ns, value in pairs:
        track.add(time_ns, value)
    return track


@given(samples, st.integers(-5, 55), st.integers(-5, 55))
def test_a_span_has_the_samples_between_its_ends(pairs, start_ns, end_ns):
    taken = [pair for index, pair in enumerate(pairs) if all(pair[0] > earlier for earlier, _ in pairs[:index])]
    expected = tuple(pair for pair in taken if start_ns <= pair[0] <= end_ns)
    track = filled(pairs)
    for found in (track.between(start_ns, end_ns), track.whole().between(start_ns, end_ns)):
        assert tuple(zip(found.times_ns, found.values, strict=True)) == expected
        assert (found.name, found.unit, found.labels) == ("power", "W", {"gpu": "0"})
    assert track.latest == (taken[-1][1] if taken else None)
    assert track.span_ns == ((taken[0][0], taken[-1][0]) if taken else None)


def test_between_samples_lies_a_straight_line_and_beyond_them_the_nearest():
    track = filled([(10, 100.0), (20, 200.0), (40, 100.0)])
    assert [track.at(instant) for instant in (0, 10, 15, 20, 30, 40, 99)] == [100, 100, 150, 200, 150, 100, 100]
    assert filled([]).at(5) is None


@given(samples, st.integers(0, 50), st.integers(0, 50))
def test_what_is_forgotten_is_not_needed_any_more(pairs, start_ns, instant_ns):
    whole, track = filled(pairs), filled(pairs)
    track.forget_before(start_ns)
    assert track.between(start_ns, 60) == whole.between(start_ns, 60)
    if instant_ns >= start_ns:
        assert track.at(instant_ns) == whole.at(instant_ns)
    assert len(track.between(0, start_ns - 1).times_ns) <= 1


def test_a_mean_counts_samples_alike():
    assert Series("x", "", {}, (1, 2, 9), (1.0, 2.0, 6.0)).mean == pytest.approx(3.0)
    assert Series("x", "", {}, (), ()).mean is None
    assert Series("x", "", {}, (1, 2), (1.0, 2.0)).last() == Series("x", "", {}, (2,), (2.0,))
