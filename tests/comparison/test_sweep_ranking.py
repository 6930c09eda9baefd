"""The ranking of a sweep's cases: by repetitions whose scatter is known, and by intervals."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from perfkit.comparison.point_figures import RandomizedBlocks, figures_of_point, figures_of_search
from perfkit.comparison.sweep_ranking import rank_sweep, separating_precision
from perfkit.result.search import Search
from perfkit.stats.ranking import parse_constraint
from tests.stored_results import point, result

METRICS = ("throughput", "p99", "gpu_memory", "energy", "error_rate")


def closed(concurrency, *throughputs, p99_ms=20.0, **changes):
    """A load point, and its throughput in each repetition."""
    mean = sum(throughputs) / len(throughputs)
    return point(p99_ms=p99_ms, throughput_per_s=mean, load={"kind": "closed", "concurrency": concurrency}, **changes), throughputs


def case(number, *loads, slo=None):
    """The values of a case and its result."""
    made = result(points=[one for one, _ in loads])
    repetitions = [
        made.summary[index].model_copy(update={"repetition": repetition, "throughput_per_s": value, "inferences_per_s": value})
        for index, (_, values) in enumerate(loads)
        for repetition, value in enumerate(values)
    ]
    scenario = {**made.scenario, **({"slo": slo} if slo else {})}
    return {"server.threads": number}, made.model_copy(update={"points": tuple(repetitions), "scenario": scenario})


def ranked(*cases, by=None, where=()):
    return rank_sweep(cases, by, [parse_constraint(text, METRICS) for text in where])


def ranked_interleaved(*cases, groups=None):
    """The ranks of cases by their numbers; by default all are of one group."""
    return dict(threads_and_ranks(rank_sweep(cases, None, (), groups or [1] * len(cases))))


def threads_and_ranks(ranking):
    return [(row.values["server.threads"], row.rank) for row in ranking.rows]


def test_cases_whose_repetitions_overlap_share_a_rank():
    ranking = ranked(case(1, closed(4, 100, 101, 99)), case(2, closed(4, 104, 97, 103)), case(3, closed(4, 80, 81, 79)))
    assert ranking.by == "throughput"
    assert threads_and_ranks(ranking) == [(2, 1), (1, 1), (3, 3)]
    assert ranking.rows[0].times_as_much is None
    assert ranking.rows[2].times_as_much is None


def test_two_cases_that_scatter_alike_differ_where_students_test_says_so():
    """SciPy's t test of the logarithms. Of two cases the one that scatters more keeps its own variance, so p is larger here."""
    random, verdicts = np.random.default_rng(3), []
    for _ in range(60):
        one, other = (100 * np.exp(random.normal(shift, 0.02, 4)) for shift in (0.0, 0.04))
        ranks = [row.rank for row in ranked(case(1, closed(4, *one)), case(2, closed(4, *other))).rows]
        verdicts.append((scipy.stats.ttest_ind(np.log(one), np.log(other)).pvalue, ranks))
    assert all(ranks == [1, 1] for p, ranks in verdicts if p > 0.05)
    assert all(ranks == [1, 2] for p, ranks in verdicts if p < 0.01)
    assert {len([ranks for p, ranks in verdicts if is_far(p)]) > 15 for is_far in (lambda p: p > 0.05, lambda p: p < 0.01)} == {True}


def simulated_ranking(random, shifts, sds):
    """The ranks of cases with three repetitions each, by case."""
    cases = [
        case(number, closed(4, *(100 * np.exp(random.normal(shift, sd, 3)))))
        for number, (shift, sd) in enumerate(zip(shifts, sds, strict=True))
    ]
    return dict(threads_and_ranks(ranked(*cases)))


def drifting(random, shifts, sds, drift_sd=0.05, repetitions=3):
    """Interleaved cases: each repetition changes all of them alike."""
    drift = random.normal(0, drift_sd, repetitions)
    return [
        case(number, closed(4, *(100 * np.exp(shift + drift + random.normal(0, sd, repetitions)))))
        for number, (shift, sd) in enumerate(zip(shifts, sds, strict=True))
    ]


