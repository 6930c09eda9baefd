"""What a paired gate's verdict says to do next."""

import argparse
import math
import shlex
import statistics

import pytest

from perfkit.cli.bisect import configure as configure_bisect
from perfkit.cli.gate import configure
from perfkit.figures.resources import BusyProcess, OtherProcesses
from perfkit.gate.metrics import Metric, PairedValues
from perfkit.gate.next_steps import next_steps, stored_next_steps
from perfkit.gate.paired import rule_for
from perfkit.gate.paired_decision import compare_pairs
from perfkit.gate.undecided import GateFacts, changed_command, find_longer_gate, needed_pairs
from perfkit.gate.verdict import Fault, GeneratorLoad, MetricNoise, Timing, Verdict

POINT = "http, 70/s poisson"
P99, ERRORS = Metric("p99", POINT, "ns", 0.10), Metric("error_rate", "all load points", "share", 0.001)
WORDS = ("perfkit", "gate", "simple", "--baseline", "cmd:a --port {port}", "--candidate", "cmd:b --port {port}", "--out", "old")
FACTS = GateFacts(WORDS, metrics=("throughput", "p50", "p99"), folder="reports/x")
TIMING = {"window_s": 4.0, "window_chosen_by": "trial", "run_overhead_s": 5.0, "load_points": 2}


def compared(deviation, *, shift=0.0, count=20, metric=P99):
    """A comparison of pairs whose differences are the quantiles of a normal distribution."""
    normal = statistics.NormalDist(shift, deviation)
    differences = [normal.inv_cdf((number + 0.5) / count) for number in range(count)]
    (one,) = compare_pairs(
        rule_for(1, max(count, 20)), [PairedValues(metric, (1e7,) * count, tuple(1e7 * math.exp(value) for value in differences))]
    )
    return one


def verdict(kind, *comparisons, noise=(), **changes):
    known = {
        "kind": kind, "reasons": ("So.",), "mode": "paired", "scenario": "x", "baseline": "cmd:a", "candidate": "cmd:b", "false_alarm_rate": 0.01,
        "pairs": 20, "looks": (12, 16, 20), "comparisons": comparisons, "timing": Timing.model_validate({**TIMING, "noise": noise}),
        "started_at": "2026-01-02T03:04:05.678+00:00",
    }  # fmt: skip
    return Verdict.model_validate({**known, **changes})


def noise(between, within_window):
    """The noise of p99, its part within runs that of a window of 4 s."""
    return (MetricNoise(metric="p99", load_point=POINT, between=between, within_one_second=within_window * 2),)


def parsed(command):
    """A command as `perfkit gate` reads it."""
    parser = argparse.ArgumentParser()
    configure(parser)
    perfkit, gate, *words = shlex.split(command)
    assert (perfkit, gate) == ("perfkit", "gate")
    options = parser.parse_args(words)
    assert (options.baseline, options.candidate, options.out) == ("cmd:a --port {port}", "cmd:b --port {port}", None)
    return options


@pytest.mark.parametrize(("deviation", "shift"), [(0.25, 0.0), (0.3, 0.0), (0.2, 0.03), (0.35, -0.05)])
def test_so_many_pairs_bring_the_interval_within_the_margin(deviation, shift):
    one = compared(deviation, shift=shift)
    assert one.verdict == "inconclusive"
    need = needed_pairs(one)
    assert need is not None
    later = compared(deviation, shift=max(shift, 0.0), count=math.ceil(need.pairs))
    assert later.ruled_out_slowdown == pytest.approx(0.10, abs=0.015)


def test_a_slower_candidate_needs_as_many_pairs_as_detect_it():
    one = compared(0.2, shift=0.12)
    assert one.verdict == "inconclusive"
    need = needed_pairs(one)
    assert need is not None
    later = compared(0.2, shift=0.12, count=math.ceil(need.pairs))
    assert later.minimum_detectable_effect == pytest.approx(math.expm1(0.12), abs=0.02)


def test_an_unknown_interval_needs_an_unknown_number():
    assert needed_pairs(compared(0.2, count=3)) is None


def test_noise_within_runs_is_answered_with_longer_windows_and_noise_between_restarts_with_more_pairs():
    pair_deviation = 0.3
    one = compared(pair_deviation)
    within = verdict("inconclusive", one, noise=noise(0.02, pair_deviation / math.sqrt(2)))
    between = verdict("inconclusive", one, noise=noise(pair_deviation / math.sqrt(2), 0.01))
    need = needed_pairs(one)
    assert need is not None
    longer, more = (find_longer_gate(need, each, may_lengthen=True) for each in (within, between))
    assert (longer.noisiest, more.noisiest) == ("within", "restarts")
    assert longer.window_factor > 1
    assert longer.pairs < more.pairs
    assert (more.window_factor, more.pairs) == (1.0, math.ceil(need.pairs))
    # two runs a pair, each with an overhead of 5 s and two windows
    assert more.seconds == pytest.approx(2 * more.pairs * (5 + 2 * 4))
    assert longer.seconds == pytest.approx(2 * longer.pairs * (5 + 2 * 4 * longer.window_factor))
    assert (longer.seconds or 0.0) < (more.seconds or 0.0)
    assert find_longer_gate(need, within, may_lengthen=False).window_factor == 1.0


