"""From hand-made recordings to points: sums, rates, pooled percentiles."""

import dataclasses
import tracemalloc

import numpy as np
import pytest

from perfkit.errors import MeasurementWarning
from perfkit.points import pool
from perfkit.points.behaviour import target_warnings
from perfkit.points.measured import Resources
from perfkit.points.point import LoadSummary, point
from perfkit.recorder.failures import FailureKind
from perfkit.result.distribution import QUANTILES, distribution
from perfkit.result.load import OpenLoad
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.slo import SloLimits
from perfkit.transport.base import Outcome

MS = 1_000_000


def percentiles(found):
    return [getattr(found, name) for name in QUANTILES]


@pytest.mark.parametrize("seed", range(3))
def test_percentiles_are_within_a_thousandth_of_numpy_s(seed):
    values = np.random.default_rng(seed).lognormal(np.log(20 * MS), 1, 20_000).astype(np.int64) + MS
    found = distribution(BucketCounts.of(values))
    expected = np.quantile(values, list(QUANTILES.values()), method="inverted_cdf")
    assert percentiles(found) == pytest.approx(expected.tolist(), rel=0.001)
    assert [found.min, found.max] == pytest.approx([values.min(), values.max()], rel=0.001)
    assert [found.mean, found.stddev] == pytest.approx([values.mean(), values.std()], rel=0.001)
    assert found.count == 20_000


@pytest.mark.parametrize(
    ("count", "given"), [(1, 0), (2, 1), (9, 1), (10, 2), (20, 3), (99, 3), (100, 4), (1_000, 5), (9_999, 5), (10_000, 6)]
)
def test_a_percentile_that_too_few_samples_carry_is_none(count, given):
    values = percentiles(distribution(BucketCounts.of([5 * MS] * count)))
    assert [value is not None for value in values] == [True] * given + [False] * (6 - given)


def test_no_percentile_lies_above_the_maximum():
    found = distribution(BucketCounts.of(np.linspace(MS, 777_777_777, 20_000)))
    ascending = [found.min, *percentiles(found), found.max]
    assert ascending == sorted(ascending)
    assert found.max == pytest.approx(777_777_777, rel=0.001)


def test_a_distribution_of_nothing_is_zeros_without_percentiles():
    found = distribution(BucketCounts.of([]))
    assert (found.count, found.min, found.mean, found.stddev, found.max) == (0, 0, 0.0, 0.0, 0)
    assert percentiles(found) == [None] * 6


def test_a_point_has_what_was_measured(measured):
    warning = MeasurementWarning(code="shared_cpus", message="x")
    made = measured([10 * MS] * 100, window_s=4, finished=90, batch_size=8, repetition=2, concurrency=16, connections=(5, 1), cpu_share=0.3,
                    steal_share=0.01, warnings=(warning,))  # fmt: skip
    found = point(made)
    assert (found.protocol, found.load.kind, found.load.concurrency, found.repetition) == ("http", "closed", 16, 2)
    assert (found.duration_s, found.throughput_per_s, found.inferences_per_s, found.goodput_per_s) == (4.0, 22.5, 180.0, None)
    assert (found.connections.opened, found.connections.reconnects) == (5, 1)
    assert (found.generator.cpu_share, found.generator.steal_share) == (0.3, 0.01)
    assert found.warnings[0] == warning
    assert found.service_time_ns == distribution(made.window.times["service_time"])
    assert (found.response_time_ns, found.start_delay_ns, found.failure_time_ns, found.server, found.gpus) == (None, None, None, None, ())
    assert found.valid


def test_event_loop_lag_is_the_timers_lag_in_closed_and_open_loops(measured):
    closed = measured([10 * MS] * 100)
    closed = dataclasses.replace(closed, resources=Resources(event_loop_lag=BucketCounts.of([2 * MS] * 20)))
    pacing = {name: BucketCounts.of([5 * MS] * 100) for name in ("response_time", "start_delay", "pacing_delay")}
    opened = dataclasses.replace(
        closed,
        load=OpenLoad(rate_per_s=50.0, arrivals="poisson"),
        window=dataclasses.replace(closed.window, times={**closed.window.times, **pacing}),
    )
    for measurement in (closed, opened):
        lag = point(measurement).generator.event_loop_lag_ns
        assert (lag.count, lag.max) == (20, pytest.approx(2 * MS, rel=0.001))
    assert point(closed).generator.pacing_delay_ns is None
    pacing_delay = point(opened).generator.pacing_delay_ns
    assert (pacing_delay.count, pacing_delay.max) == (100, pytest.approx(5 * MS, rel=0.001))