@pytest.mark.parametrize("noisiest", [0.02, 0.06])
def test_of_ten_equal_interleaved_cases_at_most_one_ranking_in_twenty_has_a_difference_under_drift(noisiest):
    """More than 17 of 200 would have a probability below 1 % at 5 %; without a variance of its own, there were 11 % with the noisy case."""
    random = np.random.default_rng(8)
    rankings = [ranked_interleaved(*drifting(random, [0.0] * 10, [0.02] * 9 + [noisiest])) for _ in range(200)]
    assert sum(set(ranks.values()) != {1} for ranks in rankings) <= 17


def test_interleaved_cases_are_told_apart_under_a_drift_that_hides_them_without_pairs():
    """One of ten that is a tenth better, under a drift of 5 % and a scatter of 2 %: 83 % of the pairs were told apart, and 15 % without pairs."""
    random = np.random.default_rng(9)
    sweeps = [drifting(random, [math.log(1.1)] + [0.0] * 9, [0.02] * 10) for _ in range(50)]

    def told(groups):
        return np.mean(
            [ranks[number] > 1 for cases in sweeps for ranks in [ranked_interleaved(*cases, groups=groups)] for number in range(1, 10)]
        )

    assert told([1] * 10) > 0.7
    assert told([None] * 10) < 0.35


def test_a_steady_drift_makes_no_difference_between_interleaved_cases():
    """Every second repetition goes through the cases in the opposite order; three repetitions leave a third of the order's effect."""
    places = [[3 * r + (c if r % 2 == 0 else 2 - c) for r in range(3)] for c in range(3)]
    cases = [case(number, closed(4, *(100 * 0.97 ** np.array(place)))) for number, place in enumerate(places)]
    assert ranked_interleaved(*cases) == {0: 1, 1: 1, 2: 1}


ONE, OTHER = (100.0, 90.0, 110.0, 80.0), (103.0, 92.5, 113.5, 82.3)
"""About 3 % apart in each repetition, while the repetitions scatter by 12 %."""


def test_two_interleaved_cases_differ_where_the_paired_t_test_says_so():
    random, verdicts = np.random.default_rng(4), []
    for _ in range(60):
        one, other = drifting(random, [0.0, 0.05], [0.02, 0.02], repetitions=4)
        first, second = (np.log([point.inferences_per_s for point in made.points]) for _, made in (one, other))
        verdicts.append((scipy.stats.ttest_rel(first, second).pvalue < 0.05, set(ranked_interleaved(one, other).values()) == {1, 2}))
    assert all(differs == told for differs, told in verdicts)
    assert 10 < sum(differs for differs, _ in verdicts) < 50


@pytest.mark.parametrize(
    ("one", "other", "groups"),
    [
        (case(0, closed(4, *ONE)), case(1, closed(4, *OTHER)), [1, 2]),
        (case(0, closed(4, *ONE)), case(1, closed(4, *OTHER)), [None, None]),
        (case(0, closed(4, *ONE)), case(1, closed(4, *OTHER)), [None, 1]),
        (case(0, closed(4, *ONE)), case(1, closed(4, *OTHER[:3])), [1, 1]),
        (case(0, closed(4, *ONE[:2])), case(1, closed(4, *OTHER[:2])), [1, 1]),
        # with one load point more, its second repetition is measured beside the third of the other
        (case(0, closed(4, *ONE)), case(1, closed(4, *OTHER), closed(8, 50, 51, 49, 50)), [1, 1]),
    ],
    ids=["two groups", "no groups", "one alone", "fewer repetitions", "two repetitions", "more load points"],
)
def test_cases_that_were_not_measured_in_the_same_repetitions_are_not_paired(one, other, groups):
    assert ranked_interleaved(case(0, closed(4, *ONE)), case(1, closed(4, *OTHER))) == {0: 2, 1: 1}
    ranking = rank_sweep([one, other], None, (), groups)
    assert [(row.rank, row.block) for row in ranking.rows] == [(1, None), (1, None)]


