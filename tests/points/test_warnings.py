"""A point's warnings: when they apply, and when they do not."""

import dataclasses

import pytest

from perfkit.errors import MeasurementWarning
from perfkit.points.point import LoadSummary, point
from perfkit.recorder.failures import FailureKind
from perfkit.stats.percentiles import minimum_samples
from perfkit.transport.base import Outcome

MS = 1_000_000
HOUR_NS = 3_600_000_000_000


def texts(found):
    return {warning.code: warning.message for warning in found.warnings}


@pytest.mark.parametrize(
    ("count", "percentile", "needed"),
    [
        (2, "p50", "11"),
        (10, "p90", "64"),
        (64, "p95", "130"),
        (100, "p99", "662"),
        (661, "p99", "662"),
        (1_000, "p99.9", "6,636"),
        (6_635, "p99.9", "6,636"),
        (10_000, "p99.99", f"{minimum_samples(0.9999):,}"),
        (minimum_samples(0.9999) - 1, "p99.99", f"{minimum_samples(0.9999):,}"),
    ],
)
def test_a_percentile_with_too_few_samples_is_named_with_the_number_needed(measured, count, percentile, needed):
    assert texts(point(measured([MS] * count))) == {
        "few_samples": f"Too few samples for {percentile}: at least {needed} are needed; measure longer."
    }


@pytest.mark.parametrize("count", [1, 662, 999, 6_636, 9_999, minimum_samples(0.9999)])
def test_enough_samples_for_each_percentile_without_failures_give_no_warning(measured, count):
    found = point(measured([MS] * count))
    assert (found.warnings, found.failures) == ((), ())


@pytest.mark.parametrize(
    ("ok", "censored", "first"),
    [(900, 101, "p90"), (994, 6, "p99.9"), (999, 1, None), (40, 1, None), (49, 51, "p50"), (50, 50, "p90"), (0, 2, "p50"), (9, 1, None), (8, 2, "p90"), (99, 1, None), (98, 2, "p99")],
)  # fmt: skip
@pytest.mark.parametrize("outcome", ["timed_out", "unfinished"])
def test_a_percentile_among_unanswered_requests_is_reported_as_a_lower_bound(measured, outcome, ok, censored, first):
    found = texts(point(measured([MS] * ok, others={outcome: [900 * MS] * censored}))).get("censored")
    unanswered = f"they fall among the {censored} requests that were not answered in time"
    assert found == (first and f"{first} and higher percentiles are lower bounds: {unanswered}.")


def test_timed_out_and_unfinished_requests_are_unanswered_together(measured):
    found = point(measured([MS] * 90, others={"timed_out": [MS] * 5, "unfinished": [MS] * 6}))
    assert "among the 11 requests that were not answered in time" in texts(found)["censored"]


def test_a_percentile_is_a_lower_bound_if_its_value_is_that_of_an_unanswered_request(measured):
    for censored in range(1, 100):
        found = point(measured([MS] * (100 - censored), others={"timed_out": [900 * MS] * censored}))
        among = [name for name in ("p50", "p90", "p95", "p99") if getattr(found.service_time_ns, name) > 2 * MS]
        said = texts(found).get("censored")
        assert (said.split()[0] if said else None) == (among[0] if among else None)


def test_wrong_answers_are_not_lower_bounds(measured):
    assert "censored" not in texts(point(measured([MS] * 10, others={"invalid_output": [MS] * 90})))


def test_distinct_messages_are_listed_with_their_counts_and_statuses(measured):
    failures = {
        FailureKind(Outcome.TIMED_OUT, "", "too late"): 1,
        FailureKind(Outcome.REJECTED, "503", "Exceeds maximum queue size"): 40,
        FailureKind(Outcome.REJECTED, "503", "Request timeout expired"): 9,
        FailureKind(Outcome.REJECTED, "500", "no"): 3,
    }
    found = point(measured([MS] * 700, others={"timed_out": [MS], "rejected": [MS] * 52}, failures=failures))
    listed = "40 × 503: Exceeds maximum queue size; 9 × 503: Request timeout expired; 3 × 500: no"
    assert texts(found) == {"failed_requests": f"Some requests failed: 52 rejected, 1 timed out ({listed})."}
    assert [(one.outcome, one.status, one.cause, one.count) for one in found.failures] == [
        ("rejected", "503", "queue_full", 40), ("rejected", "503", "queue_timeout", 9), ("rejected", "500", None, 3), ("timed_out", None, None, 1),
    ]  # fmt: skip
    assert found.rejected_by_status == {"500": 3, "503": 49}
    assert found.valid


