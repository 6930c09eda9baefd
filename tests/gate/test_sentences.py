"""A verdict in one line."""

import asyncio
import datetime
import itertools
import pathlib
import random
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.clock import ManualClock
from perfkit.gate.arm import parse_arm
from perfkit.gate.folder import FixedSettings, GateFolder, GateManifest
from perfkit.gate.paired_gate import GateRequest, measure_pairs
from perfkit.gate.sentences import changes_since, describe_resumption, headline, resumption_notes, resumption_of
from perfkit.gate.verdict import Comparison, GateFailure, GateResumption, Verdict
from perfkit.result.json_file import read_json
from perfkit.scenario.file import read_scenario
from perfkit.units import NS_PER_S
from tests.cli.gate_scenario import write_gate_scenario
from tests.simulated_pairs import RecordingObserver, make_run


def comparison(metric, verdict, estimate, interval, *, load_point="http, concurrency 4", **changes):
    is_rate, is_share = metric == "throughput", metric == "error_rate"
    known = {
        "metric": metric, "load_point": load_point, "unit": "per_s" if is_rate else "share" if is_share else "ns",
        "better": "higher" if is_rate else "lower", "scale": "difference" if is_share else "ratio", "baseline": 0.1, "candidate": 0.1,
        "estimate": estimate, "interval": interval, "confidence": 0.9667, "pairs": 12, "noise_band": 0.001 if is_share else 0.01,
        "margin": 0.001 if is_share else 0.1 if metric == "p99" else 0.05, "verdict": verdict, "reason": "",
    }  # fmt: skip
    return Comparison.model_validate({**known, **changes})


def verdict(kind, *comparisons):
    return Verdict(
        kind=kind, reasons=("So.",), mode="paired", scenario="x", baseline="cmd:a", candidate="cmd:b", false_alarm_rate=0.01, pairs=12,
        comparisons=comparisons, started_at="2026-01-02T03:04:05.678+00:00",
    )  # fmt: skip


THROUGHPUT = comparison("throughput", "pass", 1.0, (1 / 1.022, 1.01))  # 1.022 times as slow
P99 = comparison("p99", "pass", 1.0, (0.97, 1.041))
ERRORS = comparison("error_rate", "pass", 0.0, (-0.0002, 0.0002))
SLOWER = comparison("p99", "regressed", 1.123, (1.079, 1.168))
FASTER = comparison("p50", "pass", 0.9, (0.85, 0.95), improved=True)


@pytest.mark.parametrize(
    ("kind", "comparisons", "line"),
    [
        ("pass", (THROUGHPUT, P99), "pass: no slowdown above 2.2 % of throughput, 4.1 % of p99"),
        ("pass", (P99, ERRORS), "pass: no slowdown above 4.1 % of p99; no rise of the error rate above 0.02 points"),
        # of each metric the load point that rules out least
        ("pass", (P99, comparison("p99", "pass", 1.0, (0.9, 1.08), load_point="b")), "pass: no slowdown above 8.0 % of p99"),
        ("pass", (comparison("p99", "pass", 0.99, (0.98, 0.995)),), "pass: no slowdown above 0.0 % of p99"),
        ("pass", (FASTER, P99), "pass: faster: p50 -10.0 % [-15.0, -5.0]; no slowdown above 4.1 % of p99"),
        (
            "pass",
            (comparison("error_rate", "pass", -0.02, (-0.03, -0.01), improved=True), P99),
            "pass: better: error rate -2.00 points [-3.00, -1.00]; no slowdown above 4.1 % of p99",
        ),
        ("regressed", (SLOWER, THROUGHPUT), "regressed: p99 +12.3 % [+7.9, +16.8]"),
        ("regressed", (SLOWER, FASTER), "regressed: p99 +12.3 % [+7.9, +16.8]; faster: p50 -10.0 % [-15.0, -5.0]"),
        (
            "regressed",
            (comparison("throughput", "regressed", 0.9, (0.88, 0.92)), comparison("throughput", "regressed", 0.8, (0.78, 0.82))),
            "regressed: throughput -20.0 % [-22.0, -18.0]",
        ),
        (
            "inconclusive",
            (THROUGHPUT, comparison("p99", "inconclusive", 1.05, (0.95, 1.14))),
            "inconclusive: no slowdown above 2.2 % of throughput; not ruled out: p99 worse by up to 14.0 % (margin 10 %)",
        ),
        (
            "inconclusive",
            (P99, comparison("p99", "inconclusive", 1.05, (None, None), load_point="b")),
            "inconclusive: not ruled out: p99 worse by any amount (margin 10 %)",
        ),
        (
            "inconclusive",
            (comparison("error_rate", "inconclusive", 0.001, (0.0, 0.0031)), comparison("throughput", "inconclusive", 0.9, (0.01, 1.1))),
            (
                "inconclusive: not ruled out: error rate worse by up to 0.31 points (margin 0.1 points), "
                "throughput worse by any amount (margin 5 %)"
            ),
        ),
        ("invalid", (SLOWER,), "invalid: this measurement cannot be relied on"),
        ("incomparable", (), "incomparable: baseline and candidate were measured under different conditions"),
        ("pass", (), "pass: no metric is worse than its margin allows"),
        ("pass", (comparison("p99_9", "inconclusive", 2.0, (1.0, 3.0), gated=False),), "pass: no metric is worse than its margin allows"),
    ],
)  # fmt: skip
def test_the_headline_says_what_was_found_and_what_was_ruled_out(kind, comparisons, line):
    assert headline(verdict(kind, *comparisons)) == line


