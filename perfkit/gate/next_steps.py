"""What to do after a verdict, as sentences with commands. Pure."""

import math
import shlex
from collections.abc import Iterator

from perfkit.gate.metrics import SECONDARY_MARGINS
from perfkit.gate.schedule import MOST_PAIRS
from perfkit.gate.sentences import describe_others, metric_title
from perfkit.gate.stored_runs import RECOMMENDED_SITTINGS
from perfkit.gate.undecided import GateFacts, decide
from perfkit.gate.verdict import Comparison, Fault, GeneratorLoad, NextStep, Verdict
from perfkit.stats.validity import BUSY_CORE_SHARE, COLD, DISTURBED_BY_OTHERS
from perfkit.units import NS_PER_S

_MAKE_COMPARABLE = NextStep(
    text="Both arms must get the same requests: serve the same model with the same inputs in both, or gate against a baseline that has them."
)


def next_steps(verdict: Verdict, facts: GateFacts) -> tuple[NextStep, ...]:
    """What to do now, the most promising first; nothing after a pass that is precise enough."""
    steps: Iterator[NextStep]
    match verdict.kind:
        case "inconclusive":
            steps = decide(verdict, facts)
        case "invalid":
            steps = iter(()) if verdict.fault is None else _after_invalid(verdict.fault, verdict, facts)
        case "regressed":
            steps = _after_regression(verdict, facts)
        case "incomparable":
            steps = iter([_MAKE_COMPARABLE])
        case "pass":
            steps = _after_pass(verdict, facts)
        case _:
            steps = iter(())
    return tuple(steps)


def _after_regression(verdict: Verdict, facts: GateFacts) -> Iterator[NextStep]:
    if facts.starts_servers:
        words = (
            "perfkit",
            "bisect",
            facts.scenario,
            *["--good", "REV", "--bad", "REV", "--build", "make", "--serve"],
            "./server --port {port}",
        )
        yield NextStep(text="To find the revision that made it slower, bisect with your own build and server.", command=shlex.join(words))
    if not verdict.parts:
        yield NextStep(text="Which part of the time changed is named if requests are traced (traces, in the scenario).")
    yield from _accepting(facts.folder)


def _accepting(folder: str) -> Iterator[NextStep]:
    """To accept a regression, where the verdict is in a folder."""
    if folder:
        text = "If the change is known and worth it, accept it until a date, in a file that is reviewed like code."
        yield NextStep(text=text, command=accepting_command(folder))


def accepting_command(folder: str) -> str:
    """The command that accepts what regressed, with places for the reason and the date."""
    return shlex.join(["perfkit", "gate", "accept", folder, "--reason", "why", "--expires", "YYYY-MM-DD"])


def stored_next_steps(verdict: Verdict, folder: str = "") -> tuple[NextStep, ...]:
    """What to do after a verdict on stored results; `folder` holds its `verdict.json`, empty if it was not written."""
    both = "Measuring both servers in turn, in pairs, tells a slower server from a machine that has changed, and finds smaller changes."
    paired = NextStep(text=both, command="perfkit gate SCENARIO --baseline TARGET --candidate TARGET")
    match verdict.kind:
        case "inconclusive":
            baseline, candidate = RECOMMENDED_SITTINGS
            more = (
                f"Decide on more sittings beforehand, such as {baseline} of the baseline and {candidate} of the candidate, each a run (perfkit run) on another "
                "day: adding runs until the verdict changes would raise its false alarms."
            )
            return (NextStep(text=more, command="perfkit baseline RESULT RESULT … --out BASELINE"), paired)
        case "regressed":
            return (paired, *_accepting(folder))
        case "invalid":
            return (NextStep(text="Mend what the reasons name, and measure again: warnings of runs say what to change."), paired)
        case "incomparable":
            same = "Measure the candidate again under the baseline's conditions, or make a new baseline under those of the candidate."
            return (NextStep(text=same, command="perfkit baseline RESULT RESULT … --out BASELINE"), paired)
    return ()


def _after_pass(verdict: Verdict, facts: GateFacts) -> Iterator[NextStep]:
    """A hint if the gate would have missed a slowdown as large as a margin."""

    def beyond_band(one: Comparison, effect: float) -> float:
        return math.log1p(effect) - math.log1p(one.noise_band)

    scaled = [
        (one, (beyond_band(one, one.minimum_detectable_effect) / beyond_band(one, one.margin)) ** 2)
        for one in verdict.gated
        if one.scale == "ratio" and one.minimum_detectable_effect is not None and one.margin > one.noise_band
    ]
    one, factor = max(scaled, key=lambda known: known[1], default=(None, 0.0))
    if one is not None and factor > 1:
        pairs = math.ceil(one.pairs * factor)
        text = (
            f"Gates as noisy as this one detect a slowdown of {metric_title(one.metric)} from {one.minimum_detectable_effect:.1%} on. "
            f"About {pairs} pairs would detect {one.margin:.0%}."
        )
        yield NextStep(text=text, command=facts.changed(options={"--pairs": str(pairs)}) if pairs <= MOST_PAIRS else "")


