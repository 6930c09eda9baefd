"""The measurement that a plan lacks: its rates and windows, and the command that measures it. Pure."""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.result.json_file import as_mapping

SHORTEST_S, LONGEST_S = 30, 600
"""Of a window that is proposed; more samples need more repetitions."""


@dataclasses.dataclass(frozen=True, slots=True)
class MissingMeasurement:
    """What to measure at each of some rates."""

    rates_per_s: tuple[float, ...]
    seconds: float
    """At each rate, all repetitions together."""

    @classmethod
    def at(cls, rates_per_s: Sequence[float], seconds: float) -> "MissingMeasurement":
        """Rates of two significant digits, and at least half a minute at each."""
        rounded = dict.fromkeys(float(f"{rate:.2g}") for rate in rates_per_s if rate > 0 and math.isfinite(rate))
        return cls(tuple(sorted(rounded)), max(seconds, SHORTEST_S))

    @property
    def repetitions(self) -> int:
        """How many windows the seconds are divided over."""
        return math.ceil(self.seconds / LONGEST_S)

    @property
    def window_s(self) -> int:
        """The length of each window."""
        return math.ceil(self.seconds / self.repetitions)

    def command(self, scenario: Mapping[str, Any], place: str = "") -> str:
        """The command that measures it, with the scenario of a result that has been measured; `place` is that result.

        A scenario that names a running server and leaves its inputs open is that of `perfkit run URL`; of another one the file is not stored.
        """
        target, workload = as_mapping(scenario.get("target")), as_mapping(scenario.get("workload"))
        urls = list(as_mapping(target.get("urls")).values()) or [target.get("url")]
        rates = [f"{rate:g}" for rate in self.rates_per_s]
        if len(urls) == 1 and isinstance(urls[0], str) and target.get("model") and not workload.get("inputs"):
            words = ["perfkit", "run", urls[0], "-m", str(target["model"]), "--rate", ",".join(rates), "--duration", f"{self.window_s}s"]
        else:
            load = f"load={{open: {{rate: [{', '.join(rates)}]{_law(scenario)}}}}}"
            words = [
                "perfkit",
                "run",
                f"{scenario.get('name', 'scenario')}.yaml",
                "--set",
                load,
                "--set",
                f"measure.duration={self.window_s}s",
            ]
        words += ["--set", f"measure.repetitions={self.repetitions}"]
        hint = f" (the scenario of {place})" if place and words[2].endswith(".yaml") else ""
        return f"{shlex.join(words)}{hint}"


def _law(scenario: Mapping[str, Any]) -> str:
    """The arrivals of the scenario's open loop or search, unless they are those by default."""
    load = as_mapping(scenario.get("load"))
    given = as_mapping(load.get("open")) or as_mapping(load.get("search"))
    law, burstiness = given.get("arrivals"), given.get("burstiness")
    if law not in ("constant", "gamma"):
        return ""
    return f", arrivals: {law}" + (f", burstiness: {burstiness:g}" if isinstance(burstiness, int | float) else "")
