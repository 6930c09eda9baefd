"""The watchdog: steps for the worse, accepted ones, silence, gaps, and `perfkit history check` from outside."""

import json

import numpy as np
import pytest

from perfkit.cli.main import main
from perfkit.clock import parse_instant
from perfkit.history.accepted import write_accepted
from perfkit.history.check import Recent, check_history, current_series, find_gaps, is_judged
from perfkit.history.file import open_history
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Trend, find_steps, with_acceptances
from tests.history.test_accepted import change
from tests.history.test_file import record

MAIN = Series("smoke", branch="main", machine="host-a")
NOW = parse_instant("2026-02-01T00:00:00.000+00:00")
DAY_S = 86_400.0


def at(day):
    return f"2026-01-{day:02}T12:00:00.000+00:00"


def entries(count, first=1):
    return tuple(HistoryEntry(at(first + n), f"{first + n:040d}", "host-a", {}, f"r{first + n}") for n in range(count))


def trend(levels, *, unit="ns", metric="p99", series=MAIN, seed=1):
    """One result a day from the first of January; each level is a count and a value."""
    values = [value for count, value in levels for _ in range(count)]
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.01, len(values)))
    scaled = tuple(1e6 * value * float(factor) for value, factor in zip(values, noise, strict=True))
    return Trend(series, "http, concurrency 4", metric, unit, entries(len(values)), scaled)


def checked(*trends, accepted=(), now=NOW, max_age_s=None, recent=Recent(), results=None):  # noqa: B008 - a frozen value
    with_steps = [(one, with_acceptances(one, find_steps(one), accepted)) for one in trends]
    found = check_history(
        with_steps, results or {one.series: one.entries for one in trends}, trends, now=now, max_age_s=max_age_s, recent=recent
    )
    return [(finding.kind, finding.is_alarm) for finding in found.findings], found


@pytest.mark.parametrize(
    ("levels", "unit", "expected"),
    [
        ([(25, 1.0)], "ns", []),
        ([(15, 1.0), (10, 1.2)], "ns", [("worse", True)]),
        ([(15, 1.0), (10, 1.2)], "per_s", [("better", False)]),
        ([(15, 1.2), (10, 1.0)], "per_s", [("worse", True)]),
        ([(15, 1.0), (10, 0.8)], "ns", [("better", False)]),
        ([(12, 1.0), (8, 1.5), (5, 1.0)], "ns", [("better", False)]),  # undone: the level is what it was
        ([(10, 1.0), (8, 1.3), (8, 1.2)], "ns", [("worse", True), ("better", False)]),
    ],
)
def test_the_newest_level_is_compared_with_that_before_each_step(levels, unit, expected):
    assert checked(trend(levels, unit=unit))[0] == expected


@pytest.mark.parametrize(("together", "steps"), [(1, 1), (2, 1), (12, 0)])
def test_a_step_that_is_significant_by_itself_may_not_be_so_among_many(together, steps):
    # seven values, and the same 9 % above them, with noise of 2 %: p is about 0.3 %
    noise = [(5 * n % 7) / 100 for n in range(7)]
    one = Trend(MAIN, "http, concurrency 4", "p99", "ns", entries(14), (*(1.0 + n for n in noise), *(1.09 + n for n in noise)))
    assert len(find_steps(one, trends=together)) == steps


def test_a_check_takes_as_many_simulations_as_its_figures_need():
    (step,) = find_steps(trend([(15, 1.0), (10, 1.2)]), trends=40)
    assert step.p == pytest.approx(0.01 / 40, rel=1e-3)
    assert step.p < 0.01 / 40


def test_the_cpu_time_is_judged_only_by_name():
    assert not is_judged(trend([(12, 1.0)], metric="cpu_time"))
    assert is_judged(trend([(12, 1.0)], metric="cpu_time"), ("p99", "cpu_time"))


