"""Load points that were sent at the same instants: together they are one piece of evidence, not several."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from perfkit.result.json_file import as_mapping
from perfkit.result.load import OpenLoad
from perfkit.result.model import Point, Protocol, Result

Arrivals: TypeAlias = tuple[object, ...]
"""What decides the instants of a load point: equal for two of which one was sent at the instants of the other."""
_TRACE = "trace"
_LONGER = 1.01  # the ends of two equal windows may differ a little


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class SentPoint:
    """One repetition of a load point of an open loop."""

    point: Point
    folder: pathlib.Path
    """The folder of its result."""
    run: int
    """The number of its result."""
    seed: int
    arrivals: Arrivals | None
    """None for arrivals that are not random: sent again, they are not fewer evidence."""

    @property
    def is_trace(self) -> bool:
        """Whether recorded arrivals were sent."""
        return self.arrivals is not None and self.arrivals[0] == _TRACE


def sent_points(run: int, folder: pathlib.Path, result: Result, protocol: Protocol) -> list[SentPoint]:
    """The open loops of a result over a protocol, in the order in which they were sent.

    Random arrivals follow from `workload.seed`, the place of the rate among the rates, and the repetition (`perfkit.load.load_plan`); each
    probe of a search is a place. Only those at one rate are the same: at another rate the same gaps are on another scale of time. The
    shorter of two windows has the first arrivals of the longer one. A recorded trace has no seed, and each repetition sends it anew.
    """
    load_section = as_mapping(result.scenario.get("load"))
    given_seed = as_mapping(result.scenario.get("workload")).get("seed")
    seed = given_seed if isinstance(given_seed, int) else 0
    loads = [(point, point.load) for point in result.points if point.protocol == protocol and isinstance(point.load, OpenLoad)]
    rates = list(dict.fromkeys(load.rate_per_s for _, load in loads))
    sent = []
    for number, (point, load) in enumerate(loads):
        place = (number, 0) if "search" in load_section else (rates.index(load.rate_per_s), point.repetition or 0)
        arrivals: Arrivals | None = (load.arrivals, load.rate_per_s, load.gap_variation, seed, *place)
        if load.arrivals == _TRACE:
            file = as_mapping(load_section.get("replay") or load_section.get("open")).get("trace")
            arrivals = (_TRACE, load.rate_per_s, str(file))
        elif load.arrivals == "constant":
            arrivals = None
        sent.append(SentPoint(point, folder, run, seed, arrivals))
    return sent


def leave_out_repeated(results: Sequence[Sequence[SentPoint]]) -> tuple[list[SentPoint], tuple[str, ...]]:
    """Keep one of the load points with the same arrivals, and say in a sentence for each result which do not count.

    Kept is a valid one, then the longest, then the first. Clusters of slow requests come from clusters of arrivals: where these are the same,
    so are the slow requests, and to count them twice would make every interval too narrow.

    The load points left out differ from those kept by the restart of the server, and so would say something of the variation between
    restarts. But that is estimated as the variance of the runs' means less what independent scatter within the runs adds to it
    (`perfkit.plan.rate_curve.fit_rate_curve`). Scatter that runs have in common adds nothing, and would be subtracted all the same: the
    variation would be underestimated. So they do not count there either, and a result without other load points is no further restart; the
    assumed variation keeps its weight.
    """
    every = [one for sent in results for one in sent]
    kept: dict[Arrivals, SentPoint] = {}
    for one in every:
        if one.arrivals is not None and _is_better(one, kept.get(one.arrivals)):
            kept[one.arrivals] = one
    counted = [one for one in every if one.arrivals is None or kept[one.arrivals] is one]
    return counted, tuple(_sentences(results, kept))


def _is_better(one: SentPoint, other: SentPoint | None) -> bool:
    if other is None or one.point.valid != other.point.valid:
        return other is None or one.point.valid
    return one.point.duration_s > _LONGER * other.point.duration_s


def _sentences(results: Sequence[Sequence[SentPoint]], kept: dict[Arrivals, SentPoint]) -> Iterator[str]:
    taken = {one.seed for sent in results for one in sent}
    for sent in results:
        repeated: collections.defaultdict[int, list[SentPoint]] = collections.defaultdict(list)
        for one in sent:
            if one.arrivals is not None and (other := kept[one.arrivals]) is not one:
                repeated[other.run].append(one)
        if not repeated:
            continue
        seed = next(number for number in range(1, len(taken) + 2) if number not in taken)
        for of_other in repeated.values():
            if not of_other[0].is_trace:
                taken.add(seed)
            yield _sentence(of_other, kept, len(sent), seed)


def _sentence(repeated: Sequence[SentPoint], kept: dict[Arrivals, SentPoint], number: int, free_seed: int) -> str:
    one = repeated[0]
    assert one.arrivals is not None
    other = kept[one.arrivals]
    same = f"{one.folder} has the same arrivals as {other.folder}"
    if one.run == other.run:
        same = f"{one.folder} sent the same arrivals in each repetition"
    amount = f"{'' if len(repeated) == number else f'{len(repeated)} of '}its {number} measurement{'s' if number > 1 else ''}"
    count = "counts" if len(repeated) == 1 else "count"
    why = "a recorded trace" if one.is_trace else f"workload.seed {one.seed}"
    remedy = "measure another part of the trace" if one.is_trace else f"measure again with `--set workload.seed={free_seed}`"
    return f"{same} ({why}), so {amount} {count} as repeated, not as new evidence: {remedy}."
