import asyncio
import dataclasses
import statistics

import pytest

from perfkit.clock import ManualClock
from perfkit.errors import UsageError
from perfkit.gate.arm import parse_arm
from perfkit.gate.metrics import MetricChoice
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import decide_pairs
from perfkit.gate.paired_gate import GateRequest
from perfkit.gate.pairs import ArmRun, Pair, blocking_warning, pair_seed, random_order, run_pairs, run_point
from perfkit.result.model import Point
from perfkit.scenario.file import read_scenario
from perfkit.units import NS_PER_S
from tests import stored_results
from tests.cli.gate_scenario import write_gate_scenario
from tests.simulated_pairs import RecordingObserver, SimulatedMachine

RULE, STANDARD = rule_for(4), MetricChoice(is_standard=True)


@pytest.fixture
def observer():
    return RecordingObserver()


def run(run_arm, observer, *, seed=1, kind="pair", earlier=(), stored=None, decide=lambda pairs: decide_pairs(RULE, pairs, STANDARD)):
    """A gate of simulated runs, to its decision."""
    store = (stored if stored is not None else []).append
    return asyncio.run(
        run_pairs(
            kind, seed=seed, earlier=earlier, run_arm=run_arm, store=store, decide=decide, observer=observer, clock=ManualClock(),
        )
    )  # fmt: skip


def without_instants(pairs):
    return [pair.model_copy(update={"ended_at": ""}) for pair in pairs]


def after(count):
    """A decision by the number of pairs alone."""
    return lambda pairs: len(pairs) if len(pairs) == count else None


def test_the_arms_are_measured_in_random_order_with_the_same_seed_and_each_pair_with_another(observer):
    machine = SimulatedMachine()
    run(machine, observer, decide=after(6))
    seeds = [seed for _, _, seed in machine.calls]
    assert seeds[::2] == seeds[1::2] == [pair_seed(1, number) for number in range(6)]
    assert len(set(seeds)) == 6
    assert len({name for _, name, _ in machine.calls}) == 12
    orders = [random_order(1, number) for number in range(6)]
    assert [(first[0], second[0]) for first, second in zip(machine.calls[::2], machine.calls[1::2], strict=True)] == orders
    assert [pair.first for pair in observer.finished] == [first for first, _ in orders]


def test_random_orders_are_fair_and_independent():
    heads = [[random_order(seed, number)[0] == "baseline" for number in range(20)] for seed in range(500)]
    assert statistics.mean(map(sum, heads)) == pytest.approx(10, abs=0.4)  # four standard errors
    assert statistics.variance(map(sum, heads)) == pytest.approx(5, abs=1.3)
    same = [gate[number] == gate[number + 1] for gate in heads for number in range(19)]
    assert statistics.mean(same) == pytest.approx(0.5, abs=0.025)


def test_every_pair_is_stored_as_it_ends_and_an_interrupted_gate_continues_after_them(observer):
    async def interrupt_the_second_run_of_the_third_pair(number):
        if number == 5:
            raise asyncio.CancelledError

    whole: list[Pair] = []
    run(SimulatedMachine(noise=0.0), observer, decide=after(5), stored=whole)
    stored: list[Pair] = []
    interrupted = SimulatedMachine(before=interrupt_the_second_run_of_the_third_pair, noise=0.0)
    with pytest.raises(asyncio.CancelledError):
        run(interrupted, observer, decide=after(5), stored=stored)
    assert without_instants(stored) == without_instants(whole[:2])
    run(SimulatedMachine(noise=0.0), observer, decide=after(5), earlier=list(stored), stored=stored)
    assert without_instants(stored) == without_instants(whole)


def test_a_control_pair_measures_the_baseline_twice(observer):
    machine = SimulatedMachine(candidate=9.0, noise=0.0)
    stored: list[Pair] = []
    run(machine, observer, kind="control", decide=after(3), stored=stored)
    assert {arm for arm, _, _ in machine.calls} == {"baseline"}
    assert all(pair.baseline == pair.candidate for pair in stored)
    run(machine, observer, decide=after(2), earlier=list(stored), stored=stored)
    assert [(pair.kind, pair.number) for pair in stored] == [*(("control", number) for number in range(3)), ("pair", 3), ("pair", 4)]