def test_a_step_is_told_with_its_commits_and_only_while_it_is_recent():
    worse = trend([(15, 1.0), (10, 1.2)])
    kinds, found = checked(worse)
    (finding,) = found.findings
    assert (kinds, found.alarms, found.series) == ([("worse", True)], 1, 1)
    assert (finding.metric, finding.load_point, finding.branch, finding.since) == ("p99", "http, concurrency 4", "main", at(16))
    assert finding.sentence.startswith("smoke: p99, http, concurrency 4 (main, host-a): ")
    assert f"% higher since {at(16)}, {0:010d} (after {0:010d}), p 0.001" in finding.sentence
    for recent, expected in ((Recent(10), 1), (Recent(9), 0), (Recent(None, 16 * DAY_S), 1), (Recent(None, 15 * DAY_S), 0)):
        assert checked(worse, recent=recent)[1].alarms == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "accepted"),  # by the commit of the first result after the step
        ({"commit": f"{14:040d}"}, "accepted"),  # a little before it
        ({"commit": f"{2:040d}"}, "worse"),  # another change
        ({"commit": "of a branch", "accepted": "2026-01-12"}, "accepted"),  # merged some days after it was accepted
        ({"commit": "of a branch", "accepted": "2026-01-02"}, "worse"),
        ({"commit": "", "accepted": "2026-01-25"}, "worse"),  # accepted for something later
        ({"slowdown": 0.1}, "worse"),  # less than the step
        ({"metric": "p50"}, "worse"),
        ({"scenario": "other"}, "worse"),
        ({"load_point": "http, concurrency 8"}, "worse"),
        ({"load_point": "http, saturation"}, "accepted"),  # of a gate with the standard profile
        ({"load_point": "grpc, saturation"}, "worse"),
        ({"expires": "2026-01-31"}, "worse"),  # expired yesterday
    ],
)
def test_an_accepted_change_explains_a_step_of_its_size_near_its_commit_or_day(facts, expected):
    known = {"scenario": "smoke", "load_point": "http, concurrency 4", "commit": f"{16:040d}", "slowdown": 0.25, "accepted": "2026-01-10"}
    accepted = change(**{**known, **facts})
    kinds, found = checked(trend([(15, 1.0), (10, 1.2)]), accepted=[accepted])
    assert kinds == [(expected, expected == "worse")]
    said = found.findings[0].sentence
    assert ("accepted until 2027-01-01: new tokenizer" in said) is (expected == "accepted")
    assert ("its acceptance expired on 2026-01-31" in said) is ("expires" in facts)


def test_what_was_accepted_before_the_first_result_explains_no_step():
    accepted = change(scenario="smoke", load_point="http, concurrency 4", commit="of a branch", slowdown=0.25, accepted="2025-12-31")
    assert checked(trend([(8, 1.0), (10, 1.2)]), accepted=[accepted])[0] == [("worse", True)]


def test_an_acceptance_explains_one_step_and_not_the_next():
    accepted = change(scenario="smoke", load_point="http, concurrency 4", commit=f"{11:040d}", slowdown=0.25, accepted="2026-01-10")
    kinds, _ = checked(trend([(10, 1.0), (8, 1.2), (8, 1.44)]), accepted=[accepted])
    assert kinds == [("worse", True), ("accepted", False)]
    other = change(scenario="smoke", load_point="http, saturation", commit=f"{11:040d}", slowdown=0.25, accepted="2026-01-10")
    kinds, _ = checked(trend([(10, 1.0), (8, 1.2), (8, 1.44)]), accepted=[accepted, other])
    assert kinds == [("accepted", False), ("accepted", False)]


def test_silence_is_an_alarm_that_names_the_series_and_its_last_result():
    steady = trend([(25, 1.0)])
    kinds, found = checked(steady, max_age_s=2 * DAY_S)
    assert kinds == [("silent", True)]
    said = found.findings[0].sentence
    assert said.startswith(f"smoke (main, host-a): no new result since {at(25)} (6.5 days ago, commit {0:010d}, r25)")
    assert said.endswith("the longest silence allowed is 2.0 days")
    assert checked(steady, max_age_s=7 * DAY_S)[0] == []
    assert checked(steady)[0] == []
    of_another_metric = check_history([], {MAIN: steady.entries}, [steady], now=NOW, max_age_s=7 * DAY_S, recent=Recent())
    assert of_another_metric.findings == ()
    later = {MAIN: (*steady.entries, *entries(3, 28))}  # nothing valid in them
    assert "3 later ones have no valid figures" in checked(steady, max_age_s=2 * DAY_S, results=later)[1].findings[0].sentence
    none = checked(max_age_s=2 * DAY_S, results={MAIN: entries(3, 28)})[1].findings[0].sentence
    assert f"none has valid figures; the newest is of {at(30)}" in none


def test_the_noise_of_a_canary_is_told_as_a_noisier_machine():
    canary = Series("smoke", "canary", "main", "host-a")
    assert not is_judged(trend([(12, 0.02)], metric="mde_p99", series=canary), ("mde_p99",))
    assert is_judged(trend([(12, 0.02)], metric="noise_p99", series=canary))
    kinds, found = checked(trend([(12, 0.02), (12, 0.05)], unit="share", metric="noise_p99", series=canary), max_age_s=DAY_S)
    assert kinds == [("worse", True), ("silent", True)]
    assert "the machine got noisier: 14" in found.findings[0].sentence
    assert "no new canary since" in found.findings[1].sentence


def test_replaced_series_and_branches_of_others_do_not_go_on():
    def series(**changes):
        return Series(**{"scenario": "smoke", "branch": "main", "machine": "host-a", **changes})

    old, new, beside = series(machine="old"), series(), series(machine="beside")
    feature, unknown = series(branch="feature"), series(branch="", machine="old")
    results = {old: entries(5), new: entries(10, 8), beside: entries(10, 6), feature: entries(3, 9), unknown: entries(2)}
    assert set(current_series(results, {"feature": "main"}, None)) == {new, beside}
    assert set(current_series(results, {}, None)) == {new, beside, feature}
    assert current_series({feature: results[feature]}, {"feature": "main"}, "feature") == [feature]


