"""How a demand is split over replicas."""

import numpy as np
import pytest

from perfkit.stats.load_splitting import Balancing, Splitting, normalised_shares


def test_a_rule_gives_every_replica_the_same_share():
    for balancing in Balancing:
        assert Splitting(balancing).shares_of(5).tolist() == [1.0] * 5
        assert Splitting(balancing).largest_share(5) == 1.0


def test_measured_shares_are_those_of_as_many_replicas_as_were_measured():
    splitting = Splitting(shares=normalised_shares([12, 8, 10, 10]))
    assert splitting.shares == (1.2, 0.8, 1.0, 1.0)
    assert splitting.shares_of(4).tolist() == pytest.approx([1.2, 1.0, 1.0, 0.8])


def test_shares_of_other_numbers_of_replicas_keep_the_skew_and_a_mean_of_one():
    splitting = Splitting(shares=normalised_shares([1.2, 1, 1, 0.8]))
    for replicas in (2, 3, 7, 40):
        shares = splitting.shares_of(replicas)
        assert (shares[0], shares[-1], shares.mean()) == pytest.approx((1.2, 0.8, 1.0))
        assert (np.diff(shares) <= 1e-12).all()
    assert splitting.shares_of(1).tolist() == [1.0]
    lopsided = Splitting(shares=(2.0, 0.5, 0.5))  # interpolated 2, 0.5 and 2, 1.25, 0.5, 0.5, 0.5, divided by their means
    assert lopsided.shares_of(2).tolist() == pytest.approx([1.6, 0.4])
    assert lopsided.shares_of(5).tolist() == pytest.approx([2 / 0.95, 1.25 / 0.95, *[0.5 / 0.95] * 3])


def test_the_sentence_names_the_share_that_each_figure_uses():
    lopsided, even = Splitting(shares=(2.0, 0.5, 0.5)), Splitting(shares=(1.2, 1.0, 0.8))
    assert "the largest share is 2 times the mean, the smallest 0.5 times." in lopsided.sentence(5)
    assert "use 2; the risk of 5 replicas uses 2.11, the largest share" in lopsided.sentence(5)
    assert "interpolation" not in lopsided.sentence(3) + even.sentence(40)


def test_distinct_shares_have_their_numbers_of_replicas():
    splitting = Splitting(shares=normalised_shares([1.2, 1, 1, 0.8]))
    values, counts = splitting.distinct_shares(4, 32)
    assert (values.tolist(), counts.tolist()) == (pytest.approx([0.8, 1.0, 1.2]), [1, 2, 1])
    values, counts = splitting.distinct_shares(1_000_000_000, 32)
    assert values.size <= 32
    assert values[-1] == pytest.approx(1.2)
    assert (counts.sum(), values @ counts / 1e9) == pytest.approx((1e9, 1.0))
    assert [column.tolist() for column in Splitting().distinct_shares(1_000_000_000, 32)] == [[1.0], [1e9]]


def test_only_the_fewest_in_flight_gives_a_slower_replica_less():
    assert Splitting(Balancing.LEAST_IN_FLIGHT).is_pooled
    assert not Splitting(Balancing.ROUND_ROBIN).is_pooled
    assert not Splitting(Balancing.LEAST_IN_FLIGHT, (1.2, 0.8)).is_pooled


@pytest.mark.parametrize("loads", [[], [1.0, 0.0], [1.0, -1.0], [float("nan")], [float("inf"), 1.0]])
def test_loads_that_are_not_above_zero_are_refused(loads):
    with pytest.raises(ValueError, match="the shares of the replicas must be numbers above zero"):
        normalised_shares(loads)


def test_a_load_is_split_over_at_least_one_replica():
    with pytest.raises(ValueError, match="at least one replica, found 0"):
        Splitting().shares_of(0)