def test_the_observer_gets_the_mean_length_of_a_pair(observer):
    clock = ManualClock()

    async def five_seconds(_):
        await clock.sleep_until_ns(clock.now_ns() + 5 * NS_PER_S)

    clock.run(
        run_pairs(
            "pair", seed=1, earlier=[], run_arm=SimulatedMachine(before=five_seconds), store=lambda _: None, decide=after(3),
            observer=observer, clock=clock,
        )
    )  # fmt: skip
    assert [(usable, seconds) for _, usable, _, seconds in observer.started] == [(0, None), (1, 10.0), (2, 10.0)]


@pytest.mark.parametrize(
    ("faults", "kind", "pairs"),
    [
        ({}, "pass", 7),
        ({"candidate": 1.2}, "regressed", 5),
        ({"candidate": 1.04}, "regressed", 12),
        ({"candidate": 0.8}, "pass", 7),
        ({"noise": 0.5}, "inconclusive", 20),
        ({"candidate": 1.2, "second": 1.05, "drift": 1.002}, "regressed", 9),
        ({"valid": False}, "invalid", 5),
        ({"failed": 30}, "invalid", 1),
        ({"codes": ["not_steady"]}, "invalid", 3),
    ],
)
def test_a_gate_ends_at_the_first_look_that_decides(observer, faults, kind, pairs):
    assert run(SimulatedMachine(**faults), observer).kind == kind
    assert len(observer.finished) == pairs


@pytest.mark.parametrize("faults", [{"second": 1.3}, {"drift": 1.05}, {"second": 0.8, "drift": 1.02}])
def test_neither_position_nor_drift_causes_false_alarms(observer, faults):
    kinds = [run(SimulatedMachine(seed=seed, **faults), observer, seed=seed).kind for seed in range(8)]
    # at most 1 % each, so that more than one in eight occurs in one of some 370 sets of seeds
    assert kinds.count("regressed") <= 1


@pytest.mark.parametrize("faults", [{"second": 1.3}, {"drift": 1.05}])
def test_position_and_drift_would_cause_false_alarms_in_a_fixed_order(observer, faults, monkeypatch):
    monkeypatch.setattr("perfkit.gate.pairs.random_order", lambda *_: ("baseline", "candidate"))
    assert run(SimulatedMachine(**faults), observer).kind == "regressed"


def request_of(folder, fleet):
    loaded = read_scenario(write_gate_scenario(folder, "throughput", fleet=fleet))
    baseline, candidate = (parse_arm("", url, loaded.scenario) for url in ("http://127.0.0.1:1", "http://127.0.0.1:2"))
    return GateRequest(loaded, baseline, candidate)


def test_machines_that_stay_need_a_port_that_stays(tmp_path):
    with pytest.raises(UsageError, match=r"fleet\.listen: 127\.0\.0\.1:0: port 0 .* give a port"):
        request_of(tmp_path, {"kind": "worker", "workers": 2, "listen": "127.0.0.1:0"})
    assert request_of(tmp_path, {"kind": "worker", "workers": 2, "listen": "127.0.0.1:8790"}).needs_kept_machines


def test_the_first_gate_of_a_bisection_has_full_looks_alone(tmp_path):
    """Its pairs have to tell the size of the change."""
    request = request_of(tmp_path, None)
    assert request.rule().all_looks[0] == 5
    assert dataclasses.replace(request, looks_early=False).rule().all_looks == (12, 16, 20)


def test_dask_starts_machines_for_each_run_at_any_port(tmp_path):
    assert not request_of(tmp_path, {"kind": "dask", "scheduler": "tcp://127.0.0.1:8786", "listen": "127.0.0.1:0"}).needs_kept_machines


@pytest.mark.parametrize(
    ("codes", "in_trial", "in_pair", "is_disturbed"),
    [
        (["cold"], "cold", None, False),  # a trial is repeated; a pair counts
        (["cold", "throttled"], "cold", "throttled", False),
        (["late_starts"], None, None, True),
        (["cold", "late_starts"], "cold", None, True),
        ([], "invalid", "invalid", False),
    ],
)
def test_a_run_that_is_not_valid_counts_in_a_pair_unless_the_load_generator_could_not_keep_up(codes, in_trial, in_pair, is_disturbed):
    point = Point.model_validate(stored_results.point(valid=False, warnings=[{"code": code, "message": "Said."} for code in codes]))
    run, blocked = ArmRun(points=(run_point(point),)), blocking_warning(point)
    assert (blocked and blocked.code, run.invalid and run.invalid.code, run.is_disturbed) == (in_trial, in_pair, is_disturbed)
