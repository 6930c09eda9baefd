"""Lengths and ids of sequences."""

import dataclasses
import itertools

import numpy as np
import pytest

from perfkit.load.sequences import LengthLaw, SequencePlan, SequenceSource, random_first_id


def lengths(law, count, seed=(1,)):
    return np.concatenate(list(itertools.islice(law.chunks(seed), -(-count // 4096))))[:count]


def test_a_fixed_length_is_that_of_every_sequence():
    assert set(lengths(LengthLaw(7, 7), 5000).tolist()) == {7}
    assert LengthLaw(7, 7).mean == 7


def test_uniform_lengths_cover_the_range_evenly():
    drawn = lengths(LengthLaw(10, 30), 84_000)
    counts = np.bincount(drawn, minlength=31)[10:]
    assert counts.sum() == 84_000
    # chi-squared with 20 degrees of freedom: above 62 once in 3 million
    assert ((counts - 4000) ** 2 / 4000).sum() < 62
    assert LengthLaw(10, 30).mean == 20


@pytest.mark.parametrize("mean", [1.0, 1.5, 20.0])
def test_geometric_lengths_have_the_closed_forms_tail(mean):
    drawn, count = lengths(LengthLaw(geometric_mean=mean), 200_000), 200_000
    for steps in (1, 2, 5, 20):
        share = (1 - 1 / mean) ** (steps - 1)  # of sequences with at least that many steps
        assert (drawn >= steps).mean() == pytest.approx(share, abs=5 * (share * (1 - share) / count) ** 0.5 + 1e-12)


def test_a_seed_gives_the_same_lengths_and_another_one_others():
    law = LengthLaw(1, 1000)
    assert (lengths(law, 100) == lengths(law, 100)).all()
    assert (lengths(law, 100) != lengths(law, 100, (2,))).any()


@pytest.mark.parametrize("kind", ["integer", "string"])
def test_workers_divide_the_sequences(kind):
    plan = SequencePlan(LengthLaw(1, 50), 2 * 10**18, ids=kind)
    one = SequenceSource(plan)
    alone = [(sequence.id, sequence.length) for sequence in (one.next() for _ in range(300))]
    several = [SequenceSource(plan, worker, 3) for worker in range(3)]
    together = [(sequence.id, sequence.length) for sequence in (source.next() for _ in range(100) for source in several)]
    assert together == alone
    assert len({key for key, _ in alone}) == 300


def test_integer_ids_count_up_and_string_ids_have_a_prefix():
    assert [SequenceSource(SequencePlan(LengthLaw(), 1)).next().id] == [1]
    source = SequenceSource(SequencePlan(LengthLaw(), 0xABC, ids="string"))
    assert [source.next().id, source.next().id] == ["perfkit-0000000000000abc-000000000000", "perfkit-0000000000000abc-000000000001"]


@pytest.mark.parametrize("highest", [2**31 - 1, 2**32 - 1])
def test_ids_fit_a_control_input_of_32_bits(highest):
    plans = [SequencePlan(LengthLaw(), random_first_id()).within(highest) for _ in range(200)]
    firsts = [int(SequenceSource(plan).next().id) for plan in plans]
    assert len(set(firsts)) > 190  # random
    assert {len(str(first)) for first in firsts} == {10}
    assert max(firsts) + 10**8 < 2**31  # with room to count
    given = SequencePlan(LengthLaw(), 5)
    assert given.within(highest) == given


def test_other_ids_stay_as_they_are():
    long, text = SequencePlan(LengthLaw(), random_first_id()), SequencePlan(LengthLaw(), random_first_id(), ids="string")
    assert long.within(None) == long
    assert text.within(2**31 - 1) == text


def test_random_ids_are_positive_signed_integers_of_one_width_that_no_two_runs_share():
    first = {random_first_id() for _ in range(1000)}
    assert len(first) == 1000
    assert {len(str(one)) for one in first} == {19}
    # a varint has 7 bits a byte: 57 to 63 bits are 9 bytes; a billion sequences later, too
    assert {-(-(one + 10**9).bit_length() // 7) for one in first} == {9}
    ordered = sorted(first)
    assert min(second - one for one, second in itertools.pairwise(ordered)) > 10**6


@pytest.mark.parametrize("workers", [1, 3])
def test_sequences_take_the_streams_of_the_data_in_turn_with_their_lengths(workers):
    plan = SequencePlan(None, 1, stream_lengths=(2, 3, 1, 4))
    sources = [SequenceSource(plan, worker, workers) for worker in range(workers)]
    sequences = sorted((source.next() for _ in range(12 // workers) for source in sources), key=lambda one: one.id)
    assert [one.stream for one in sequences] == [0, 1, 2, 3] * 3
    assert [one.length for one in sequences] == [2, 3, 1, 4] * 3
    assert plan.requests_per_arrival == 2.5
    fixed = SequenceSource(dataclasses.replace(plan, length=LengthLaw(5, 5)))
    assert [(one.stream, one.length) for one in (fixed.next(), fixed.next())] == [(0, 5), (1, 5)]
