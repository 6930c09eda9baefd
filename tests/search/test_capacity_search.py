"""A whole search in virtual time: real loops and recordings of a declared queue, put together as a run does."""

import dataclasses
import functools
import random

import pytest
import yaml

from perfkit.load.loop import StopCause
from perfkit.recorder.window import Window
from perfkit.result.checks import _search_problems
from perfkit.result.model import Point
from perfkit.result.search import AddedTime, FittedCurve, Search, SearchDrift, SearchProbe
from perfkit.scenario.file import read_scenario
from perfkit.search.capacity_search import CapacitySearch, explain_search
from perfkit.stats.buckets import EMPTY
from perfkit.transport.base import Outcome
from perfkit.units import format_rate_per_s
from tests.search.virtual_search import Queue, search_in_virtual_time

MS, S = 1_000_000, 1_000_000_000


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """Searches a scripted target: see `search_in_virtual_time`."""
    return functools.partial(search_in_virtual_time, tmp_path_factory.mktemp("searched") / "s.yaml")


def test_the_search_finds_the_capacity_of_a_declared_queue(searched):
    # M/D/1 of 5 ms at a load of 0.8: p95 is 7.620 times 5 ms
    found, recorded = searched(lambda clock: Queue(clock, 5 * MS), slo={"p95": "38100us"}, start_rate=100, precision="20%", max_probes=8)
    assert found.capacity_per_s == pytest.approx(160, rel=0.15)
    assert found.low_per_s < found.capacity_per_s < found.high_per_s
    assert found.slo == {"p95": "38100us"}
    assert found.curve.limit == "p95"
    assert len(found.probes) == len(recorded) <= 8
    assert "The capacity at p95 of 38100us" in found.reason
    seeds = [one.recording.series.scheduled.tolist() for one in recorded]
    assert all(seeds.count(one) == 1 for one in seeds)  # arrivals of its own for each


@pytest.mark.parametrize(
    ("slower", "reason", "told"),
    [
        (0.04, "drifted", "But the target became 4.0% slower (95 % interval 2.0% to 6.0%, by its median response times) during the search"),
        (-0.01, "precision", "The target became 1.0% faster (95 % interval 0.5% to 1.5%, by its median response times) during the search."),
    ],
)
def test_a_drift_of_the_target_is_told(searched, slower, reason, told):
    found, _ = searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "56780us"}, start_rate=100, precision="20%", max_probes=3)
    drift = SearchDrift(slower=slower, low=min(0.5 * slower, 1.5 * slower), high=max(0.5 * slower, 1.5 * slower), probes=9)
    changed = found.model_copy(update={"stopped_because": reason, "confirmation": "passed", "capacity_per_s": 120.0, "drift": drift})
    assert told in explain_search(changed)


def test_unsettled_probes_are_named(searched):
    found, _ = searched(
        lambda clock: Queue(clock, 5 * MS), slo={"p99": "56780us"}, start_rate=100, precision="20%", max_probes=3, warned_of=["not_steady"]
    )
    assert found.drifted_at_per_s == tuple(probe.rate_per_s for probe in found.probes)
    found = found.model_copy(update={"stopped_because": "precision", "confirmation": "not_steady", "capacity_per_s": 120.0})
    reason = explain_search(found)
    assert "met the SLO, but its times had not settled" in reason
    assert "The times drifted during the probes at 100/s" in reason


@pytest.fixture(scope="module")
def too_short(searched):
    return searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "56780us"}, start_rate=100, budget="90s")[0]


def test_a_search_that_was_too_short_says_how_long_it_would_take(too_short):
    found = too_short
    assert found.stopped_because == "too_short"
    assert found.needed_s > found.budget_s == 90.0
    assert "The search would take about " in found.reason
    assert "its budget is 90.0 s: unless it is part of a sweep, it goes on with --resume --budget 80s, or limit" in found.reason
    reason = explain_search(found.model_copy(update={"needed_if_wider_s": 120.0, "precision": 0.05}))
    assert (
        "unless it is part of a sweep, it goes on with --resume --budget 80s, accept ±10% (load.search.precision), which would take about 120 s, or limit a lower percentile."
        in reason
    )


