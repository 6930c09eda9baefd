"""Where the time of sampled requests went: closed forms, what is withheld, and the coverage of the intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.spans.breakdown import break_down
from perfkit.spans.split import PARTS, SplitRequests

QUEUE, INFER = PARTS.index("queue"), PARTS.index("compute_infer")


def of(**columns):
    """Requests in the order of time, with these parts; the others are 0."""
    count = len(next(iter(columns.values())))
    parts = np.zeros((count, len(PARTS)), np.int64)
    for name, values in columns.items():
        parts[:, PARTS.index(name)] = values
    numbers = np.arange(count)
    return SplitRequests(
        tuple(f"{one:032x}" for one in numbers), numbers, numbers * 1_000_000, np.zeros(count, np.int64), parts, np.ones(9, bool), 0, 0, 0
    )


def test_the_bands_are_the_ranks_around_each_percentile():
    found = break_down(of(compute_infer=np.random.default_rng(1).permutation(1_000)))
    means = {name: (getattr(found, name).requests, getattr(found, name).total_ns) for name in ("mean", "p50", "p95", "p99")}
    # the ranks 450 to 549, 930 to 969 and 985 to 994, whose values are the ranks
    assert means == {"mean": (1_000, 500), "p50": (100, 500), "p95": (40, 950), "p99": (10, 990)}
    assert found.contrast["p99"].total_ns == 490


def test_the_contrast_names_what_the_slow_requests_wait_for():
    rng = np.random.default_rng(2)
    stalled = (np.arange(3_000) % 40) == 0
    found = break_down(
        of(queue=np.where(stalled, 33_000_000, 0) + rng.integers(0, 99, 3_000), compute_infer=5_000_000 + rng.integers(0, 99, 3_000))
    )
    contrast = found.contrast["p99"]
    assert contrast.parts_ns["queue"] == pytest.approx(33_000_000, rel=1e-3)
    low, high = contrast.intervals_ns["queue"]
    assert 32_000_000 < low < 33_000_000 < high < 34_000_000
    low, high = contrast.intervals_ns["compute_infer"]
    assert low < 0 < high or contrast.parts_ns["compute_infer"] == 0
    assert all(one.parts_ns["queue"] > 32_000_000 for one in found.slowest)


@pytest.mark.parametrize(
    ("count", "known"), [(9, []), (10, ["p50"]), (99, ["p50"]), (100, ["p50", "p95"]), (499, ["p50", "p95"]), (500, ["p50", "p95", "p99"])]
)
def test_a_percentile_needs_five_slower_requests(count, known):
    found = break_down(of(queue=np.arange(count)))
    assert [name for name in ("p50", "p95", "p99") if getattr(found, name) is not None] == known
    assert set(found.contrast) == set(known) - {"p50"}
    assert all(getattr(found, name).requests >= 10 for name in known)


def test_without_requests_there_is_nothing():
    found = break_down(of(queue=[]))
    assert (found.sampled, found.mean, found.p50, found.contrast, found.slowest) == (0, None, None, {}, ())


def test_the_slowest_are_whole_requests_the_slowest_first():
    found = break_down(of(queue=[5, 900, 20, 30], response_way=[0, -100, 0, 0]))
    assert [(one.total_ns, one.at_s, one.variant) for one in found.slowest] == [
        (800, 0.001, 1),
        (30, 0.003, 3),
        (20, 0.002, 2),
        (5, 0.0, 0),
    ]
    assert found.slowest[0].parts_ns["response_way"] == -100
    assert len(break_down(of(queue=range(50))).slowest) == 10


@given(st.lists(st.lists(st.integers(-(10**9), 10**9), min_size=9, max_size=9), max_size=120))
def test_means_and_differences_add_up_exactly(rows):
    columns = dict(zip(PARTS, np.array(rows, np.int64).reshape(-1, 9).T, strict=True))
    found = break_down(of(**columns))
    means = [one for one in (found.mean, found.p50, found.p95, found.p99, *found.contrast.values(), *found.slowest) if one is not None]
    assert all(one.total_ns == sum(one.parts_ns.values()) for one in means)
    if found.mean is not None:
        assert found.mean.total_ns == pytest.approx(float(np.mean(np.array(rows).sum(axis=1))), abs=5)


def test_the_mean_has_the_interval_of_a_mean():
    values = np.random.default_rng(3).normal(1e6, 1e5, 20_000).astype(np.int64)
    low, high = break_down(of(queue=values)).mean.intervals_ns["queue"]
    # 20 batches: t = 2.093 in place of 1.96
    assert (high - low) / 2 == pytest.approx(2.093 * values.std() / np.sqrt(20_000), rel=0.6)


def test_intervals_cover_the_true_means_of_a_band():
    """300 samples of 1,000 independent requests: infer is exponential, queue uniform and independent of it. At a coverage of 95 %, one such test
    in 390 finds at most 91 %."""
    rng = np.random.default_rng(4)
    covered = {name: list[bool]() for name in ("mean", "p50", "p95", "p99", "contrast")}
    big = np.sort(rng.exponential(1e6, 1_000_000) + rng.integers(0, 500_000, 1_000_000))
    truth = {
        name: big[int(low * big.size) : int(high * big.size)].mean()
        for name, low, high in (("mean", 0, 1), ("p50", 0.45, 0.55), ("p95", 0.93, 0.97), ("p99", 0.985, 0.995))
    }
    truth["contrast"] = truth["p99"] - truth["p50"]
    for _ in range(300):
        found = break_down(of(compute_infer=rng.exponential(1e6, 1_000), queue=rng.integers(0, 500_000, 1_000)))
        for name, ones in covered.items():
            intervals_ns = (found.contrast["p99"] if name == "contrast" else getattr(found, name)).intervals_ns
            if intervals_ns:  # by chance the slow requests of a sample may lie together
                low, high = intervals_ns["total"]
                ones.append(low <= truth[name] <= high)
    assert min(map(len, covered.values())) > 250
    shares = {name: sum(ones) / len(ones) for name, ones in covered.items()}
    assert all(shares[name] > 0.91 for name in ("mean", "p50", "p95"))
    assert shares["p99"] > 0.86
    assert shares["contrast"] > 0.86


@pytest.mark.parametrize(("groups", "known"), [(1, False), (7, False), (8, True), (20, True)])
def test_slow_requests_in_few_groups_give_no_interval(groups, known):
    """1,000 requests of which 20 are slow, in so many of the 20 stretches of time."""
    queue = np.random.default_rng(5).integers(1_000_000, 1_100_000, 1_000)
    for number in range(20):
        queue[(number % groups) * 50 + number] += 10_000_000
    found = break_down(of(queue=queue))
    assert bool(found.p99.intervals_ns) is bool(found.contrast["p99"].intervals_ns) is known
    assert found.p50.intervals_ns
    assert found.contrast["p99"].parts_ns["queue"] == pytest.approx(10_000_000, rel=0.02)
