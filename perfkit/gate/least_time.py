"""The least time that a gate takes, as far as it is known before and during its trial, so that a `--time` that cannot be kept is refused early. Pure."""

import dataclasses
from collections.abc import Sequence

from perfkit.errors import TimeTooShortError
from perfkit.units import write_minutes

PROCESSES = 4
"""So many times a trial starts a server, if it studies the noise: each arm twice."""
WINDOWS_OF_A_PROCESS = 2
RESERVE_S = 5.0
"""For the verdict and its outputs."""
SPARE = 1.15
"""A time that is asked for is so many times the least one, since a run may take longer than the least."""
_LATER_START = 0.5  # of the first start, which may have read the server's files from the disk
_USUAL_WINDOW_S = 1.0  # what a time that is asked for has room for, at least


@dataclasses.dataclass(frozen=True, slots=True)
class LeastTime:
    """What the scenario and the options say of a gate's time."""

    limit_s: float
    """From --time."""
    pairs: int
    """The fewest for which there is a rule, or those of --pairs."""
    control_pairs: int
    window_s: float
    """From measure.duration, or the shortest one in which every percentile has its samples at the given rates."""
    trial_window_s: float
    warmups_s: tuple[float, ...]
    """The warm-up of each load point, at least."""
    probe_s: float = 0.0
    """What finding the warm-up of an arm takes; 0 if the scenario gives the warm-up."""
    starts_servers: bool = False
    keys: tuple[str, ...] = ()
    """What makes the gate shorter, besides fewer load points."""

    def check(self, starts_s: Sequence[float] = ()) -> None:
        """Raises TimeTooShortError if the limit cannot be kept; `starts_s` is how long each start of a server so far took until it was ready."""
        start_s = min(starts_s, default=0.0) * (_LATER_START if len(starts_s) == 1 else 1.0)
        if (least_s := self._gate_s(start_s, self.window_s)) <= self.limit_s:
            return
        run_s, points = self._run_s(start_s, self.window_s), len(self.warmups_s)
        warmup = f" after {sum(self.warmups_s):g} s of warm-up" if any(self.warmups_s) else ""
        started = f" and at least {start_s:.2g} s for the start of the server" if start_s else ""
        unknown = ", without the starts of the servers" if self.starts_servers and not starts_s else ""
        enough = write_minutes(SPARE * self._gate_s(start_s, max(self.window_s, _USUAL_WINDOW_S)))
        shorter = f", or lessen {' or '.join(self.keys)}" if self.keys else ""
        raise TimeTooShortError(
            f"--time {write_minutes(self.limit_s)}: too short, since this gate takes at least {write_minutes(least_s)}{unknown}: its trial, and "
            f"{2 * (self.pairs + self.control_pairs)} runs ({self.pairs + self.control_pairs} pairs) of {run_s:.3g} s, with {points} "
            f"window{'s' * (points != 1)} of {self.window_s:.3g} s{warmup}{started}: give at least {enough}{shorter}",
            enough=enough,
        )

    def _run_s(self, start_s: float, window_s: float) -> float:
        return start_s + sum(self.warmups_s) + len(self.warmups_s) * window_s

    def _gate_s(self, start_s: float, window_s: float) -> float:
        trial_s = PROCESSES * self._run_s(start_s, WINDOWS_OF_A_PROCESS * self.trial_window_s) + 2 * self.probe_s
        return trial_s + 2 * (self.pairs + self.control_pairs) * self._run_s(start_s, window_s) + RESERVE_S
