"""Our bulk arithmetic beside the library's own, value by value."""

import gc
import math

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.recorder.histogram import Histogram, decode, encode
from perfkit.stats.buckets import DIGITS, HIGHEST_NS, LOWEST_NS, BucketCounts, bucket_bounds_ns

EDGES = [0, 1, 511, 512, 999, 1000, 1023, 1024, 2**20 - 1, 2**20, 2**20 + 511, 2**20 + 512, 2**30 - 1, 2**30, 2**41 - 1, 2**41, HIGHEST_NS]
values = st.lists(st.one_of(st.integers(0, HIGHEST_NS), st.sampled_from(EDGES), st.integers(0, 10**6)), min_size=1, max_size=60)


def recorded(numbers):
    histogram = Histogram()
    histogram.record_many(np.array(numbers, dtype=np.int64))
    return histogram.bucket_counts()


def contents(counts):
    extremes = (counts.smallest_ns, counts.largest_ns) if counts.count else ()  # meaningless without values
    return counts.indices.tolist(), counts.counts.tolist(), extremes


def library_contents(histogram):
    counts = np.frombuffer(histogram.counts, dtype=np.int64)
    indices = np.flatnonzero(counts)
    extremes = (histogram.min_value, histogram.max_value) if indices.size else ()
    return indices.tolist(), counts[indices].tolist(), extremes


def reference(numbers):
    histogram = HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)
    for number in numbers:
        assert histogram.record_value(number)
    return histogram


@given(values)
def test_bulk_recording_equals_the_librarys_record_value(numbers):
    ours, theirs = recorded(numbers), reference(numbers)
    assert contents(ours) == library_contents(theirs)
    assert ours.count == theirs.total_count


@given(values, st.lists(st.floats(0.001, 1), min_size=1, max_size=5))
def test_quantiles_equal_the_librarys_percentiles(numbers, quantiles):
    theirs = reference(numbers)
    ours = recorded(numbers).values_at(quantiles)
    for quantile, value in zip(quantiles, ours, strict=True):
        # the library multiplies before it divides, so its rank may differ by one where the product is half a sample
        ranks = {max(int(quantile * len(numbers) + 0.5), 1), theirs.get_target_count_at_percentile(quantile * 100)}
        assert value in {theirs.get_highest_equivalent_value(sorted(numbers)[rank - 1]) for rank in ranks}


@given(values)
def test_the_extremes_equal_the_librarys(numbers):
    ours, theirs = recorded(numbers), reference(numbers)
    assert (ours.min_ns, ours.max_ns) == (theirs.get_min_value(), theirs.get_max_value())


@settings(max_examples=6, deadline=None)  # the library walks through all its buckets
@given(values)
def test_mean_and_deviation_equal_the_librarys(numbers):
    mean, stddev = recorded(numbers).mean_and_stddev_ns()
    theirs = reference(numbers)
    assert math.isclose(mean, theirs.get_mean_value(), rel_tol=1e-9)
    assert math.isclose(stddev, theirs.get_stddev(), rel_tol=1e-6, abs_tol=1e-3)


@given(values, st.integers(0, 59))
def test_recording_in_parts_equals_recording_at_once(numbers, cut):
    histogram = Histogram()
    for part in (numbers[:cut], numbers[cut:]):
        histogram.record_many(np.array(part, dtype=np.int64))
    assert contents(histogram.bucket_counts()) == contents(recorded(numbers))


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("count", [1, 2, 3, 10, 999, 1000])
def test_the_usual_quantiles_equal_the_librarys_percentiles(quantile, count):
    numbers = [1_000_000 * (index + 1) for index in range(count)]
    assert recorded(numbers).values_at([quantile]) == [reference(numbers).get_value_at_percentile(quantile * 100)]


@given(st.lists(st.integers(-(10**6), 2 * HIGHEST_NS), max_size=40))
def test_what_lies_outside_is_recorded_at_the_ends_and_counted(numbers):
    ours = recorded(numbers)
    assert contents(ours) == library_contents(reference([min(max(number, 0), HIGHEST_NS) for number in numbers]))
    assert ours.clamped == sum(not 0 <= number <= HIGHEST_NS for number in numbers)
    assert ours.count == len(numbers)


