"""Constraints: what is parsed, and what an interval says of them."""

import pytest

from perfkit.stats.ranking import PERCENTILE_NAMES, judge_all, parse_constraint, worst_of
from perfkit.stats.ratio_interval import Estimate

METRICS = (*PERCENTILE_NAMES, "throughput", "error_rate", "gpu_memory", "energy", "price", "replicas")


@pytest.mark.parametrize(
    ("text", "metric", "limit", "is_maximum", "shown"),
    [
        ("p99<50ms", "p99", 5e7, True, "p99 < 50 ms"),
        (" P99.9 <= 180.6ms ", "p99_9", 180.6e6, True, "p99.9 <= 180.6 ms"),
        ("gpu_memory<40GiB", "gpu_memory", 40 * 2**30, True, "gpu_memory < 40.0 GiB"),
        ("throughput>100/s", "throughput", 100.0, False, "throughput > 100/s"),
        ("energy<500mJ", "energy", 0.5, True, "energy < 0.5 J"),
        ("price<20/h", "price", 20.0, True, "price < 20/h"),
        ("price < 20 /hour", "price", 20.0, True, "price < 20/h"),
        ("replicas<=16", "replicas", 16.0, True, "replicas <= 16"),
        ("error_rate<0.1%", "error_rate", 0.001, True, "error_rate < 0.1 %"),
    ],
)
def test_a_constraint_names_a_figure_and_its_limit(text, metric, limit, is_maximum, shown):
    constraint = parse_constraint(text, METRICS)
    assert (constraint.metric, constraint.is_maximum, constraint.text) == (metric, is_maximum, shown)
    assert constraint.limit == pytest.approx(limit)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99=50ms", "expected a constraint such as 'gpu_memory<40GiB', found 'p99=50ms'"),
        ("memory<3GiB", "'memory' is not a known figure; known are p50, "),
        ("p99<50", "expected a duration"),
        ("energy<3", "expected an energy per inference such as 3J or 500mJ, found '3'"),
        ("price<20", "expected the price of all replicas per hour, such as 20/h, in the currency of --price, found '20'"),
        ("price<€20/h", "in the currency of --price, found '€20/h'"),
        ("replicas<1.5", "expected a whole number, found '1.5'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_expected(text, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        parse_constraint(text, METRICS)


@pytest.mark.parametrize(
    ("low", "high", "below_50", "above_50"),
    [
        (40.0, 50.0, "holds", "cannot be told"),
        (50.1, 60.0, "violated", "holds"),
        (40.0, 60.0, "cannot be told", "cannot be told"),
        (40.0, None, "cannot be told", "cannot be told"),
        (60.0, None, "violated", "holds"),
        (None, None, "cannot be told", "cannot be told"),
    ],
)
def test_the_whole_interval_decides(low, high, below_50, above_50):
    figures = {"energy": Estimate(52.0, low, high)}
    constraints = tuple(parse_constraint(text, METRICS) for text in ("energy<50J", "energy>50J"))
    assert judge_all(constraints, figures) == (below_50, above_50)
    assert judge_all(constraints, {}) == ("cannot be told", "cannot be told")


def test_the_worst_judgement_stands_for_all():
    assert worst_of(()) == "holds"
    assert worst_of(("holds", "cannot be told")) == "cannot be told"
    assert worst_of(("cannot be told", "violated", "holds")) == "violated"