def test_more_time_continues_a_search_after_its_probes(searched):
    def limited(**added):
        return searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "56780us"}, start_rate=100, budget="50s", max_probes=5, **added)

    before: list[tuple[Window, Point]] = []
    first, _ = limited(taken=before)
    assert first.can_continue
    assert len(first.probes) == 4  # of 11 s each
    added = [AddedTime(after_probes=4, budget_s=25.0)]
    continued, recorded = limited(before=before, added=added)
    assert (len(continued.probes), len(recorded)) == (5, 1)
    assert continued.probes[:4] == first.probes
    assert (continued.budget_s, continued.added_time) == (69.0, tuple(added))
    assert "Of its 5 probes, 4 were sent before it was given more time, and 1 after that." in continued.reason
    again, _ = limited(before=before, added=[*added, AddedTime(after_probes=5, budget_s=60.0)])
    assert len(again.probes) > 5
    assert again.probes[:5] == continued.probes
    assert again.budget_s == 55.0 + 60.0


def test_a_search_that_was_too_short_names_its_bracket_and_what_invalid_probes_took(too_short):
    found = too_short

    def probe(rate_per_s, met, valid, took_s):
        return found.probes[0].model_copy(update={"rate_per_s": rate_per_s, "met": met, "valid": valid, "took_s": took_s})

    probes = (probe(100.0, True, True, 10.0), probe(200.0, False, True, 20.0), probe(150.0, False, False, 30.0))
    curve = FittedCurve(limit="p99", centre_per_s=150, floor=0, intercept=0, slope=1, points=6, effective_beyond=9, dispersion=1)
    unknown = found.model_copy(update={"low_per_s": None, "high_per_s": None, "curve": curve, "probes": probes})
    reason = explain_search(unknown)
    assert "its uncertainty is not known yet. By the probes so far the SLO is met at 100/s and missed at 200/s." in reason
    assert "Probes that the load generator made invalid took 30.0 s of 60.0 s (1 of 3; their warnings say why)" in reason
    cold = probes[2].model_copy(update={"cold": True})
    for others in ((), (cold,)):  # CPUs of its own for the load generator do not help with a cold target
        assert "CPUs" not in explain_search(unknown.model_copy(update={"probes": (*probes[:2], *others)}))


@pytest.mark.parametrize(
    ("codes", "told"),
    [
        (["cold"], "The last probes were not valid, because the target stayed cold. The target was still cold in probes at 100/s, which do not count: give"),
        (["cold", "late_starts"], "The load generator made probes invalid"),
        (["late_starts"], "The load generator made probes invalid"),
    ],
)  # fmt: skip
def test_probes_of_a_cold_target_are_not_laid_on_the_load_generator(searched, codes, told):
    found, _ = searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "50ms"}, start_rate=100, seconds=1, max_probes=3, invalid_by=codes)
    assert told in found.reason
    assert (found.stopped_because == "cold") == ("load generator" not in found.reason) == all(probe.cold for probe in found.probes)


def test_an_overloaded_probe_ends_early_and_its_requests_are_awaited(searched):
    found, recorded = searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "50ms"}, start_rate=800, max_probes=3)
    first = recorded[0]
    assert first.ending.cause is StopCause.OVERLOADED
    assert first.recording.end_ns - first.start_ns < 3 * S  # of 5 s
    assert found.probes[0].overloaded
    assert not found.probes[0].met
    assert sum(int(one.outcomes[list(Outcome).index(Outcome.UNFINISHED)]) for one in first.recording.batches.values()) == 0


def test_the_error_rate_can_be_the_limit_that_decides(searched):
    found, _ = searched(
        lambda clock: Queue(clock, 0, fails_above_per_s=200),
        slo={"p99": "50ms", "error_rate": "1%"},
        start_rate=110,
        precision="20%",
        max_probes=7,
    )
    # 1 % more than 200/s may fail; some seven probes tell about where
    assert 165 < found.capacity_per_s < 230
    assert 195 < found.high_per_s < 260


@pytest.mark.parametrize("whole", [{}, {"p95": "10s"}])
def test_a_limit_on_the_first_response_can_be_the_one_that_decides(searched, whole):
    def respond(reply):
        reply.responses_ns = (reply.finished_ns - MS, reply.finished_ns)
        return False

    # as for whole answers above, whose last part takes another millisecond here
    found, _ = searched(
        lambda clock: Queue(clock, 5 * MS),
        slo={**whole, "first_response": {"p95": "37100us"}},
        start_rate=100,
        precision="20%",
        max_probes=8,
        check=respond,
        is_streamed=True,
    )
    assert found.capacity_per_s == pytest.approx(160, rel=0.15)
    assert found.curve.limit == "first_response.p95"
    assert "first response p95 of 37100us" in found.reason
    assert list(_search_problems(found)) == [], "a result with it can be read again"


