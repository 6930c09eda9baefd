"""The verdict of a gate, `perfkit.verdict/1`, as frozen values: the same for a paired and a stored gate.

The JSON keys are the field names: `Verdict.document` writes a verdict, `Verdict.model_validate` reads one. `estimate` and `interval`
are candidate ÷ baseline where `scale` is "ratio", and candidate − baseline where it is "difference".
"""

import math
import statistics
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from perfkit.figures.resources import BusyProcess, OtherProcesses
from perfkit.history.accepted import AcceptedChange
from perfkit.result.part import Part
from perfkit.spans.change import PartChange

SCHEMA = "perfkit.verdict/1"
MAXIMUM_EFFECT = 10.0
"""The largest minimum detectable effect that is reported: eleven times as slow. Larger ones are cut to it."""

LONGEST_S, MOST = 1e9, 10**15
Seconds = Annotated[float, Field(ge=0, le=LONGEST_S)]
Value = Annotated[float, Field(ge=0, le=MOST)]
"""A figure that could be measured."""
Probability = Annotated[float, Field(ge=0, le=1)]
_MOST_PROCESSES = 3

VerdictKind = Literal["pass", "regressed", "inconclusive", "incomparable", "invalid", "error"]
Unit = Literal["per_s", "ns", "share", "count"]
MetricVerdict = Literal["pass", "regressed", "inconclusive"]
Outcome = Literal["pass", "regressed", "inconclusive", "improved"]


class Comparison(Part):
    """One metric at one load point, baseline against candidate."""

    metric: str
    """`throughput`, `p50`, `p95`, `p99`, `error_rate`, `cpu_time`, ..."""
    load_point: str
    """Protocol and load in words, such as `grpc, concurrency 16`; the same in both arms."""
    lasting_load_point: str = ""
    """The name of the load point in later gates, where `load_point` has figures of this gate's trial (`profile: standard`); else empty."""
    accepted: AcceptedChange | None = None
    """The accepted change that the metric is judged against: `noise_band` and `margin` begin at its slowdown."""
    unit: Unit
    better: Literal["lower", "higher"]
    scale: Literal["ratio", "difference"] = "ratio"
    gated: bool = True
    """Whether the metric counts for the verdict; otherwise it is for information."""
    baseline: Value | None
    """In the unit; baseline and candidate differ by `estimate`, about the middle of both sides' runs. None if nothing was measured."""
    candidate: Value | None
    estimate: float | None
    """The Hodges-Lehmann estimate, over the pairs or of a stored gate's runs (for its error rate, of all requests); on the scale."""
    interval: tuple[float | None, float | None] | None
    """Two-sided, at `confidence`; an end is None if there are too few pairs to bound it, and the whole if there are too few runs.

    A stored gate's reaches farther on both sides by what sittings may differ by, where they are too few to be units.
    """
    confidence: Annotated[float, Field(gt=0, lt=1)]
    pairs: int
    """The number of pairs; in a stored gate the sittings of the side that has fewer, or its runs where the sittings are too few."""
    adjusted_p: Probability | None = None
    """P-value of the test for a regression, adjusted for metrics and looks; up to the verdict's `false_alarm_rate` it is a regression. At an early look an upper bound, or 1."""
    improvement_p: float | None = None
    """P-value of the mirrored test, for a change for the better; None if the metric is not gated."""
    improved: bool = False
    """Whether the candidate is better by more than the noise band, beyond chance. For information: it does not decide the verdict."""
    noise_band: float
    """Changes for the worse up to this size count as no change; on the scale: 0.01 is 1 %, or one percentage point."""
    margin: float
    """A pass must rule out a change for the worse of this size; on the scale."""
    generator_share: float = 0.0
    """The share of the figure that may be the load generator's in all but 29 % of the pairs, since other processes disturbed it; the
    interval's end for the worse accounts for it, and for that of the other pairs."""
    minimum_detectable_effect: float | None = None
    """The slowdown that 9 of 10 gates with this noise would detect, on the scale, at most `MAXIMUM_EFFECT` for a ratio; None if unknown.

    Of a stored gate whose units are runs: if the sittings are alike.
    """
    verdict: MetricVerdict
    reason: str
    """A sentence."""
    baseline_values: tuple[Value | None, ...] = ()
    """One value per pair, or per sitting of a stored gate (per run, where sittings are too few), in the order of measurement."""
    candidate_values: tuple[Value | None, ...] = ()

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        values = (self.baseline, self.candidate, *self.baseline_values, *self.candidate_values)
        if self.unit == "share" and any(value is not None and value > 1 for value in values):
            raise ValueError("a share is at most 1")
        return self

    @property
    def title(self) -> str:
        """Metric and load point, which identify the comparison within a verdict."""
        return f"{self.metric}, {self.load_point}"

    @property
    def outcome(self) -> Outcome:
        """The verdict in a word; an improved metric has passed."""
        return "improved" if self.improved and self.verdict == "pass" else self.verdict

    @property
    def slowdown(self) -> float | None:
        """How much worse the candidate is: 0.05 for 5 %, or for 5 percentage points of a difference; negative if it is better."""
        return None if self.estimate is None else self._worse_by(self.estimate)

    @property
    def slowdown_interval(self) -> tuple[float | None, float | None]:
        """The interval as slowdowns, the better end first; None for an end that is open."""
        ends = self.interval or (None, None)
        best, worst = ends if self.better == "lower" else ends[::-1]
        return None if best is None else self._worse_by(best), None if worst is None else self._worse_by(worst)

    @property
    def ruled_out_slowdown(self) -> float | None:
        """The slowdown above which every one is ruled out: the interval's end on the bad side; None if that end is open."""
        return self.slowdown_interval[1]

    def _worse_by(self, value: float) -> float:
        """A value on the scale as a slowdown."""
        if self.scale == "difference":
            return value if self.better == "lower" else -value
        if self.better == "lower":
            return value - 1
        return 1 / value - 1 if value > 0 else math.inf


