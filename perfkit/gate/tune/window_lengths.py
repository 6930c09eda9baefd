"""How long the windows of a tune are, and how long its visits are expected to take, by the scenario alone. Pure."""

from perfkit.gate.tune.objective import Objective
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S

WARMUP_NS = NS_PER_S
"""After a configuration was applied, unless the scenario gives another warm-up: the instances before may still be ending."""
STEP_WARMUP_NS = NS_PER_S // 5
"""At most this, before each further window of a scan."""
_SCAN_WINDOW_NS = NS_PER_S // 2
_LONGEST_FIRST_S, _FIRST_SHARE = 1.0, 1 / 120
"""The first windows: their longest, and their part of the time."""
CONFIRMATION_SHARE = 0.2
"""The part of the time that is kept for the confirmation."""
_LEAST_ROUNDS = 3
"""A space is measured as a whole if there is time to measure it so often."""
_USUAL_STEPS, _APPLIED_WITHIN_S = 8, 1.0
"""What the first visits are expected to take: the steps of a scan, and the time in which a configuration is applied."""


def first_window_s(limit_s: float, objective: Objective) -> float:
    """The length of the first windows of a tune that may take so long."""
    return max(min(_LONGEST_FIRST_S, limit_s * _FIRST_SHARE), objective.least_window_s)


def scan_window_ns(window_s: float, objective: Objective) -> int:
    """The length of the windows of a scan, if the first ones of the race take so long."""
    return max(min(_SCAN_WINDOW_NS, round(window_s * NS_PER_S)), round(objective.least_window_s * NS_PER_S))


def usual_times_s(scenario: Scenario, steps: int, window_s: float, objective: Objective) -> tuple[float, float]:
    """What the scan of a configuration and a further visit are expected to take, by the scenario alone; without the visit's window."""
    scanned_ns = scan_window_ns(window_s, objective) + min(STEP_WARMUP_NS, warmup_ns(scenario))
    return min(steps, _USUAL_STEPS) * scanned_ns / NS_PER_S, warmup_ns(scenario) / NS_PER_S + _APPLIED_WITHIN_S


def fitting(scenario: Scenario, steps: int, limit_s: float, objective: Objective) -> int:
    """How many configurations can be measured in three rounds of a race, the first with its scans."""
    window_s = first_window_s(limit_s, objective)
    scan_s, visit_s = usual_times_s(scenario, steps, window_s, objective)
    return int(limit_s * (1 - CONFIRMATION_SHARE) / (scan_s + _LEAST_ROUNDS * (visit_s + window_s)))


def warmup_ns(scenario: Scenario) -> int:
    """The warm-up before the first window of a visit."""
    return WARMUP_NS if scenario.measure.warmup_ns == "auto" else scenario.warmup_ns