def test_beside_a_case_of_another_group_only_those_of_one_group_are_paired():
    far = case(2, closed(4, 40, 41, 39, 40))
    ranking = rank_sweep([far, case(0, closed(4, *ONE)), case(1, closed(4, *OTHER))], None, (), [1, 2, 2])
    assert [(row.values["server.threads"], row.rank, row.block) for row in ranking.rows] == [(1, 1, 0), (0, 2, 0), (2, 3, None)]


@pytest.mark.parametrize("noisiest", [0.02, 0.06])
def test_of_ten_equal_cases_at_most_one_ranking_in_twenty_has_a_difference(noisiest):
    """More than 17 of 200 would have a probability below 1 % at 5 %, whether or not one case scatters three times as much as the others."""
    random = np.random.default_rng(5)
    rankings = (simulated_ranking(random, [0.0] * 10, [0.02] * 9 + [noisiest]) for _ in range(200))
    assert sum(set(ranks.values()) != {1} for ranks in rankings) <= 17


def test_among_ten_cases_one_that_is_a_tenth_better_is_told_from_most_of_the_others():
    """Three repetitions that scatter by 2 %: 87 % of the pairs were told apart in 400 rankings, and 92 % with 95 % for each pair."""
    random = np.random.default_rng(6)
    rankings = [simulated_ranking(random, [math.log(1.1)] + [0.0] * 9, [0.02] * 10) for _ in range(50)]
    assert np.mean([ranks[number] > 1 for ranks in rankings for number in range(1, 10)]) > 0.75


def test_times_are_compared_with_intervals_as_wide_as_the_number_of_pairs_asks():
    """Intervals of 2 % each way at 95 %: those of ratios at 1 - 5 %/6 reach over 2.8 % · 2.638/1.96 = 3.8 %."""
    settings = ((1, 20.0), (2, 20.7), (3, 20.8), (4, 40.0))
    assert threads_and_ranks(ranked(*[case(number, closed(4, 100, p99_ms=ms)) for number, ms in settings], by="p99")) == [
        (1, 1), (2, 1), (3, 2), (4, 4),
    ]  # fmt: skip
    assert scipy.stats.norm.ppf(1 - 0.05 / 12) * math.hypot(0.02, 0.02) / 1.959964 == pytest.approx(0.0381, abs=0.0001)


def test_the_measurements_that_would_tell_follow_from_the_width_of_the_ratio():
    """The first case scatters less than both together, and the second one more."""
    one, other = (100.0, 106.0, 95.0), (105.0, 95.0, 116.0)
    first, tied = ranked(case(1, closed(4, *one)), case(2, closed(4, *other))).rows
    assert first.values["server.threads"] == 2
    own = [np.var(np.log(values), ddof=1) for values in (one, other)]
    assert own[0] < np.mean(own) < own[1]
    reach = scipy.stats.t.ppf(0.975, 4) * math.sqrt((np.mean(own) + own[1]) / 3)
    gap = np.mean(np.log(other)) - np.mean(np.log(one))
    needed = reach * (1 + scipy.stats.norm.ppf(0.8) / scipy.stats.norm.ppf(0.975))
    assert tied.times_as_much == pytest.approx((needed / gap) ** 2)