class NextStep(Part):
    """What to do after a verdict."""

    text: str
    """A sentence."""
    command: str = ""
    """The command line that does it; empty if there is none."""


FailureCause = Literal["server", "interrupted", "unfinished", "usage", "measurement", "internal"]


class GateFailure(Part):
    """Why a gate ended without a verdict, and what was measured at the time."""

    cause: FailureCause
    """`server`: one ended, was never ready or could not be reached. `unfinished`: written while the gate runs, so it is what a killed one leaves."""
    reason: str
    """A sentence."""
    arm: Literal["baseline", "candidate"] | None = None
    """The arm whose run was under way; None before the first and between two."""
    phase: str = ""
    """`trial`, `pair 3` or `control pair 1`; empty before the first run."""
    exit_code: int | None = None
    """The exit code of a server that ended by itself, or of perfkit if it was interrupted."""
    signal: str = ""
    """The name of the signal that ended a server, or interrupted perfkit, such as `SIGKILL`."""
    last_lines: tuple[str, ...] = ()
    """The last lines that the server wrote."""
    log: str | None = None
    """The file with all that the server wrote in this run."""

    @property
    def facts(self) -> dict[str, str]:
        """What is known of the end, by name: cause, arm, phase, exit code, signal and log."""
        known = {
            "cause": self.cause,
            "arm": self.arm,
            "phase": self.phase,
            "exit_code": self.exit_code,
            "signal": self.signal,
            "log": self.log,
        }
        return {name: str(value) for name, value in known.items() if value not in (None, "")}

    @property
    def quoted_reason(self) -> str:
        """The reason with the server's last line."""
        return f"{self.reason} Its last line: {self.last_lines[-1]}" if self.last_lines else self.reason

    @property
    def log_title(self) -> str:
        """What `last_lines` are, or where the log is; empty without a log."""
        return "" if self.log is None else f"The last lines of {self.log}:" if self.last_lines else f"The server's log: {self.log}"


