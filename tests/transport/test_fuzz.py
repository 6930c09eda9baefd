"""Short runs of `benchmarks.fuzz_http1` and `benchmarks.fuzz_http2`: broken answers to the wire engines."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import fuzz_http1, fuzz_http2

SEEDS = st.integers(0, 2**32).map(random.Random)


@pytest.mark.parametrize("trial", [fuzz_http1.try_answer, fuzz_http1.try_connection, fuzz_http2.try_frames, fuzz_http2.try_message])
@given(rng=SEEDS)
@settings(max_examples=50)
def test_broken_bytes_violate_no_guarantee(trial, rng):
    assert trial(rng)


@pytest.mark.parametrize("trial", [fuzz_http1.try_flood, fuzz_http2.try_flood])
@given(rng=SEEDS)
@settings(max_examples=20)
def test_a_flood_ends_its_connection(trial, rng):
    assert trial(rng)


@pytest.mark.parametrize("trial", [fuzz_http1.try_exchange, fuzz_http2.try_exchange])
@given(rng=SEEDS)
@settings(max_examples=10)
def test_each_request_gets_exactly_one_outcome(trial, rng):
    assert trial(rng)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("broken_answer", [fuzz_http1.broken_answer, fuzz_http2.broken_answer])
def test_equal_seeds_give_equal_answers(broken_answer, count):
    assert broken_answer(random.Random(7), count) == broken_answer(random.Random(7), count)