def test_a_case_stands_with_its_best_load_point_within_the_constraints():
    """With four threads the highest throughput has a p99 above the limit: the load point before it counts."""
    fast = case(4, closed(4, 200, 201, 199, p99_ms=40.0), closed(8, 300, 301, 299, p99_ms=60.0), slo={"p99": "50ms", "error_rate": "1%"})
    slow = case(1, closed(4, 100, 101, 99, p99_ms=30.0), closed(8, 120, 121, 119, p99_ms=45.0), slo={"p99": "50ms", "error_rate": "1%"})
    ranking = ranked(fast, slow)
    assert [(row.values["server.threads"], row.rank, row.load) for row in ranking.rows] == [
        (4, 1, "concurrency 4"),
        (1, 2, "concurrency 8"),
    ]
    assert ranking.p99_limits_ns == (50e6,)
    assert {(point.row, point.load): point.verdict for point in ranking.points} == {
        (0, "concurrency 4"): "holds", (0, "concurrency 8"): "violated", (1, "concurrency 4"): "holds", (1, "concurrency 8"): "holds",
    }  # fmt: skip


def test_a_case_without_any_load_point_within_the_constraints_has_no_rank():
    ranking = ranked(case(1, closed(4, 300, 301, 299, p99_ms=60.0)), case(2, closed(4, 100, 101, 99)), where=("p99<50ms",))
    assert threads_and_ranks(ranking) == [(2, 1), (1, None)]
    assert ranking.rows[1].judgements == (("p99 < 50 ms", "violated"),)


def test_an_overloaded_load_point_violates_every_limit_on_times():
    warnings = [{"code": "overloaded", "message": "It was overloaded."}]
    ranking = ranked(case(1, closed(4, 300, 301, 299, warnings=warnings)), case(2, closed(4, 100, 101, 99)), where=("p99<50ms",))
    assert threads_and_ranks(ranking) == [(2, 1), (1, None)]


def test_limits_on_first_responses_are_constraints():
    slo = {"first_response": {"p99": "50ms", "p50": "5ms"}}
    plain = case(1, closed(4, 300, 301, 299), slo=slo)
    values, result = case(2, closed(4, 100, 101, 99), slo=slo)
    first = result.summary[0].service_time_ns.model_copy(update={"p99": 60_000_000.0, "p50": 4_000_000.0})
    intervals = {"first_response_time": {"p99": (55_000_000.0, 65_000_000.0), "p50": (3_000_000.0, 4_500_000.0)}}
    streamed = result.summary[0].model_copy(update={"first_response_time_ns": first, "further_intervals": intervals})
    ranking = ranked(plain, (values, result.model_copy(update={"summary": (streamed,)})))
    judged = {row.values["server.threads"]: [(text.partition("<")[0].strip(), one) for text, one in row.judgements] for row in ranking.rows}
    assert judged == {
        1: [("first_response.p99", "cannot be told"), ("first_response.p50", "cannot be told")],
        2: [("first_response.p99", "violated"), ("first_response.p50", "holds")],
    }


def test_an_slo_that_no_run_stores_cannot_be_told():
    hostile = ranked(case(1, closed(4, 300, 301, 299), slo={"p99": "soon", "<b>": 3}), case(2, closed(4, 100, 101, 99), slo="fast"))
    assert threads_and_ranks(hostile) == [(2, 1), (1, None)]
    assert hostile.rows[1].judgements == (("slo.p99", "cannot be told"), ("slo.<b>", "cannot be told"))


def test_invalid_load_points_are_not_ranked():
    assert ranked(case(1, closed(4, 300, 301, 299, valid=False))) is None


def test_a_limit_on_the_memory_needs_a_measurement():
    gpus = [{"uuid": "a", "name": "H", "source": "nvml", "memory_used_max_bytes": 30 * 2**30}]
    known, unknown = case(1, closed(4, 100, 101, 99, gpus=gpus)), case(2, closed(4, 300, 301, 299))
    assert threads_and_ranks(ranked(known, unknown, where=("gpu_memory<40GiB",))) == [(1, 1), (2, None)]
    assert [row.verdict for row in ranked(known, unknown, where=("gpu_memory<40GiB",)).rows] == ["holds", "cannot be told"]
    assert [row.verdict for row in ranked(known, unknown, where=("gpu_memory<20GiB",)).rows] == ["cannot be told", "violated"]