@pytest.fixture
def history(tmp_path, monkeypatch):
    """A history with a step that nobody accepted, twelve results before its end."""
    monkeypatch.chdir(tmp_path)
    with open_history(tmp_path / "perfkit-history.sqlite", create=True) as opened:
        opened.add([record(index, 1.0 if index < 12 else 1.2) for index in range(24)])
    return tmp_path


def run(capsys, *options):
    code = main(["history", "check", *options])
    return code, capsys.readouterr().out


@pytest.mark.usefixtures("history")
def test_the_exit_code_tells_an_alarm(capsys):
    code, said = run(capsys, "--metric", "p50")
    assert code == 1
    assert said.startswith("alarm: smoke: p50, http, concurrency 4 (main, host-a): 2")
    assert said.endswith("perfkit-history.sqlite: 1 alarm; 1 figure of 1 series checked\n")
    assert run(capsys, "--metric", "p99") == (0, "perfkit-history.sqlite: all is well; 1 figure of 1 series checked\n")
    code, said = run(capsys, "--metric", "p99", "--max-age", "2d")
    assert (code, "no new result since 2026-01-24T00:00:00.000+00:00 (" in said) == (1, True)
    assert run(capsys, "--metric", "p99", "--max-age", "100000d")[0] == 0
    assert run(capsys, "--recent", "5")[0] == 0
    code, said = run(capsys, "--metric", "p50", "--format", "json")
    assert (code, json.loads(said)["alarms"]) == (1, 1)


def test_an_accepted_step_is_told_by_check_steps_and_plot(history, capsys):
    accepted = change("p50", "http, concurrency 4", 0.25, scenario="smoke", commit=f"{12:040d}", expires="2999-01-01")
    write_accepted(history / "perfkit-accepted.yaml", [accepted])
    code, said = run(capsys, "--metric", "p50")
    assert code == 0
    assert said.startswith("note: smoke: p50, ")
    assert "accepted until 2999-01-01: new tokenizer" in said
    assert main(["history", "steps", "--metric", "p50"]) == 0
    assert "    accepted until 2999-01-01: new tokenizer\n" in capsys.readouterr().out
    assert main(["history", "plot", "--metric", "p50", "--out", "p50.svg"]) == 0
    assert "% accepted" in (history / "p50.svg").read_text()
    (history / "elsewhere.yaml").write_text("schema: perfkit.accepted/1\naccepted: []\n")
    assert run(capsys, "--metric", "p50", "--accepted", "elsewhere.yaml")[0] == 1


@pytest.mark.usefixtures("history")
def test_wrong_options_are_usage_errors(capsys):
    for options in (["--max-age", "soon"], ["--recent", "0"], ["--max-age", "0d"]):
        with pytest.raises(SystemExit) as ended:
            run(capsys, *options)
        assert ended.value.code == 2
    assert "expected a time such as 2d or 36h, found '0d'" in capsys.readouterr().err
    assert main(["history", "check", "--scenario", "other"]) == 2
    assert "no series match; the history has smoke (main, host-a)" in capsys.readouterr().err


SERIES = Series("smoke", branch="main", machine="host-a")


def series_entries(days):
    return [HistoryEntry(f"2026-01-{day:02}T00:00:00.000+00:00", "", "host-a", {}, "r") for day in days]


def gaps(days, *, invalid=(), now=1, forked=()):
    listed = series_entries(days)
    valid = [entry for day, entry in zip(days, listed, strict=True) if day not in invalid]
    trend = Trend(SERIES, "http, concurrency 4", "p50", "ns", tuple(valid), (1.0,) * len(valid))
    found = find_gaps({SERIES: listed}, [trend], parse_instant(f"2026-02-{now:02}T00:00:00+00:00"), forked)
    return [(gap.after[8:10], gap.before and gap.before[8:10], gap.missing) for gap in found]


def test_a_gap_in_a_nightly_series_says_how_many_are_missing():
    nightly = [*range(1, 11), *range(14, 20), *range(21, 32)]
    assert gaps(nightly) == [("10", "14", 3), ("19", "21", 1)]
    assert gaps(range(1, 32)) == []


def test_the_silence_since_the_last_result_is_a_gap_without_an_end():
    assert gaps(range(1, 30)) == [("29", None, 3)]
    assert gaps(range(1, 32), now=2) == [("31", None, 2)]
    assert gaps([*range(1, 11), *range(14, 30)], forked=("main",)) == [("10", "14", 3)]  # such a branch may end


def test_results_that_come_irregularly_have_no_gaps():
    assert gaps([1, 2, 9, 10, 20, 21, 31]) == []
    assert gaps([1, 2, 31]) == []


def test_a_result_without_valid_figures_is_named():
    assert gaps(range(1, 32), invalid=(7,)) == [("07", None, None)]
