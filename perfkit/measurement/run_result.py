"""The result of a run as it grows: its environment, its load points, and how it ended."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfkit.clock import utc_now
from perfkit.errors import ScenarioError
from perfkit.load.loop import Ending, StopCause
from perfkit.load.point import LoadPoint
from perfkit.measurement.load_points import FixedPoints, LoadPointSource
from perfkit.scenario.file import LoadedScenario, scenario_document
from perfkit.scenario.load import SurgeLoadSpec
from perfkit.transport.options import OWN_LIMIT

if TYPE_CHECKING:
    from perfkit.points.measured import PointMeasurement
    from perfkit.points.point import LoadSummary
    from perfkit.result.load import Load
    from perfkit.result.model import Point, PointKey, Result, Resumption, Status
    from perfkit.result.search import Search
    from perfkit.scenario.slo import Slo
    from perfkit.spans.breakdown import Breakdown
    from perfkit.stats.slo import SloLimits

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
        """The load points of all repetitions, in the order of measurement; in a mix also each workload's."""
        self._summaries: dict[PointKey, LoadSummary] = {}
        self._measured_together: dict[PointKey, set[tuple[str, Load]]] = {}
        self._started_at = utc_now().isoformat(timespec="milliseconds")
        self._resumptions: tuple[Resumption, ...] = ()

    def add(self, measurements: "Sequence[PointMeasurement]") -> "Point":
        """Adds the points of one measurement, and returns the first, that of the whole."""
        from perfkit.points.point import LoadSummary  # only now, as below: the first request leaves earlier
        from perfkit.result.model import PointKey

        for one in measurements:
            key = PointKey(one.workload, one.is_alone, one.protocol, one.load)
            self._measured_together.setdefault(key, set()).add((measurements[0].protocol, measurements[0].load))
            summary = self._summaries.setdefault(key, LoadSummary(slo=self._slo(one)))
            self.points.append(summary.add(one))
        return self.points[-len(measurements)]

    def continue_from(self, earlier: "Result") -> None:
        """Takes over when the run had begun, and when it was resumed before."""
        self._started_at, self._resumptions = earlier.started_at, earlier.resumptions

    def resume(self, resumption: "Resumption") -> None:
        """Adds that the run was resumed."""
        self._resumptions += (resumption,)

    def next_point(self, source: LoadPointSource, probe_time_ns: int) -> tuple[LoadPoint | None, int]:
        """The next load point, and how many were added because a verdict is open."""
        point, added = source.next_point(probe_time_ns), 0
        if point is None and isinstance(source, FixedPoints) and (added := source.go_on(self.undecided())):
            point = source.next_point(probe_time_ns)
        return point, added

    def end(self, status: "Status", reason: str) -> None:
        """Sets why the run has ended before its last load point."""
        self.status, self._reason = status, reason

    def end_early(self, ending: Ending) -> None:
        """Ends the run if its load point was ended for a reason that the next one would share; raises ScenarioError for a limit of the scenario."""
        match ending.cause:
            case StopCause.FILE_LIMIT:
                self.end("invalid", ending.reason)
            case StopCause.ANSWER_LIMIT:
                raise ScenarioError(f"{ending.reason}: {OWN_LIMIT}")
            case StopCause.WORKER_LOST:
                self.end("invalid", f"stopped: {ending.reason}")
            case StopCause.TARGET_LOST:
                self.end("incomplete", f"the target was lost: {ending.reason}")
            case StopCause.TOO_MANY_ERRORS:
                self.end("incomplete", f"aborted: {ending.reason}")

    def document(self, search: "Search | None", breakdowns: "Mapping[tuple[PointKey, int | None], Breakdown]") -> "Result":
        """The result with all load points so far, the state of a search, and the parts of the time of traced requests, as far as they are known."""
        from perfkit.result.model import Result

        def with_breakdown(point: "Point") -> "Point":
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

    def undecided(self) -> "set[tuple[str, Load]]":
        """The protocols and loads of the load points whose SLO verdict is open, if it is to be decided; in a mix, of the whole."""
        if not self._loaded.scenario.measure.until_decided:
            return set()
        is_open = {key for key, point in self._judged().items() if point.slo is not None and point.slo.verdict == "inconclusive"}
        return {one for key in is_open for one in self._measured_together[key]}

    def _judged(self) -> "dict[PointKey, Point]":
        """The pooled load points; the error of their verdicts is divided over them, and over the looks at each."""
        judged = max(sum(one.is_judged for one in self._summaries.values()), 1) * self._loaded.scenario.measure.looks
        return {key: one.pooled(judged) for key, one in self._summaries.items()}

    def _failing(self, summary: "Sequence[Point]") -> str:
        """The load points of which most requests failed, in words; empty without any.

        A limit on errors in the scenario says what is expected. An overloaded load point is none if the target answered most requests of another
        load.
        """
        from perfkit.result.model import MOST_FAILED_SHARE

        served = {(point.protocol, point.workload) for point in summary if point.failed_share.low <= MOST_FAILED_SHARE}
        found = list[str]()
        for point in summary:
            scenario = self._loaded.scenario if point.workload is None else self._plain[point.workload].scenario
            is_limited = scenario.measure.abort_error_rate is not None or (scenario.slo is not None and scenario.slo.error_rate is not None)
            is_beyond = "overloaded" in {one.code for one in point.warnings} and (point.protocol, point.workload) in served
            is_surge = point.surge is not None and any(one.before_per_s for one in point.surge.repetitions)
            if point.has_mostly_failed and not (is_limited or is_beyond or is_surge):
                found.append(f"{point.failed_share.estimate:.3%} at {point.title}")
        return "; ".join(found[:_MOST_TOLD]) + "; …" * (len(found) > _MOST_TOLD)

    def _slo(self, measured: "PointMeasurement") -> "SloLimits | None":
        """The limits for a load point: its workload's, or those of the scenario; a search, a workload alone and a surge are not judged here."""
        scenario = self._loaded.scenario if measured.workload is None else self._plain[measured.workload].scenario
        is_surge = isinstance(scenario.load, SurgeLoadSpec)
        if self._is_search or is_surge or measured.is_alone or (slo := scenario.slo) is None:
            return None
        return slo_limits(slo)


def slo_limits(slo: "Slo") -> "SloLimits":
    """The limits of a scenario's SLO as `judge_slo` takes them."""
    from perfkit.result.distribution import QUANTILES
    from perfkit.stats.slo import SloLimits

    limits = {QUANTILES[name]: limit_ns for name, limit_ns in slo.percentiles_ns.items()}
    further = {key: {QUANTILES[name]: limit_ns for name, limit_ns in one.percentiles_ns.items()} for key, one in slo.further.items()}
    return SloLimits(limits, slo.error_rate, slo.wrong_answers, further)


def why_not_resumable(loaded: LoadedScenario) -> str:
    """Why a run of this scenario cannot be continued; empty if it can."""
    if loaded.scenario.traces is not None:
        return (
            "--resume: a run with `traces` cannot be resumed: the server's spans of the requests before the interruption are gone, and with "
            "them the split of their time; measure again without --resume"
        )
    return ""