def test_times_are_compared_by_their_intervals():
    """Intervals of 2 % each way: a ratio's is 2.8 %, and 2 % apart is no difference."""
    cases = [case(number, closed(4, 100, 101, 99, p99_ms=p99_ms)) for number, p99_ms in ((1, 20.0), (2, 20.4), (3, 20.9))]
    ranking = ranked(*cases, by="p99")
    assert threads_and_ranks(ranking) == [(1, 1), (2, 1), (3, 2)]


def test_a_single_repetition_has_the_interval_of_its_seconds():
    """Independent seconds: their mean has Student's interval, slightly wider for the estimated correlation."""
    series = tuple(int(value) for value in np.random.default_rng(2).poisson(100, 60))
    one = result(points=[closed(4, 100.0)[0]]).summary[0].model_copy(update={"throughput_series_per_s": series})
    throughput = figures_of_point(one, [one])["throughput"]
    reach = scipy.stats.t.ppf(0.975, 59) * np.std(series, ddof=1) / math.sqrt(60) / np.mean(series)
    assert throughput.high is not None
    assert throughput.high / throughput.value == pytest.approx(1 + float(reach), abs=0.5 * float(reach))
    short = one.model_copy(update={"throughput_series_per_s": series[:5]})
    assert figures_of_point(short, [short])["throughput"].low is None


def search_result(capacity_per_s, low_per_s, high_per_s):
    search = Search(
        slo={"p99": "50ms"}, capacity_per_s=capacity_per_s, low_per_s=low_per_s, high_per_s=high_per_s, confidence=0.9, precision=0.05,
        stopped_because="precision", reason="Found.",
    )  # fmt: skip
    return result().model_copy(update={"search": search})


def test_searches_are_ranked_by_capacity_with_intervals_of_95_percent():
    results = [({"server.threads": n}, search_result(*ends)) for n, ends in enumerate([(100, 96, 104), (103, 99, 107), (140, 135, 145)])]
    ranking = rank_sweep(results, None, ())
    assert ranking.by == "capacity"
    assert threads_and_ranks(ranking) == [(2, 1), (1, 2), (0, 2)]
    capacity = figures_of_search(results[0][1])["capacity"]
    assert capacity.high is not None
    assert capacity.high / capacity.value == pytest.approx(1.04 ** (1.959964 / 1.644854))


@pytest.mark.parametrize("others", [1, 4])
def test_the_advised_precision_of_a_search_tells_a_tie_with_a_probability_of_80_percent(others):
    """The precision is the half-width of the interval of 90 %; each of the cases is compared at 1 - 5 % ÷ the number of pairs."""
    ends = [(105, 90, 122), *[(100, 86, 117)] * others]
    ranking = rank_sweep([({"server.threads": number}, search_result(*one)) for number, one in enumerate(ends)], None, ())
    assert ranking is not None
    assert {row.rank for row in ranking.rows} == {1}
    precision = separating_precision(ranking, ranking.rows[1]) or math.nan
    sd = math.sqrt(2) * precision / scipy.stats.norm.ppf(0.95)
    pairs = others * (others + 1) / 2
    assert scipy.stats.norm.sf(scipy.stats.norm.ppf(1 - 0.025 / pairs) - math.log(1.05) / sd) == pytest.approx(0.8)


def test_searches_that_would_need_a_precision_below_one_percent_are_not_advised_again():
    results = [({"server.threads": number}, search_result(per_s, 96, 104)) for number, per_s in enumerate((100, 100.5))]
    ranking = rank_sweep(results, None, ())
    assert ranking is not None
    assert separating_precision(ranking, ranking.rows[1]) is None


def test_single_rates_are_ranked_by_p99():
    load = {"kind": "open", "rate_per_s": 50.0, "arrivals": "poisson"}
    results = [({"server.threads": n}, result(points=[point(p99_ms=p99_ms, load=load)])) for n, p99_ms in ((1, 20.0), (2, 10.0))]
    ranking = rank_sweep(results, None, ())
    assert (ranking.by, threads_and_ranks(ranking)) == ("p99", [(2, 1), (1, 2)])


