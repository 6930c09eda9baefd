"""The result of a run as it grows: its environment, its load points, and how it ended.

From an unfinished result a run takes over the whole load points, as if it had measured them itself.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.clock import utc_now
from perfkit.errors import MeasurementWarning, ResultError, UsageError
from perfkit.load.loop import Ending, StopCause
from perfkit.load.point import LoadPoint
from perfkit.measurement.load_points import FixedPoints, LoadPointSource, describe_point
from perfkit.points.measured import PointMeasurement
from perfkit.points.point import LoadSummary
from perfkit.process.encoding import Encoding, MalformedError
from perfkit.result.distribution import QUANTILES
from perfkit.result.fingerprint import environment_differences, payload_digests
from perfkit.result.json_file import as_mapping
from perfkit.result.load import Load
from perfkit.result.model import MOST_FAILED_SHARE, Point, PointKey, Result, Resumption, Status
from perfkit.result.search import Search
from perfkit.result.whole_points import UnfinishedResult
from perfkit.scenario.file import LoadedScenario, scenario_document
from perfkit.spans.breakdown import Breakdown
from perfkit.stats.slo import SloLimits
from perfkit.units import NS_PER_S, format_duration_ns
from perfkit.workers.point_recording import STAND_INS

_MOST_TOLD = 5


class RunResult:
    """What `result.json` says so far; `plain` has the scenario of each workload, by its name."""

    def __init__(
        self, loaded: LoadedScenario, plain: Mapping[str | None, LoadedScenario], environment: dict[str, Any], *, is_search: bool
    ) -> None:
        self._loaded, self._plain, self._is_search = loaded, plain, is_search
        self.environment = environment
        self.status: Status = "complete"
        self._reason = ""
        self.points: list[Point] = []
        """Those of all repetitions, in the order of measurement; in a mix also each workload's."""
        self._summaries: dict[PointKey, LoadSummary] = {}
        self._measured_together: dict[PointKey, set[tuple[str, Load]]] = {}
        self._started_at = utc_now().isoformat(timespec="milliseconds")
        self._resumptions: tuple[Resumption, ...] = ()

    def add(self, measurements: Sequence[PointMeasurement]) -> Point:
        """Adds the points of one measurement, and returns the first, that of the whole."""
        for one in measurements:
            key = PointKey(one.workload, one.is_alone, one.protocol, one.load)
            self._measured_together.setdefault(key, set()).add((measurements[0].protocol, measurements[0].load))
            summary = self._summaries.setdefault(key, LoadSummary(slo=self._slo(one)))
            self.points.append(summary.add(one))
        return self.points[-len(measurements)]

    def continue_from(self, earlier: Result) -> None:
        """Takes over when the run had begun, and when it was resumed before."""
        self._started_at, self._resumptions = earlier.started_at, earlier.resumptions

    def resume(self, resumption: Resumption) -> None:
        """Adds that the run was resumed."""
        self._resumptions += (resumption,)

    def next_point(self, source: LoadPointSource, probe_time_ns: int) -> tuple[LoadPoint | None, int]:
        """The next load point, and how many were added because a verdict is open."""
        point, added = source.next_point(probe_time_ns), 0
        if point is None and isinstance(source, FixedPoints) and (added := source.go_on(self.undecided())):
            point = source.next_point(probe_time_ns)
        return point, added

    def end(self, status: Status, reason: str) -> None:
        """Sets why the run has ended before its last load point."""
        self.status, self._reason = status, reason

    def end_early(self, ending: Ending) -> None:
        """Ends the run if its load point was ended for a reason that the next one would share."""
        match ending.cause:
            case StopCause.FILE_LIMIT:
                self.end("invalid", ending.reason)
            case StopCause.WORKER_LOST:
                self.end("invalid", f"stopped: {ending.reason}")
            case StopCause.TARGET_LOST:
                self.end("incomplete", f"the target was lost: {ending.reason}")
            case StopCause.TOO_MANY_ERRORS:
                self.end("incomplete", f"aborted: {ending.reason}")

    def document(self, search: Search | None, breakdowns: Mapping[tuple[PointKey, int | None], Breakdown]) -> Result:
        """The result with all load points so far, the state of a search, and the parts of the time of traced requests, as far as they are known."""

        def with_breakdown(point: Point) -> Point:
            breakdown = breakdowns.get((point.key, point.repetition))
            return point if breakdown is None else point.model_copy(update={"breakdown": breakdown})

        summary = tuple(map(with_breakdown, self._judged().values()))
        status, reason = self.status, self._reason
        if search is not None and search.stopped_because in ("generator", "cold"):
            status, reason = "invalid", search.reason
        if status == "complete" and search is None and not all(one.valid for one in (*self.points, *summary)):
            status, reason = "invalid", "some load points are not valid; their warnings say why"
        if status == "complete" and search is None and (failing := self._failing(summary)):
            status, reason = "unsuccessful", f"most requests failed: {failing}"
        return Result(
            scenario=scenario_document(self._loaded.scenario),
            overrides=self._loaded.overrides,
            environment=self.environment,
            status=status,
            status_reason=reason,
            started_at=self._started_at,
            resumptions=self._resumptions,
            points=tuple(with_breakdown(one) for one in self.points),
            summary=summary,
            search=search,
        )

    def undecided(self) -> set[tuple[str, Load]]:
        """The protocols and loads of the load points whose SLO verdict is open, if it is to be decided; in a mix, of the whole."""
        if not self._loaded.scenario.measure.until_decided:
            return set()
        is_open = {key for key, point in self._judged().items() if point.slo is not None and point.slo.verdict == "inconclusive"}
        return {one for key in is_open for one in self._measured_together[key]}

    def _judged(self) -> dict[PointKey, Point]:
        """The pooled load points; the error of their verdicts is divided over them, and over the looks at each."""
        judged = max(sum(one.is_judged for one in self._summaries.values()), 1) * self._loaded.scenario.measure.looks
        return {key: one.pooled(judged) for key, one in self._summaries.items()}

    def _failing(self, summary: Sequence[Point]) -> str:
        """The load points of which most requests failed, in words; empty without any.

        A limit on errors in the scenario says what is expected. An overloaded load point is none if the target answered most requests of another
        load.
        """
        served = {(point.protocol, point.workload) for point in summary if point.failed_share.low <= MOST_FAILED_SHARE}
        found = list[str]()
        for point in summary:
            scenario = self._loaded.scenario if point.workload is None else self._plain[point.workload].scenario
            is_limited = scenario.measure.abort_error_rate is not None or (scenario.slo is not None and scenario.slo.error_rate is not None)
            is_beyond = "overloaded" in {one.code for one in point.warnings} and (point.protocol, point.workload) in served
            if point.has_mostly_failed and not (is_limited or is_beyond):
                found.append(f"{point.failed_share.estimate:.3%} at {point.title}")
        return "; ".join(found[:_MOST_TOLD]) + "; …" * (len(found) > _MOST_TOLD)

    def _slo(self, measured: PointMeasurement) -> SloLimits | None:
        """The limits for a load point: its workload's, or those of the scenario; a search and a workload alone are not judged here."""
        scenario = self._loaded.scenario if measured.workload is None else self._plain[measured.workload].scenario
        if self._is_search or measured.is_alone or (slo := scenario.slo) is None:
            return None
        limits = {QUANTILES[name]: limit_ns for name, limit_ns in slo.percentiles_ns.items()}
        first = slo.first_response.percentiles_ns if slo.first_response is not None else {}
        return SloLimits(limits, slo.error_rate, slo.wrong_answers, {QUANTILES[name]: limit_ns for name, limit_ns in first.items()})


