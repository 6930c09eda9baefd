"""Demand over the day in a capacity plan: its sentences, the tables of ways to run the fleet, of costs and of hours, and its charts."""

import numpy as np

from perfkit.plan.model import CapacityPlan
from perfkit.plan.schedule_model import FleetWay, Offer, Schedule
from perfkit.plan.steps import WEEKDAYS
from perfkit.report.chart import BLUE, GREEN, INK, MUTED, VERMILLION, Axis, Chart, ChartGroup, Line
from perfkit.report.plan_tables import PlanPlot, PlanSubject, currency_suffix, money
from perfkit.report.table import Column, Table, attribute, format_error_rate
from perfkit.units import NS_PER_S, format_duration_ns

_TITLE = "Demand over the day"
_COLOURS = (MUTED, BLUE, VERMILLION, GREEN)
_HOURS_PER_DAY = 24


def schedule_answer(plan: CapacityPlan) -> list[str]:
    """The cost and the time below the SLO of each way to run the fleet, the lowest cost, and when buying pays; empty without a profile."""
    opening, *ways = _opening_and_ways(plan)
    return [f"{opening} {'; '.join(ways)}.", *_comparison(plan)] if ways else []


def schedule_lines(plan: CapacityPlan) -> list[str]:
    """The sentences of the cost and the time below the SLO, with a line for each way to run the fleet; empty without a profile."""
    opening, *ways = _opening_and_ways(plan)
    return [opening, *(f"  - {way}" for way in ways), *_comparison(plan)] if ways else []


def _opening_and_ways(plan: CapacityPlan) -> list[str]:
    """The opening of the answer and a phrase for each way to run the fleet."""
    schedule = plan.schedule
    if schedule is None:
        return [""]
    cold_start = format_duration_ns(schedule.cold_start_s * NS_PER_S)
    opening = f"Over the day, with a cold start of {cold_start} ({schedule.cold_start_source}):"
    return [opening, *(_phrase(plan, schedule, way) for way in schedule.ways)]


def _comparison(plan: CapacityPlan) -> list[str]:
    """The lowest cost, and when buying pays."""
    schedule, sentences = plan.schedule, list[str]()
    assert schedule is not None
    if schedule.recommended:
        sentences.append(_recommendation(plan, schedule, schedule.recommended))
    if bought := next((offer for offer in schedule.offers if offer.payment == "bought"), None):
        rented = [offer for offer in schedule.offers if offer is not bought]
        best = min((offer for offer in rented if offer.rank), key=lambda offer: offer.total_per_year, default=rented[0])
        phrases = [_break_even(offer) for offer in (rented[0], best)]
        pays = "; ".join(dict.fromkeys(phrases))
        sentences.append(
            f"Buying costs {money(bought.cost_per_month, plan.chosen)} a month over its lifetime. {pays[:1].upper()}{pays[1:]}."
        )
    return sentences


def _recommendation(plan: CapacityPlan, schedule: Schedule, best: Offer) -> str:
    """A sentence on the recommended offer, its cost and missed time, and the cheapest offer that misses the SLO too often."""
    reserved = f" ({best.reserved} at all times)" if best.reserved else ""
    name = f"{best.way}, {best.payment}{reserved}"
    cost = f"{money(best.cost_per_month, plan.chosen)} a month, {money(best.cost_per_year, plan.chosen)} a year"
    if best.missed_time is None:
        return f"The lowest cost over the day is {name}: {cost}; in how much of the time the SLO is missed is not known."
    missed = f"the SLO is missed in {_share(best.missed_time)} of the time{_doubts(schedule, best)}"
    if best.missed_cost_per_year is not None:
        missed += f", which is expected to cost {money(best.missed_cost_per_year, plan.chosen)} a year"
    allowed = schedule.allowed_missed_time
    if allowed is not None and best.missed_time > allowed:
        return f"Every way misses the SLO in more than {_share(allowed)} of the time; {name} costs least of those that miss it least: {cost}; {missed}."
    among = (
        "The lowest cost over the day"
        if allowed is None
        else f"Of the ways that miss the SLO in at most {_share(allowed)} of the time, the lowest cost"
    )
    in_all = ", with that of missing the SLO," if best.missed_cost_per_year is not None else ""
    cheaper = min(
        (offer for offer in schedule.offers if offer.rank is None and offer.cost_per_year < best.cost_per_year),
        key=lambda offer: offer.cost_per_year,
        default=None,
    )
    but = ""
    if cheaper is not None and cheaper.missed_time is not None:
        but = f"; {cheaper.way}, {cheaper.payment}, costs {money(cheaper.cost_per_month, plan.chosen)} a month, but misses it in {_share(cheaper.missed_time)}"
    return f"{among}{in_all} is {name}: {cost}; {missed}{but}."