def test_messages_of_several_repetitions_are_counted_together_and_rare_ones_as_others(measured):
    frequent = [FailureKind(Outcome.BROKEN, "", f"message {number}") for number in range(12)]
    parts = [
        measured([MS], others={"broken": [MS] * 78}, failures={kind: number + 1 for number, kind in enumerate(frequent)}),
        measured([MS], others={"broken": [MS] * 5}, failures={frequent[0]: 1, FailureKind(Outcome.BROKEN, "", None): 4}),
    ]
    found = [(one.message, one.count) for one in LoadSummary(parts).pooled().failures]
    assert found == [
        *((f"message {number}", number + 1) for number in range(11, 6, -1)),
        (None, 4 + 2 + 2),
        *((f"message {number}", number + 1) for number in range(6, 1, -1)),
    ]


def test_a_point_without_ok_requests_has_a_warning(measured):
    found = point(measured(others={"rejected": [MS] * 3}, failures={FailureKind(Outcome.REJECTED, "500", "no"): 3}))
    assert texts(found) == {
        "failed_requests": "Some requests failed: 3 rejected (3 × 500: no).",
        "no_samples": "No request of this point succeeded.",
    }
    assert found.error_rate == 1.0


@pytest.mark.parametrize(("cpu_share", "bound"), [(0.0, False), (0.85, False), (0.86, True), (1.0, True)])
def test_a_busy_generator_makes_a_point_invalid(measured, cpu_share, bound):
    found = point(measured([MS] * 700, cpu_share=cpu_share))
    assert found.valid is not bound
    assert texts(found) == ({} if not bound else {
        "generator_bound": f"The load generator was the bottleneck: its busiest core was {cpu_share:.0%} busy, above 85%. "
        "The server may be faster than these figures. Use more workers if CPUs are free for them, or lower the concurrency or the request rate."
    })  # fmt: skip


def test_one_busy_repetition_makes_the_pool_invalid_and_its_share_is_named(measured):
    found = LoadSummary([measured([MS] * 700, cpu_share=0.9), measured([MS] * 700, cpu_share=0.4)]).pooled()
    assert not found.valid
    assert found.generator.cpu_share == pytest.approx(0.65)
    assert "busiest core was 90% busy" in texts(found)["generator_bound"]


def test_a_pool_has_the_reasons_of_its_invalid_repetitions_even_where_it_shows_none_itself(measured):
    quiet = [measured([MS] * 700) for _ in range(9)]
    stopped = dataclasses.replace(measured([MS] * 700), faults=(MeasurementWarning("worker_lost", "One was lost."),))
    late = LoadSummary([*quiet, stopped])
    assert (late.pooled().valid, [one.code for one in late.pooled().warnings]) == (False, ["worker_lost"])
    suspended = measured([MS] * 700)
    suspended = dataclasses.replace(suspended, generator=suspended.generator.model_copy(update={"throttled_share": 0.2}))
    found = LoadSummary([*quiet, suspended]).pooled()
    assert [one.code for one in found.warnings] == ["throttled"]
    assert not found.valid


def test_times_above_one_hour_are_counted(measured):
    assert texts(point(measured([HOUR_NS] * 700))) == {}
    found = point(measured([MS] * 698 + [HOUR_NS + 1, 2 * HOUR_NS]))
    assert texts(found) == {"clamped": "2 times are above one hour, and count as one hour."}


def test_a_warning_of_every_repetition_is_in_the_pool_once(measured):
    one, other = MeasurementWarning(code="shared_cpus", message="a"), MeasurementWarning(code="shared_cpus", message="b")
    pooled = LoadSummary([measured([MS] * 400, warnings=(one,)), measured([MS] * 400, warnings=(one, other))]).pooled()
    assert pooled.warnings == (one, other)
