"""What a scan of a closed loop shows: see `perfkit.points.scan` for the definitions."""

import itertools
from collections.abc import Iterator

from perfkit.result.load import RampLoad
from perfkit.result.part import Part

NOT_COMPARED = "a scan is no load point that can be compared or judged: measure the load points that it proposes"


class ScanStep(Part):
    """A part of the window."""

    concurrency: float
    """The requests in flight, as a mean."""
    lowest: int
    """The requests in flight at its start."""
    highest: int
    """The requests in flight at its end."""
    throughput_per_s: float
    """Ok answers in this part per second."""
    mean_ns: float | None
    """The mean service time of the requests that started in this part; None without any, as the next two with too few."""
    p50_ns: int | None
    p99_ns: int | None


class Knee(Part):
    """The concurrency with the highest throughput ÷ service time, and the range of those that may have it."""

    concurrency: float
    low: int
    high: int
    throughput_per_s: float


class Scan(Part):
    """A scan in steps of equal length."""

    steps: tuple[ScanStep, ...]
    knee: Knee | None
    """None if throughput ÷ service time still rose in the end, or fell from the beginning; if requests failed; and if there were too few answers to tell."""
    reason: str
    """What the knee is, or why there is none, in a sentence."""
    proposed: tuple[int, ...]
    """The concurrencies that are worth a measurement of their own."""


def scan_problems(found: Scan, load: RampLoad) -> Iterator[tuple[str, str]]:
    """What is wrong with the stored figures of a scan, as keys and reasons."""
    for number, one in enumerate(found.steps):
        if not load.start <= one.lowest <= one.concurrency <= one.highest <= load.concurrency:
            yield f"steps.{number}", f"{one.concurrency:g}, from {one.lowest} to {one.highest}, in flight are no part of {load.title}"
        if (one.p50_ns or 0) > (one.p99_ns or one.p50_ns or 0):
            yield f"steps.{number}.p99_ns", f"{one.p99_ns} is below p50, {one.p50_ns}"
    for number, (before, after) in enumerate(itertools.pairwise(found.steps), 1):
        if after.lowest < before.highest:
            yield f"steps.{number}.lowest", f"{after.lowest} is below the end of the step before, {before.highest}"
    if (knee := found.knee) is not None and not load.start <= knee.low <= knee.concurrency <= knee.high <= load.concurrency:
        yield "knee", f"{knee.low:g} to {knee.high:g} around {knee.concurrency:g} is no range of {load.title}"