def _doubts(schedule: Schedule, best: Offer) -> str:
    """Why the recommended offer may miss the SLO in more of the time than allowed; empty if it is known to keep to that."""
    allowed, way, doubts = schedule.allowed_missed_time, schedule.way(best.way), list[str]()
    if allowed is None or way.missed_time is None or way.missed_time.value > allowed:
        return ""
    if way.missed_time.high > allowed:
        doubts.append(f"its 90 % interval reaches {_share(way.missed_time.high)}")
    if way.missed_time_at_low is not None and way.missed_time_at_low > allowed:
        doubts.append(f"it is {_share(way.missed_time_at_low)} at the lower limit of the capacity")
    return f" (more than {_share(allowed)} is possible: {', and '.join(doubts)})" if doubts else ""


def _phrase(plan: CapacityPlan, schedule: Schedule, way: FleetWay) -> str:
    replicas = f"{way.most} replica{'s' if way.most > 1 else ''}" if way.fewest == way.most else f"{way.fewest} to {way.most} replicas"
    offer = next((offer for offer in schedule.offers if offer.way == way.name), None)
    cost = "" if offer is None else f", {money(offer.cost_per_month, plan.chosen)} a month"
    if way.missed_time is None:
        return f"{way.name}, {replicas}{cost}"
    found = way.missed_time
    share, low, high = (_share(value) for value in (found.value, found.low, found.high))
    return f"{way.name}, {replicas}{cost}, SLO missed in {share} of the time (90 % interval {low} to {high})"


def _share(value: float) -> str:
    return format_error_rate(value).replace("%", " %") if value else "0 %"


def _break_even(offer: Offer) -> str:
    months = offer.break_even_months
    pays = "does not pay within its lifetime" if months is None else f"pays after {months:.0f} months"
    return f"against {offer.way}, {offer.payment}, it {pays}"


def schedule_tables(plan: CapacityPlan) -> tuple[Table, ...]:
    """The ways to run the fleet, their costs, and the replicas by hour; no tables without a profile."""
    schedule = plan.schedule
    if schedule is None:
        return ()
    return _ways(schedule), _offers(schedule, currency_suffix(plan)), _hours(schedule)


def _ways(schedule: Schedule) -> Table:
    columns = (
        Column("name", "replicas"), Column("fewest", "fewest", "count"), Column("most", "most", "count"),
        Column("replica_hours_per_day", "replica hours a day", "number"),
        Column("missed_time", "SLO missed, of the time", "error_rate", attribute("missed_time.value")),
        Column("missed_time_low", "from", "error_rate", attribute("missed_time.low")),
        Column("missed_time_high", "to", "error_rate", attribute("missed_time.high")),
        Column("worst_period", "worst simulated period", "error_rate"), Column("slow_requests", "slower requests", "error_rate"),
        Column("missed_time_at_low", "at the lower limit", "error_rate"),
    )  # fmt: skip
    return Table.of("schedule_ways", _TITLE, columns, schedule.ways, _note(schedule)).without_empty_columns()


def _note(schedule: Schedule) -> str:
    cold_start = f"Cold start {format_duration_ns(schedule.cold_start_s * NS_PER_S)} ({schedule.cold_start_source})."
    if schedule.replica is None or schedule.sampling is None:
        return f"{cold_start} {schedule.refusal}"
    replica, sampling = schedule.replica, schedule.sampling
    servers = f"{replica.servers} server{'s' if replica.servers > 1 else ''}"
    if sampling.is_whole:
        how = (
            f"{sampling.periods} whole period{'s were' if sampling.periods > 1 else ' was'} simulated, with every request of every replica"
        )
    else:
        many = "one replica stands" if sampling.replicas == 1 else f"{sampling.replicas} replicas stand"
        stretched = f", with times stretched {sampling.stretch:.3g} times" if sampling.stretch > 1 else ""
        how = f"One period was simulated; {many} for all of them{stretched}"
        how += (
            "; while demand and replicas are steady, windows are judged together until they hold as many requests as the fleet has in one"
        )
    return (
        f"{cold_start} Each replica was simulated as a queue with {servers}. Its service times are the measured ones times {replica.factor:.3g} (mean "
        f"{format_duration_ns(replica.mean_service_ns)}), with which its capacity is the measured one. {how}. SLO missed: the share of windows of {schedule.window_s:g} s in "
        "which more requests are slow than the SLO allows, with its 90 % interval. Slower requests: the share above the limit of the highest percentile. At the lower "
        "limit: the same if the capacity is the lower end of its interval."
    )