def test_every_request_has_one_outcome_and_the_sums_agree(measured):
    counts = {"rejected": 2, "timed_out": 3, "connect_failed": 4, "broken": 5, "invalid_output": 6, "unfinished": 7}
    times_ms = {"rejected": 1, "timed_out": 900, "connect_failed": 2, "broken": 3, "invalid_output": 4, "unfinished": 800}
    found = point(measured([10 * MS] * 73, others={name: [times_ms[name] * MS] * count for name, count in counts.items()}))
    requests = found.requests.model_dump()
    assert requests == {"scheduled": 100, "dropped": 0, "sent": 100, "ok": 73, **counts, "abandoned": 0, "answered_early": 0}
    assert requests["scheduled"] == requests["dropped"] + requests["sent"]
    assert requests["sent"] == sum(count for name, count in requests.items() if name not in ("scheduled", "dropped", "sent"))
    assert found.error_rate == pytest.approx(1 - 73 / 100)
    assert found.service_time_ns.count == 73 + 3 + 6 + 7
    assert found.failure_time_ns is not None
    assert found.failure_time_ns.count == 2 + 4 + 5
    assert found.failure_time_ns.max == pytest.approx(3 * MS, rel=0.001)


def test_the_series_has_a_figure_for_every_second_of_the_window_and_none_after_it(measured):
    assert point(measured([MS], window_s=2.5, series={0: 7, 2: 3, 3: 9})).throughput_series_per_s == (7, 0, 3)
    assert point(measured([MS], window_s=1, series={})).throughput_series_per_s == (0,)
    assert LoadSummary([measured([MS], series={0: 1})]).pooled().throughput_series_per_s is None


def test_a_point_without_requests_is_not_valid_and_a_window_without_length_has_no_throughput(measured):
    found = point(measured())
    assert (found.valid, found.error_rate, found.throughput_per_s) == (False, 0.0, 0.0)
    assert [warning.code for warning in found.warnings] == ["no_samples"]
    found = point(measured([MS], window_s=0))
    assert (found.throughput_per_s, found.generator.cpu_share, found.throughput_series_per_s) == (0.0, 0.0, ())


def test_pooled_percentiles_are_those_of_all_values_together(measured):
    random = np.random.default_rng(1)
    parts = [random.integers(MS, 50 * MS, 3_000), random.integers(20 * MS, 90 * MS, 9_000)]
    found = LoadSummary([measured(part) for part in parts]).pooled()
    assert found.service_time_ns == distribution(BucketCounts.of(np.concatenate(parts)))
    expected = np.quantile(np.concatenate(parts), list(QUANTILES.values()), method="inverted_cdf")
    assert percentiles(found.service_time_ns) == pytest.approx(expected.tolist(), rel=0.002)  # a rank may round to its neighbour


def test_a_repetition_that_is_added_after_the_pooled_point_was_asked_for_counts(measured):
    random, summary = np.random.default_rng(1), LoadSummary()
    parts = [measured(random.integers(MS, 50 * MS, 3_000), repetition=number) for number in range(3)]
    for part in parts:
        summary.add(part)
        found = summary.pooled()
    assert found == LoadSummary(parts).pooled()
    assert found.service_time_ns.count == 9_000


def test_what_is_kept_of_a_load_for_further_repetitions_takes_a_fraction_of_its_histograms(measured):
    random, histograms_bytes, summaries = np.random.default_rng(1), 0, []
    tracemalloc.start()
    try:
        for _ in range(10):
            made = measured(random.integers(MS, 50 * MS, 100))
            parts = tuple(BucketCounts.of(random.integers(MS, 5 * MS, 1_000)) for _ in range(60))
            histograms_bytes += sum(one.indices.nbytes + one.counts.nbytes for one in parts)
            summaries.append(LoadSummary([dataclasses.replace(made, window=dataclasses.replace(made.window, batches=parts))]))
            summaries[-1].pooled()
            del made, parts
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < histograms_bytes / 3


def test_the_statuses_of_rejected_requests_are_counted(measured):
    full, busy, limited = (FailureKind(Outcome.REJECTED, *one) for one in (("503", "full"), ("503", "busy"), ("429", "")))
    broken = FailureKind(Outcome.BROKEN, "", "closed")
    parts = [measured([MS], failures={full: 1, busy: 1, limited: 1, broken: 9}), measured([MS], failures={full: 3})]
    assert point(parts[0]).rejected_by_status == {"429": 1, "503": 2}
    assert LoadSummary(parts).pooled().rejected_by_status == {"429": 1, "503": 5}


def test_goodput_is_the_rate_of_good_answers_and_needs_an_slo(measured):
    assert point(measured([MS] * 10, good=8, window_s=4)).goodput_per_s is None
    pooled = LoadSummary([measured([MS] * 10, good=8, window_s=4, has_slo=True), measured([MS], good=1, has_slo=True)]).pooled()
    assert pooled.goodput_per_s == 1.5