@pytest.mark.parametrize("is_any_known", [True, False])
def test_requests_without_a_time_per_token_count_as_beyond_its_limit(searched, tmp_path, is_any_known):
    taken: list[tuple[Window, Point]] = []
    searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "1s"}, start_rate=50, max_probes=3, taken=taken)
    window, point = taken[0]
    known = window.times["response_time"] if is_any_known else EMPTY
    counts = {**window.counts, "per_token_unknown": 3, "per_token_cut_off": 2}
    window = dataclasses.replace(window, times={**window.times, "time_per_output_token": known}, counts=counts)
    document = {
        "target": {"url": "http://h:1/v1", "model": "m", "api": "openai"},
        "stream": {},
        "load": {"search": {"slo": {"per_token": {"p99": "1s"}}, "start_rate": 50, "max_probes": 3}},
        "measure": {"duration": "4s", "warmup": "1s"},
    }
    path = tmp_path / "openai.yaml"
    path.write_text(yaml.safe_dump(document))
    search = CapacitySearch(read_scenario(path, environ={}))
    while search.next_point(5 * MS) is not None:
        search.record(window, point, 11.0)
    found = search.outcome()
    (counted,) = found.probes[0].limits.values()
    assert (counted.beyond, counted.count, counted.unknown) == (5, known.count + 5, 5)
    assert "The per token p99 counts 15 requests of all probes whose time is not known as beyond its limit." in found.reason
    assert found.stopped_because == "unknown_times"
    assert not list(_search_problems(found))


def test_low_rates_get_windows_long_enough_for_the_percentile(searched):
    found, recorded = searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "50ms"}, start_rate=40, max_rate=41, seconds=1, max_probes=3)
    assert found.stopped_because == "never_missed"
    assert recorded[0].recording.end_ns - recorded[0].start_ns == pytest.approx((1 + 200 / 40) * S, rel=0.02)


def test_a_bracket_without_a_fit_is_not_called_a_90_per_cent_interval(searched):
    found, _ = searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "50ms"}, start_rate=130, max_probes=3)
    assert (found.stopped_because, found.curve) == ("max_probes", None)
    low, high = format_rate_per_s(found.low_per_s), format_rate_per_s(found.high_per_s)
    assert found.reason == (
        f"The capacity at p99 of 50ms lies between {low}, which meets it, and {high}, which misses it. "
        "The search reached max_probes, 3, before its interval was within ±5%."
    )
    found, _ = searched(lambda clock: Queue(clock, 5 * MS), slo={"p99": "50ms"}, start_rate=10, seconds=1, max_probes=3)
    assert found.reason.startswith("The SLO, p99 of 50ms, is met at 40.0/s; no rate is known yet that misses it.")


def test_an_slo_that_every_rate_misses_is_reported_with_the_lowest_rate(searched):
    found, _ = searched(lambda clock: Queue(clock, 60 * MS), slo={"p99": "50ms"}, start_rate=4, min_rate=4, max_rate=5)
    assert (found.stopped_because, found.capacity_per_s) == ("never_met", None)
    assert found.reason.endswith("is missed at every rate that was probed, down to 4.00/s.")


