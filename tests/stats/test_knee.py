"""The knee against closed forms: the throughput of a closed loop on c servers is that of min(N, c)."""

import random

import pytest

from perfkit.stats.knee import LoadStep, knee_steps


def steps(levels, throughput, noise=lambda: 0.0):
    made = []
    for level in levels:
        counts = [throughput(level) * (1 + noise()) / 10 for _ in range(10)]
        made.append(LoadStep(sum(counts), level / sum(counts) if sum(counts) else 0.0, counts))
    return made


def found(given):
    knee = knee_steps(given)
    assert knee is not None
    return knee


def test_without_noise_it_is_one_step():
    assert found(steps(range(1, 33), lambda level: min(level, 8))) == (7, 7, 7)
    # the scalability law with contention 5 %: X²/N is highest at (1 - 0.05) / 0.05
    assert found(steps(range(1, 65), lambda level: level / (1 + 0.05 * (level - 1))))[0] == 18


def test_the_range_contains_the_knee_nearly_always():
    source, hits = random.Random(3), []
    for _ in range(300):
        best, first, last = found(steps(range(1, 25), lambda level: 10 * min(level, 8), lambda: source.gauss(0, 0.1)))
        assert first <= best <= last
        hits.append(first <= 7 <= last)
    assert sum(hits) >= 0.97 * len(hits)


@pytest.mark.parametrize("given", [[], [LoadStep(0.0, 0.0, [0, 0])]])
def test_without_answers_there_is_none(given):
    assert knee_steps(given) is None
