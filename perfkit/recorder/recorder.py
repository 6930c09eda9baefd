"""Records the replies of one worker in one load point, in batches, so that a reply costs little while load is sent."""

import collections
import itertools
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from perfkit.protocol.message import TokenCounts
from perfkit.recorder.attempts import Attempts
from perfkit.recorder.batches import BatchRecorder, tally
from perfkit.recorder.failures import FailureKinds
from perfkit.recorder.recent import LiveFigures, RecentReplies
from perfkit.recorder.recording import AddressRecorder, AnswerTotals, Labels, Recording
from perfkit.recorder.reply_batch import (
    CODES,
    IN_DISTRIBUTION,
    IS_ABANDONED,
    IS_ANSWERED,
    IS_FAILED,
    IS_TIMED,
    IS_UNANSWERED,
    IS_UNTIMED,
    ReplyBatch,
)
from perfkit.recorder.series import Instants, Series, SeriesRecorder
from perfkit.recorder.stops import StopDetector
from perfkit.recorder.streamed_times import EVENTS, RESPONSES, streamed_times
from perfkit.recorder.token_figures import PER_TOKEN_TIME, TokenFigures, token_figures
from perfkit.transport.base import Outcome, Reply, RetriedReply
from perfkit.units import NS_PER_S

_BATCH = 1024
# smaller batches delay the arrivals of an open loop less, and cost a little more in total
_OPEN_BATCH = 256
# replies come in bursts: a step with each reply would add up
_STEP_EVERY = 8
_STEP_RESPONSES = 8192
"""About as many responses to streamed requests are counted in one step."""