def test_a_search_that_has_not_stopped_counts_as_interrupted(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(yaml.safe_dump({"target": {"model": "m"}, "load": {"search": {"slo": {"p99": "50ms"}, "start_rate": 100}}}))
    fresh = CapacitySearch(read_scenario(path, environ={}))
    assert fresh.outcome().stopped_because == "interrupted"
    assert fresh.outcome().capacity_per_s is None


def test_an_estimate_without_an_interval_does_not_state_one():
    curve = FittedCurve(
        limit="p99", centre_per_s=80.0, floor=0.0, intercept=-4.6, slope=9.0, points=6, effective_beyond=40.0, dispersion=5.0
    )
    search = Search(
        slo={"p99": "50ms"}, capacity_per_s=80.0, low_per_s=None, high_per_s=None, confidence=0.9, precision=0.05, reason="",
        stopped_because="interrupted", curve=curve,
    )  # fmt: skip
    assert explain_search(search) == (
        "The capacity at p99 of 50ms is estimated at 80.0/s; its uncertainty is not known yet. The search was interrupted."
    )


def _probe(rate_per_s, *, met, valid=True):
    return SearchProbe(rate_per_s=rate_per_s, stage="refine", limits={}, met=met, overloaded=False, valid=valid, took_s=1.0)


_MET_ABOVE_A_MISS = [_probe(70.0, met=True), _probe(79.0, met=False), _probe(81.0, met=True), _probe(90.0, met=False)]


@pytest.mark.parametrize(
    ("probes", "missed_below_per_s", "contradiction"),
    [
        (_MET_ABOVE_A_MISS, None, "Probes contradict each other: the SLO was missed at 79.0/s and met at 81.0/s."),
        (
            [_probe(80.0, met=True), _probe(80.0, met=False)],
            None,
            "Probes contradict each other: the SLO was missed at 80.0/s and met at 80.0/s.",
        ),
        ([_probe(70.0, met=True), _probe(79.0, met=False, valid=False), _probe(81.0, met=True)], None, ""),
        ([_probe(5.0, met=False), _probe(70.0, met=True), _probe(90.0, met=False)], 5.0, ""),
        ([_probe(70.0, met=True), _probe(90.0, met=False)], None, ""),
    ],
)
def test_probes_that_contradict_each_other_are_named(probes, missed_below_per_s, contradiction):
    curve = FittedCurve(
        limit="p99", centre_per_s=80.0, floor=0.0, intercept=-4.6, slope=9.0, points=6, effective_beyond=40.0, dispersion=5.0
    )
    search = Search(
        slo={"p99": "50ms"}, capacity_per_s=80.0, low_per_s=78.0, high_per_s=82.0, confidence=0.9, precision=0.05, reason="",
        stopped_because="precision", confirmation="passed", curve=curve, probes=tuple(probes), missed_below_per_s=missed_below_per_s,
    )  # fmt: skip
    reason = explain_search(search)
    assert contradiction in reason
    assert ("contradict" in reason) == bool(contradiction)


@pytest.mark.parametrize(
    ("stopped_because", "end"),
    [
        ("max_probes", "The search reached max_probes, 0,"),
        ("budget", "The next probe would have exceeded the search's budget (0.00 ns of 60.0 s used)"),
    ],
)
def test_a_search_without_room_after_a_missed_confirmation_says_that_the_estimate_is_not_confirmed(stopped_because, end):
    search = Search(
        slo={"p99": "50ms"}, capacity_per_s=80.0, low_per_s=78.0, high_per_s=82.0, confidence=0.9, precision=0.05,
        stopped_because=stopped_because, reason="", confirmation="missed", budget_s=60.0,
        curve=FittedCurve(
            limit="p99", centre_per_s=80.0, floor=0.0, intercept=-4.6, slope=9.0, points=6, effective_beyond=40.0, dispersion=5.0
        ),
    )  # fmt: skip
    assert explain_search(search) == (
        "The capacity at p99 of 50ms is 80.0/s, with a 90% interval from 78.0/s to 82.0/s. "
        f"{end} before the lower end was confirmed: the last confirming probe missed the SLO, "
        "so the capacity may be lower than estimated."
    )


class Wrong(Queue):
    """A queue whose answers are all wrong, which only those that are checked show."""

    @staticmethod
    def check(reply):
        if reply.variant or random.Random(reply.started_ns).random() > 0.05:
            return False
        reply.outcome = Outcome.INVALID_OUTPUT
        return True


@pytest.mark.parametrize("slo", [{"p99": "56780us", "error_rate": "10%"}, {"p99": "56780us"}], ids=["with a limit", "without"])
def test_no_rate_meets_an_slo_while_the_sample_of_the_answers_shows_that_all_are_wrong(searched, slo):
    found, _ = searched(lambda clock: Wrong(clock, 5 * MS), slo=slo, start_rate=100, max_probes=4, check=Wrong.check)
    assert [probe.met for probe in found.probes] == [False] * len(found.probes)
    assert found.capacity_per_s is None
    for probe in found.probes if "error_rate" in slo else ():
        assert probe.limits["error_rate"].beyond == probe.limits["error_rate"].count
        assert probe.limits["error_rate"].dispersion == pytest.approx(20, rel=0.5)
