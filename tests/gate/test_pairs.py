import asyncio
import statistics

import pytest

from perfkit.clock import ManualClock
from perfkit.gate.paired_decision import MetricChoice, decide_pairs
from perfkit.gate.pairs import Pair, draw_order, draw_seed, run_pairs
from perfkit.stats.paired import rule_for

RULE, STANDARD = rule_for(4), MetricChoice(is_standard=True)


def run(measure, audience, *, seed=1, kind="pair", done=(), kept=None, settle_with=None):
    """A gate of made-up runs to its end."""
    return asyncio.run(
        run_pairs(
            kind,
            seed=seed,
            done=done,
            measure=measure,
            keep=(kept if kept is not None else []).append,
            decide=settle_with or (lambda pairs: decide_pairs(RULE, pairs, STANDARD)),
            observer=audience,
            clock=ManualClock(),
        )
    )


def until(count):
    """A settlement by number alone."""
    return lambda pairs: len(pairs) if len(pairs) == count else None


def test_both_arms_of_a_pair_get_its_seed_and_another_pair_another(machine, audience):
    measure = machine()
    run(measure, audience, settle_with=until(6))
    seeds = [seed for _, _, seed in measure.asked]
    assert seeds[::2] == seeds[1::2] == [draw_seed(1, number) for number in range(6)]
    assert len(set(seeds)) == 6
    assert len({name for _, name, _ in measure.asked}) == 12


def test_the_order_is_the_coins(machine, audience):
    measure = machine()
    run(measure, audience, settle_with=until(6))
    assert [(first[0], second[0]) for first, second in zip(measure.asked[::2], measure.asked[1::2], strict=True)] == [
        draw_order(1, number) for number in range(6)
    ]
    assert [pair.first for pair in audience.finished] == [draw_order(1, number)[0] for number in range(6)]


def test_the_coins_are_fair_and_know_nothing_of_each_other():
    heads = [[draw_order(seed, number)[0] == "baseline" for number in range(20)] for seed in range(500)]
    assert statistics.mean(map(sum, heads)) == pytest.approx(10, abs=0.4)  # four standard errors
    assert statistics.variance(map(sum, heads)) == pytest.approx(5, abs=1.3)
    same = [gate[number] == gate[number + 1] for gate in heads for number in range(19)]
    assert statistics.mean(same) == pytest.approx(0.5, abs=0.025)


def test_every_pair_is_kept_as_it_ends_and_a_gate_goes_on_behind_them(machine, audience):
    async def interrupt_in_the_third_pairs_second_run(number):
        if number == 5:
            raise asyncio.CancelledError

    whole: list[Pair] = []
    run(machine(noise=0.0), audience, settle_with=until(5), kept=whole)
    kept: list[Pair] = []
    with pytest.raises(asyncio.CancelledError):
        run(machine(before=interrupt_in_the_third_pairs_second_run, noise=0.0), audience, settle_with=until(5), kept=kept)
    assert kept == whole[:2]
    run(machine(noise=0.0), audience, settle_with=until(5), done=list(kept), kept=kept)
    assert kept == whole


def test_a_control_pair_is_the_baseline_twice(machine, audience):
    measure = machine(candidate=9.0, noise=0.0)
    kept: list[Pair] = []
    run(measure, audience, kind="control", settle_with=until(3), kept=kept)
    assert {arm for arm, _, _ in measure.asked} == {"baseline"}
    assert all(pair.baseline == pair.candidate for pair in kept)
    run(measure, audience, settle_with=until(2), done=list(kept), kept=kept)
    assert [(pair.kind, pair.number) for pair in kept] == [*(("control", number) for number in range(3)), ("pair", 3), ("pair", 4)]


def test_who_watches_is_told_how_long_a_pair_takes(audience, machine):
    clock = ManualClock()

    async def five_seconds(_):
        await clock.sleep_until_ns(clock.now_ns() + 5_000_000_000)

    measure = machine(before=five_seconds)
    clock.run(run_pairs("pair", seed=1, done=[], measure=measure, keep=lambda _: None, decide=until(3), observer=audience, clock=clock))
    assert [(usable, seconds) for _, usable, _, seconds in audience.started] == [(0, None), (1, 10.0), (2, 10.0)]


@pytest.mark.parametrize(
    ("faults", "kind", "pairs"),
    [
        ({}, "pass", 12),
        ({"candidate": 1.2}, "regressed", 12),
        ({"candidate": 0.8}, "pass", 12),
        ({"noise": 0.5}, "inconclusive", 20),
        ({"candidate": 1.2, "second": 1.05, "drift": 1.002}, "regressed", 12),
        ({"valid": False}, "invalid", 5),
        ({"failed": 30}, "invalid", 1),
        ({"codes": ["not_steady"]}, "invalid", 3),
        ({"without": ["p99"]}, "invalid", 1),
    ],
)
def test_a_gate_ends_with_its_verdict_as_soon_as_it_is_plain(machine, audience, faults, kind, pairs):
    assert run(machine(**faults), audience).kind == kind
    assert len(audience.finished) == pairs


@pytest.mark.parametrize("faults", [{"second": 1.3}, {"drift": 1.05}, {"second": 0.8, "drift": 1.02}])
def test_neither_position_nor_drift_makes_an_alarm(machine, audience, faults):
    verdicts = [run(machine(seed=seed, **faults), audience, seed=seed).kind for seed in range(30)]
    # each alarms with a chance of 1 % at most, so that more than two in thirty come once in some 300 sets of seeds
    assert verdicts.count("regressed") <= 2


@pytest.mark.parametrize("faults", [{"second": 1.3}, {"drift": 1.05}])
def test_without_the_coins_they_would(machine, audience, faults, monkeypatch):
    monkeypatch.setattr("perfkit.gate.pairs.draw_order", lambda *_: ("baseline", "candidate"))
    assert run(machine(**faults), audience).kind == "regressed"
