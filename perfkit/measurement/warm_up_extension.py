"""Whether a load point is measured again because its target was still cold: `measure.warmup: auto` then takes what was measured for warm-up. Pure."""

from collections.abc import Sequence

from perfkit.points.behaviour import warmth_of
from perfkit.points.warmth import ROUNDS
from perfkit.recorder.window import Window
from perfkit.result.load import ClosedLoad, Load
from perfkit.result.model import Point
from perfkit.units import NS_PER_S, format_rate_per_s

LONGEST_NS = 60 * NS_PER_S
"""No load point is measured again after so long, counted from the start of its load."""
_LONGEST_DOUBT_NS = 20 * NS_PER_S
_COLLAPSE = 0.5


class WarmUpExtension:
    """The attempts at one load point, in order."""

    def __init__(self, load: Load, measured: Sequence[Point], *, in_doubt: bool = True) -> None:
        """`measured` are the points of the run so far with the same protocol, workload and repetition.

        Without `in_doubt` only a target that was surely cold is measured again.
        """
        self._load, self._start_ns, self._in_doubt = load, 0, in_doubt
        self._earlier: Window | None = None
        lower = [one for one in measured if isinstance(one.load, ClosedLoad) and one.load.level < load.level]
        self._lower = max(lower, key=lambda one: one.throughput_per_s) if lower and isinstance(load, ClosedLoad) else None

    def reason(self, start_ns: int, window: Window) -> str:
        """Why the load point is measured again after this window, whose load started at `start_ns`; empty if it is not.

        Because the target was cold in the window, for `LONGEST_NS`. For 20 s also because that is in doubt: there are too few answers to tell, or fewer than half
        as many as at a lower concurrency; then the next window shows whether this one was cold throughout.
        """
        earlier, self._earlier, self._start_ns = self._earlier, window, self._start_ns or start_ns
        took_ns = window.end_ns - self._start_ns
        warmth = warmth_of([window], self._load)
        if warmth.state != "cold" and earlier is not None:
            warmth = warmth_of([earlier, window], self._load)
        if warmth.state == "cold":
            found = (
                f"the target was cold for {(warmth.until_ns - self._start_ns) / NS_PER_S:.1f} s, slower by a factor of {warmth.factor:.2g}"
            )
            return f"{found}: that counts as warm-up, and it is measured again" if took_ns < LONGEST_NS else ""
        answered = int(window.series.answered.sum())
        rate_per_s = answered * NS_PER_S / window.length_ns
        if not self._in_doubt or took_ns >= _LONGEST_DOUBT_NS or not isinstance(self._load, ClosedLoad):
            return ""
        if warmth.state == "not_judged" and answered < ROUNDS * self._load.concurrency:
            return f"{answered:,} answers do not show whether the target was warm: they count as warm-up, and it is measured again"
        if self._lower is not None and rate_per_s < _COLLAPSE * self._lower.throughput_per_s:
            beside = f"{format_rate_per_s(rate_per_s)} beside {format_rate_per_s(self._lower.throughput_per_s)} at {self._lower.load.title}"
            return f"{beside}, perhaps because the target was cold: it is measured again"
        return ""
