"""What to do after a run, as sentences with commands. Pure."""

import re
from collections.abc import Iterator, Sequence

from perfkit.report.grouped_warnings import GroupedWarning
from perfkit.result.model import Result
from perfkit.result.search import Search
from perfkit.units import write_minutes

_BETWEEN_OPTIONS = re.compile(r", (?=--set |perfkit )")


def run_next_steps(result: Result, warnings: Sequence[GroupedWarning]) -> tuple[tuple[str, str], ...]:
    """A step, seldom two: to mend what the first warning with a remedy names, to find why an SLO is missed, or to use the result."""
    options = next(((one.code, _BETWEEN_OPTIONS.split(one.remedy)[0]) for one in warnings if one.remedy.startswith("--set ")), None)
    if options is not None:
        return ((f"Next: mend what {options[0]} names, and measure again.", f"perfkit run SCENARIO {options[1]}"),)
    if result.search is not None:
        return tuple(_after_search(result.search))
    if any(point.valid and point.slo is not None and point.slo.verdict == "violated" for point in result.summary):
        return (("Next: see where the time of its requests goes.", "perfkit explain RESULT"),)
    text = "Next: to tell whether a change makes it slower, measure the servers before and after it in pairs."
    return ((text, "perfkit gate SCENARIO --baseline TARGET --candidate TARGET"),) if any(one.valid for one in result.summary) else ()


def _after_search(search: Search) -> Iterator[tuple[str, str]]:
    if search.can_continue:
        yield "Next: give the search more time.", f"perfkit run SCENARIO --out RESULT --resume --budget={write_minutes(search.more_s)}"
    elif search.stopped_because in ("precision", "cliff", "never_missed"):
        slo = ",".join(f"{name}<{limit}" for name, limit in search.slo.items())
        yield "Next: plan how many replicas a demand needs.", f"perfkit plan RESULT --slo '{slo}' --demand RATE"