class GateResumption(Part):
    """A continuation of a gate that had ended without a verdict."""

    at: str
    """The time at which it went on."""
    after_pairs: int
    """The number of whole pairs before, with discarded ones and control pairs."""
    paused_s: float
    """The time from the end of the last of them, or of the trial, until the gate went on."""
    cause: FailureCause
    """As in `GateFailure`; `unfinished` for a perfkit that was killed."""
    reason: str
    """What had ended the gate, a sentence."""
    measured_again: str = ""
    """The pair that was under way, such as `pair 6`, and is measured again as a whole; empty if there was none."""
    set_aside: str = ""
    """The folder, within the gate's, with what that pair had measured, of which nothing counts; empty if there was none."""
    changes: tuple[str, ...] = ()
    """What differed in the environment since the trial, such as the machine or a server's version, a sentence each."""


class GeneratorLoad(Part):
    """How busy the load generator's machine was; a mean over runs."""

    cpu_share: float
    """The share of one core that the load generator itself used."""
    machine_cpu_share: float | None = None
    """The share of all CPUs that all processes used, the target included."""
    others: OtherProcesses | None = None
    """What processes besides perfkit and the target used."""

    @classmethod
    def mean(cls, loads: Sequence["GeneratorLoad"]) -> "GeneratorLoad | None":
        """The mean of several; processes of one name count as one, whose number is that of the busiest. None for none."""
        if not loads:
            return None
        shares = [load.machine_cpu_share for load in loads if load.machine_cpu_share is not None]
        others = [load.others for load in loads if load.others is not None]
        processes = [process for one in others for process in one.busiest]
        busiest = [
            BusyProcess(
                name,
                max((process for process in processes if process.name == name), key=lambda process: process.cpus).pid,
                sum(process.cpus for process in processes if process.name == name) / len(others),
            )
            for name in dict.fromkeys(process.name for process in processes)
        ]
        pooled = None
        if others:
            pooled = OtherProcesses(
                statistics.fmean(one.cpus for one in others),
                tuple(sorted(busiest, key=lambda process: -process.cpus)[:_MOST_PROCESSES]),
                any(one.may_include_target for one in others),
            )
        return cls(
            cpu_share=statistics.fmean(load.cpu_share for load in loads),
            machine_cpu_share=statistics.fmean(shares) if shares else None,
            others=pooled,
        )


FaultCode = Literal["generator", "missing_metric", "failed_requests", "not_steady", "overloaded", "control", "trial"]


class Fault(Part):
    """Why a verdict is invalid."""

    code: FaultCode
    """`generator` and `trial`: the load generator could not keep up, in the pairs or in the trial; `trial` with the warning `cold`: the target stayed cold in
    it. `control`: the control pairs alarmed."""
    reason: str
    """A sentence."""
    warning: str = ""
    """The code of the measurement warning that says so, if there is one."""
    metric: str = ""
    """The metric that is missing."""
    run: str = ""
    """The result folder of a run with the fault, within the gate's `runs`."""
    generator: GeneratorLoad | None = None
    """The load generator's load in the runs with the fault, if it could not keep up."""


class MetricNoise(Part):
    """The noise of one metric, as standard deviations of a run's logarithm."""

    metric: str
    load_point: str
    between: float
    """Between restarts of one server."""
    within_one_second: float
    """Within a run, for a window of one second; for T seconds it is this divided by √T."""

    def pair_deviation(self, window_s: float) -> float:
        """The standard deviation of a pair's difference."""
        return math.sqrt(2 * (self.between**2 + self.within_one_second**2 / window_s))