def failing(concurrency, failed):
    """A load point of 5,000 requests, some of which failed."""
    requests = {**point()["requests"], "ok": 5000 - failed, "rejected": failed}
    return closed(concurrency, 100.0, requests=requests, error_rate=failed / 5000)


def test_a_case_without_errors_leads_a_ranking_by_errors():
    """By Newcombe's intervals of the differences, 20 failures in 5,000 differ from one or none, and one does not differ from none."""
    ranking = ranked(case(1, failing(4, 20)), case(2, failing(4, 0)), case(3, failing(4, 1)), by="error_rate")
    assert threads_and_ranks(ranking) == [(2, 1), (3, 1), (1, 3)]
    assert ranking.rows[1].times_as_much > 1


def test_the_common_variance_is_that_of_least_squares():
    """ln(value) = case + repetition, fitted with one column for each case and one for each repetition."""
    values = np.exp(np.random.default_rng(1).normal(0, 0.1, (4, 5)))
    rows = [(c, r) for c in range(4) for r in range(5)]
    design = np.array([[float(c == k) for k in range(4)] + [float(r == k) for k in range(5)] for c, r in rows])
    fit = np.linalg.lstsq(design, np.log([values[c, r] for c, r in rows]), rcond=None)[0]
    residuals = np.log([values[c, r] for c, r in rows]) - design @ fit
    blocks = RandomizedBlocks.of(values.tolist())
    assert blocks.degrees == 20 - np.linalg.matrix_rank(design)
    assert min(blocks.variances) == pytest.approx(residuals @ residuals / blocks.degrees)
    assert blocks.ratio(0, 2).value == pytest.approx(math.exp(fit[2] - fit[0]))


def test_two_cases_have_the_interval_of_the_paired_t_test():
    one, other = np.exp(np.random.default_rng(2).normal(0, 0.1, (2, 6)))
    test = scipy.stats.ttest_rel(np.log(other), np.log(one)).confidence_interval(0.99)
    ratio = RandomizedBlocks.of([one.tolist(), other.tolist()]).ratio(0, 1, 0.99)
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(test.low), math.exp(test.high)))


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.lists(st.floats(0.01, 100), min_size=3, max_size=6))
def test_what_a_repetition_does_to_all_cases_changes_no_ratio(seed, number, factors):
    values = np.exp(np.random.default_rng(seed).normal(0, 0.1, (number, len(factors))))
    before, after = (RandomizedBlocks.of(one.tolist()).ratio(0, 1) for one in (values, values * np.array(factors)))
    assert (after.value, after.low, after.high) == pytest.approx((before.value, before.low, before.high), rel=1e-6)


def test_the_variance_of_a_case_that_scatters_more_is_its_own():
    """Five times the scatter of the others: mostly above the common variance, so the mean is 25 within a few per cent."""
    random = np.random.default_rng(3)
    scatters = np.array([1.0, 1.0, 1.0, 1.0, 5.0])[:, None] / 100
    found = [RandomizedBlocks.of(np.exp(random.normal(0, 1, (5, 12)) * scatters).tolist()).variances[4] for _ in range(2000)]
    assert np.mean(found) * 1e4 == pytest.approx(25, rel=0.05)


def test_equal_differences_leave_no_doubt():
    ratio = RandomizedBlocks.of([[100, 80, 120], [50, 40, 60]]).ratio(0, 1)
    assert (ratio.low, ratio.value, ratio.high) == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("values", [[[1.0, 2.0, 3.0]], [[1.0, 2.0], [1.0, 2.0]], [[1.0, 2.0, 0.0], [1.0, 2.0, 3.0]]])
def test_blocks_need_cases_repetitions_and_positive_values(values):
    with pytest.raises(ValueError, match="two cases or more"):
        RandomizedBlocks.of(values)
