"""The load points of `load: search`: turns decisions into probes, measurements into evidence, and the end into a result."""

import math

from perfkit.load.load_plan import LoadPoint, plan_probe
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import FittedLine, Point, Search, SearchProbe
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import SearchLoadSpec, SearchOptions
from perfkit.search.decision import NextProbe, Probe, SearchSettings, Stop, decide, estimate
from perfkit.search.root_fit import POWER
from perfkit.stats.percentile_interval import percentile_intervals
from perfkit.stats.sample_size import is_limit_shown_met, minimum_samples
from perfkit.units import NS_PER_S, format_rate_per_s

_START_SHARE = 0.5
_OVERLOAD_CODES = {"overloaded", "hopeless"}
_EXPECTED_ABOVE_PERCENTILE = 2
# a confirming probe has this multiple of the samples that the percentile needs, and at most this multiple of the others' length
_CONFIRM_SAMPLES_FACTOR, _CONFIRM_LENGTH_FACTOR = 3, 4


class CapacitySearch:
    """A `LoadPointSource` whose rates depend on the probes so far."""

    def __init__(self, loaded: LoadedScenario) -> None:
        scenario = loaded.scenario
        assert isinstance(scenario.load, SearchLoadSpec)
        assert scenario.objective is not None
        self._scenario, self._search, self._slo = scenario, scenario.load.search, scenario.objective
        self._settings = _settings(self._search, start_per_s=1.0)
        self._probes: list[Probe] = []
        self._needed_samples: dict[float, int] = {}
        self._step: NextProbe | Stop | None = None

    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        """See `LoadPointSource.next_point`."""
        if not self._probes:
            self._settings = _settings(self._search, _START_SHARE * NS_PER_S / max(probe_time_ns, 1))
        self._step = decide(self._probes, self._settings, self._probe_length_s)
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
        assert isinstance(self._step, NextProbe)
        codes = {warning.code for warning in point.warnings}
        times, intervals = window.times["response_time"], percentile_intervals(window.batches, self._quantiles)
        margins, has_enough_samples = dict[str, float](), True
        for name, limit_ns in self._slo.percentiles_ns.items():
            quantile, interval = QUANTILES[name], intervals.get(QUANTILES[name])
            if times.count:
                margins[name] = math.log(max(min(times.values_at([quantile])[0], times.max_ns), 1) / limit_ns)
                time = interval.autocorrelation_time if interval else 1.0
                has_enough_samples &= is_limit_shown_met(quantile, times.count, times.count_above(limit_ns), time)
        if self._slo.error_rate is not None and (scheduled := point.requests.scheduled):
            failed, allowed = scheduled - point.requests.ok, math.floor(self._slo.error_rate * scheduled)
            margins["error_rate"] = math.log((failed + 0.5) / (allowed + 1))
            has_enough_samples &= is_limit_shown_met(1 - self._slo.error_rate, scheduled, failed)
        self._needed_samples[self._step.rate_per_s] = max((interval.needed_samples for interval in intervals.values()), default=0)
        self._probes.append(
            Probe(
                rate_per_s=self._step.rate_per_s,
                stage=self._step.stage,
                margins=margins if len(margins) == len(self._slo.model_fields_set) else {},
                is_overloaded=bool(_OVERLOAD_CODES & codes),
                is_valid=point.valid,
                is_steady="not_steady" not in codes,
                has_enough_samples=has_enough_samples,
                took_s=took_s,
            )
        )

    def total(self) -> int:
        """See `LoadPointSource.total`."""
        return self._settings.max_probes

    def outcome(self) -> Search:
        """See `LoadPointSource.outcome`; until the search has stopped, it counts as interrupted."""
        stop = self._step if isinstance(self._step, Stop) else Stop("interrupted", estimate(self._probes, self._settings))
        current, fit = stop.estimate, stop.estimate.fit
        search = Search(
            slo={name: str(limit) for name, limit in self._slo.model_dump(mode="json", by_alias=True, exclude_none=True).items()},
            capacity_per_s=current.capacity_per_s, low_per_s=current.low_per_s, high_per_s=current.high_per_s,
            confidence=self._settings.confidence, precision=self._settings.precision,
            stopped_because=stop.reason, reason="", confirmation=stop.confirmation, missed_below_per_s=stop.missed_below_per_s,
            line=None if fit is None else FittedLine(
                limit=current.limit or "", centre_per_s=fit.centre_per_s, intercept=fit.intercept, slope=fit.slope, power=POWER, points=fit.points
            ),
            probes=tuple(
                SearchProbe(
                    rate_per_s=probe.rate_per_s, stage=probe.stage, margins=dict(probe.margins), met=probe.is_met,
                    overloaded=probe.is_overloaded, valid=probe.is_valid, took_s=probe.took_s,
                )
                for probe in self._probes
            ),
        )  # fmt: skip
        return search.model_copy(update={"reason": explain_search(search)})

    @property
    def _quantiles(self) -> list[float]:
        return [QUANTILES[name] for name in self._slo.percentiles_ns]

    def _probe_length_s(self, step: NextProbe) -> float:
        return (self._scenario.warmup_ns + self._window_ns(step)) / NS_PER_S

    def _window_ns(self, step: NextProbe) -> int:
        """Long enough for two expected requests above the percentile, and for a confirming probe to have enough samples."""
        default_ns = self._scenario.window_ns
        assert default_ns is not None
        highest = max(self._quantiles, default=0.0)
        needed_ns = round(_EXPECTED_ABOVE_PERCENTILE / (1 - highest) / step.rate_per_s * NS_PER_S) if highest else 0
        window_ns = max(default_ns, needed_ns)
        if step.stage != "confirm":
            return window_ns
        nearest = min(self._needed_samples, key=lambda rate: abs(math.log(rate / step.rate_per_s)))
        samples = _CONFIRM_SAMPLES_FACTOR * max(self._needed_samples[nearest], minimum_samples(highest) if highest else 0)
        return min(max(window_ns, round(samples / step.rate_per_s * NS_PER_S)), _CONFIRM_LENGTH_FACTOR * window_ns)


