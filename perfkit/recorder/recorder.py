"""Records the replies of one worker in one load point, in batches, so that a reply costs little while load is sent."""

import collections
import itertools
import struct
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from perfkit.protocol.message import TokenCounts
from perfkit.recorder.attempts import Attempts
from perfkit.recorder.batches import BatchRecorder, tally
from perfkit.recorder.failures import FailureKinds
from perfkit.recorder.recent import LiveFigures, RecentReplies
from perfkit.recorder.recording import AddressRecorder, AnswerTotals, Labels, Recording
from perfkit.recorder.series import Instants, Series, SeriesRecorder
from perfkit.recorder.stops import StopDetector
from perfkit.recorder.streamed_times import EVENTS, RESPONSES, streamed_times
from perfkit.recorder.token_figures import PER_TOKEN_TIME, TokenFigures, token_figures
from perfkit.transport.base import Outcome, Reply, RetriedReply
from perfkit.units import NS_PER_S

_BATCH = 1024
# smaller batches delay the arrivals of an open loop less, and cost a little more in total
_OPEN_BATCH = 256
# replies come in bursts: a step with each reply would add up; batches are multiples of it
_STEP_EVERY = 8
_STEP_RESPONSES = 8192
"""About as many responses to streamed requests are counted in one step."""

# distributions hold answers, and requests without an answer at their age, which is a lower bound
_IN_DISTRIBUTION = (Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.TIMED_OUT, Outcome.UNFINISHED)
_CODES = {outcome: code for code, outcome in enumerate(Outcome)}
# tables by code, since the cost of `np.isin` hardly depends on the number of requests
_IS_TIMED = np.array([outcome in _IN_DISTRIBUTION for outcome in Outcome])
# the server may still be working on a request that timed out or is unfinished
_IS_ANSWERED = np.array([outcome not in (Outcome.TIMED_OUT, Outcome.UNFINISHED) for outcome in Outcome])
_OK, _ABANDONED = Outcome.OK, Outcome.ABANDONED
_IS_ABANDONED = np.array([outcome is _ABANDONED for outcome in Outcome])
_IS_FAILED = np.array([outcome not in (_OK, _ABANDONED) for outcome in Outcome])
_IS_UNTIMED = _IS_FAILED & ~_IS_TIMED
# a failure that a stop of the generator may have caused
_IS_UNANSWERED = np.array(
    [outcome in (Outcome.TIMED_OUT, Outcome.CONNECT_FAILED, Outcome.BROKEN, Outcome.UNFINISHED) for outcome in Outcome]
)
WAITED = "waited"
"""The name of the limit on what `stats.slo` calls waited: the response time, in a closed loop the service time."""
_ENDED = {"input_tokens": "input_tokens_ended", "output_tokens": "output_tokens_ended"}
LATE_NS = 1_000_000
"""A request that is sent later than this after its time is recorded as late."""