class Timing(Part):
    """How a paired gate spent its time."""

    window_s: float | None
    """The length of each measured window; None if a number of requests ended it."""
    window_chosen_by: Literal["trial", "time", "scenario"]
    """`trial`: the shortest whose noise within a run hardly matters; `time`: what `--time` allowed; `scenario`: measure.duration."""
    run_overhead_s: float
    """What a run takes beside its windows: starting and stopping the server, connecting, warming up."""
    load_points: int
    """The windows of a run."""
    time_limit_s: float | None = None
    """From `--time`."""
    noise: tuple[MetricNoise, ...] = ()
    """As the trial estimated it, from few runs; empty if the scenario gives the window."""


class Verdict(Part):
    """The outcome of a gate."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    kind: VerdictKind
    reasons: tuple[str, ...]
    """Sentences; the first one is the summary."""
    notes: tuple[str, ...] = ()
    """Limits of the verdict that a reader must know before the figures, such as that the servers were not restarted."""
    mode: Literal["paired", "stored"]
    """Whether servers were measured in pairs, or stored results compared."""
    scenario: str
    """The scenario's name."""
    baseline: str
    """The target or the result, without secrets."""
    candidate: str
    false_alarm_rate: float
    """Upper bound on the probability that any gated metric is called regressed although none is worse than its noise band."""
    pairs: int
    """The number of pairs that count."""
    looks: tuple[int, ...] = ()
    """The numbers of pairs after which the gate may decide; the first ones are early looks, at clear cases."""
    discarded_pairs: int = 0
    """Pairs measured again because the load generator was the bottleneck in one of their runs."""
    disturbed_pairs: int = 0
    """Pairs in which other processes disturbed the load generator; they count, and can hide a slowdown but not feign one."""
    control_pairs: int = 0
    """Pairs of the baseline with itself."""
    failure: GateFailure | None = None
    """Why there is no verdict, if `kind` is `error`."""
    fault: Fault | None = None
    """Why the verdict is invalid, for programs; `reasons` say the same."""
    generator: GeneratorLoad | None = None
    """The mean over all pairs' runs; None without pairs, and for a stored gate."""
    comparisons: tuple[Comparison, ...] = ()
    control: tuple[Comparison, ...] = ()
    """Baseline against baseline, if control pairs were requested."""
    parts: tuple[PartChange, ...] = ()
    """Which parts of the time the candidate changed, if the scenario has `traces`; they do not decide the verdict."""
    accepted_file: str = ""
    """The file of accepted changes that the gate read, as it was found or named; empty without one."""
    next_steps: tuple[NextStep, ...] = ()
    """What to do now, the most promising first."""
    started_at: str
    resumptions: tuple[GateResumption, ...] = ()
    """Each time that the gate was interrupted, killed or failed, and then continued."""
    pair_ended_at: tuple[str, ...] = ()
    """When each pair that counts ended, in the order of the comparisons' values; empty for a stored gate."""
    perfkit_version: str = ""
    timing: Timing | None = None
    """None for a stored gate, and for one that ended in its trial."""
    duration_s: float | None = None
    """From the start of a paired gate to its verdict, with the time in which it was interrupted; None for a stored gate."""
    environment: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        lengths = [(len(one.baseline_values), len(one.candidate_values)) for one in (*self.comparisons, *self.control)]
        if self.mode == "paired" and any(baseline != candidate for baseline, candidate in lengths):
            raise ValueError("each pair has a value of the baseline and one of the candidate")
        return self

    @property
    def gated(self) -> tuple[Comparison, ...]:
        """The comparisons that count for the verdict."""
        return tuple(comparison for comparison in self.comparisons if comparison.gated)

    @property
    def minimum_detectable_effect(self) -> float | None:
        """The largest value of the gated ratios, which holds for the gate as a whole; None if one is unknown."""
        effects = [comparison.minimum_detectable_effect for comparison in self.gated if comparison.scale == "ratio"]
        known = [effect for effect in effects if effect is not None]
        return max(known) if known and len(known) == len(effects) else None
