"""What to do after a run, as sentences with commands. Pure."""

import re
from collections.abc import Iterator, Sequence

from perfkit.report.grouped_warnings import GroupedWarning
from perfkit.report.headline import answer_points
from perfkit.report.scan import proposed_option
from perfkit.result.load import RampLoad
from perfkit.result.model import Result
from perfkit.result.search import Search
from perfkit.units import write_minutes

_BETWEEN_OPTIONS = re.compile(r", (?=--set |perfkit )")


def run_next_steps(result: Result, warnings: Sequence[GroupedWarning]) -> tuple[tuple[str, str], ...]:
    """A step, seldom two: to mend what a warning of the answer's load points names, to find why an SLO is missed, or to use the result.

    Of a search overloaded probes are a part, and a target that does not keep up is no fault of the measurement.
    """
    if result.search is not None:
        return tuple(_after_search(result.search))
    if scans := [one.scan for one in result.summary if one.valid and one.scan is not None and one.scan.proposed]:
        return (("Next: measure load points around the knee.", f"perfkit run SCENARIO {proposed_option(scans)}"),)
    answered = tuple(answer_points(result).values()) or result.summary
    codes = {warning.code for point in answered for warning in point.warnings} - {"overloaded"}
    remedies = ((one.code, one.remedy) for one in warnings if one.code in codes and one.remedy.startswith("--set "))
    if (remedy := next(remedies, None)) is not None:
        code, options = remedy
        return ((f"Next: mend what {code} names, and measure again.", f"perfkit run SCENARIO {_BETWEEN_OPTIONS.split(options)[0]}"),)
    if any(point.valid and point.slo is not None and point.slo.verdict == "violated" for point in result.summary):
        return (("Next: see where the time of its requests goes.", "perfkit explain RESULT"),)
    text = "Next: to tell whether a change makes it slower, measure the servers before and after it in pairs."
    can_gate = any(
        one.valid and not (one.cold_start or one.idle or one.surge) and not isinstance(one.load, RampLoad) for one in result.summary
    )
    return ((text, "perfkit gate SCENARIO --baseline TARGET --candidate TARGET"),) if can_gate else ()


def _after_search(search: Search) -> Iterator[tuple[str, str]]:
    if search.can_continue:
        yield "Next: give the search more time.", f"perfkit run SCENARIO --out RESULT --resume --budget={write_minutes(search.more_s)}"
    elif search.stopped_because in ("precision", "cliff", "never_missed") and not any("." in name for name in search.slo):
        slo = ",".join(f"{name}<{limit}" for name, limit in search.slo.items())
        yield "Next: plan how many replicas a demand needs.", f"perfkit plan RESULT --slo '{slo}' --demand RATE"
