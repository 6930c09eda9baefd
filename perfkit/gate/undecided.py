"""What would decide an undecided gate, and the command lines that do it. Pure."""

import dataclasses
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from perfkit.gate.schedule import MOST_PAIRS
from perfkit.gate.sentences import describe_others, metric_title
from perfkit.gate.verdict import Comparison, MetricNoise, NextStep, Verdict
from perfkit.units import write_minutes


@dataclasses.dataclass(frozen=True, slots=True)
class GateFacts:
    """What next steps need to know besides the verdict."""

    command: tuple[str, ...]
    """The words of the command line that was entered, without secrets."""
    is_standard: bool = False
    """Whether the profile is `standard`."""
    counts_requests: bool = False
    """Whether `measure.requests` ends the windows."""
    warmup_ns: int | None = None
    """The warm-up of every run."""
    concurrency: int | None = None
    """The concurrency of the standard profile's closed loop."""
    workers: int = 1
    """The load generator's processes, if the scenario gives them."""
    metrics: tuple[str, ...] = ()
    """The metrics that count besides the error rate."""
    folder: str = ""
    """The gate's folder."""
    scenario: str = ""
    """The scenario as it was entered."""
    starts_servers: bool = False
    """Whether both arms are commands."""

    def changed(self, settings: Mapping[str, str] | None = None, options: Mapping[str, str] | None = None) -> str:
        """The command line with other settings and options; a time limit gives way to other pairs."""
        without = ("--time",) if options and "--pairs" in options else ("--pairs",) if options and "--time" in options else ()
        return changed_command(self.command, options=options or {}, settings=settings or {}, without=without)


_OF_THIS_GATE = ("--out",)  # a folder that is finished: the next gate gets its own
_FLAG_OF_THIS_GATE = "--resume"
_NOTHING: Mapping[str, str] = {}


def changed_command(
    words: Sequence[str], *, options: Mapping[str, str] = _NOTHING, settings: Mapping[str, str] = _NOTHING, without: Sequence[str] = ()
) -> str:
    """The command line with these options and `--set KEY=VALUE` in place of its own, and without those of `without`; for a shell."""
    replaced, kept = {*options, *without, *_OF_THIS_GATE}, list[str]()
    given = iter(words)
    for word in given:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name == "--set":
            setting = value if equals else next(given, "")
            if setting.partition("=")[0] not in settings:
                kept += ["--set", setting]
        elif name == _FLAG_OF_THIS_GATE:
            continue
        elif name in replaced:
            if not equals:
                next(given, None)
        else:
            kept.append(word)
    for name, value in options.items():
        kept += [name, value]
    for key, value in settings.items():
        kept += ["--set", f"{key}={value}"]
    return shlex.join(kept)


_LONGEST_LONGER_WINDOW_S = 60.0
MOST_TIME_S = 2 * 3600.0
"""More time than this is no advice: the noise has to become smaller."""
_WINDOW_FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
_FEWEST_MORE = 4
_LARGE_DISTURBED_SHARE = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Need:
    """What would decide a metric: `pairs` of the present length, at the present spread of the pairs' differences."""

    comparison: Comparison
    pairs: float
    variance: float
    """The variance of a pair's difference."""


def needed_pairs(one: Comparison) -> Need | None:
    """How many pairs would decide a metric if its estimate and its spread stay as they are; None if no number would, or it is unknown.

    The distance from the estimate to the interval's end shrinks with the root of the number of pairs. It must become smaller than the
    distance from the estimate to the margin, for a pass; or, for a regression, the detectable distance beyond the noise band must
    become smaller than that of the estimate.
    """
    worst, estimate = one.ruled_out_slowdown, one.slowdown
    if worst is None or estimate is None or one.pairs < 2:
        return None
    scale = math.log1p if one.scale == "ratio" else float
    shift, end, margin, band = (scale(value) for value in (estimate, worst, one.margin, one.noise_band))
    counts = []
    if margin > max(shift, 0.0):
        counts.append(one.pairs * ((end - shift) / (margin - max(shift, 0.0))) ** 2)
    if shift > band and one.minimum_detectable_effect is not None:
        counts.append(one.pairs * ((scale(one.minimum_detectable_effect) - band) / (shift - band)) ** 2)
    if not counts:
        return None
    differences = [
        scale(other / base - 1) if one.scale == "ratio" else other - base
        for base, other in zip(one.baseline_values, one.candidate_values, strict=False)
        if base is not None and other is not None and (one.scale == "difference" or base * other > 0)
    ]
    return Need(one, min(counts), _robust_variance(differences))