def _settings(search: SearchOptions, start_per_s: float) -> SearchSettings:
    return SearchSettings(
        start_per_s=search.start_rate_per_s or start_per_s,
        min_rate_per_s=search.min_rate_per_s or 0.0,
        max_rate_per_s=search.max_rate_per_s or math.inf,
        precision=search.precision,
        max_probes=search.max_probes,
        budget_s=math.inf if search.budget_ns is None else search.budget_ns / NS_PER_S,
    )


def explain_search(search: Search) -> str:
    """The outcome of a search in a few sentences."""
    slo = " and ".join(
        f"an error rate of {limit}" if name == "error_rate" else f"{name.replace('_', '.')} of {limit}"
        for name, limit in search.slo.items()
    )
    rates = (search.capacity_per_s, search.low_per_s, search.high_per_s)
    capacity, low, high = (None if rate is None else format_rate_per_s(rate) for rate in rates)
    interval = f"a {search.confidence:.0%} interval from {low or 'an unknown lower end'} to {high or 'an unknown upper end'}"
    fitted = f"The capacity at {slo} is {capacity}, with {interval}."
    bracket = f"The capacity at {slo} lies between {low}, which meets it, and {high}, which misses it"
    current = fitted if search.line else f"{bracket}."
    if capacity is None:
        current = f"The capacity at {slo} is not known yet."
    elif search.line is None and high is None:
        current = f"The SLO, {slo}, is met at {capacity}; no rate is known yet that misses it."
    confirmed = {
        None: " No probe confirmed its lower end: max_probes or the budget left none for it.",
        "passed": f" A confirming probe at {low} met the SLO, with enough samples to show it by itself.",
        "not_steady": f" A confirming probe at {low} met the SLO, but its times had not settled; increase measure.duration to be sure.",
        "too_few_samples": f" A confirming probe at {low} met the SLO, but with too few samples to show it by itself; increase measure.duration.",
        "missed": " The last confirming probe missed the SLO.",
    }[search.confirmation]
    purpose = f"its interval was within ±{search.precision:.0%}"
    if search.confirmation == "missed":
        purpose = "the lower end was confirmed: the last confirming probe missed the SLO, so the capacity may be lower than estimated"
    text = {
        "precision": fitted + confirmed,
        "cliff": f"{bracket}, at a cliff: the times do not rise gradually, so no curve is fitted.{confirmed}",
        "non_monotone": (
            f"There is no single capacity at {slo}, because the measured times do not rise with the rate: all probes up to "
            f"{low or 'no rate'} meet the SLO, and none from {high or 'no rate'} on does. Increase measure.duration, or look for other work on the target."
        ),
        "not_confirmed": f"{current} It is not confirmed: the confirming probes at its lower end missed the SLO.",
        "never_met": f"The SLO, {slo}, is missed at every rate that was probed, down to {high}.",
        "never_missed": f"The SLO, {slo}, is met up to max_rate, {capacity}: the capacity is at least that.",
        "generator": f"The load generator made probes invalid, as their warnings say; {f'the SLO is met up to {capacity}' if capacity else 'nothing is known about the target'}.",
        "max_probes": f"{current} The search reached max_probes, {len(search.probes)}, before {purpose}.",
        "budget": f"{current} The search used up its budget before {purpose}.",
        "interrupted": f"{current} The search was interrupted.",
    }[search.stopped_because]
    if search.missed_below_per_s is not None:
        rate = format_rate_per_s(search.missed_below_per_s)
        text += f" The SLO is missed at {rate}, too, and perhaps below: the target is slower at such low rates."
    return text
