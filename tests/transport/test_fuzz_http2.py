"""A short run of `benchmarks.fuzz_http2`: broken answers to the wire engine for gRPC."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.fuzz_http2 import broken_answer, try_exchange, try_frames, try_message

SEEDS = st.integers(0, 2**32).map(random.Random)


@given(SEEDS)
@settings(max_examples=300)
def test_broken_frames_end_a_stream_at_most_once(rng):
    assert try_frames(rng)


@given(SEEDS)
def test_a_broken_message_is_decoded_or_rejected(rng):
    assert try_message(rng) in ("decoded", "rejected")


@given(SEEDS)
@settings(max_examples=10, deadline=None)
def test_each_request_gets_exactly_one_outcome(rng):
    assert try_exchange(rng)


@pytest.mark.parametrize("streams", [1, 3])
def test_equal_seeds_give_equal_answers(streams):
    assert broken_answer(random.Random(7), streams) == broken_answer(random.Random(7), streams)
