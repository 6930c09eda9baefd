"""`load: search` live: `stats.slo_search` decides the rates, `perfkit.measurement.lifecycle` measures them."""

import math

from perfkit.load.load_plan import LoadPoint, plan_probe
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import FittedLine, Point, Search, SearchProbe
from perfkit.scenario import search as scenario_search
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import SearchLoadSpec
from perfkit.scenario.slo import Slo
from perfkit.search.decision import Next, Probe, SearchSettings, Stop, decide, estimate
from perfkit.search.root_fit import POWER
from perfkit.stats.percentile_interval import percentile_intervals
from perfkit.stats.sample_size import is_limit_shown_met, minimum_samples
from perfkit.units import NS_PER_S, format_rate_per_s

_START_SHARE = 0.5
_OVERLOADED = {"overloaded", "hopeless"}
# a probe has so many times the requests of which one is expected beyond the percentile
_BEYOND = 2
# one that confirms is so many times the minimum of its samples long, and at most so many times as long as the others
_CONFIRMING, _LONGEST = 3, 4


class CapacitySearch:
    """A `LoadPointSource`: the probes so far, and what follows from them."""

    def __init__(self, loaded: LoadedScenario) -> None:
        scenario = loaded.scenario
        assert isinstance(scenario.load, SearchLoadSpec)
        assert scenario.objective is not None
        self._scenario, self._search, self._slo = scenario, scenario.load.search, scenario.objective
        self._settings = _settings(self._search, start_per_s=1.0)
        self._probes: list[Probe] = []
        self._needed: dict[float, int] = {}
        self._step: Next | Stop | None = None

    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        """See `LoadPointSource.next_point`."""
        if not self._probes:
            self._settings = _settings(self._search, _START_SHARE * NS_PER_S / max(probe_time_ns, 1))
        self._step = decide(self._probes, self._settings, self._takes_s)
        if isinstance(self._step, Stop):
            return None
        scenario, rate, number = self._scenario, self._step.rate_per_s, len(self._probes)
        rates = list(dict.fromkeys(probe.rate_per_s for probe in self._probes))
        plan = plan_probe(self._search, rate, seed=scenario.workload.seed, number=number, warmup_ns=scenario.warmup_ns)
        return LoadPoint(
            index=rates.index(rate) if rate in rates else len(rates),
            protocol=scenario.target.load_protocols[0],
            load=plan,
            repetition=sum(probe.rate_per_s == rate for probe in self._probes),
            number=number,
            window_ns=self._window_ns(self._step),
            overload_abort_after_ns=max(self._slo.percentiles_ns.values(), default=scenario.target.timeout_ns),
        )

    def record(self, window: Window, point: Point, took_s: float) -> None:
        """See `LoadPointSource.record`."""
        assert isinstance(self._step, Next)
        codes = {warning.code for warning in point.warnings}
        times, intervals = window.times["response_time"], percentile_intervals(window.batches, self._quantiles)
        margins, carries = dict[str, float](), True
        for name, limit_ns in self._slo.percentiles_ns.items():
            quantile, interval = QUANTILES[name], intervals.get(QUANTILES[name])
            if times.count:
                margins[name] = math.log(max(min(times.values_at([quantile])[0], times.max_ns), 1) / limit_ns)
                time = interval.autocorrelation_time if interval else 1.0
                carries &= is_limit_shown_met(quantile, times.count, times.count_above(limit_ns), time)
        if self._slo.error_rate is not None and (scheduled := point.requests.scheduled):
            failed, allowed = scheduled - point.requests.ok, math.floor(self._slo.error_rate * scheduled)
            margins["error_rate"] = math.log((failed + 0.5) / (allowed + 1))
            carries &= is_limit_shown_met(1 - self._slo.error_rate, scheduled, failed)
        self._needed[self._step.rate_per_s] = max((one.needed_samples for one in intervals.values()), default=0)
        self._probes.append(
            Probe(
                rate_per_s=self._step.rate_per_s,
                stage=self._step.stage,
                margins=margins if len(margins) == len(self._slo.model_fields_set) else {},
                is_overloaded=bool(_OVERLOADED & codes),
                is_valid=point.valid,
                is_steady="not_steady" not in codes,
                carries=carries,
                took_s=took_s,
            )
        )

    def total(self) -> int:
        """See `LoadPointSource.total`."""
        return self._settings.max_probes

    def outcome(self) -> Search:
        """See `LoadPointSource.outcome`; a search that did not come to its end was interrupted."""
        stop = self._step if isinstance(self._step, Stop) else None
        known = stop.estimate if stop else estimate(self._probes, self._settings)
        fit = known.fit
        found = Search(
            slo=_as_written(self._slo),
            capacity_per_s=known.capacity_per_s,
            low_per_s=known.low_per_s,
            high_per_s=known.high_per_s,
            confidence=self._settings.confidence,
            precision=self._settings.precision,
            stopped_because=stop.reason if stop else "interrupted",
            reason="",
            confirmation=stop.confirmation if stop else None,
            missed_below_per_s=stop.missed_below_per_s if stop else None,
            line=None if fit is None else FittedLine(
                limit=known.limit or "", centre_per_s=fit.centre_per_s, intercept=fit.intercept, slope=fit.slope, power=POWER, points=fit.points
            ),
            probes=tuple(
                SearchProbe(
                    rate_per_s=one.rate_per_s, stage=one.stage, margins=dict(one.margins), met=one.is_met,
                    overloaded=one.is_overloaded, valid=one.is_valid, took_s=one.took_s,
                )
                for one in self._probes
            ),
        )  # fmt: skip
        return found.model_copy(update={"reason": _sentence(found)})

    @property
    def _quantiles(self) -> list[float]:
        return [QUANTILES[name] for name in self._slo.percentiles_ns]

    def _takes_s(self, step: Next) -> float:
        """Without the answers that are awaited afterwards."""
        return (self._scenario.warmup_ns + self._window_ns(step)) / NS_PER_S

    def _window_ns(self, step: Next) -> int:
        """Long enough for two requests beyond the percentile; for a probe that confirms, for those that stand alone."""
        usual_ns = self._scenario.window_ns
        assert usual_ns is not None
        highest = max(self._quantiles, default=0.0)
        window_ns = max(usual_ns, round(_BEYOND / (1 - highest) / step.rate_per_s * NS_PER_S) if highest else 0)
        if step.stage != "confirm":
            return window_ns
        nearest = min(self._needed, key=lambda rate: abs(math.log(rate / step.rate_per_s)))
        needed = _CONFIRMING * max(self._needed[nearest], minimum_samples(highest) if highest else 0)
        return min(max(window_ns, round(needed / step.rate_per_s * NS_PER_S)), _LONGEST * window_ns)


