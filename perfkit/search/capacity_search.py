"""The load points of `load: search`: turns decisions into probes, measurements into evidence, and the end into a result."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfkit.load.planned_loads import plan_probe, plan_sequences
from perfkit.load.point import LoadPoint, PointPart
from perfkit.recorder.window import Window
from perfkit.result.distribution import QUANTILES
from perfkit.result.load import OpenLoad
from perfkit.result.model import Point
from perfkit.result.search import AddedTime, FittedCurve, LimitCount, Search, SearchDrift, SearchProbe, limit_in_words
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import SearchLoadSpec
from perfkit.search.decision import decide
from perfkit.search.drift import median_of
from perfkit.search.estimate import estimate
from perfkit.search.probes import NextProbe, Probe, SearchEnd, SearchSettings
from perfkit.stats.buckets import EMPTY
from perfkit.stats.overload import judge_overload
from perfkit.stats.percentiles import SHOWN_ERROR, dispersion_above, is_limit_shown_met, precision_above
from perfkit.stats.slo import time_of_one
from perfkit.stats.validity import COLD, INVALIDATING
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s, write_minutes

_START_SHARE = 0.5
_OVERLOAD_CODES = {"overloaded", "hopeless"}
_EXPECTED_ABOVE_PERCENTILE = 2
_DEFAULT_BUDGET_S = 3600.0
_LARGE_LOST_SHARE = 0.25  # of the probes' time, in invalid ones, from which the answer of a search that was too short says so


class CapacitySearch:
    """A `LoadPointSource` whose rates depend on the probes so far."""

    def __init__(self, loaded: LoadedScenario) -> None:
        scenario = loaded.scenario
        assert isinstance(scenario.load, SearchLoadSpec)
        assert scenario.objective is not None
        self._scenario, self._search, self._slo = scenario, scenario.load.search, scenario.objective
        assert scenario.window_ns is not None
        self._usual_ns = scenario.window_ns
        self._settings = self._make_settings(start_per_s=1.0)
        self._added_time: tuple[AddedTime, ...] = ()
        self._probes: list[Probe] = []
        self._step: NextProbe | SearchEnd | None = None

    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        """The next probe, or None once the search has stopped."""
        if not self._probes:
            self._settings = self._make_settings(_START_SHARE * NS_PER_S / max(probe_time_ns, 1))
        for one in self._added_time:
            if one.after_probes == len(self._probes):
                budget_s = max(self._settings.budget_s, sum(probe.took_s for probe in self._probes) + one.budget_s)
                max_probes = one.after_probes + self._search.max_probes
                self._settings = dataclasses.replace(self._settings, budget_s=budget_s, max_probes=max_probes)
        self._step = decide(self._probes, self._settings, self._probe_length_s)
        if isinstance(self._step, SearchEnd):
            return None
        scenario, rate, number = self._scenario, self._step.rate_per_s, len(self._probes)
        rates = list(dict.fromkeys(probe.rate_per_s for probe in self._probes))
        seed, warmup_ns, sequences = scenario.workload.seed, scenario.own_warmup_ns, plan_sequences(scenario, number)
        plan = plan_probe(self._search, rate, seed=seed, number=number, warmup_ns=warmup_ns, sequences=sequences)
        return LoadPoint(
            index=rates.index(rate) if rate in rates else len(rates),
            parts=(PointPart(scenario.target.load_protocols[0], plan),),
            repetition=sum(probe.rate_per_s == rate for probe in self._probes),
            number=number,
            window_ns=self._window_ns(self._step),
            overload_abort_after_ns=max(self._slo.percentiles_ns.values(), default=scenario.target.timeout_ns),
        )

    def record(self, window: Window, point: Point, took_s: float) -> None:
        """Takes a probe's measurement as evidence."""
        assert isinstance(self._step, NextProbe)
        codes = {warning.code for warning in point.warnings}
        is_overloaded = bool(_OVERLOAD_CODES & codes)
        limits, has_enough_samples = dict[str, LimitCount](), True
        scheduled, all_limits_ns = point.requests.scheduled, self._slo.limits_ns
        for name, (recorded, percentile, limit_ns) in all_limits_ns.items():
            times, quantile = window.times.get(recorded, EMPTY), QUANTILES[percentile]
            batches = window.batches if recorded == "response_time" else window.further_batches.get(recorded, ())
            unknown = window.count_unknown(recorded)
            if count := times.count + unknown:
                above, dispersion = times.count_above(limit_ns) + unknown, dispersion_above(batches, limit_ns)
                limits[name] = LimitCount(above, count, 1 - quantile, dispersion, unknown)
                precision = precision_above(batches, limit_ns, quantile)
                time = time_of_one(quantile, limit_ns, times, precision, SHOWN_ERROR) if times.count else 1.0
                has_enough_samples &= is_limit_shown_met(quantile, count, above, time)
        if (allowed := self._slo.error_rate) is not None and scheduled:
            share = point.failed_share
            failed = round(share.estimate * scheduled)
            limits["error_rate"] = LimitCount(failed, scheduled, allowed, share.dispersion)
            has_enough_samples &= is_limit_shown_met(1 - allowed, scheduled, failed, share.dispersion)
        is_limited = self._slo.error_rate is not None or self._scenario.measure.abort_error_rate is not None
        has_failed = point.has_mostly_failed and not is_limited
        self._probes.append(
            Probe(
                rate_per_s=self._step.rate_per_s,
                stage=self._step.stage,
                limits={} if len(limits) < len(all_limits_ns) + (self._slo.error_rate is not None) or has_failed else limits,
                is_overloaded=is_overloaded,
                ceiling_per_s=self._ceiling_per_s(window, point) if is_overloaded else math.inf,
                is_valid=point.valid,
                is_cold=not point.valid and codes & INVALIDATING == {COLD},
                is_steady="not_steady" not in codes,
                median=median_of(window.batches),
                has_enough_samples=has_enough_samples,
                took_s=took_s,
            )
        )

    def total(self) -> int:
        """The most probes."""
        return self._settings.max_probes

    def add_time(self, added: Sequence[AddedTime]) -> None:
        """Gives the search more time after some of its probes, whether they are recorded already or will be."""
        self._added_time += tuple(added)

    def outcome(self) -> Search:
        """Until the search has stopped, it counts as interrupted."""
        stop = self._step if isinstance(self._step, SearchEnd) else SearchEnd("interrupted", estimate(self._probes, self._settings))
        current, fit = stop.estimate, stop.estimate.fit
        search = Search(
            slo=dict(_limits(self._slo.model_dump(mode="json", by_alias=True, exclude_none=True))),
            capacity_per_s=current.capacity_per_s, low_per_s=current.low_per_s, high_per_s=current.high_per_s,
            confidence=self._settings.confidence, precision=self._settings.precision, budget_s=self._settings.budget_s,
            stopped_because=stop.reason, reason="", confirmation=stop.confirmation, missed_below_per_s=stop.missed_below_per_s,
            needed_s=stop.needed_s, needed_if_wider_s=stop.needed_if_wider_s,
            drifted_at_per_s=tuple(probe.rate_per_s for probe in self._probes if not probe.is_steady),
            drift=stop.drift,
            curve=None if fit is None else FittedCurve(
                limit=current.limit or "", centre_per_s=fit.centre_per_s, floor=fit.floor, intercept=fit.intercept, slope=fit.slope,
                points=fit.points, effective_beyond=fit.effective_beyond, dispersion=fit.dispersion,
            ),
            added_time=self._added_time,
            probes=tuple(
                SearchProbe(
                    rate_per_s=probe.rate_per_s, stage=probe.stage, limits=dict(probe.limits),
                    met=probe.is_met, overloaded=probe.is_overloaded, valid=probe.is_valid, took_s=probe.took_s, cold=probe.is_cold,
                )
                for probe in self._probes
            ),
        )  # fmt: skip
        return search.model_copy(update={"reason": explain_search(search)})

    @property
    def _quantiles(self) -> list[float]:
        return [QUANTILES[percentile] for _, percentile, _ in self._slo.limits_ns.values()]

    def _probe_length_s(self, step: NextProbe) -> float:
        return (self._scenario.warmup_ns + self._window_ns(step)) / NS_PER_S

    def _window_ns(self, step: NextProbe) -> int:
        """Long enough for the requests that the probe needs, and for two expected requests above the percentile."""
        highest = max(self._quantiles, default=0.0)
        requests = max(step.requests, _EXPECTED_ABOVE_PERCENTILE / (1 - highest) if highest else 0.0)
        return max(self._usual_ns, round(requests / step.rate_per_s * NS_PER_S))

    def _ceiling_per_s(self, window: Window, point: Point) -> float:
        """The rate that an overloaded target answered, plus what chance adds to it."""
        offered = window.series.offered()
        assert isinstance(point.load, OpenLoad)
        overload = judge_overload(offered.scheduled, offered.answered, dispersion=1 + point.load.gap_variation**2)
        return point.load.rate_per_s * min((overload.answered + overload.allowed) / max(overload.scheduled, 1), 1.0)

    def _make_settings(self, start_per_s: float) -> SearchSettings:
        search = self._search
        usual_s = (self._scenario.warmup_ns + self._usual_ns) / NS_PER_S
        return SearchSettings(
            start_per_s=search.start_rate_per_s or start_per_s,
            min_rate_per_s=search.min_rate_per_s or 0.0,
            max_rate_per_s=search.max_rate_per_s or math.inf,
            precision=search.precision,
            max_probes=search.max_probes,
            budget_s=max(_DEFAULT_BUDGET_S, search.max_probes * usual_s) if search.budget_ns is None else search.budget_ns / NS_PER_S,
        )