def test_checked_answers_are_counted_and_wrong_ones_are_put_into_proportion(measured):
    found = point(measured([MS] * 990, others={"invalid_output": [MS] * 10}, checked=20, wrong=10))
    assert found.checked == 20
    # the interval: scipy.stats.binomtest(10, 20).proportion_ci(method="exact")
    others = "the other 980 were not checked and count as ok, so 27.20% to 72.80% of all are wrong"
    message = f"10 of the 20 checked answers are wrong; {others}."
    assert found.wrong_answer_rate == 0.5
    assert found.wrong_answer_interval == pytest.approx((0.2719578, 0.7280422))
    assert {one.code: one.message for one in found.warnings}["invalid_output"] == message
    assert "invalid_output" not in {
        one.code for one in point(measured(others={"invalid_output": [MS] * 10}, checked=10, wrong=10)).warnings
    }


def test_the_failed_share_takes_unchecked_answers_to_be_as_often_wrong_as_the_checked_ones(measured):
    # 100 rejected; of 900 answers 20 were checked and 10 of these are wrong: half of all 900, between 27.20% and 72.80% of them
    found = point(measured([MS] * 890, others={"invalid_output": [MS] * 10, "rejected": [MS] * 100}, checked=20, wrong=10))
    failed = found.failed_share
    assert (failed.estimate, failed.low, failed.high) == pytest.approx(
        (0.55, (100 + 900 * 0.2719578) / 1000, (100 + 900 * 0.7280422) / 1000)
    )
    assert found.error_rate == pytest.approx(0.11)
    # what every answer shows is counted as it is
    seen = point(measured([MS] * 890, others={"invalid_output": [MS] * 10, "rejected": [MS] * 100}, checked=20)).failed_share
    assert (seen.estimate, seen.low, seen.high, seen.dispersion) == pytest.approx((0.11, 0.11, 0.11, 1.0))
    everything = point(measured([MS] * 990, others={"invalid_output": [MS] * 10}, checked=1000, wrong=10)).failed_share
    assert (everything.estimate, everything.low, everything.high) == pytest.approx((0.01, 0.01, 0.01))


@pytest.mark.parametrize(("limit", "verdict"), [(0.1, "violated"), (0.5, "inconclusive"), (0.8, "satisfied")])
def test_the_slo_s_error_rate_counts_what_the_sample_shows(measured, limit, verdict):
    part = measured([MS] * 990, others={"invalid_output": [MS] * 10}, checked=20, wrong=10)
    judged = LoadSummary([part], SloLimits({}, error_rate=limit)).pooled().slo
    assert judged.verdict == verdict
    assert "50.000% (27.196% to 72.804%" in judged.reason


def test_a_closed_loop_whose_throughput_and_times_disagree_is_warned_of(measured):
    quiet, busy = measured([10 * MS] * 800, concurrency=4), measured([10 * MS] * 800, concurrency=4, ended=700)
    assert "littles_law" not in {one.code for one in point(quiet).warnings}
    assert "littles_law" in {one.code for one in point(busy).warnings}


def test_repetitions_too_short_for_a_percentile_have_enough_samples_together(measured):
    parts = [measured([5 * MS] * 60, repetition=index) for index in range(2)]
    assert [point(part).service_time_ns.p99 for part in parts] == [None, None]
    assert LoadSummary(parts).pooled().service_time_ns.p99 == pytest.approx(5 * MS, rel=0.001)


def test_pooled_counts_and_windows_are_added_and_shares_weighted_by_the_windows(measured):
    found = LoadSummary([
        measured([MS] * 10, others={"broken": [MS] * 2}, window_s=1, finished=8, batch_size=2, cpu_share=0.8, steal_share=0.04, connections=(4, 1)),
        measured([MS] * 30, others={"broken": [MS] * 4}, window_s=3, finished=28, batch_size=2, cpu_share=0.4, steal_share=0.0, connections=(5, 0), repetition=1),
    ]).pooled()  # fmt: skip
    assert (found.repetition, found.duration_s) == (None, 4.0)
    assert (found.requests.sent, found.requests.ok, found.requests.broken) == (46, 40, 6)
    assert found.error_rate == pytest.approx(6 / 46)
    assert (found.throughput_per_s, found.inferences_per_s) == (9.0, 18.0)
    assert [found.generator.cpu_share, found.generator.steal_share] == pytest.approx([0.5, 0.01])
    assert (found.connections.opened, found.connections.reconnects) == (9, 1)
    assert found.failure_time_ns is not None
    assert found.failure_time_ns.count == 6


