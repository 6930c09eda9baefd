"""A short run of `benchmarks.fuzz_http1`: broken answers to the wire engine for HTTP."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_http1 import broken_answer, try_answer, try_connection, try_exchange

SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_a_broken_answer_is_decoded_or_rejected(rng):
    assert try_answer(rng) in ("decoded", "rejected")


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_a_connection_ends_each_of_its_requests_once(rng):
    assert try_connection(rng)


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_each_request_gets_exactly_one_outcome(rng):
    assert try_exchange(rng)


@pytest.mark.parametrize("count", [1, 3])
def test_equal_seeds_give_equal_answers(count):
    assert broken_answer(random.Random(7), count) == broken_answer(random.Random(7), count)