NOW = datetime.datetime(2026, 1, 2, 12, 0, 0, tzinfo=datetime.UTC)
TRIAL_S = 20.0


class Machine:
    """Runs whose figures and lengths follow from their names alone, as if each were measured at its own time; interrupted at one of them."""

    def __init__(self, clock: ManualClock, machine_seed: int, candidate: float, noise: float, cut: int | None) -> None:
        self._clock, self._seed, self._candidate, self._noise, self._cut = clock, machine_seed, candidate, noise, cut
        self.calls = 0

    async def __call__(self, stage, seed):
        if self.calls == self._cut:
            raise asyncio.CancelledError
        self.calls += 1
        rng = random.Random(f"{self._seed} {stage.run} {seed}")
        await self._clock.sleep_until_ns(self._clock.now_ns() + round(rng.uniform(2, 6) * NS_PER_S))
        factor = rng.lognormvariate(0, self._noise) * (self._candidate if stage.arm == "candidate" else 1.0)
        overtaxed = rng.random() < 0.05
        return make_run(
            factor,
            noise=lambda: rng.lognormvariate(0, self._noise / 4),
            valid=not overtaxed,
            codes=["generator_bound"] if overtaxed else [],
        )


def measure(place: pathlib.Path, request: GateRequest, seed: int, cuts: list[int], **machine):
    """The verdict of a gate that is interrupted so many runs after its beginning and after each continuation."""
    for cut in (*cuts, None):
        clock = ManualClock(random.randrange(10**12))
        folder = GateFolder(place, GateManifest(inputs=request.inputs, seed=seed, started_at=NOW.isoformat()))
        if folder.manifest.settings is None:
            folder.fix(FixedSettings(warmup_ns=0, window_ns=NS_PER_S, concurrency=4, rate_per_s=70.0, trial_s=TRIAL_S))
        run_arm = Machine(clock, seed, cut=cut, **machine)
        try:
            return folder, clock.run(measure_pairs(request, folder, run_arm, RecordingObserver(), clock))
        except asyncio.CancelledError:
            continue
    raise AssertionError


def interruptions(cuts: list[int], runs: int) -> int:
    """How many of the cuts come before the last run of a gate, whose half pairs are measured again."""
    count = done = 0
    for cut in cuts:
        if done + cut >= runs:
            break
        count, done = count + 1, done + cut // 2 * 2
    return count


@settings(max_examples=6)
@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    candidate=st.sampled_from([1.0, 1.03, 1.1]),
    noise=st.sampled_from([0.003, 0.05]),
    control=st.sampled_from([0, 2]),
    limit_s=st.sampled_from([None, 150, 200]),
)
def test_a_continued_gate_reaches_the_verdict_of_one_that_was_not_interrupted(seed, cuts, candidate, noise, control, limit_s):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        loaded = read_scenario(write_gate_scenario(place, "throughput", "p50"))
        baseline, candidate_arm = (parse_arm("", url, loaded.scenario) for url in ("http://127.0.0.1:1", "http://127.0.0.1:2"))
        time_limit_ns = None if limit_s is None else limit_s * NS_PER_S
        request = GateRequest(loaded, baseline, candidate_arm, time_limit_ns=time_limit_ns, control_pairs=control)
        machine = {"candidate": candidate, "noise": noise}
        whole, expected = measure(place / "whole", request, seed, [], **machine)
        parts, verdict = measure(place / "parts", request, seed, cuts, **machine)
        assert expected.resumptions == ()
        assert len(verdict.resumptions) == interruptions(cuts, 2 * len(whole.pairs))
        told = {"resumptions": (), "pair_ended_at": (), "notes": ()}
        assert verdict.model_copy(update=told) == expected.model_copy(update=told)
        instants = {"ended_at": ""}
        assert [one.model_copy(update=instants) for one in parts.pairs] == [one.model_copy(update=instants) for one in whole.pairs]
        assert len(verdict.pair_ended_at) == verdict.pairs


