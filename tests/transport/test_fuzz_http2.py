"""The short form of benchmarks/fuzz_http2.py: answers broken at random, and what holds whatever a server writes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_http2 import broken_answer, try_exchange, try_frames, try_message

SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SEEDS)
@settings(max_examples=300)
def test_broken_frames_are_read_or_refused_and_end_a_stream_once(chance):
    assert try_frames(chance)


@given(SEEDS)
def test_a_broken_message_is_read_or_refused(chance):
    assert try_message(chance) in ("read", "refused")


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_each_request_ends_in_one_outcome_whatever_the_server_writes(chance):
    assert try_exchange(chance)


@pytest.mark.parametrize("streams", [1, 3])
def test_a_seed_gives_the_same_answer_again(streams):
    assert broken_answer(random.Random(7), streams) == broken_answer(random.Random(7), streams)
