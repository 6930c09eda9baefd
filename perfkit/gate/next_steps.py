"""What to do after a verdict, as sentences with commands. Pure."""

import math
import shlex
from collections.abc import Iterator

from perfkit.gate.facts import GateFacts
from perfkit.gate.headline import metric_title
from perfkit.gate.mending import mend
from perfkit.gate.remedy import decide
from perfkit.gate.schedule import MOST_PAIRS
from perfkit.gate.verdict import NextStep, Verdict
from perfkit.stats.stored_runs import RECOMMENDED_RUNS

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
            steps = iter(()) if verdict.fault is None else mend(verdict.fault, verdict, facts)
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
    if not verdict.parts:
        yield NextStep(text="Which part of the time changed is named if requests are traced (traces, in the scenario).")
    if facts.starts_servers:
        words = (
            "perfkit",
            "bisect",
            facts.scenario,
            "--good",
            "REV",
            "--bad",
            "REV",
            "--build",
            "make",
            "--serve",
            "./server --port {port}",
        )
        yield NextStep(text="To find the revision that made it slower, bisect with your own build and server.", command=shlex.join(words))
    if facts.folder:
        yield NextStep(
            text="If the change is known and worth it, accept it until a date, in a file that is reviewed like code.",
            command=accepting_command(facts.folder),
        )


def accepting_command(folder: str) -> str:
    """The command that accepts what regressed, with places for the reason and the date."""
    return shlex.join(["perfkit", "gate", "accept", folder, "--reason", "why", "--expires", "YYYY-MM-DD"])


def stored_next_steps(verdict: Verdict, folder: str = "") -> tuple[NextStep, ...]:
    """What to do after a verdict on stored results; `folder` holds its `verdict.json`, empty if it was not written."""
    both = "Measuring both servers in turn, in pairs, tells a slower server from a machine that has changed, and finds smaller changes."
    paired = NextStep(text=both, command="perfkit gate SCENARIO --baseline TARGET --candidate TARGET")
    match verdict.kind:
        case "inconclusive":
            baseline, candidate = RECOMMENDED_RUNS
            more = (
                f"Decide on more runs beforehand, such as {baseline} of the baseline and {candidate} of the candidate, each a start of the server "
                "(perfkit run): adding runs until the verdict changes would raise its false alarms."
            )
            return (NextStep(text=more, command="perfkit baseline RESULT RESULT … --out BASELINE"), paired)
        case "regressed":
            accept = "If the change is known and worth it, accept it until a date, in a file that is reviewed like code."
            accepting = [NextStep(text=accept, command=accepting_command(folder))] if folder else []
            return (paired, *accepting)
        case "invalid":
            return (NextStep(text="Mend what the reasons name, and measure again: warnings of runs say what to change."), paired)
        case "incomparable":
            same = "Measure the candidate again under the baseline's conditions, or make a new baseline under those of the candidate."
            return (NextStep(text=same, command="perfkit baseline RESULT RESULT … --out BASELINE"), paired)
    return ()


def _after_pass(verdict: Verdict, facts: GateFacts) -> Iterator[NextStep]:
    """A hint if the gate would have missed a slowdown as large as a margin."""
    scaled = [
        (
            one,
            (
                (math.log1p(one.minimum_detectable_effect) - math.log1p(one.noise_band))
                / (math.log1p(one.margin) - math.log1p(one.noise_band))
            )
            ** 2,
        )
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