class Recorder:
    """Takes replies one by one and records them in batches, in memory that does not grow with the length of the window.

    Times and counts are recorded by name, and each name is merged, cut and pooled like every other. Those with a figure in the result are
    declared there (`result/`); the others are `ended` (requests that ended in the window), `checked_wrong` (answers of the sample that were wrong), and what judges the load generator:
    `unsent` (drops that are its own fault), `touched` and `touched_failed` (requests that its stops touched), the times of these requests
    and what they would have been at least and at most without a stop (`touched_time`, `touched_least`, `touched_most`), and the times of
    requests that were sent late and what they would have been without that delay (`late_time`, `late_least`).

    `describe_failure` and `raw_failure` are those of `FailureKinds`. `check` may read an answer before its payload is dropped,
    change its outcome, and returns whether it was one of the sample. An OK answer within each limit of `good_within_ns` is good: `WAITED`, or the name of a time of streams or tokens. `stops` finds the stops of this
    process; they are not in the recording, because the workloads of a worker share them. With `is_streamed` the replies have the instants of their responses; `count_tokens`
    gives the tokens that an OK answer reports. With `is_live` the newest replies can be
    taken as `LiveFigures`. `surge_slot_ns` is the interval of the series of a load with a surge. With `some_leave` replies may have
    the mark `may_leave`: they are in no times, since only the quick ones of such requests have a whole time. With `some_retry` there may be a `RetriedReply`, whose attempts are counted, too. `labels` names the addresses of a target with several. The recording can be taken out piece
    by piece while load is sent; all pieces add up.
    """

    def __init__(
        self,
        describe_failure: Callable[[Reply], str] = lambda reply: reply.error,
        raw_failure: Callable[[Reply], Hashable] = lambda reply: reply.error,
        *,
        window_start_ns: int,
        window_end_ns: int | None,
        series_start_ns: int | None = None,
        surge_slot_ns: int | None = None,
        some_leave: bool = False,
        some_retry: bool = False,
        is_open: bool = False,
        check: Callable[[Reply], bool] | None = None,
        good_within_ns: Mapping[str, int] | None = None,
        count_tokens: Callable[[Reply], TokenCounts | None] | None = None,
        stops: StopDetector | None = None,
        is_live: bool = False,
        is_streamed: bool = False,
        labels: Labels | None = None,
    ) -> None:
        self.failed = 0
        self._responses = self._output_tokens = 0
        self._is_streamed = is_streamed
        self._further: dict[str, list[tuple[int, int]]] = {}
        self._events: dict[str, list[int]] = {}
        self._window_start_ns, self._window_end_ns = window_start_ns, window_end_ns
        self._failures = FailureKinds(describe_failure, raw_failure)
        self._check = check
        self._good_within_ns = good_within_ns or {}
        self._count_tokens = count_tokens
        self._stops = stops
        self._batch: list[Reply] = []
        self._recorded = 0
        self._drops: list[tuple[Instants, bool]] = []
        self._work: Iterator[None] | None = None
        self._is_open, self._some_leave, self._some_retry = is_open, some_leave, some_retry
        self._recent = RecentReplies(is_open=is_open, timed=_IN_DISTRIBUTION) if is_live else None
        self._batch_size = _OPEN_BATCH if is_open else _BATCH
        self._series = SeriesRecorder(window_start_ns if series_start_ns is None else series_start_ns, window_end_ns, surge_slot_ns)
        window_ns = None if window_end_ns is None else window_end_ns - window_start_ns
        self._batches = BatchRecorder(window_start_ns, window_ns)
        self._addresses = None
        if labels is not None:
            self._addresses = AddressRecorder(labels, window_start_ns, window_ns, is_open=is_open)
        self._awaited_ns: int | None = None
        self.answered_awaited = 0
        """The replies since `await_sent_until` to requests that were sent until its instant, as far as they are recorded."""
        self._finished_per_s: collections.Counter[int] = collections.Counter()
        self._failed_per_s: collections.Counter[int] = collections.Counter()
        self._attempts_per_s: collections.Counter[int] = collections.Counter()
        self._retries_per_s: collections.Counter[int] = collections.Counter()
        self._last_finished_ns = 0
        self._answer_totals = AnswerTotals()

    @property
    def replies(self) -> int:
        """The number of replies so far, including those of the warm-up."""
        return self._recorded + len(self._batch)

    def live_figures(self, worker: int, at_ns: int, in_flight: int) -> LiveFigures:
        """The replies since the last call, for a live view; needs `is_live`."""
        assert self._recent is not None
        times_ns, delays_ns = self._recent.take(self._batch, self._recorded)
        responses = self._responses + sum(len(reply.responses_ns) for reply in self._batch) if self._is_streamed else None
        first_ns, tokens = self._recent.take_first() if self._is_streamed else None, self._output_tokens or None
        return LiveFigures(worker, at_ns, self.replies, self.failed, in_flight, times_ns, delays_ns, responses, tokens, first_ns)

    def add(self, reply: Reply) -> None:
        """Takes one reply."""
        check = self._check  # by way of a local (docs/architecture.md)
        if check is not None and check(reply):
            begun_ns = reply.intended_ns if self._is_open else reply.started_ns
            self.count("checked", begun_ns)
            if reply.outcome is not _OK:
                self.count("checked_wrong", begun_ns)
        if reply.outcome is _OK:
            if self._count_tokens is not None:
                reply.tokens = self._count_tokens(reply)
                self._output_tokens += 0 if reply.tokens is None else reply.tokens.output
            reply.payload = None
        elif reply.outcome is _ABANDONED:
            reply.payload = None
        else:
            self.failed += 1
            reply.payload = self._failures.kind(reply)  # in place of the answer, until it is recorded
        batch = self._batch
        batch.append(reply)
        if not len(batch) % _STEP_EVERY:
            self._take_step()

    def _take_step(self) -> None:
        """A step of the last batch, if it is not recorded yet; the first one of the new batch if that is full."""
        if self._work is not None and next(self._work, self) is self:
            self._work = None
        if len(self._batch) >= self._batch_size:
            self._begin_work(self._window_end_ns)

    def add_time(self, name: str, begun_ns: int, time_ns: int) -> None:
        """Takes a time that belongs to no single reply, such as that of a sequence, and when it began."""
        self._further.setdefault(name, []).append((begun_ns, time_ns))

    def count(self, name: str, instant_ns: int) -> None:
        """Increments a count of events that belong to no single reply, if the instant is in the window."""
        self._events.setdefault(name, []).append(instant_ns)

    def add_untimed(self, reply: Reply) -> None:
        """Takes a reply that is in no figure, but which the server counts."""
        sent = reply.attempts if isinstance(reply, RetriedReply) else (reply,)
        codes, service_ns = np.array([_CODES[one.outcome] for one in sent]), np.array([one.finished_ns - one.started_ns for one in sent])
        self._answer_totals = AnswerTotals.added((self._answer_totals, AnswerTotals.counted(codes, service_ns)))

    def drop(self, intended_ns: Instants, is_late: bool) -> None:
        """Counts arrivals that were not sent, by their intended start; `is_late` if that is due to the load generator."""
        self._drops.append((intended_ns, is_late))

    def end_window(self, instant_ns: int) -> None:
        """Ends the window earlier than planned; later answers do not count as throughput."""
        self._window_end_ns = instant_ns

    def finish(self, window_end_ns: int | None) -> Recording:
        """The rest of the recording of a window that ended then, or, if that is None, with its last answer."""
        self._begin_work(window_end_ns)
        self._finish_work()
        end_ns = max(self._last_finished_ns, self._window_start_ns) if window_end_ns is None else window_end_ns
        return self._piece(None, end_ns, self._series.finish())

    def record_pending(self) -> Iterator[None]:
        """Records all replies so far, in steps of less than a millisecond."""
        yield from self._remaining_steps()
        self._begin_work(self._window_end_ns)
        yield from self._remaining_steps()

    def _remaining_steps(self) -> Iterator[None]:
        while self._work is not None:
            yield
            if self._work is not None and next(self._work, self) is self:
                self._work = None

    def await_sent_until(self, instant_ns: int) -> None:
        """Counts in `answered_awaited`, from now on, replies to requests that the loop had sent until that instant."""
        collections.deque(self.record_pending(), maxlen=0)
        self._awaited_ns, self.answered_awaited = instant_ns, 0

    def take_before(self, instant_ns: int) -> Recording:
        """The recording since the last call until an instant, whole seconds after the window's start; later answers are in the next piece."""
        collections.deque(self.record_pending(), maxlen=0)
        return self._piece(instant_ns, instant_ns, self._series.take())

    def _piece(self, before_ns: int | None, end_ns: int, series: Series) -> Recording:
        """What was recorded of the seconds before an instant, or of all, and not taken yet."""
        seconds = None if before_ns is None else (before_ns - self._window_start_ns) // NS_PER_S
        batch_ns, totals = self._batches.batch_ns, self._answer_totals
        self._answer_totals = AnswerTotals()
        return Recording(
            origin_ns=self._window_start_ns,
            end_ns=end_ns,
            batch_ns=batch_ns,
            batches=self._batches.take_before(before_ns),
            series=series,
            finished_per_s=_take_before(self._finished_per_s, seconds),
            failed_per_s=_take_before(self._failed_per_s, seconds),
            attempts_per_s=_take_before(self._attempts_per_s, seconds),
            retries_per_s=_take_before(self._retries_per_s, seconds),
            answer_totals=totals,
            by_address={} if self._addresses is None else self._addresses.take_before(before_ns, batch_ns),
        )

    def _begin_work(self, window_end_ns: int | None) -> None:
        """Starts to record the replies so far; in steps, since all at once would delay an arrival by half a millisecond."""
        self._finish_work()
        if self._stops is not None:
            self._stops.check()  # before the replies that a stop touched are recorded
        batch, self._batch = self._batch, []
        self._recorded += len(batch)
        self._work = self._steps(batch, window_end_ns)

    def _finish_work(self) -> None:
        if self._work is not None:
            collections.deque(self._work, maxlen=0)
            self._work = None

    def _steps(self, batch: list[Reply], window_end_ns: int | None) -> Iterator[None]:
        started = _instants([reply.started_ns for reply in batch])
        finished = _instants([reply.finished_ns for reply in batch])
        codes = _codes([reply.outcome for reply in batch])
        intended = _instants([reply.intended_ns for reply in batch]) if self._is_open else started
        self._count_awaited(batch, started)
        self._count_answers(batch, intended, started, finished, codes, window_end_ns)
        yield
        tokens = None if self._count_tokens is None else token_figures(batch)
        good = self._good(batch, intended, finished, tokens)
        yield from self._count_ended(finished, codes, good, window_end_ns)
        self._record_further(window_end_ns)
        yield
        timed = self._timed(batch, codes, intended, window_end_ns)
        if self._recent is not None:
            self._recent.add(intended, started, finished, timed)
        self._add_to_series(intended, finished, codes, good)
        yield
        self._series.add_times(intended[timed], (finished - intended)[timed])
        yield
        inside = self._is_inside(intended, window_end_ns)
        streamed = yield from self._count_responses(batch, intended, finished, timed, inside, window_end_ns)
        if self._addresses is not None:
            replicas = np.array([reply.replica for reply in batch], dtype=np.int64)
            ok_inside = self._is_inside(finished, window_end_ns) & (codes == _CODES[_OK])
            yield from self._addresses.add(replicas, intended, finished, codes, timed, inside, ok_inside)
        per_token = {} if tokens is None else self._record_tokens(tokens, intended, finished, inside, window_end_ns)
        if not inside.any():
            return
        self._last_finished_ns = max(self._last_finished_ns, int(finished[inside].max()))
        places = np.flatnonzero(inside & timed)
        times = {"service_time": (places, (finished - started)[places])}
        if self._is_open:
            times["response_time"] = places, (finished - intended)[places]
            times["start_delay"] = places, (started - intended)[places]
        times |= {**streamed, **per_token}
        if self._is_open:
            paced = _instants([reply.paced_ns for reply in batch])
            times["pacing_delay"] = np.flatnonzero(inside), (paced - intended)[inside]
            if int((paced - intended).max()) > LATE_NS:
                late = places[(paced - intended)[places] > LATE_NS]
                times["late_time"] = late, (finished - intended)[late]
                times["late_least"] = late, (finished - paced)[late]
        if self._stops is not None and (touched := self._stops.touched(intended, finished)) is not None:
            self._batches.count("touched", intended[inside & touched.mask])
            self._batches.count("touched_failed", intended[inside & touched.mask & _IS_UNANSWERED[codes]])
            own = places[touched.mask[places]]
            for name, change_ns in (
                ("touched_time", 0),
                ("touched_least", -touched.earlier_ns[own]),
                ("touched_most", touched.later_ns[own]),
            ):
                times[name] = own, np.maximum((finished - intended)[own] + change_ns, 0)
        for name, is_of_kind in (("abandoned_time", _IS_ABANDONED), ("failure_time", _IS_UNTIMED)):
            if (own := np.flatnonzero(inside & is_of_kind[codes])).size:
                times[name] = own, (finished - started)[own]
        places = np.flatnonzero(inside & _IS_FAILED[codes])
        yield from self._batches.add(intended, codes, inside, times, {int(place): batch[place].payload for place in places})

    def _timed(self, batch: list[Reply], codes: Instants, intended_ns: Instants, window_end_ns: int | None) -> npt.NDArray[np.bool_]:
        """Which replies have times; those that might have been given up and were not are counted instead."""
        timed: npt.NDArray[np.bool_] = _IS_TIMED[codes]
        if not self._some_leave:
            return timed
        may_leave: npt.NDArray[np.bool_] = np.array([reply.may_leave for reply in batch], dtype=bool)
        early_ns = intended_ns[timed & may_leave]
        self._batches.count("answered_early", early_ns[self._is_inside(early_ns, window_end_ns)])
        return timed & ~may_leave

    def _count_answers(
        self,
        batch: list[Reply],
        begun_ns: Instants,
        started_ns: Instants,
        finished_ns: Instants,
        codes: Instants,
        window_end_ns: int | None,
    ) -> None:
        """Counts what the server saw; where requests are sent again, the attempts, by the window of their request and the second of their start."""
        if self._some_retry:
            attempts = Attempts.of(batch, begun_ns, started_ns, finished_ns, codes)
            self._count_attempts(attempts, window_end_ns)
            started_ns, finished_ns, codes = attempts.started_ns, attempts.finished_ns, attempts.codes
            self._series.add_attempts_answered(finished_ns[_IS_ANSWERED[codes]])
        self._answer_totals = AnswerTotals.added((self._answer_totals, AnswerTotals.counted(codes, finished_ns - started_ns)))

    def _count_attempts(self, attempts: Attempts, window_end_ns: int | None) -> None:
        for name, instants_ns in attempts.counts():
            self._batches.count(name, instants_ns[self._is_inside(instants_ns, window_end_ns)])
        is_inside = self._is_inside(attempts.started_ns, window_end_ns)
        self._count_seconds(self._attempts_per_s, attempts.started_ns[is_inside])
        self._count_seconds(self._retries_per_s, attempts.started_ns[is_inside & attempts.is_retry])

    def _add_to_series(self, intended_ns: Instants, finished_ns: Instants, codes: Instants, good: npt.NDArray[np.bool_]) -> None:
        self._series.add_answered(finished_ns[_IS_ANSWERED[codes] & ~_IS_ABANDONED[codes]])
        self._series.add_scheduled(intended_ns[~_IS_ABANDONED[codes]])
        if self._series.has_surge:
            self._series.add_good(intended_ns[good & (codes == _CODES[_OK])])
            self._series.add_in_flight(intended_ns, finished_ns[codes != _CODES[Outcome.UNFINISHED]])

    def _count_awaited(self, batch: list[Reply], started_ns: Instants) -> None:
        if self._awaited_ns is not None:
            sent_ns = _instants([reply.paced_ns for reply in batch]) if self._is_open else started_ns
            self.answered_awaited += int(np.count_nonzero(sent_ns <= self._awaited_ns))

    def _count_responses(
        self,
        batch: list[Reply],
        intended_ns: Instants,
        finished_ns: Instants,
        timed: npt.NDArray[np.bool_],
        inside: npt.NDArray[np.bool_],
        window_end_ns: int | None,
    ) -> Generator[None, None, Mapping[str, tuple[Instants, Instants]]]:
        """Counts the responses to streamed requests, if they are any, in steps; their times, as `StreamedTimes.times`."""
        if not self._is_streamed:
            return {}
        if self._recent is not None:
            self._recent.add_first(batch, intended_ns)
        names = RESPONSES if self._count_tokens is None else EVENTS
        responses = np.cumsum([len(reply.responses_ns) for reply in batch])
        ends = [*(np.flatnonzero(np.diff(responses // _STEP_RESPONSES)) + 1).tolist(), len(batch)]
        times = collections.defaultdict[str, list[tuple[Instants, Instants]]](list)
        for first, end in itertools.pairwise([0, *ends]):
            part = slice(first, end)
            streamed = streamed_times(batch[part], intended_ns[part], finished_ns[part], timed[part], inside[part], names)
            self._responses += streamed.instants_ns.size
            self._batches.count("responses_ended", streamed.instants_ns[self._is_inside(streamed.instants_ns, window_end_ns)])
            for name, requests in streamed.counts.items():
                self._batches.count(name, intended_ns[part][requests])
            for name, (requests, values_ns) in streamed.times.items():
                times[name].append((requests + first, values_ns))
            yield
        return {
            name: (np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])) for name, parts in times.items()
        }

    def _good(self, batch: list[Reply], begun_ns: Instants, finished_ns: Instants, tokens: TokenFigures | None) -> npt.NDArray[np.bool_]:
        """Which requests are within each limit; one has no first response, or no further token, is not beyond the limit of those."""
        good = np.ones(len(batch), dtype=bool)
        for name, limit_ns in self._good_within_ns.items():
            if name == PER_TOKEN_TIME:
                good &= True if tokens is None else tokens.per_token_ns <= limit_ns
            elif name == WAITED:
                good &= finished_ns - begun_ns <= limit_ns
            else:
                first_ns = np.array([reply.responses_ns[0] if reply.responses_ns else 0 for reply in batch], dtype=np.int64)
                good &= first_ns - begun_ns <= limit_ns
        return good

    def _record_tokens(
        self, tokens: TokenFigures, intended_ns: Instants, finished_ns: Instants, inside: npt.NDArray[np.bool_], window_end_ns: int | None
    ) -> Mapping[str, tuple[Instants, Instants]]:
        """Counts what servers report of the requests of the window, and the tokens of those that ended in it; the times per token."""
        ended = self._is_inside(finished_ns, window_end_ns)
        for name, (places, amounts) in tokens.counts.items():
            self._batches.count(name, intended_ns[places], amounts * inside[places])
            if name in _ENDED:
                self._batches.count(_ENDED[name], finished_ns[places], amounts * ended[places])
        known = np.flatnonzero(inside & (tokens.per_token_ns >= 0))
        return {PER_TOKEN_TIME: (known, tokens.per_token_ns[known])}

    def _is_inside(self, intended_ns: Instants, window_end_ns: int | None) -> npt.NDArray[np.bool_]:
        inside: npt.NDArray[np.bool_] = intended_ns >= self._window_start_ns
        if window_end_ns is not None:
            inside &= intended_ns < window_end_ns
        return inside

    def _count_ended(
        self, finished_ns: Instants, codes: Instants, good: npt.NDArray[np.bool_], window_end_ns: int | None
    ) -> Iterator[None]:
        inside = self._is_inside(finished_ns, window_end_ns)
        is_ended, is_ok = inside & (codes != _CODES[Outcome.UNFINISHED]), inside & (codes == _CODES[_OK])
        is_failed = is_ended & _IS_FAILED[codes]
        ended_ns, ok_ns = finished_ns[is_ended], finished_ns[is_ok]
        self._batches.count("ended", ended_ns)
        self._batches.count("finished", ok_ns)
        self._count_seconds(self._finished_per_s, ok_ns)
        if ended_ns.size > ok_ns.size:
            self._count_seconds(self._failed_per_s, finished_ns[is_failed])
        inside = is_ok
        yield
        self._batches.count("good", finished_ns[inside & good])
        drops, self._drops = self._drops, []
        for intended_ns, is_late in drops:
            self._series.add_scheduled(intended_ns)
            dropped = intended_ns[self._is_inside(intended_ns, window_end_ns)]
            self._batches.count("dropped", dropped)
            self._count_seconds(self._failed_per_s, dropped)
            if is_late:
                self._batches.count("unsent", dropped)

    def _count_seconds(self, counts: collections.Counter[int], instants_ns: Instants) -> None:
        for second, count in tally((instants_ns - self._window_start_ns) // NS_PER_S):
            counts[second] += count

    def _record_further(self, window_end_ns: int | None) -> None:
        """Records the counts and times that belong to no single reply; they are few."""
        if not (self._further or self._events):
            return
        events, self._events = self._events, {}
        for name, instants in events.items():
            instants_ns = np.array(instants, dtype=np.int64)
            self._batches.count(name, instants_ns[self._is_inside(instants_ns, window_end_ns)])
        further, self._further = self._further, {}
        for name, pairs in further.items():
            begun_ns, times_ns = np.array(pairs, dtype=np.int64).T
            inside = self._is_inside(begun_ns, window_end_ns)
            self._batches.add_times(name, begun_ns[inside], times_ns[inside])


def _instants(values_ns: list[int]) -> Instants:
    """An array of them; NumPy would take four times the instructions."""
    return np.frombuffer(struct.pack(f"{len(values_ns)}q", *values_ns), dtype=np.int64)


def _codes(outcomes: list[Outcome]) -> Instants:
    """By `_CODES`; nearly always all are OK."""
    if outcomes.count(_OK) == len(outcomes):
        return np.full(len(outcomes), _CODES[_OK])
    return np.array([_CODES[outcome] for outcome in outcomes], dtype=np.int64)


def _take_before(counts: collections.Counter[int], end_s: int | None) -> dict[int, int]:
    """Removes and returns the counts of the seconds before `end_s`; of all seconds if it is None."""
    return {second: counts.pop(second) for second in sorted(counts) if end_s is None or second < end_s}
