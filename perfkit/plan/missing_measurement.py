"""The measurement that a plan lacks: its rates and windows, and the command that measures it. Pure."""

import dataclasses
import decimal
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.result.json_file import as_mapping
from perfkit.scenario.file import scenario_document
from perfkit.scenario.model import Scenario

SHORTEST_S, LONGEST_S = 30, 600
"""The shortest and the longest window that is proposed; more samples need more repetitions."""


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

        A scenario that says no more than a running server, its model, the load and the windows is that of `perfkit run URL`; of another one the
        file is not stored.
        """
        rates = [_plain(rate) for rate in self.rates_per_s]
        if (place_of_target := _url_and_model(scenario)) is not None:
            url, model = place_of_target
            words = ["perfkit", "run", url, "-m", model, "--rate", ",".join(rates), "--duration", f"{self.window_s}s"]
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


_SAID_ANEW = ("name", "load", "measure", "slo", "schema", "schema_version")
"""Keys of a scenario that the command replaces, or that change no request."""


def _url_and_model(scenario: Mapping[str, Any]) -> tuple[str, str] | None:
    """The URL and the model of a scenario that has nothing beyond them, its load and its windows, except what it has by default."""
    target = as_mapping(scenario.get("target"))
    urls, model = list(as_mapping(target.get("urls")).values()) or [target.get("url")], target.get("model")
    if len(urls) != 1 or not isinstance(urls[0], str) or not model or _law(scenario):
        return None
    bare = {"name": "x", "target": {"url": urls[0], "model": model}, "load": {"closed": {"concurrency": 1}}}
    default = scenario_document(Scenario.model_validate(bare))
    own = {key: value for key, value in scenario.items() if key not in _SAID_ANEW}
    own["target"] = {key: value for key, value in target.items() if key not in ("url", "urls")}
    return (urls[0], str(model)) if _has_no_more(own, default) else None


def _has_no_more(own: Mapping[str, Any], default: Mapping[str, Any]) -> bool:
    """Whether a part of a scenario says nothing that the one by default does not."""
    return all(
        _has_no_more(value, as_mapping(default.get(key))) if isinstance(value, Mapping) else not value or value == default.get(key)
        for key, value in own.items()
    )


def _plain(rate_per_s: float) -> str:
    """A rate of two digits without an exponent, which the option takes as a plain number: `1200`, `0.35`."""
    return f"{decimal.Decimal(f'{rate_per_s:g}'):f}"


def _law(scenario: Mapping[str, Any]) -> str:
    """The arrivals of the scenario's open loop or search, unless they are those by default."""
    load = as_mapping(scenario.get("load"))
    given = as_mapping(load.get("open")) or as_mapping(load.get("search"))
    law, burstiness = given.get("arrivals"), given.get("burstiness")
    if law not in ("constant", "gamma"):
        return ""
    return f", arrivals: {law}" + (f", burstiness: {burstiness:g}" if isinstance(burstiness, int | float) else "")