def test_an_undecided_gate_names_the_noisiest_part_and_the_command_that_would_decide():
    steps = next_steps(verdict("inconclusive", compared(0.2), noise=noise(0.14, 0.01)), FACTS)
    assert steps[0].text.startswith("Most noise of p99 is between restarts: ")
    pairs = parsed(steps[0].command).pairs
    assert f"With {pairs} pairs, about {math.ceil(pairs * 26 / 60)}m, the interval of p99 would be within its margin" in steps[0].text
    assert parsed(steps[1].command).time > 0
    assert parsed(steps[1].command).pairs is None

    longer = next_steps(verdict("inconclusive", compared(0.3), noise=noise(0.02, 0.2)), FACTS)[0]
    assert longer.text.startswith("Most noise of p99 is within runs: 20.0% in windows of 4 s")
    (setting,) = parsed(longer.command).settings
    assert setting.startswith("measure.duration=")
    assert f"windows of {setting.partition('=')[2]}" in longer.text


def test_a_gate_that_no_practical_number_of_pairs_decides_asks_for_a_quieter_machine():
    quieter, without = next_steps(verdict("inconclusive", compared(0.6)), FACTS)
    assert "Make the machine quieter first" in quieter.text
    assert parsed(without.command).settings == ["gate.metrics=[throughput, p50]"]


def test_an_undecided_gate_of_a_disturbed_machine_names_who_disturbed_it():
    hidden = compared(0.2).model_copy(update={"generator_share": 0.5})
    load = GeneratorLoad(cpu_share=0.03, machine_cpu_share=0.99, others=OtherProcesses(1.9, (BusyProcess("cc1plus", 77, 0.95),)))
    first = next_steps(verdict("inconclusive", hidden, disturbed_pairs=7, generator=load), FACTS)[0]
    assert first.text.startswith("The machine is the noisiest part: other processes disturbed the load generator in 7 of 20 pairs")
    assert "cc1plus (pid 77) 95% of a CPU" in first.text


def test_what_others_hide_without_a_bound_is_answered_with_a_quieter_machine_alone():
    open_end = compared(0.2).model_copy(update={"generator_share": 1.0, "interval": (0.9, None)})
    (step,) = next_steps(verdict("inconclusive", compared(0.3), open_end, disturbed_pairs=20), FACTS)
    assert step.text.startswith("The machine is the noisiest part")
    assert parsed(step.command).settings == []


def test_a_metric_is_left_out_only_if_the_others_are_decided():
    steps = next_steps(verdict("inconclusive", compared(0.6), compared(0.3)), FACTS)
    assert [step.command for step in steps] == ["perfkit doctor"]


def invalid(code, facts=FACTS, **fault):
    return next_steps(verdict("invalid", fault=Fault(code=code, reason="So.", **fault)), facts)


def test_a_generator_that_others_disturbed_was_not_too_slow():
    load = GeneratorLoad(cpu_share=0.02, machine_cpu_share=0.99, others=OtherProcesses(1.94, (BusyProcess("cc1plus", 77, 0.95),)))
    again, doctor = invalid("generator", warning="behind_schedule", generator=load)
    assert again.text.startswith("The load generator was not too slow: other processes took the CPU.")
    assert (
        "used 1.9 CPUs: cc1plus (pid 77) 95% of a CPU; the load generator itself kept 2% of a core busy, the machine's CPUs 99%."
        in again.text
    )
    assert parsed(again.command).settings == []
    assert doctor.command == "perfkit doctor"


def test_a_generator_beside_a_server_that_takes_all_cpus_needs_cpus_of_its_own():
    load = GeneratorLoad(cpu_share=0.2, machine_cpu_share=0.98, others=OtherProcesses(0.02))
    assert "the server took the CPU" in invalid("trial", warning="behind_schedule", generator=load)[0].text


def test_a_generator_that_was_too_slow_gets_processes_or_a_load_that_a_profile_can_be_given():
    load = GeneratorLoad(cpu_share=0.97, machine_cpu_share=0.6, others=OtherProcesses(0.0))
    facts = GateFacts(WORDS, is_standard=True, concurrency=64, workers=2)
    workers, lower = invalid("generator", facts, warning="generator_bound", generator=load)
    assert parsed(workers.command).settings == ["measure.workers=4"]
    assert parsed(lower.command).settings == ["load={closed: {concurrency: [32]}}"]
    assert "load.open.rate" in invalid("generator", warning="generator_bound", generator=load)[1].text


