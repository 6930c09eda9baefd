"""The state of a tune, which follows from its windows alone: what each configuration is worth, and which are left. Pure."""

import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from perfkit.gate.tune.folder import Window
from perfkit.gate.tune.ladder import Scanned, best_step, next_step
from perfkit.gate.tune.objective import GOODPUT, Objective
from perfkit.gate.tune.race import FEWEST_ROUNDS, Answer, Ratio, Standing, answer_of, ratio_of_pairs, stand
from perfkit.gate.tune.window_times import times_of
from perfkit.result.model import MOST_FAILED_SHARE
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import is_withheld
from perfkit.stats.slo import CheckedAnswers, JudgedTimes, SloLimits, SloVerdict, judge_slo

State = Literal["waiting", "racing", "worse", "refused", "failed", "unmet", "invalid"]
_FEWEST_INVALID, _MOST_INVALID = 3, 3
"""A configuration has no place in the race with at least 3 windows that are not valid, and more than 3 for each valid one: a disturbance ends."""
_FEWEST_TO_STEP_DOWN = 2
_FEW = 4
"""Up to this many configurations are all measured in every round."""
_SCANS_UNTIL_INVALID, _SCANS_UNTIL_UNMET = 3, 2
"""A step is scanned at most twice more while its windows are not valid; the lowest one is scanned twice before a configuration is `unmet`."""


@dataclasses.dataclass(slots=True)
class Entry:
    """One configuration in the race."""

    joined_later: bool = False
    """Whether it joined the race after its first round."""
    state: State = "waiting"
    step: int | None = None
    """The step of the ladder at which it is measured."""
    reason: str = ""
    """Why it is not in the race, as a sentence."""
    better: int | None = None
    """A configuration that is shown better."""
    out_after: int = 0
    """The round after which it was dropped."""
    scans: list[Window] = dataclasses.field(default_factory=list)
    windows: list[Window] = dataclasses.field(default_factory=list)
    """The valid ones of race and confirmation at its present step."""
    invalid: int = 0
    """The number of those that were not valid."""
    failures: int = 0
    """How often the target was lost, or gave no usable answer, while it was measured."""

    @property
    def is_pending(self) -> bool:
        """Whether it joined later, and has too few windows for a comparison: it has no part in the answer until then."""
        rounds = sum(one.phase == "race" for one in self.windows)
        return self.joined_later and self.state in ("waiting", "racing") and rounds < FEWEST_ROUNDS