_LONG_WARMUP_S = 10
_BUSY_MACHINE_SHARE = 0.9


def _after_invalid(fault: Fault, verdict: Verdict, facts: GateFacts) -> Iterator[NextStep]:
    """What to change so that the gate becomes valid."""
    window_s = None if verdict.timing is None else verdict.timing.window_s
    longer = facts.changed({"measure.duration": f"{math.ceil(3 * window_s)}s"}) if window_s else ""
    match fault.code:
        case _ if fault.warning == COLD:  # the reason ends with the warm-up to try
            yield NextStep(text="Warm the target up for as long as the reason says: set a longer measure.warmup, and measure again.")
        case "generator" | "trial":
            yield from _relieve_generator(fault, facts)
        case "missing_metric":
            others = [name for name in facts.metrics if name != fault.metric]
            if fault.metric not in SECONDARY_MARGINS:
                yield NextStep(text="Longer windows have more requests (measure.duration, or measure.requests).", command=longer)
            if fault.metric and others:
                text = f"Or decide without {metric_title(fault.metric)}."
                yield NextStep(text=text, command=facts.changed({"gate.metrics": f"[{', '.join(others)}]"}))
        case "failed_requests":
            if fault.run and facts.folder:
                text = "The report of a run with the most failures says how its requests failed; the server's log is beside it."
                yield NextStep(text=text, command=f"perfkit report {facts.folder}/runs/{fault.run}")
            yield from _less_load(facts, "If it fails only under this load, give it fewer requests at once.")
        case "not_steady":
            warmup = f"{max(math.ceil(3 * (facts.warmup_ns or 0) / NS_PER_S), _LONG_WARMUP_S)}s"
            yield NextStep(
                text="A longer warm-up leaves more of the drift before the window.", command=facts.changed({"measure.warmup": warmup})
            )
            yield NextStep(
                text="If it drifts on, restarts hide it from a gate: measure each server in one long run, and look at its drift over time (perfkit run, measure.duration 30m)."
            )
        case "overloaded":
            if facts.is_standard:
                text = "The rate is 70 % of a capacity that did not last: longer windows measure it better."
                yield NextStep(text=text, command=longer)
            else:
                yield NextStep(text="Lower the rate (load.open.rate) to one that the baseline sustains.")
        case "control":
            yield NextStep(
                text="Look for what favours an arm: perfkit doctor names what disturbs measurements here.", command="perfkit doctor"
            )
            yield NextStep(text="Then measure again.", command=facts.changed())


def _relieve_generator(fault: Fault, facts: GateFacts) -> Iterator[NextStep]:
    """What to do for a load generator that could not keep up: about other processes, if they took the CPU, or its own work."""
    load = fault.generator
    others = "" if load is None else describe_others(load)
    is_idle = load is None or load.cpu_share <= BUSY_CORE_SHARE
    if is_idle and fault.warning in DISTURBED_BY_OTHERS and (others or _is_busy(load)):
        who = "other processes" if others else "the server"
        wait = "End them or wait for them" if others else "Give both CPUs of their own (server.cpus, measure.cpus)"
        text = f"The load generator was not too slow: {who} took the CPU. {others}{wait}, and measure again."
        yield NextStep(text=text, command=facts.changed())
        yield NextStep(text="What else disturbs measurements on this machine:", command="perfkit doctor")
        return
    match fault.warning:
        case "throttled":
            yield NextStep(text="Raise or remove the CPU quota of perfkit's container, then measure again.", command=facts.changed())
        case "suspended" | "worker_lost":
            yield NextStep(text="Measure again.", command=facts.changed())
        case "file_limit":
            yield NextStep(text="Raise the limit of open files (ulimit -n), then measure again.", command=facts.changed())
        case "":
            yield NextStep(text="Change what the reason names, then measure again.", command=facts.changed())
        case _:
            if others:
                yield NextStep(text=f"{others}If these are neighbours, end them.")
            workers = str(2 * facts.workers)
            text = "More processes of the load generator send more, if the machine has CPUs that the server does not need."
            yield NextStep(text=text, command=facts.changed({"measure.workers": workers}))
            yield from _less_load(facts, "Or ask for less: fewer requests in flight.")


def _is_busy(load: GeneratorLoad | None) -> bool:
    return load is not None and (load.machine_cpu_share or 0.0) >= _BUSY_MACHINE_SHARE


def _less_load(facts: GateFacts, text: str) -> Iterator[NextStep]:
    """A lower load. Under the standard profile the user gives no load, but the concurrency of its closed loop can be given."""
    if not facts.is_standard:
        yield NextStep(text=f"{text} Lower load.closed.concurrency, or load.open.rate.")
    elif facts.concurrency is not None and facts.concurrency > 1:
        lower = f"{{closed: {{concurrency: [{max(facts.concurrency // 2, 1)}]}}}}"
        yield NextStep(text=f"{text} The trial chose {facts.concurrency}.", command=facts.changed({"load": lower}))
    else:
        yield NextStep(
            text=f"{text} The profile finds the load itself, unless it is given.",
            command=facts.changed({"load": "{closed: {concurrency: [8]}}"}),
        )