def _offers(schedule: Schedule, currency: str) -> Table:
    columns = (
        Column("way", "replicas"), Column("payment", "payment"), Column("reserved", "always paid for", "count"),
        Column("cost_per_month", f"a month{currency}", "cost"), Column("cost_per_year", f"a year{currency}", "cost"),
        Column("missed_time", "SLO missed, of the time", "error_rate"),
        Column("missed_cost_per_year", f"missed SLO a year{currency}", "cost"),
        Column("total_per_year", f"in all a year{currency}", "cost", lambda offer: None if offer.missed_cost_per_year is None else offer.total_per_year),
        Column("rank", "rank", "count"),
        Column("break_even_months", "buying pays after (months)", "number"),
    )  # fmt: skip
    note = "A year has 8,760 hours, a month 730. Replicas are paid for from their start. A replica is reserved if it runs so much of the time that the reserved price is cheaper."
    allowed = schedule.allowed_missed_time
    if any(offer.missed_cost_per_year is not None for offer in schedule.offers):
        note += " The rank is that of the cost in all, with the time in which the SLO is missed at the cost of an hour (--outage-cost)."
    if allowed is not None and schedule.replica is not None:
        note += f" Ways that miss the SLO in more than {_share(allowed)} of the time (--allowed-missed-time) have no rank, unless all do."
    if schedule.mean_power_w is not None:
        note += f" The bought fleet draws {schedule.mean_power_w:,.0f} W on average. An offer without a number of months stays cheaper than buying over the whole lifetime."
    return Table.of("schedule_costs", "Cost over the day", columns, schedule.offers, note).without_empty_columns()


def _hours(schedule: Schedule) -> Table:
    columns = (
        Column("start", "hour from"), Column("demand_per_s", "demand", "rate_per_s"), Column("fixed", "fixed", "count"),
        Column("scheduled", "schedule", "count"), Column("autoscaled", "autoscaled (mean)", "number"),
    )  # fmt: skip
    note = "Demand is the highest of the hour, in inferences. Autoscaled: the mean number of ready replicas."
    return Table.of("schedule_hours", "Replicas by hour", columns, schedule.hours, note)


def schedule_group(plan: CapacityPlan) -> ChartGroup | None:
    """The demand, and the ready replicas of each way to run the fleet, over the day or week; None without a profile."""
    schedule, day = plan.schedule, plan.inputs.day
    if schedule is None or day is None:
        return None
    length_h = day.profile.length_s / 3600
    slots = max((len(way.ready) for way in schedule.ways), default=_HOURS_PER_DAY)
    hours = np.union1d(np.linspace(0, length_h, slots + 1), [start_s / 3600 for start_s, _ in day.profile.rows])
    steps = day.profile.steps()
    demand = Line("demand", tuple(hours.tolist()), tuple(float(steps.at(hour * 3600)) for hour in hours), INK, "steps")
    replicas = [
        Line(way.name, tuple(np.linspace(0, length_h, len(way.ready) + 1).tolist()), (*way.ready, way.ready[-1]), colour, "steps")
        for way, colour in zip(schedule.ways, _COLOURS, strict=False)
    ]
    if day.profile.is_weekly:
        ticks = tuple((float(_HOURS_PER_DAY * number), name) for number, name in enumerate(WEEKDAYS))
        x = Axis("hours since Monday 0:00", "h", "linear", ticks, low=0.0, high=length_h)
    else:
        x = Axis("hour of the day", "h", "linear", tuple((float(hour), f"{hour}:00") for hour in range(0, 25, 3)), low=0.0, high=length_h)
    return ChartGroup(
        (
            Chart("Demand", x, Axis("inferences per second", "/s"), (demand,), height_px=200),
            Chart("Ready replicas", x, Axis("ready replicas", is_whole=True), tuple(replicas), height_px=220),
        ),
        is_synchronised=True,
    )


_CAPTION = "Ready replicas: means over a quarter of an hour and over the simulated periods."
SCHEDULE = PlanSubject(_TITLE, schedule_tables, {"day": PlanPlot(_TITLE, _CAPTION, schedule_group)}, schedule_answer)