@pytest.mark.parametrize("warning", ["throttled", "suspended", "worker_lost", "file_limit", ""])
def test_each_other_cause_of_an_invalid_generator_has_an_answer(warning):
    (step,) = invalid("generator", warning=warning)
    assert step.text
    assert parsed(step.command).settings == []


def test_a_missing_metric_is_measured_longer_or_left_out():
    longer, without = invalid("missing_metric", metric="p99")
    assert parsed(longer.command).settings == ["measure.duration=12s"]
    assert parsed(without.command).settings == ["gate.metrics=[throughput, p50]"]


def test_failed_requests_are_shown_in_the_report_of_a_run():
    assert invalid("failed_requests", run="007-candidate-0")[0].command == "perfkit report reports/x/runs/007-candidate-0"


def test_a_server_that_is_not_steady_is_warmed_up_longer():
    facts = GateFacts(WORDS, warmup_ns=5_000_000_000)
    assert parsed(invalid("not_steady", facts)[0].command).settings == ["measure.warmup=15s"]


@pytest.mark.parametrize("code", ["trial", "not_steady"])
def test_a_target_that_was_cold_is_warmed_up_longer(code):
    load = GeneratorLoad(cpu_share=0.02, machine_cpu_share=0.99, others=OtherProcesses(1.94))
    (step,) = invalid(code, GateFacts(WORDS, warmup_ns=1_000_000_000), warning="cold", generator=load)
    assert "a longer measure.warmup" in step.text
    assert step.command == ""  # the reason says for how long


def test_a_regression_can_be_bisected_if_commands_start_the_servers():
    facts = GateFacts(WORDS, scenario="my gate.yaml", starts_servers=True, folder="reports/x")
    texts = [step.command for step in next_steps(verdict("regressed", compared(0.01, shift=0.3)), facts)]
    (command,) = [text for text in texts if "bisect" in text]
    parser = argparse.ArgumentParser()
    configure_bisect(parser)
    assert parser.parse_args(shlex.split(command.replace("'my gate.yaml'", "simple"))[2:]).serve == "./server --port {port}"


@pytest.mark.parametrize(("kind", "commands"), [("pass", 0), ("regressed", 2), ("inconclusive", 2), ("incomparable", 2), ("invalid", 1)])
def test_stored_results_have_next_steps_of_their_own(kind, commands):
    steps = stored_next_steps(verdict(kind, compared(0.2), mode="stored"), "reports/x")
    assert sum(bool(step.command) for step in steps) == commands
    assert bool(steps) == (kind != "pass")


def test_a_regression_can_be_accepted():
    assert next_steps(verdict("regressed", compared(0.01, shift=0.3)), FACTS)[-1].command.startswith(
        "perfkit gate accept reports/x --reason "
    )


def test_a_pass_has_a_hint_only_if_a_slowdown_of_the_margin_might_be_missed():
    precise, coarse = compared(0.01), compared(0.09)
    assert (precise.verdict, coarse.verdict) == ("pass", "pass")
    assert next_steps(verdict("pass", precise), FACTS) == ()
    assert coarse.minimum_detectable_effect > 0.10
    (hint,) = next_steps(verdict("pass", coarse), FACTS)
    pairs = parsed(hint.command).pairs
    assert compared(0.09, count=pairs).minimum_detectable_effect == pytest.approx(0.10, abs=0.012)


def test_arms_that_differ_must_get_the_same_requests():
    (step,) = next_steps(verdict("incomparable"), FACTS)
    assert "the same requests" in step.text


GIVEN = ["perfkit", "gate", "my gate.yaml", "--baseline", "cmd:a --port {port}", "--candidate", "cmd:b", "--pairs", "20", "--time=6m", "--set", "load.closed.concurrency=[4]",
         "--set=measure.duration=2s", "--out", "reports/x", "--junit", "j.xml"]  # fmt: skip
TARGETS = ["perfkit", "gate", "my gate.yaml", "--baseline", "cmd:a --port {port}", "--candidate", "cmd:b"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            [*TARGETS, "--pairs", "20", "--time=6m", "--set", "load.closed.concurrency=[4]", "--set", "measure.duration=2s", "--junit", "j.xml"],
        ),
        (
            {"options": {"--pairs": "40"}, "settings": {"measure.duration": "10s"}, "without": ["--time"]},
            [*TARGETS, "--set", "load.closed.concurrency=[4]", "--junit", "j.xml", "--pairs", "40", "--set", "measure.duration=10s"],
        ),
        (
            {"options": {"--time": "20m"}, "without": ["--pairs"]},
            [*TARGETS, "--set", "load.closed.concurrency=[4]", "--set", "measure.duration=2s", "--junit", "j.xml", "--time", "20m"],
        ),
    ],
)  # fmt: skip
def test_options_and_settings_take_the_place_of_those_given(changes, words):
    assert shlex.split(changed_command(GIVEN, **changes)) == words