def _robust_variance(values: Sequence[float]) -> float:
    """From the median absolute deviation, which contaminated runs hardly move (P. J. Huber, *Robust Statistics*, 5.1)."""
    if len(values) < 2:
        return 0.0
    middle = sorted(values)[len(values) // 2]
    return (1.4826 * sorted(abs(value - middle) for value in values)[len(values) // 2]) ** 2


@dataclasses.dataclass(frozen=True, slots=True)
class LongerGate:
    """Windows and pairs that would decide, and how long their gate takes."""

    window_factor: float
    pairs: int
    seconds: float | None
    noisiest: Literal["restarts", "within", ""]
    """What most of the variance of a pair comes from; empty if it is unknown."""


def find_longer_gate(need: Need, verdict: Verdict, *, may_lengthen: bool) -> LongerGate:
    """The window and the number of pairs that would decide in the shortest time.

    The variance of a pair is that of its two restarts and of its two windows; only the second part shrinks with longer windows.
    """
    timing, last_look = verdict.timing, max(verdict.looks, default=need.comparison.pairs)
    noise = _noise_of(need.comparison, verdict)
    window_s = None if timing is None else timing.window_s
    within = 0.0
    if noise is not None and window_s:
        within = min(2 * noise.within_one_second**2 / window_s, need.variance)
    share = within / need.variance if need.variance > 0 else 0.0
    candidates = []
    for factor in _WINDOW_FACTORS if may_lengthen and share > 0 and window_s else (1.0,):
        if window_s and factor > 1 and factor * window_s > _LONGEST_LONGER_WINDOW_S:
            break
        pairs = max(math.ceil(need.pairs * (1 - share + share / factor)), last_look + (_FEWEST_MORE if factor == 1 else 0))
        run_s = None if timing is None or not window_s else timing.run_overhead_s + timing.load_points * window_s * factor
        candidates.append((factor, pairs, None if run_s is None else 2 * pairs * run_s))
    factor, pairs, seconds = min(candidates, key=lambda one: (one[1] > MOST_PAIRS, one[2] or float(one[1])))
    return LongerGate(factor, pairs, seconds, "" if noise is None or not window_s else "within" if share > 0.5 else "restarts")


def _noise_of(one: Comparison, verdict: Verdict) -> MetricNoise | None:
    known = () if verdict.timing is None else verdict.timing.noise
    of_metric = [noise for noise in known if noise.metric == one.metric]
    # the trial's rates differ a little from those of the pairs, and so do the names of its load points
    return next((noise for noise in of_metric if noise.load_point == one.load_point), of_metric[0] if len(of_metric) == 1 else None)


def decide(verdict: Verdict, facts: GateFacts) -> Iterator[NextStep]:
    """How to decide the undecided metrics."""
    undecided = [one for one in verdict.gated if one.verdict == "inconclusive"]
    disturbed = _disturbance(verdict, undecided)
    needs = [need for one in undecided if (need := needed_pairs(one)) is not None]
    if disturbed:
        yield NextStep(text=disturbed, command=facts.changed())
        if len(needs) < len(undecided):  # what others hide has no bound, which no number of pairs changes
            return
    if not needs:
        yield NextStep(
            text="No number of pairs is known that would decide: measure more.",
            command=facts.changed(options={"--pairs": str(2 * max(verdict.looks, default=20))}),
        )
        return
    hardest = max(needs, key=lambda need: need.pairs)
    longer = find_longer_gate(hardest, verdict, may_lengthen=not facts.counts_requests)
    one = hardest.comparison
    name, cause = metric_title(one.metric), _describe_noise(hardest, longer, verdict)
    if longer.pairs > MOST_PAIRS or (longer.seconds or 0.0) > MOST_TIME_S:
        lasting = "" if longer.seconds is None else f", which take about {write_minutes(longer.seconds)}"
        yield NextStep(
            text=(
                f"{cause}It would take about {longer.pairs} pairs{lasting}, to decide {name}. Make the machine quieter first: perfkit doctor names what "
                f"disturbs measurements."
            ),
            command="perfkit doctor",
        )
        others = [metric for metric in facts.metrics if metric != one.metric]
        if others and one.scale == "ratio" and len(undecided) == 1:
            yield NextStep(
                text=f"Without {name} the other metrics decide.", command=facts.changed({"gate.metrics": f"[{', '.join(others)}]"})
            )
        return
    settings, options = dict[str, str](), {"--pairs": str(longer.pairs)}
    window_s = verdict.timing.window_s if verdict.timing is not None else None
    if longer.window_factor > 1 and window_s:
        settings["measure.duration"] = f"{math.ceil(window_s * longer.window_factor)}s"
    windows = f" and windows of {settings['measure.duration']}" if settings else ""
    lasting = "" if longer.seconds is None else f", about {write_minutes(longer.seconds)}"
    goal = "its margin" if (one.slowdown or 0.0) < one.noise_band else "its margin, or beyond the noise band"
    text = f"{cause}With {longer.pairs} pairs{windows}{lasting}, the interval of {name} would be within {goal}, if its estimate stays as it is."
    yield NextStep(text=text, command=facts.changed(settings, options))
    if longer.seconds is not None and not facts.counts_requests:
        limit = write_minutes(1.25 * longer.seconds + 60)
        yield NextStep(
            text="Or give a time, for which the trial chooses windows and pairs.", command=facts.changed(options={"--time": limit})
        )


def _describe_noise(need: Need, longer: LongerGate, verdict: Verdict) -> str:
    """Which part of the noise is the largest, of the metric that is hardest to decide: a sentence with a space behind it."""
    name, noise = metric_title(need.comparison.metric), _noise_of(need.comparison, verdict)
    window_s = verdict.timing.window_s if verdict.timing is not None else None
    if noise is None or not window_s:
        return f"{name} is the noisiest metric, measured by its margin. "
    within = noise.within_one_second / math.sqrt(window_s)
    between = math.sqrt(max(need.variance / 2 - within**2, 0.0))
    if longer.noisiest == "within":
        return f"Most noise of {name} is within runs: {within:.1%} in windows of {window_s:g} s, and {between:.1%} between restarts. "
    return f"Most noise of {name} is between restarts: {between:.1%}, and {within:.1%} within windows of {window_s:g} s. "


def _disturbance(verdict: Verdict, undecided: Sequence[Comparison]) -> str:
    """A sentence about other processes, if they hide a large part of an undecided metric; empty otherwise."""
    hidden = max((one.generator_share for one in undecided), default=0.0)
    if hidden < _LARGE_DISTURBED_SHARE:
        return ""
    others = "" if verdict.generator is None else describe_others(verdict.generator)
    return (
        f"The machine is the noisiest part: other processes disturbed the load generator in {verdict.disturbed_pairs} of {verdict.pairs} pairs, "
        f"so up to {hidden:.0%} of a figure may be the generator's. {others}End them, keep them off the generator's CPUs (measure.cpus), or "
        "measure when they are done."
    )