@dataclasses.dataclass(frozen=True, slots=True)
class WholePoint:
    """A load point that was measured as a whole, as it is stored."""

    tag: str
    probe_time_ns: int
    """The service time of a single request, from which the source chose the load point."""
    took_s: float
    ended_at_s: float
    """The wall-clock time of its end, since the epoch."""
    log_end_s: float
    """Its end, since the start of the log."""
    measurements: tuple[PointMeasurement, ...]


WHOLE_POINT = Encoding(WholePoint, STAND_INS)


class Continuation:
    """The load points of an unfinished result, and what has changed since; raises ResultError if they cannot be read."""

    def __init__(self, unfinished: UnfinishedResult) -> None:
        self._unfinished = unfinished
        self._points = [self._read(number, one.content) for number, one in enumerate(unfinished.points)]
        self.resumed_at = utc_now()
        last = self._points[-1]
        self.log_elapsed_s = max(self.resumed_at.timestamp() - unfinished.log_started_at_s, last.log_end_s)
        """How long ago the log has started; not before its last load point, even if the clock was set back."""

    @property
    def paused_s(self) -> float:
        """The time from the last whole load point until now."""
        return max(self.resumed_at.timestamp() - self._points[-1].ended_at_s, 0.0)

    @property
    def sentence(self) -> str:
        """What is continued, in words."""
        count = len(self._points)
        points = "the first load point is" if count == 1 else f"the first {count} load points are"
        pause = format_duration_ns(round(self.paused_s * NS_PER_S))
        problem = self._unfinished.problem
        note = f" The load points from number {count + 1} on are measured again: {problem}." if problem else ""
        return f"Resumed from {self._unfinished.folder}: {points} taken from there; they ended {pause} ago.{note}"

    def restore(self, source: LoadPointSource, so_far: RunResult) -> int:
        """Gives the load points to their source and to the result, in the order of measurement; returns their number.

        Raises ResultError if the source would measure others.
        """
        if (search := self._unfinished.result.search) is not None:
            source.add_time(search.added_time)
        for number, stored in enumerate(self._points, 1):
            load_point, _ = so_far.next_point(source, stored.probe_time_ns)
            if load_point is None or (load_point.tag, describe_point(load_point)) != (stored.tag, stored.measurements[0].load):
                raise ResultError(
                    f"--resume: {self._unfinished.folder}: load point {number} is not the one that this perfkit would measure: measure again "
                    "without --resume, or continue with the version that began"
                )
            source.record(stored.measurements[0].window, so_far.add(stored.measurements), stored.took_s)
        so_far.continue_from(self._unfinished.result)
        return len(self._points)

    def compare(self, so_far: RunResult) -> MeasurementWarning | None:
        """Takes over the environment of the beginning, and adds this resumption with what differs now; returns the warning about that.

        Raises UsageError if the requests are others.
        """
        result, now = self._unfinished.result, so_far.environment
        before = {name: value for name, value in result.environment.items() if name != "telemetry"}
        if payload_digests(as_mapping(before.get("target"))) != payload_digests(as_mapping(now.get("target"))):
            raise UsageError(
                f"--resume: the requests are not those of {self._unfinished.folder}: a file that the scenario names, or the model, has changed; "
                "measure again without --resume"
            )
        both = [result.model_copy(update={"environment": one}) for one in (before, now)]
        changes = tuple(one.sentence for one in environment_differences(*both))
        self.keep_environment(so_far)
        so_far.resume(Resumption(
            at=self.resumed_at.isoformat(timespec="milliseconds"), after_points=len(self._points), paused_s=self.paused_s, changes=changes
        ))  # fmt: skip
        if not changes:
            return None
        more = f"; and {len(changes) - _MOST_TOLD} more" if len(changes) > _MOST_TOLD else ""
        told = f"{'; '.join(changes[:_MOST_TOLD])}{more}"
        return MeasurementWarning("resumed_elsewhere", f"The run was resumed after a change of its environment: {told}.")

    def keep_environment(self, so_far: RunResult) -> None:
        """Takes over the environment of the run's beginning."""
        so_far.environment = dict(self._unfinished.result.environment)

    def _read(self, number: int, content: bytes) -> WholePoint:
        try:
            point: WholePoint = WHOLE_POINT.decoded(content)
        except MalformedError as error:
            first = str(error).splitlines()[0]
            raise ResultError(
                f"--resume: {self._unfinished.folder}: load point {number + 1} cannot be read by this version of perfkit: {first}; measure "
                "again without --resume, or continue with the version that began"
            ) from None
        if not point.measurements:
            raise ResultError(f"--resume: {self._unfinished.folder}: load point {number + 1} is empty; measure again without --resume")
        return point


def why_not_resumable(loaded: LoadedScenario) -> str:
    """Why a run of this scenario cannot be continued; empty if it can."""
    if loaded.scenario.traces is not None:
        return (
            "--resume: a run with `traces` cannot be resumed: the server's spans of the requests before the interruption are gone, and with "
            "them the split of their time; measure again without --resume"
        )
    return ""
