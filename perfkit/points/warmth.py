"""Whether a target was still cold in a window: whether a first part of the load took clearly longer than what followed. Pure."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from perfkit.recorder.series import Series
from perfkit.stats.probability import student_t_quantile
from perfkit.units import NS_PER_S

LEAST_FACTOR = 1.5
"""A first part that is slower by less is no cold start; `steady_state` judges it."""
ROUNDS = 10
"""A closed loop with fewer answers than so many times its concurrency is not judged to be warm."""
_BLOCKS, _FEWEST_BLOCKS = 20, 4
_ERROR, _LEAST_DEVIATION = 0.002, 0.02
_MOST_SPREAD = 0.2  # in an open loop, of blocks around their level, whose queue comes and goes
SEEN_FACTOR = 2.0
"""What a window must be able to show to be judged warm."""
_SEEN_DEVIATIONS = 1.64
_MARGIN, _SHORTEST_S = 3, 5
_SHORTEST_LOAD_NS = NS_PER_S
_LONGEST_TIMES = 1.2  # of their mean, as a margin: a block's slower requests end later
_Floats = npt.NDArray[np.float64]
_Numbers = npt.NDArray[np.int64]

State = Literal["cold", "warm", "not_judged"]


@dataclasses.dataclass(frozen=True, slots=True)
class Warmth:
    """Whether the target was cold; if it was, until when and by which factor what came before was slower.

    `warm`: a first part that is slower by a factor of two would have been seen. `not_judged`: it would not, for want of answers or because the
    times scatter.
    """

    state: State
    until_ns: int = 0
    factor: float = 1.0


def judge_warmth(loads: Sequence[Series], window_start_ns: int, *, is_open: bool) -> Warmth:
    """The verdict on a window that starts at that instant, from the series of its load and of earlier loads of the same kind, in order.

    The rule: the target was cold if the loads can be cut, within the window or later, so that requests before the cut took at least 1.5 times as
    long as those after it, and the two levels are further apart than a single block would be from its level by chance. Blocks are twentieths of a load, with
    the logarithms of their mean times and, in a closed loop, of their rates; the cut is that of the least squares. By chance: a prediction
    interval of Student's t from the scatter of the blocks around the two levels, at 0.2 % for all blocks together (Bonferroni). So a level counts no more than one block,
    however many it has, which makes the rule hold for correlated blocks, too. In a closed loop the scatter is that of successive blocks, if it is smaller, so that times
    which fall little by little are told; in an open loop blocks must scatter by less than a fifth, because a queue is long and short by itself. Error rates by simulation: `benchmarks.cold_targets`.
    Requests start together in a closed loop, and end while others no longer start: neither makes a server cold. So a cut of the rates has as many answers on both
    sides as requests are in flight (by Little's law), and requests that may have ended after their load do not count.

    Loads of less than a second are not judged: in them, what else the machine does looks like a cold start.
    """
    if loads[-1].timed.size * loads[-1].interval_ns < _SHORTEST_LOAD_NS:
        return Warmth("not_judged")
    block_ns = loads[-1].interval_ns * _intervals(loads[-1])
    earliest_ns = window_start_ns + block_ns  # the cut is known to a block
    signals = [blocks for blocks in _signals(loads, is_open=is_open) if blocks.sums.size >= _FEWEST_BLOCKS]
    found = [_judge(blocks, earliest_ns, is_open=is_open) for blocks in signals]
    answered = sum(int(load.answered.sum()) for load in loads)
    if cold := [one for one in found if one.state == "cold"]:
        # a long queue smears the times, so that they tell less of the factor; rates are known less precisely
        sharper = cold[-1] if cold[-1].factor > LEAST_FACTOR * cold[0].factor else cold[0]
        return dataclasses.replace(sharper, until_ns=max(one.until_ns for one in cold))
    has_rounds = answered >= ROUNDS * in_flight(loads)
    return Warmth("warm") if has_rounds and any(one.state == "warm" for one in found) else Warmth("not_judged")


def in_flight(loads: Sequence[Series]) -> float:
    """The mean number of requests in flight, by Little's law, but at least 1."""
    lengths_ns = sum(load.timed.size * load.interval_ns for load in loads)
    return max(sum(int(load.time_sum_ns.sum()) for load in loads) / max(lengths_ns, 1), 1.0)


def needed_warm_up_s(cold_ns: int) -> int:
    """The warm-up to try after the target was cold for so long: three times as long, at least 5 s, as a number of one digit."""
    least_s = max(math.ceil(_MARGIN * cold_ns / NS_PER_S), _SHORTEST_S)
    step = 1
    while least_s > 10 * step:
        step *= 10
    return -(-least_s // step) * step


@dataclasses.dataclass(frozen=True, slots=True)
class _Blocks:
    """A block's time is its sum ÷ its weight; they are those of requests, or the gaps between answers and their numbers."""

    starts_ns: _Numbers
    load_ends_ns: _Numbers
    """The ends of the loads that the blocks belong to."""
    sums: _Floats
    weights: _Floats
    error: float = 0.0
    """The error of a block's time because its gap is known to an interval: the root mean square, as a share."""
    fewest: float = 0.0
    """The least weight before and after a cut."""

    @classmethod
    def joined(cls, parts: Sequence[tuple[Series, _Numbers, _Numbers, _Numbers]], error: float = 0.0, fewest: float = 0.0) -> "_Blocks":
        """The blocks of several loads: the first intervals of the blocks by their numbers, sums and weights."""
        starts = [load.origin_ns + at * load.interval_ns for load, at, _, _ in parts]
        ends = [np.full(at.size, load.origin_ns + load.timed.size * load.interval_ns) for load, at, _, _ in parts]
        sums, weights = (np.concatenate([part[place] for part in parts]).astype(np.float64) for place in (2, 3))
        return cls(np.concatenate(starts), np.concatenate(ends), sums, weights, error, fewest)


def _intervals(load: Series) -> int:
    """The number of intervals in a block."""
    return max(load.timed.size // _BLOCKS, 1)


def _signals(loads: Sequence[Series], *, is_open: bool) -> Iterator[_Blocks]:
    """The times of the requests by their starts and, in a closed loop, the times for an answer, which those of a long queue smear."""
    timed = [(load, load.coarser(_intervals(load)), _intervals(load)) for load in loads]
    filled = [(load, coarse, _ended(coarse), factor) for load, coarse, factor in timed]
    yield _Blocks.joined([(load, at * factor, coarse.time_sum_ns[at], coarse.timed[at]) for load, coarse, at, factor in filled])
    if not is_open:
        gaps = [(load, *_gaps(load)) for load in loads]
        of_all = np.concatenate([own for _, _, own, _ in gaps])
        error = math.sqrt(float(np.mean(1 / np.square(of_all))) / 6) if of_all.size else 0.0  # both ends are uniform in their intervals
        yield _Blocks.joined([(load, at, own * load.interval_ns, answers) for load, at, own, answers in gaps], error, in_flight(loads))


def _ended(load: Series) -> _Numbers:
    """The intervals whose requests ended before their load did, by their mean time."""
    filled = np.flatnonzero(load.time_sum_ns)
    longest_ns = _LONGEST_TIMES * load.time_sum_ns[filled] / np.maximum(load.timed[filled], 1)
    kept: _Numbers = filled[(filled + 1) * load.interval_ns + longest_ns <= load.timed.size * load.interval_ns]
    return kept


def _gaps(load: Series) -> tuple[_Numbers, _Numbers, _Numbers]:
    """From the last answer in a block to the last one in the next that has any: the first interval, the intervals, and the answers; in whole blocks."""
    factor = _intervals(load)
    answered = np.flatnonzero(load.answered[: load.answered.size // factor * factor])
    is_last = np.diff(answered // factor, append=-1) != 0
    last, totals = answered[is_last], np.cumsum(load.answered)[answered[is_last]]
    return last[:-1] + 1, np.diff(last), np.diff(totals)


def _judge(blocks: _Blocks, earliest_ns: int, *, is_open: bool) -> Warmth:
    values = np.log(blocks.sums / blocks.weights)
    count = values.size
    before, sums = np.arange(1, count), np.cumsum(values)[:-1]
    falls = sums / before - (values.sum() - sums) / (count - before)
    weight = np.cumsum(blocks.weights)[:-1]
    is_cut = np.minimum(weight, blocks.weights.sum() - weight) >= blocks.fewest
    if not is_cut.any():
        return Warmth("not_judged")
    cut = int(np.argmax(np.where(is_cut, falls * np.sqrt(before * (count - before)), -np.inf))) + 1
    fall = float(falls[cut - 1])
    residuals = np.concatenate((values[:cut] - values[:cut].mean(), values[cut:] - values[cut:].mean()))
    spread = math.sqrt(float(residuals @ residuals) / (count - 2))
    if not is_open:  # of times that fall little by little, the scatter around two levels says nothing
        steps = np.delete(np.diff(values), cut - 1)
        spread = min(spread, math.sqrt(float(steps @ steps) / (2 * (count - 2))))
    spread = max(spread, blocks.error, _LEAST_DEVIATION)
    chance = student_t_quantile(1 - _ERROR / count, count - 2) * spread * math.sqrt(1 + 1 / (count - 1))
    # a block with few requests counts as much as others in the levels, but not in the factor
    factor = float(blocks.sums[:cut].sum() / blocks.weights[:cut].sum() * blocks.weights[cut:].sum() / blocks.sums[cut:].sum())
    until_ns = int(min(blocks.starts_ns[cut], blocks.load_ends_ns[cut - 1]))
    is_slower = min(fall, math.log(factor)) >= math.log(LEAST_FACTOR) and fall > chance
    if is_slower and until_ns >= earliest_ns and not (is_open and spread > _MOST_SPREAD):
        return Warmth("cold", until_ns, factor)
    return Warmth("warm" if chance + _SEEN_DEVIATIONS * spread <= math.log(SEEN_FACTOR) else "not_judged")
