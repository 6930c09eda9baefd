"""The load points of an unfinished result, from which a resumed run continues as if it had measured them itself."""

import dataclasses

from perfkit.clock import utc_now
from perfkit.errors import MeasurementWarning, ResultError, UsageError
from perfkit.measurement.load_points import LoadPointSource, describe_point
from perfkit.measurement.run_result import RunResult
from perfkit.points.measured import PointMeasurement
from perfkit.process.encoding import Encoding, MalformedError
from perfkit.result.fingerprint import environment_differences, payload_digests
from perfkit.result.json_file import as_mapping
from perfkit.result.model import Resumption
from perfkit.result.whole_points import UnfinishedResult
from perfkit.units import NS_PER_S, format_duration_ns
from perfkit.workers.point_recording import STAND_INS

_MOST_TOLD = 5


@dataclasses.dataclass(frozen=True, slots=True)
class WholePoint:
    """A load point that was measured as a whole, as it is stored."""

    tag: str
    probe_time_ns: int
    """The mean time between answers before the load, from which the source chose the load point."""
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
