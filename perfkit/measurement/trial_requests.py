"""The calls to a target before any load: what fails for a reason that may pass is sent again."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning, ModelMismatchError, PerfkitError, TargetError

_T = TypeVar("_T")
_PAUSES_NS = (50_000_000, 150_000_000, 450_000_000)


class TrialRequests:
    """Makes calls, each again up to three times if it fails with an error that `may_pass`, and remembers the failures.

    Of a target that fails a share p of its requests, a call then fails with probability p⁴: at 3 %, once in a million runs. Made again
    are calls that failed because the connection was refused or lost, or with a status of `perfkit.transport.base.may_pass`; and an
    infer request also with 400 or INVALID_ARGUMENT, which MLServer and KServe answer for errors of the model, too. An answer of any
    other status, a wrong one, and a time-out are final.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: list[str] = []

    async def run(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """The call's result; raises its last error, which names the number of attempts if there were several."""
        for pause_ns in _PAUSES_NS:
            try:
                return await call()
            except (TargetError, ModelMismatchError) as error:
                if not error.may_pass:
                    raise
                self.note(error)
            await self._clock.sleep_until_ns(self._clock.now_ns() + pause_ns)
        try:
            return await call()
        except (TargetError, ModelMismatchError) as error:
            if not error.may_pass:
                raise
            general = ModelMismatchError if isinstance(error, ModelMismatchError) else TargetError  # others are made of further values
            raise general(f"{error} (in each of {len(_PAUSES_NS) + 1} attempts)", may_pass=True) from None

    def note(self, failure: PerfkitError) -> None:
        """Remembers a failure after which the call was made again."""
        self._failures.append(str(failure))

    def warnings(self) -> tuple[MeasurementWarning, ...]:
        """The warning about the failures, if there were any."""
        if not self._failures:
            return ()
        texts = "; ".join(dict.fromkeys(self._failures))
        times = "once" if len(self._failures) == 1 else f"{len(self._failures)} times"
        message = f"Before the load, the target failed {times} and was asked again: {texts}."
        return (MeasurementWarning("probe_retried", message),)