@given(values)
def test_the_encoded_form_is_read_back_by_us_and_by_the_library(numbers):
    ours = recorded(numbers)
    assert contents(decode(encode(ours)))[:2] == contents(ours)[:2]
    theirs = HdrHistogram.decode(encode(ours))
    assert theirs.get_total_count() == len(numbers)
    assert theirs.get_value_at_percentile(50) == ours.values_at([0.5])[0]


def test_values_outside_the_range_are_clamped_and_counted():
    histogram = recorded([-5, HIGHEST_NS + 1, 10**6])
    assert (histogram.count, histogram.clamped) == (3, 2)
    assert histogram.max_ns >= HIGHEST_NS


def test_values_keep_three_digits():
    numbers = np.random.default_rng(3).lognormal(16, 2, 20_000).astype(np.int64)
    histogram = recorded(numbers)
    for quantile in (0.5, 0.9, 0.99, 0.999):
        exact = int(np.quantile(numbers, quantile, method="inverted_cdf"))
        assert abs(histogram.values_at([quantile])[0] - exact) <= max(exact / 1000, 512)


def test_an_empty_histogram_has_no_values():
    histogram = Histogram().bucket_counts()
    assert (histogram.count, histogram.min_ns, histogram.max_ns, histogram.mean_and_stddev_ns()) == (0, 0, 0, (0.0, 0.0))


def test_the_bounds_of_every_bucket_are_the_librarys():
    library = reference([HIGHEST_NS])
    indices = np.arange(library.counts_len)
    lows, highs = bucket_bounds_ns(indices)
    assert lows.tolist() == [library.get_value_from_index(int(index)) for index in indices]
    assert highs.tolist() == [library.get_highest_equivalent_value(int(low)) for low in lows]


@given(st.lists(st.integers(-(10**6), 2 * HIGHEST_NS), max_size=40))
def test_counts_made_of_values_are_those_of_a_histogram_that_recorded_them(numbers):
    counts, expected = BucketCounts.of(numbers), recorded(numbers)
    assert (counts.indices.tolist(), counts.counts.tolist()) == (expected.indices.tolist(), expected.counts.tolist())
    assert (counts.min_ns, counts.max_ns, counts.clamped) == (expected.min_ns, expected.max_ns, expected.clamped)


@given(st.lists(values, max_size=4))
def test_counts_of_parts_merge_to_those_recorded_together(numbers_of_parts):
    parts = [recorded(numbers) for numbers in numbers_of_parts]
    whole = recorded([number for numbers in numbers_of_parts for number in numbers])
    merged = BucketCounts.merged(parts)
    assert contents(merged) == contents(whole)
    assert merged.count == whole.count == sum(one.count for one in parts)
    assert encode(merged) == encode(whole)


def test_bucket_counts_keep_the_number_of_clamped_values():
    assert BucketCounts.merged([recorded([-1, 5_000_000]), recorded([2 * HIGHEST_NS])]).clamped == 2


@given(values, st.integers(0, HIGHEST_NS))
def test_what_lies_above_a_value_is_counted_to_a_bucket(numbers, value):
    inner = reference(numbers)
    expected = sum(inner.get_lowest_equivalent_value(number) > value for number in numbers)
    assert recorded(numbers).count_above(value) == expected


def test_a_payload_of_another_layout_is_refused():
    other = HdrHistogram(1, HIGHEST_NS, 5)
    other.record_value(1000)
    with pytest.raises(ValueError, match="not an HdrHistogram payload: its digits, lowest or highest value are not those of perfkit"):
        decode(other.encode().decode())


def test_a_damaged_payload_is_refused():
    with pytest.raises(ValueError, match="not an HdrHistogram payload"):
        decode(encode(recorded([1000]))[:-8] + "AAAA")


def test_encoding_leaves_no_garbage():
    gc.collect()
    gc.disable()
    try:
        encode(recorded([1_000_000]))
        assert not any(isinstance(one, HdrHistogram) for one in gc.get_objects())
    finally:
        gc.enable()