def test_a_time_limit_counts_what_was_measured_and_no_pause(tmp_path):
    loaded = read_scenario(write_gate_scenario(tmp_path, "throughput"))
    baseline, candidate_arm = (parse_arm("", url, loaded.scenario) for url in ("http://127.0.0.1:1", "http://127.0.0.1:2"))
    request = GateRequest(loaded, baseline, candidate_arm, time_limit_ns=160 * NS_PER_S)
    machine = {"candidate": 1.0, "noise": 0.05}
    folder, verdict = measure(tmp_path / "out", request, 3, [9, 9], **machine)
    measured_s = TRIAL_S + sum(pair.took_s for pair in folder.pairs)
    assert measured_s <= 160 < measured_s + max(pair.took_s for pair in folder.pairs)
    assert verdict.looks[-1] == verdict.pairs < 20


def failed(cause, reason, **more):
    return GateFailure(cause=cause, reason=reason, phase="pair 6", arm="candidate", **more)


@pytest.mark.parametrize(
    ("failure", "set_aside", "sentences"),
    [
        (
            failed("interrupted", "In pair 6, candidate: perfkit was interrupted by SIGTERM."), "runs/unfinished-1",
            ("It had ended early: In pair 6, candidate: perfkit was interrupted by SIGTERM. Pair 6 was not whole, and is measured again: what it "
            "had measured (runs/unfinished-1) does not count."),
        ),
        (
            failed("unfinished", "The gate has not finished."), "runs/unfinished-2",
            ("It had ended early: in pair 6, perfkit was killed, or its machine was gone. Pair 6 was not whole, and is measured again: what it had "
            "measured (runs/unfinished-2) does not count."),
        ),
        (failed("unfinished", "The gate has not finished."), "", "It had ended early: perfkit was killed, or its machine was gone."),
        (None, "", "It had ended early: perfkit was killed, or its machine was gone."),
        (
            failed("server", "The candidate failed in pair 6: it ended.", last_lines=("a", "no memory")), "",
            "It had ended early: The candidate failed in pair 6: it ended. Its last line: no memory",
        ),
    ],
)  # fmt: skip
def test_a_continuation_says_what_had_ended_the_gate_and_what_is_measured_again(failure, set_aside, sentences):
    one = resumption_of(failure, NOW, 5, "2026-01-02T08:30:00.000+00:00", set_aside)
    assert one.paused_s == 3.5 * 3600
    assert describe_resumption(one) == f"The gate was continued after 5 pairs and a pause of 3.5 h. {sentences}"


def test_a_failed_server_is_told_although_its_pair_was_measured_again():
    one = resumption_of(failed("server", "It ended."), NOW, 1, "", "runs/unfinished-1")
    assert one.paused_s == 0
    notes = list(resumption_notes([one]))
    assert notes[0].startswith("The gate was continued after 1 pair and")
    assert notes[1] == "A server failed before a continuation: the figures are those of the whole pairs, without that failure."


def test_many_continuations_are_counted_and_the_first_are_told():
    one = resumption_of(None, NOW, 1, "", "")
    notes = list(resumption_notes([one] * 9))
    assert len(notes) == 6
    assert notes[-1] == "The gate was continued 9 times in all; verdict.json lists each (resumptions)."


def test_what_differs_since_the_trial_is_named_by_its_key():
    environment = {
        "generator": {"kernel": "5.1", "cpus": 2},
        "telemetry": {"notes": ["one"]},
        "model": ["m", ""],
        "baseline": {"version": "1.0", "protocols": {"http": {"payload_sha256": "a"}}},
        "candidate": {"version": "1.1", "protocols": {"http": {"payload_sha256": "a"}}},
    }

    class Run:
        def __init__(self, environment):
            self.environment = environment

        def model_copy(self, update):
            return Run(update["environment"])

    def run(kernel, version):
        target = {"version": version, "protocols": {"http": {"payload_sha256": "of this pair"}}}
        return Run({"generator": {"kernel": kernel, "cpus": 2}, "telemetry": {}, "target": target})

    assert changes_since(environment, "candidate", run("5.1", "1.1")) == ()
    assert changes_since(environment, "candidate", run("5.2", "1.2")) == (
        "generator.kernel differs: 5.1 against 5.2",
        "candidate: target.version differs: 1.1 against 1.2",
    )
    one = GateResumption(at="", after_pairs=3, paused_s=5, cause="unfinished", reason="It ended.", changes=tuple("abcdefg"))
    assert describe_resumption(one).endswith("It ended. Since the trial, there are other conditions: a; b; c; d; e; and 2 more.")


def test_the_manifest_has_each_continuation(tmp_path):
    loaded = read_scenario(write_gate_scenario(tmp_path, "throughput"))
    baseline, candidate_arm = (parse_arm("", url, loaded.scenario) for url in ("http://127.0.0.1:1", "http://127.0.0.1:2"))
    folder, verdict = measure(tmp_path / "out", GateRequest(loaded, baseline, candidate_arm), 1, [5, 4], candidate=1.0, noise=0.003)
    folder.commit(verdict)
    stored = read_json(tmp_path / "out" / "gate.json")["resumptions"]
    assert [one["after_pairs"] for one in stored] == list(itertools.accumulate((5 // 2, 4 // 2)))
    assert [one.document() for one in verdict.resumptions] == stored
