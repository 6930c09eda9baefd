"""The short form of benchmarks/fuzz_http1.py: answers broken at random, and what holds whatever a server writes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_http1 import broken_answer, try_answer, try_connection, try_exchange

SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_a_broken_answer_is_read_or_refused(chance):
    assert try_answer(chance) in ("read", "refused")


@given(SEEDS)
@settings(max_examples=300, deadline=None)
def test_a_connection_ends_each_of_its_requests_once(chance):
    assert try_connection(chance)


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_each_request_ends_in_one_outcome_whatever_the_server_writes(chance):
    assert try_exchange(chance)


@pytest.mark.parametrize("count", [1, 3])
def test_a_seed_gives_the_same_answer_again(count):
    assert broken_answer(random.Random(7), count) == broken_answer(random.Random(7), count)
