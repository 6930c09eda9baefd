"""The number of replicas over time: by a horizontal autoscaler, by a fixed schedule, and with interruptions of spot replicas."""

import dataclasses
import math
from collections import deque

import numpy as np
import numpy.typing as npt

from perfkit.plan.steps import PeriodicSteps, Steps

SYNC_S, METRIC_WINDOW_S, SCALE_DOWN_DELAY_S, TOLERANCE = 15.0, 60.0, 300.0, 0.1
"""Defaults of Kubernetes (sync period, scale-down stabilisation window, tolerance) and of Knative (metric window)."""
_MOST_STARTED_AT_ONCE = 4  # replicas per sync period, or as many as are running if that is more: Kubernetes' default scale-up policies
_ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Autoscaler:
    """The settings of a horizontal autoscaler; rates in requests per second."""

    target_per_s: float
    """The target rate per replica: the target utilisation times the capacity."""
    cold_start_s: float
    """The time from the decision to start a replica until it takes requests."""
    maximum: int
    minimum: int = 1
    scale_down_delay_s: float = SCALE_DOWN_DELAY_S
    sync_s: float = SYNC_S
    metric_window_s: float = METRIC_WINDOW_S
    tolerance: float = TOLERANCE

    def clip(self, replicas: int) -> int:
        """Clip a number of replicas to the range from `minimum` to `maximum`."""
        return min(max(replicas, self.minimum), self.maximum)

    def wanted(self, rate_per_s: float, running: int) -> int:
        """The desired number of replicas: ⌈rate/target⌉, or the running number while the rate per replica is within the tolerance."""
        if abs(rate_per_s / (self.target_per_s * running) - 1) <= self.tolerance + _ROUNDING:
            return self.clip(running)
        return self.clip(math.ceil(rate_per_s / self.target_per_s * (1 - _ROUNDING)))


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class ReplicaCourse:
    """The number of replicas over time."""

    ready: Steps
    """Replicas that take requests."""
    running: Steps
    """Replicas that are paid for: ready or starting."""


def autoscale(counts: npt.NDArray[np.int64], settings: Autoscaler, initial: int) -> ReplicaCourse:
    """The replicas that an autoscaler runs; `counts` are the arrivals in each sync period, from instant 0.

    At the end of each sync period, the desired number of replicas follows from the mean arrival rate over the metric window
    (`Autoscaler.wanted`). Arrivals are counted because completions would hide an overload. New replicas are started at once, within
    the scale-up policies, and are ready a cold start later. Replicas are stopped only down to the highest desired number within the
    scale-down delay. Starting replicas are stopped first; a stopped replica completes its requests in progress.

    Source: Kubernetes, "Horizontal Pod Autoscaling", sections "Algorithm details" and "Stabilization window", for a metric of type
    `AverageValue`; the metric window is Knative's.
    """
    running, ready_changes, running_changes = initial, list[tuple[float, float]](), list[tuple[float, float]]()
    starting = deque[float]()
    asked = deque[tuple[float, int]]()
    window = max(1, round(settings.metric_window_s / settings.sync_s))
    total = np.concatenate(([0], np.cumsum(counts)))
    for number in range(1, len(total)):
        now_s, first = number * settings.sync_s, max(0, number - window)
        rate_per_s = float(total[number] - total[first]) / ((number - first) * settings.sync_s)
        wanted = settings.wanted(rate_per_s, running)
        asked.append((now_s, wanted))
        while asked[0][0] < now_s - settings.scale_down_delay_s:
            asked.popleft()
        while starting and starting[0] <= now_s:
            starting.popleft()
        if wanted > running:
            wanted = min(wanted, running + max(_MOST_STARTED_AT_ONCE, running))
            ready_s = now_s + settings.cold_start_s
            starting.extend([ready_s] * (wanted - running))
            ready_changes.append((ready_s, wanted - running))
        elif wanted < running:
            wanted = min(running, max(desired for _, desired in asked))
            ready_changes += [(starting.pop() if starting else now_s, -1) for _ in range(running - wanted)]
        if wanted != running:
            running_changes.append((now_s, wanted - running))
            running = wanted
    return ReplicaCourse(Steps.of_changes(0.0, initial, ready_changes), Steps.of_changes(0.0, initial, running_changes))


def scheduled(replicas: PeriodicSteps, cold_start_s: float, end_s: float, start_s: float = 0.0) -> ReplicaCourse:
    """Replicas that follow a fixed schedule: each starts one cold start before it is needed, and stops when it no longer is."""
    ready = replicas.over(start_s, end_s)
    ahead = replicas.over(start_s, end_s + cold_start_s)
    edges = np.unique(np.concatenate((ready.starts_s, ahead.starts_s - cold_start_s)))
    edges = edges[(edges >= start_s) & (edges < end_s)]
    needed = [
        float(np.max(replicas.at([edge_s, *ahead.starts_s[(ahead.starts_s > edge_s) & (ahead.starts_s <= edge_s + cold_start_s)]])))
        for edge_s in edges.tolist()
    ]
    return ReplicaCourse(ready, Steps(edges, np.array(needed)))


def interrupt(
    course: ReplicaCourse, base: int, interruptions_per_h: float, cold_start_s: float, end_s: float, random: np.random.Generator
) -> ReplicaCourse:
    """The course with random interruptions of the spot replicas, those above `base`; each lost replica is replaced at once.

    Interruptions are a Poisson process with this rate per spot replica. The replacement is ready a cold start later, and until then one
    replica fewer is ready; advance notice is not used. The cost is unchanged, because the replacement is paid for from its start.
    """
    most = float(np.max(course.ready.values)) - base
    if most <= 0 or not interruptions_per_h:
        return course
    candidates = random.uniform(0, end_s, int(random.poisson(most * interruptions_per_h * end_s / 3600)))
    spot = course.ready.at(candidates) - base
    lost_s = candidates[random.uniform(0, most, candidates.size) < spot]
    edges = np.unique(np.concatenate((course.ready.starts_s, lost_s, lost_s + cold_start_s)))
    down = np.searchsorted(np.sort(lost_s), edges, side="right") - np.searchsorted(np.sort(lost_s + cold_start_s), edges, side="right")
    planned = course.ready.at(edges)
    return ReplicaCourse(Steps(edges, np.maximum(planned - down, np.minimum(planned, base))), course.running)