def test_the_pool_has_the_largest_number_of_workers(measured):
    part = measured([MS] * 10)
    several = [dataclasses.replace(part, generator=part.generator.model_copy(update={"workers": workers})) for workers in (2, 4, 3)]
    assert [LoadSummary(parts).pooled().generator.workers for parts in ([part], several)] == [1, 4]


def test_adding_a_repetition_does_not_summarise_the_earlier_ones_again(measured, monkeypatch):
    judged: list[object] = []

    def judge(one):
        judged.append(one)
        return target_warnings(one)

    monkeypatch.setattr(pool, "target_warnings", judge)
    repetitions = [measured([MS] * 50, repetition=index) for index in range(10)]
    load = LoadSummary()
    for number, repetition in enumerate(repetitions, 1):
        assert load.add(repetition) == point(repetition)
        judged.clear()
        assert load.pooled().requests.ok == 50 * number
        assert judged == []


def test_pooling_one_by_one_equals_pooling_at_once(measured):
    random, kind = np.random.default_rng(4), FailureKind(Outcome.REJECTED, "503", "full")
    repetitions = [measured(random.integers(MS, 50 * MS, 2_000), repetition=index, failures={kind: index}) for index in range(4)]
    one_by_one = LoadSummary()
    for repetition in repetitions:
        one_by_one.add(repetition)
        one_by_one.pooled()
    assert one_by_one.pooled() == LoadSummary(repetitions).pooled()
    assert [repetition.window.times["service_time"].count for repetition in repetitions] == [2_000] * 4  # the windows stay as they were


@pytest.mark.parametrize(("limit_ms", "verdict"), [(9, "violated"), (11, "satisfied")])
def test_an_slo_on_first_responses_judges_the_repetitions_together(measured, limit_ms, verdict):
    """Answers are whole after 100 ms, and their first responses there after 1 ms in one repetition and after 10 ms in the other."""
    parts = []
    for first_ms in (1, 10):
        part = measured([100 * MS] * 700)
        times = {**part.window.times, "first_response_time": BucketCounts.of([first_ms * MS] * 700)}
        parts.append(dataclasses.replace(part, window=dataclasses.replace(part.window, times=times), is_streamed=True, has_slo=True))
    judged = LoadSummary(parts, SloLimits({0.5: 200 * MS}, further_ns={"first_response_time": {0.99: limit_ms * MS}})).pooled().slo
    assert judged is not None
    assert judged.verdict == verdict
    assert "the first response's p99 is 10.0 ms" in judged.reason


def with_counts(part, times=(), **counts):
    """The same measurement with further times, 7 ms each, and counts of its window."""
    window = part.window
    further = {name: BucketCounts.of([7 * MS] * number) for name, number in dict(times).items()}
    changed = dataclasses.replace(window, times={**window.times, **further}, counts={**window.counts, **counts})
    return dataclasses.replace(part, window=changed, has_slo=True)


@pytest.mark.parametrize(
    ("unknown", "cut_off", "verdict"), [(0, 0, "satisfied"), (1, 0, "satisfied"), (400, 0, "inconclusive"), (0, 400, "inconclusive")]
)
def test_times_per_token_that_are_not_known_may_leave_the_verdict_open(measured, unknown, cut_off, verdict):
    counts = {"tokens_reported": 700 + unknown, "per_token_unknown": unknown, "first_tokens_unknown": unknown, "per_token_cut_off": cut_off}
    part = with_counts(measured([MS] * (700 + unknown)), {"time_per_output_token": 700}, **counts)
    judged = LoadSummary([part], SloLimits({}, further_ns={"time_per_output_token": {0.99: 9 * MS}})).pooled().slo
    assert judged.verdict == verdict
    assert (f"{unknown + cut_off} further requests" in judged.reason) == (unknown + cut_off > 0)


@pytest.mark.parametrize(
    ("reported", "unreported", "first_unknown", "words"),
    [
        (40, 0, 0, {}),
        (40, 3, 2, {"tokens_unreported": "3 of 43 answers do not", "first_tokens_unknown": "of 2 of 43 answers is withheld"}),
        (0, 3, 0, {"tokens_unreported": "No answer reports its tokens"}),
    ],
)
def test_in_a_mix_only_answers_of_apis_with_tokens_can_lack_them(measured, reported, unreported, first_unknown, words):
    """A hundred answers, of which those without a count come from a v2 server."""
    found = point(
        with_counts(measured([MS] * 100), tokens_reported=reported, tokens_unreported=unreported, first_tokens_unknown=first_unknown)
    )
    said = {one.code: one.message for one in found.warnings if "token" in one.code}
    assert {*said} == {*words}
    assert all(part in said[code] for code, part in words.items())
    assert (found.output_tokens_per_s is None) == (unreported > 0)