def _settings(search: scenario_search.Search, start_per_s: float) -> SearchSettings:
    return SearchSettings(
        start_per_s=search.start_rate_per_s or start_per_s,
        min_rate_per_s=search.min_rate_per_s or 0.0,
        max_rate_per_s=search.max_rate_per_s or math.inf,
        precision=search.precision,
        max_probes=search.max_probes,
        budget_s=math.inf if search.budget_ns is None else search.budget_ns / NS_PER_S,
    )


def _as_written(slo: Slo) -> dict[str, str]:
    return {name: str(value) for name, value in slo.model_dump(mode="json", by_alias=True, exclude_none=True).items()}


def _sentence(found: Search) -> str:
    """What a search came to, for a person."""
    slo = " and ".join(
        f"an error rate of {value}" if name == "error_rate" else f"{name.replace('_', '.')} of {value}" for name, value in found.slo.items()
    )
    capacity, low, high = (
        None if one is None else format_rate_per_s(one) for one in (found.capacity_per_s, found.low_per_s, found.high_per_s)
    )
    interval = f"{low or 'not bounded below'} to {high or 'not bounded above'}"
    confirmed = {
        None: " No probe was left to confirm its lower end.",
        "passed": f" A probe of its own at {low} kept to the SLO, with samples enough to say so alone.",
        "not_steady": f" A probe of its own at {low} kept to the SLO, but its times had not settled; measure longer to be sure.",
        "too_few_samples": f" A probe of its own at {low} kept to the SLO, with too few samples to say so alone; measure longer for that.",
        "missed": f" A probe of its own at {low} missed the SLO.",
    }[found.confirmation]
    fitted = f"The capacity at {slo} is {capacity}, with a {found.confidence:.0%} interval from {interval}."
    unfinished = fitted
    if capacity is None:
        unfinished = f"The capacity at {slo} is not known yet."
    elif found.line is None and high is None:
        unfinished = f"The SLO, {slo}, is kept at {capacity}; no rate that misses it is known yet."
    elif found.line is None:
        unfinished = f"The capacity at {slo} lies between {capacity}, which keeps to it, and {high}, which does not."
    precision = f"±{found.precision:.0%}"
    text = {
        "precision": fitted + confirmed,
        "cliff": (
            f"The capacity at {slo} lies at a cliff between {low}, which keeps to it, and {high}, which does not: "
            f"there is no gradual rise to fit.{confirmed}"
        ),
        "non_monotone": (
            f"What was measured does not rise with the rate, so that there is no one capacity at {slo}: up to {low or 'no rate'} all probes keep to it, "
            f"from {high or 'no rate'} on none does. Measure longer, or look for what else the target does."
        ),
        "not_confirmed": f"{unfinished} It is not confirmed: probes of their own at its lower end missed the SLO.",
        "never_met": f"The SLO, {slo}, is missed at every rate that was probed, down to {high}.",
        "never_missed": f"The SLO, {slo}, is kept up to max_rate, {capacity}: the capacity is that or more.",
        "generator": f"The load generator was the bottleneck; {f'up to {capacity} the SLO is kept' if capacity else 'nothing is known of the target'}.",
        "max_probes": f"{unfinished} The search ended after {len(found.probes)} probes, before it was within {precision} of it.",
        "budget": f"{unfinished} The search ended with its budget, before it was within {precision} of it.",
        "interrupted": f"{unfinished} The search did not come to its end.",
    }[found.stopped_because]
    if found.missed_below_per_s is not None:
        text += (
            f" The SLO is missed as well at {format_rate_per_s(found.missed_below_per_s)} and perhaps below: the target is slower there."
        )
    return text