class TuneState:
    """Adds windows in the order of measurement."""

    def __init__(
        self, first: Iterable[int], ladder: Sequence[int], slo: SloLimits | None, *, most: int | None = None, objective: Objective = GOODPUT
    ) -> None:
        """`first` are the numbers of the configurations that race from the start, and `most` is how many may, with those that join later."""
        self.objective = objective
        self.entries = {number: Entry() for number in first}
        """By the configuration's number."""
        self.ladder = tuple(ladder)
        self._slo = slo
        self._most = len(self.entries) if most is None else most
        self._arms: set[tuple[int, int]] = set()
        self.standing: Standing | None = None
        self.closed_round = 0
        """The last round that was judged."""

    def add(self, window: Window) -> None:
        """Takes the next window."""
        if window.phase == "race" and window.round > self.closed_round + 1:
            self.close_round(window.round - 1)
        elif window.phase == "confirmation":
            self.close_round()
        entry = self.entries[window.candidate]
        if window.refusal:
            self._leave(window.candidate, "refused", window.refusal)
        elif window.has_failed:
            entry.failures += 1
            if _are_too_many(entry.failures, entry):
                self._leave(window.candidate, "failed", window.reason)
        elif window.phase == "scan":
            entry.scans.append(window)
            if sum(_is_doubtful(one) for one in entry.scans if one.concurrency == window.concurrency) >= _SCANS_UNTIL_INVALID:
                self._leave(window.candidate, "invalid", window.reason)
            elif self.scan_step(window.candidate) is None:
                self._end_scan(window.candidate)
        elif not window.is_valid or self.objective.value(window) <= 0:
            entry.invalid += window.phase == "race"
            if _are_too_many(entry.invalid, entry):
                self._leave(window.candidate, "invalid", window.reason or f"{self.objective.figure} is not known of its windows")
        elif entry.step is not None and window.concurrency == self.ladder[entry.step]:
            entry.windows.append(window)
            self._arms.add((window.candidate, window.concurrency))
            if reason := self._miss(entry):
                self._step_down(window.candidate, reason)

    def open(self, numbers: Iterable[int]) -> None:
        """Further configurations join the race; nothing changes for those that have."""
        for number in numbers:
            self.entries.setdefault(number, Entry(joined_later=True))

    def scan_step(self, candidate: int, start: int = 0) -> int | None:
        """The step of the ladder to scan next; None once it is known where the configuration is measured."""
        entry = self.entries[candidate]
        if entry.step is not None or entry.state != "waiting":
            return None
        scanned = self._scanned(entry)
        first = self.ladder.index(entry.scans[0].concurrency) if entry.scans else start
        step = next_step(scanned, first, len(self.ladder))
        if step is None and best_step(scanned) is None:
            lowest = min(one.step for one in scanned)
            times = sum(one.concurrency == self.ladder[lowest] and not _is_doubtful(one) for one in entry.scans)
            return lowest if times < _SCANS_UNTIL_UNMET else None
        return step

    def close_round(self, number: int | None = None) -> None:
        """Judges the race after a round, by default after the last one that has windows."""
        last = max((window.round for entry in self.entries.values() for window in entry.windows if window.phase == "race"), default=0)
        number = last if number is None else number
        if number <= self.closed_round:
            return
        self.closed_round = number
        left = self._racing()
        if number < 2 or not left:
            return
        further = len(self._arms) - len({candidate for candidate, _ in self._arms})
        self.standing = stand(self.race_windows(), left, self._most + further, number)
        for index, better in self.standing.worse.items():
            entry = self.entries[index]
            entry.state, entry.better, entry.out_after = "worse", better, number

    def left(self) -> list[int]:
        """The configurations that are still measured in the race."""
        return [index for index, entry in self.entries.items() if entry.state in ("waiting", "racing")]

    def in_round(self, number: int) -> list[int]:
        """The configurations that are measured in a round: in every second one only the better half."""
        return self.left() if number % 2 else self.better_half()

    def better_half(self) -> list[int]:
        """The better half of more than a few that are left, by the rounds that were judged, and the present one.

        Those that joined later are in it until they are compared. Windows of the round under way have no part in it, so that a tune that is
        continued in the middle of a round measures the same ones.
        """
        left = self.left()
        if len(left) <= _FEW:
            return left
        known = self.standing.effects if self.standing is not None else self._values_of_closed_rounds()
        ranked = sorted(left, key=lambda one: known.get(one, -math.inf), reverse=True)
        chosen = {0, *ranked[: -(-len(left) // 2)]}
        return [one for one in left if one in chosen or self.entries[one].state == "waiting" or self.entries[one].is_pending]

    def _values_of_closed_rounds(self) -> dict[int, float]:
        """The logarithm of what each configuration is worth in the race up to the last round that was judged."""
        rounds = {
            index: [value for number, value in held.items() if number <= self.closed_round] for index, held in self.race_windows().items()
        }
        return {index: statistics.fmean(map(math.log, values)) for index, values in rounds.items() if values}

    @property
    def leader(self) -> int | None:
        """The best configuration so far; None while none races."""
        racing = self._racing()
        if self.standing is not None and self.standing.leader in racing:
            return self.standing.leader
        return max(racing, key=self.value, default=None)

    def _racing(self) -> list[int]:
        return [index for index, entry in self.entries.items() if entry.state == "racing" and not entry.is_pending]

    def bound(self, candidate: int) -> float | None:
        """By which factor the best configuration may be better than this one, at most; None while nothing is known."""
        if self.standing is None or any(entry.state == "waiting" and not entry.is_pending for entry in self.entries.values()):
            return None
        known = self.standing.bounds.get(candidate)
        return known if known is not None and known < float("inf") else None

    def is_decided(self, indifference: float) -> int | None:
        """The configuration that no other is better than by more than the share, the present one at first; None while none is known."""
        for candidate in (0, self.leader):
            if candidate is not None and self.entries[candidate].state == "racing":
                bound = self.bound(candidate)
                if bound is not None and bound <= 1 + indifference:
                    return candidate
        return None

    def ratio(self, candidate: int) -> Ratio | None:
        """The value of a configuration ÷ that of the present one, from the windows of the confirmation alone."""
        return ratio_of_pairs(self.pairs(candidate))

    def shows_slo(self, candidate: int) -> bool:
        """Whether a configuration is shown to meet the SLO, if there is one."""
        return self._slo is None or (bool(self.entries[candidate].windows) and self.judged(candidate).verdict == "satisfied")

    def choice(self, indifference: float) -> tuple[int | None, Ratio | None, Answer | None]:
        """The best configuration so far, its ratio to the present one, and what the two say; None while they say nothing."""
        decided = self.is_decided(indifference)
        best = self.leader if decided is None else decided
        ratio = None if best is None or best == 0 else self.ratio(best)
        if best is None or decided is None:
            return best, ratio, None
        if best == 0:
            return best, ratio, "kept"
        if self.entries[0].state == "unmet":
            return best, ratio, "better"
        return best, ratio, None if ratio is None else answer_of(ratio, self.bound(best), indifference)

    def is_raced(self, indifference: float) -> bool:
        """Whether further rounds would tell nothing; the confirmation has further windows of the best one, unless it is the present one."""
        if any(self.entries[one].is_pending for one in self.left()) or self.needs_rounds(indifference):
            return False
        decided = self.is_decided(indifference)
        best = self.left()[0] if decided is None and len(self.left()) == 1 else decided
        return best is not None and (self.shows_slo(best) or self.is_confirmable(best))

    def is_confirmable(self, candidate: int) -> bool:
        """Whether a configuration can be compared with the present one in pairs: another one, while both can be measured."""
        return candidate != 0 and all(self.entries[one].state in ("racing", "worse") for one in (candidate, 0))

    def needs_rounds(self, indifference: float) -> bool:
        """Whether further rounds of the race decide what further pairs cannot.

        That is where the leader is better than the present one by at most half of the share, but another one may be better than the leader by
        so much that it is not known whether the present one is to be kept.
        """
        best = self.is_decided(indifference)
        ratio, bound = (None, None) if best is None or best == 0 else (self.ratio(best), self.bound(best))
        if ratio is None or bound is None:
            return False
        return ratio.low <= 1 and ratio.high <= 1 + indifference / 2 and ratio.high * bound > 1 + indifference

    def pairs(self, candidate: int) -> list[tuple[float, float]]:
        """The values of a configuration and of the present one in the pairs of the confirmation."""
        mine, present = (
            {one.round: self.objective.value(one) for one in self.entries[index].windows if one.phase == "confirmation"}
            for index in (candidate, 0)
        )
        return [(mine[number], present[number]) for number in sorted(mine.keys() & present.keys())]

    def levels(self) -> dict[int, float]:
        """The logarithm of what each measured configuration is worth, less that of the rounds by the last standing, if there is one."""
        measured = {index: math.log(self.value(index)) for index, entry in self.entries.items() if entry.windows}
        known = measured if self.standing is None else self.standing.effects
        return {index: known[index] for index, entry in self.entries.items() if index in known and not entry.is_pending}

    def value(self, candidate: int) -> float:
        """The geometric mean of the objective's value at its step; 0 without a window."""
        windows = self.entries[candidate].windows
        return statistics.geometric_mean(map(self.objective.value, windows)) if windows else 0.0

    def throughput_per_s(self, candidate: int) -> float:
        """The mean throughput at its step; 0 without a window."""
        windows = self.entries[candidate].windows
        return sum(one.throughput_per_s * one.length_s for one in windows) / sum(one.length_s for one in windows) if windows else 0.0

    def server_cpus(self, candidate: int) -> float | None:
        """The CPUs that the server's processes kept busy, on average; None where that is not known."""
        known = [(one.server_cpus, one.length_s) for one in self.entries[candidate].windows if one.server_cpus is not None]
        return sum(cpus * length_s for cpus, length_s in known) / sum(length_s for _, length_s in known) if known else None

    def percentile_ns(self, candidate: int, quantile: float) -> int | None:
        """A percentile of the times at its step; None with too few."""
        times = BucketCounts.merged(part for one in self.entries[candidate].windows for part in times_of(one))
        return None if is_withheld(quantile, times.count) else min(times.values_at([quantile])[0], times.max_ns)

    def judged(self, candidate: int) -> SloVerdict:
        """The SLO's verdict on the pooled windows at its step; only with an SLO."""
        return self._judge(self.entries[candidate].windows)

    def _miss(self, entry: Entry) -> str:
        """Why a configuration cannot stay at its step: windows are over a limit, fall short of the load, or violate the SLO; a sentence, else empty.

        Most of the windows: a disturbance is in few of them.
        """
        most = len(entry.windows) / 2
        if len(entry.windows) < _FEWEST_TO_STEP_DOWN:
            return ""
        if len(over := [one.over for one in entry.windows if one.over]) > most:
            return over[0]
        if (shortfall := self.objective.shortfall(entry.windows)) or self._slo is None:
            return shortfall
        each = [self._judge([one]) for one in entry.windows]
        is_shown = self._judge(entry.windows).verdict == "violated" or sum(one.verdict == "violated" for one in each) > most
        is_missed = is_shown and sum(one.is_beyond for one in each) > most
        return self._judge(entry.windows).reason if is_missed else ""

    def _judge(self, windows: Sequence[Window]) -> SloVerdict:
        assert self._slo is not None
        parts = [list(times_of(one)) for one in windows]
        counts = {
            name: sum(getattr(one, name) for one in windows) for name in ("scheduled", "failed", "answers", "checked", "wrong", "refused")
        }
        answers = CheckedAnswers(counts["answers"], counts["checked"], counts["wrong"], counts["refused"])
        times = JudgedTimes(BucketCounts.merged(one for part in parts for one in part), parts)
        return judge_slo(self._slo, times, counts["failed"] / max(counts["scheduled"], 1), answers=answers)

    def _scanned(self, entry: Entry) -> list[Scanned]:
        """The last window of each step, without those that say more of the load generator than of the target."""
        scanned = {}
        for one in entry.scans:
            if not _is_doubtful(one):
                meets = _is_answered(one) and not one.over and not self.objective.shortfall([one])
                meets = meets and (self._slo is None or self._judge([one]).verdict != "violated")
                scanned[one.concurrency] = Scanned(self.ladder.index(one.concurrency), one.throughput_per_s, meets)
        return list(scanned.values())

    def _end_scan(self, candidate: int) -> None:
        entry = self.entries[candidate]
        entry.step = best_step(self._scanned(entry))
        if entry.step is not None:
            entry.state = "racing"
            return
        least = min([one for one in entry.scans if not _is_doubtful(one)] or entry.scans, key=lambda one: one.concurrency)
        judged = self._judge([least]).reason if self._slo is not None else "no request was answered"
        self._leave(candidate, "unmet", least.reason or least.over or self.objective.shortfall([least]) or judged)

    def _leave(self, candidate: int, state: State, reason: str) -> None:
        """Takes a configuration out of the race, for another reason than a better one."""
        entry = self.entries[candidate]
        entry.state, entry.reason, entry.better, entry.out_after = state, reason, None, 0
        self._revive(candidate)

    def _revive(self, candidate: int) -> None:
        """Puts the configurations that were dropped because of this one back into the race."""
        dropped = [other for other in self.entries.values() if other.state == "worse" and other.better == candidate]
        for other in dropped:
            other.state, other.better, other.out_after = "racing", None, 0
        if dropped:
            self.standing = None

    def _step_down(self, candidate: int, reason: str) -> None:
        """Measures a configuration with fewer requests in flight; without any, it is out for this reason."""
        entry = self.entries[candidate]
        assert entry.step is not None
        entry.windows, entry.invalid = [], 0
        if entry.step == 0:
            entry.step = None
            self._leave(candidate, "unmet", reason)
        else:
            entry.step -= 1
            entry.state, entry.better, entry.out_after = "racing", None, 0
            self._revive(candidate)
        self.standing = None

    def race_windows(self) -> Mapping[int, Mapping[int, float]]:
        """The value of each window of the race, by configuration and round, of those that were not left out."""
        return {
            index: {one.round: self.objective.value(one) for one in entry.windows if one.phase == "race"}
            for index, entry in self.entries.items()
            if entry.state in ("racing", "worse") and any(one.phase == "race" for one in entry.windows)
        }


def _is_answered(window: Window) -> bool:
    return window.failed <= MOST_FAILED_SHARE * max(window.scheduled, 1) and window.throughput_per_s > 0


def _is_doubtful(window: Window) -> bool:
    """Whether requests were answered, but the figures may be the load generator's."""
    return not window.is_valid and _is_answered(window)


def _are_too_many(number: int, entry: Entry) -> bool:
    """Whether so many windows without a figure end a configuration."""
    return number >= max(_FEWEST_INVALID, _MOST_INVALID * len(entry.windows) + 1)