def _limits(slo: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The limits of an SLO as its scenario writes them, by their names in a search."""
    for name, limit in slo.items():
        yield from ((f"{name}.{inner}", str(one)) for inner, one in limit.items()) if isinstance(limit, Mapping) else ((name, str(limit)),)


def explain_search(search: Search) -> str:
    """The outcome of a search in a few sentences."""
    slo = " and ".join(
        f"an error rate of {limit}" if name == "error_rate" else f"{limit_in_words(name)} of {limit}" for name, limit in search.slo.items()
    )
    rates = (search.capacity_per_s, search.low_per_s, search.high_per_s)
    capacity, low, high = (None if rate is None else format_rate_per_s(rate) for rate in rates)
    interval = f"a {search.confidence:.0%} interval from {low or 'an unknown lower end'} to {high or 'an unknown upper end'}"
    fitted = f"The capacity at {slo} is {capacity}, with {interval}."
    bracket = f"The capacity at {slo} lies between {low}, which meets it, and {high}, which misses it"
    if low is None and high is None:
        fitted = f"The capacity at {slo} is estimated at {capacity}; its uncertainty is not known yet.{_describe_bracket(search)}"
    current = fitted if search.curve else f"{bracket}."
    if capacity is None:
        current = f"The capacity at {slo} is not known yet."
    elif search.curve is None and high is None:
        current = f"The SLO, {slo}, is met at {capacity}; no rate is known yet that misses it."
    confirmed = {
        None: "",
        "passed": f" A confirming probe at {low} met the SLO, with enough samples to show it by itself.",
        "not_steady": f" A confirming probe at {low} met the SLO, but its times had not settled; increase measure.duration to be sure.",
        "too_few_samples": f" A confirming probe at {low} met the SLO, but with too few samples to show it by itself; the interval counts it.",
        "missed": " The last confirming probe missed the SLO.",
    }[search.confirmation]
    purpose = f"its interval was within ±{search.precision:.0%}"
    if search.confirmation is None and _is_narrow(search):
        purpose = "a probe confirmed the lower end"
    elif search.confirmation == "missed":
        purpose = "the lower end was confirmed: the last confirming probe missed the SLO, so the capacity may be lower than estimated"
    drift = "" if search.drift is None else _describe_drift(search.drift)
    text = {
        "precision": fitted + confirmed,
        "cliff": f"{bracket}, at a cliff: the times do not rise gradually, so no curve is fitted.{confirmed}",
        "drifted": (
            f"{current} But the target became {drift} during the search, and its interval is made for a target that stays the same: it may "
            "not hold the capacity that the target had at the end. Find out what changed, and search again."
        ),
        "non_monotone": (
            f"There is no single capacity at {slo}, because the measured times do not rise with the rate: all probes up to "
            f"{low or 'no rate'} meet the SLO, and none from {high or 'no rate'} on does. Increase measure.duration, or look for other work on the target."
        ),
        "not_confirmed": f"{current} It is not confirmed: the confirming probes at its lower end missed the SLO.",
        "never_met": f"The SLO, {slo}, is missed at every rate that was probed, down to {high}.",
        "never_missed": f"The SLO, {slo}, is met up to max_rate, {capacity}: the capacity is at least that.",
        "generator": f"The load generator made probes invalid, as their warnings say; {f'the SLO is met up to {capacity}' if capacity else 'nothing is known about the target'}.",
        "cold": f"{current} The last probes were not valid, because the target stayed cold.",
        "too_short": f"{current} {_describe_missing_time(search)}",
        "max_probes": f"{current} The search reached max_probes, {len(search.probes)}, before {purpose}.",
        "budget": f"{current} The next probe would have exceeded the search's budget ({_describe_budget(search)}) before {purpose}.",
        "interrupted": f"{current} The search was interrupted.",
        "unknown_times": (
            f"{current} But times that are not known decide: this takes them to be beyond the limit, and with all of them within it rates would "
            "meet the SLO that now miss it. Let the server report what they are computed from, such as the tokens of every answer, or leave out this limit."
        ),
    }[search.stopped_because]
    if search.missed_below_per_s is not None:
        rate = format_rate_per_s(search.missed_below_per_s)
        text += f" The SLO is missed at {rate}, too, and perhaps below: the target is slower at such low rates."
    if search.curve is not None and (contradiction := _contradiction(search)):
        text += f" {contradiction}"
    if search.drift is not None and search.stopped_because != "drifted":
        text += f" The target became {drift} during the search."
    if drifted := [rate for rate in search.drifted_at_per_s if search.capacity_per_s is not None and rate <= search.capacity_per_s]:
        listed = ", ".join(format_rate_per_s(rate) for rate in dict.fromkeys(drifted))
        text += f" The times drifted during the probes at {listed}, below the capacity: the target became slower or faster meanwhile."
    if search.added_time:
        earlier = search.added_time[-1].after_probes
        text += f" Of its {len(search.probes)} probes, {earlier} were sent before it was given more time, and {len(search.probes) - earlier} after that."
    unknown = {name: sum(probe.limits[name].unknown for probe in search.probes if name in probe.limits) for name in search.slo}
    for name, requests in unknown.items():
        if requests:
            text += f" The {limit_in_words(name)} counts {requests:,} requests of all probes whose time is not known as beyond its limit."
    if cold := dict.fromkeys(format_rate_per_s(probe.rate_per_s) for probe in search.probes if probe.cold):
        text += f" The target was still cold in probes at {', '.join(cold)}, which do not count: give a longer measure.warmup."
    return text


def _describe_drift(drift: SearchDrift) -> str:
    """What the target became, with an interval."""
    word, ends = ("slower", (drift.low, drift.high)) if drift.slower > 0 else ("faster", (-drift.high, -drift.low))
    return f"{abs(drift.slower):.1%} {word} (95 % interval {ends[0]:.1%} to {ends[1]:.1%}, by its median response times)"


def _describe_budget(search: Search) -> str:
    """How much of the budget the probes used."""
    budget_s, spent_s = search.budget_s or 0.0, sum(probe.took_s for probe in search.probes)
    budget, spent = (format_duration_ns(round(seconds * NS_PER_S)) for seconds in (budget_s, spent_s))
    return f"{spent} of {budget} used"


def _describe_bracket(search: Search) -> str:
    """The rates between which the capacity lies by the probes alone, as a sentence with a space before it; empty where they contradict each other."""
    judged = [probe for probe in search.probes if probe.valid]
    met_per_s = max((probe.rate_per_s for probe in judged if probe.met), default=0.0)
    missed_per_s = min((probe.rate_per_s for probe in judged if not probe.met), default=0.0)
    if not 0 < met_per_s < missed_per_s:
        return ""
    return f" By the probes so far the SLO is met at {format_rate_per_s(met_per_s)} and missed at {format_rate_per_s(missed_per_s)}."


def _describe_invalid_probes(search: Search) -> str:
    """That a search lost much of its time to probes that the load generator made invalid, as a sentence with a space before it; otherwise empty."""
    invalid = [probe for probe in search.probes if not probe.valid and not probe.cold]
    lost_s, whole_s = (sum(probe.took_s for probe in probes) for probes in (invalid, search.probes))
    if lost_s < _LARGE_LOST_SHARE * whole_s or not lost_s:
        return ""
    lost, whole = (format_duration_ns(round(seconds * NS_PER_S)) for seconds in (lost_s, whole_s))
    return (
        f" Probes that the load generator made invalid took {lost} of {whole} ({len(invalid)} of {len(search.probes)}; their warnings say why): where the load generator has "
        "CPUs of its own, on a machine that nothing else uses, a search takes less time."
    )


def _contradiction(search: Search) -> str:
    """That a rate met the SLO although a lower one missed it, as probes near the capacity do by chance; empty if there is none."""
    judged = [probe for probe in search.probes if probe.valid]
    met_per_s = max((probe.rate_per_s for probe in judged if probe.met), default=0.0)
    missed_per_s = min(
        (probe.rate_per_s for probe in judged if not probe.met and probe.rate_per_s > (search.missed_below_per_s or 0)), default=math.inf
    )
    if missed_per_s > met_per_s:
        return ""
    return (
        f"Probes contradict each other: the SLO was missed at {format_rate_per_s(missed_per_s)} and met at {format_rate_per_s(met_per_s)}. "
        "Probes near the capacity may differ by chance; longer ones, by measure.duration, tell."
    )


def _describe_missing_time(search: Search) -> str:
    """Why the search was too short, and the time that it would take."""
    needed_s, budget_s = search.needed_s or 0.0, search.budget_s or 0.0
    needed, given = (format_duration_ns(round(seconds * NS_PER_S)) for seconds in (needed_s, budget_s))
    time = f"The search would take about {needed}, and its budget is {given}: unless it is part of a sweep, it goes on with --resume --budget {write_minutes(search.more_s)}"
    if _is_narrow(search):
        return f"The interval is narrow enough, but no probe has confirmed its lower end yet. {time}.{_describe_invalid_probes(search)}"
    wider = ""
    if search.needed_if_wider_s is not None:
        shorter = format_duration_ns(round(search.needed_if_wider_s * NS_PER_S))
        wider = f" accept ±{2 * search.precision:.0%} (load.search.precision), which would take about {shorter},"
    return (
        f"The probes are too short for ±{search.precision:.0%}: near the capacity slow requests come in groups, so that few of them are "
        f"independent. {time},{wider} or limit a lower percentile.{_describe_invalid_probes(search)}"
    )


def _is_narrow(search: Search) -> bool:
    """Whether the interval lies within the precision."""
    low, capacity, high = search.low_per_s, search.capacity_per_s, search.high_per_s
    if low is None or capacity is None or high is None or search.curve is None:
        return False
    return max(1 - low / capacity, high / capacity - 1) <= search.precision