_OK, _ABANDONED = Outcome.OK, Outcome.ABANDONED
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
        self._recent = RecentReplies(is_open=is_open, timed=IN_DISTRIBUTION) if is_live else None
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
        """Records the next part of the batch that is being recorded, and starts to record the following batch if it is full."""
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
        codes, service_ns = np.array([CODES[one.outcome] for one in sent]), np.array([one.finished_ns - one.started_ns for one in sent])
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
        replies, self._batch = self._batch, []
        self._recorded += len(replies)
        self._work = self._steps(ReplyBatch(replies, self._window_start_ns, window_end_ns, is_open=self._is_open))

    def _finish_work(self) -> None:
        if self._work is not None:
            collections.deque(self._work, maxlen=0)
            self._work = None

    def _steps(self, batch: ReplyBatch) -> Iterator[None]:
        intended, started, finished, codes = batch.intended_ns, batch.started_ns, batch.finished_ns, batch.codes
        self._count_awaited(batch)
        self._count_answers(batch)
        yield
        tokens = None if self._count_tokens is None else token_figures(batch.replies)
        good = self._good(batch, tokens)
        yield from self._count_ended(batch, good)
        self._record_further(batch)
        yield
        timed = self._timed(batch)
        if self._recent is not None:
            self._recent.add(intended, started, finished, timed)
        self._add_to_series(batch, good)
        yield
        self._series.add_times(intended[timed], (finished - intended)[timed])
        yield
        inside = batch.is_inside(intended)
        streamed = yield from self._count_responses(batch, timed, inside)
        if self._addresses is not None:
            replicas = np.array([reply.replica for reply in batch.replies], dtype=np.int64)
            ok_inside = batch.is_inside(finished) & (codes == CODES[_OK])
            yield from self._addresses.add(replicas, intended, finished, codes, timed, inside, ok_inside)
        per_token = {} if tokens is None else self._record_tokens(batch, tokens, inside)
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
            paced = batch.paced_ns()
            times["pacing_delay"] = np.flatnonzero(inside), (paced - intended)[inside]
            if int((paced - intended).max()) > LATE_NS:
                late = places[(paced - intended)[places] > LATE_NS]
                times["late_time"] = late, (finished - intended)[late]
                times["late_least"] = late, (finished - paced)[late]
        if self._stops is not None and (touched := self._stops.touched(intended, finished)) is not None:
            self._batches.count("touched", intended[inside & touched.mask])
            self._batches.count("touched_failed", intended[inside & touched.mask & IS_UNANSWERED[codes]])
            own = places[touched.mask[places]]
            for name, change_ns in (
                ("touched_time", 0),
                ("touched_least", -touched.earlier_ns[own]),
                ("touched_most", touched.later_ns[own]),
            ):
                times[name] = own, np.maximum((finished - intended)[own] + change_ns, 0)
        for name, is_of_kind in (("abandoned_time", IS_ABANDONED), ("failure_time", IS_UNTIMED)):
            if (own := np.flatnonzero(inside & is_of_kind[codes])).size:
                times[name] = own, (finished - started)[own]
        places = np.flatnonzero(inside & IS_FAILED[codes])
        yield from self._batches.add(intended, codes, inside, times, {int(place): batch.replies[place].payload for place in places})

    def _timed(self, batch: ReplyBatch) -> npt.NDArray[np.bool_]:
        """Which replies have times; those that might have been given up and were not are counted instead."""
        timed: npt.NDArray[np.bool_] = IS_TIMED[batch.codes]
        if not self._some_leave:
            return timed
        may_leave: npt.NDArray[np.bool_] = np.array([reply.may_leave for reply in batch.replies], dtype=bool)
        early_ns = batch.intended_ns[timed & may_leave]
        self._batches.count("answered_early", early_ns[batch.is_inside(early_ns)])
        return timed & ~may_leave

    def _count_answers(self, batch: ReplyBatch) -> None:
        """Counts what the server saw; where requests are sent again, the attempts, by the window of their request and the second of their start."""
        started_ns, finished_ns, codes = batch.started_ns, batch.finished_ns, batch.codes
        if self._some_retry:
            attempts = Attempts.of(batch.replies, batch.intended_ns, started_ns, finished_ns, codes)
            self._count_attempts(batch, attempts)
            started_ns, finished_ns, codes = attempts.started_ns, attempts.finished_ns, attempts.codes
            self._series.add_attempts_answered(finished_ns[IS_ANSWERED[codes]])
        self._answer_totals = AnswerTotals.added((self._answer_totals, AnswerTotals.counted(codes, finished_ns - started_ns)))

    def _count_attempts(self, batch: ReplyBatch, attempts: Attempts) -> None:
        for name, instants_ns in attempts.counts():
            self._batches.count(name, instants_ns[batch.is_inside(instants_ns)])
        is_inside = batch.is_inside(attempts.started_ns)
        self._count_seconds(self._attempts_per_s, attempts.started_ns[is_inside])
        self._count_seconds(self._retries_per_s, attempts.started_ns[is_inside & attempts.is_retry])

    def _add_to_series(self, batch: ReplyBatch, good: npt.NDArray[np.bool_]) -> None:
        intended_ns, finished_ns, codes = batch.intended_ns, batch.finished_ns, batch.codes
        self._series.add_answered(finished_ns[IS_ANSWERED[codes] & ~IS_ABANDONED[codes]])
        self._series.add_scheduled(intended_ns[~IS_ABANDONED[codes]])
        if self._series.has_surge:
            self._series.add_good(intended_ns[good & (codes == CODES[_OK])])
            self._series.add_in_flight(intended_ns, finished_ns[codes != CODES[Outcome.UNFINISHED]])

    def _count_awaited(self, batch: ReplyBatch) -> None:
        if self._awaited_ns is not None:
            sent_ns = batch.paced_ns() if self._is_open else batch.started_ns
            self.answered_awaited += int(np.count_nonzero(sent_ns <= self._awaited_ns))

    def _count_responses(
        self, batch: ReplyBatch, timed: npt.NDArray[np.bool_], inside: npt.NDArray[np.bool_]
    ) -> Generator[None, None, Mapping[str, tuple[Instants, Instants]]]:
        """Counts the responses to streamed requests, if they are any, in steps; their times, as `StreamedTimes.times`."""
        if not self._is_streamed:
            return {}
        replies, intended_ns = batch.replies, batch.intended_ns
        if self._recent is not None:
            self._recent.add_first(replies, intended_ns)
        names = RESPONSES if self._count_tokens is None else EVENTS
        responses = np.cumsum([len(reply.responses_ns) for reply in replies])
        ends = [*(np.flatnonzero(np.diff(responses // _STEP_RESPONSES)) + 1).tolist(), len(replies)]
        times = collections.defaultdict[str, list[tuple[Instants, Instants]]](list)
        for first, end in itertools.pairwise([0, *ends]):
            part = slice(first, end)
            streamed = streamed_times(replies[part], intended_ns[part], batch.finished_ns[part], timed[part], inside[part], names)
            self._responses += streamed.instants_ns.size
            self._batches.count("responses_ended", streamed.instants_ns[batch.is_inside(streamed.instants_ns)])
            for name, requests in streamed.counts.items():
                self._batches.count(name, intended_ns[part][requests])
            for name, (requests, values_ns) in streamed.times.items():
                times[name].append((requests + first, values_ns))
            yield
        return {
            name: (np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])) for name, parts in times.items()
        }

    def _good(self, batch: ReplyBatch, tokens: TokenFigures | None) -> npt.NDArray[np.bool_]:
        """Which requests are within each limit; one has no first response, or no further token, is not beyond the limit of those."""
        good, begun_ns = np.ones(len(batch.replies), dtype=bool), batch.intended_ns
        for name, limit_ns in self._good_within_ns.items():
            if name == PER_TOKEN_TIME:
                good &= True if tokens is None else tokens.per_token_ns <= limit_ns
            elif name == WAITED:
                good &= batch.finished_ns - begun_ns <= limit_ns
            else:
                first_ns = np.array([reply.responses_ns[0] if reply.responses_ns else 0 for reply in batch.replies], dtype=np.int64)
                good &= first_ns - begun_ns <= limit_ns
        return good

    def _record_tokens(
        self, batch: ReplyBatch, tokens: TokenFigures, inside: npt.NDArray[np.bool_]
    ) -> Mapping[str, tuple[Instants, Instants]]:
        """Counts what servers report of the requests of the window, and the tokens of those that ended in it; the times per token."""
        ended = batch.is_inside(batch.finished_ns)
        for name, (places, amounts) in tokens.counts.items():
            self._batches.count(name, batch.intended_ns[places], amounts * inside[places])
            if name in _ENDED:
                self._batches.count(_ENDED[name], batch.finished_ns[places], amounts * ended[places])
        known = np.flatnonzero(inside & (tokens.per_token_ns >= 0))
        return {PER_TOKEN_TIME: (known, tokens.per_token_ns[known])}

    def _count_ended(self, batch: ReplyBatch, good: npt.NDArray[np.bool_]) -> Iterator[None]:
        finished_ns, codes = batch.finished_ns, batch.codes
        inside = batch.is_inside(finished_ns)
        is_ended, is_ok = inside & (codes != CODES[Outcome.UNFINISHED]), inside & (codes == CODES[_OK])
        is_failed = is_ended & IS_FAILED[codes]
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
            dropped = intended_ns[batch.is_inside(intended_ns)]
            self._batches.count("dropped", dropped)
            self._count_seconds(self._failed_per_s, dropped)
            if is_late:
                self._batches.count("unsent", dropped)

    def _count_seconds(self, counts: collections.Counter[int], instants_ns: Instants) -> None:
        for second, count in tally((instants_ns - self._window_start_ns) // NS_PER_S):
            counts[second] += count

    def _record_further(self, batch: ReplyBatch) -> None:
        """Records the counts and times in the batch's window that belong to no single reply; they are few."""
        if not (self._further or self._events):
            return
        events, self._events = self._events, {}
        for name, instants in events.items():
            instants_ns = np.array(instants, dtype=np.int64)
            self._batches.count(name, instants_ns[batch.is_inside(instants_ns)])
        further, self._further = self._further, {}
        for name, pairs in further.items():
            begun_ns, times_ns = np.array(pairs, dtype=np.int64).T
            inside = batch.is_inside(begun_ns)
            self._batches.add_times(name, begun_ns[inside], times_ns[inside])


def _take_before(counts: collections.Counter[int], end_s: int | None) -> dict[int, int]:
    """Removes and returns the counts of the seconds before `end_s`; of all seconds if it is None."""
    return {second: counts.pop(second) for second in sorted(counts) if end_s is None or second < end_s}
