"""The risk of a capacity plan: its sentences, its table, and the charts of probability and cost against the number of replicas."""

from collections.abc import Iterator

from perfkit.plan.capacity import HOURS_PER_YEAR
from perfkit.plan.fleet_risk import Balancing
from perfkit.plan.model import CapacityPlan
from perfkit.plan.risk import LIKELY, SAFE
from perfkit.report.chart import BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, Axis, Chart, ChartGroup, Level, Line, Style
from perfkit.report.plan_tables import PlanPlot, PlanSubject, with_currency
from perfkit.report.table import Cell, Column, Table
from perfkit.units import format_duration_ns, format_rate_per_s

_HIGHEST, _FEW_POINTS, _SHOWN_AROUND = 0.995, 30, 4
_MOST_COST = 2.5  # times the lowest cost: dearer fleets are beyond the chart
_PROBABILITIES = {
    "all_up": "P(SLO holds)",
    "one_lost": "one replica lost",
    "zone_lost": "largest zone lost",
    "with_failures": "with failures",
}
_COLOUR_OF = {"all_up": BLUE, "one_lost": VERMILLION, "zone_lost": PURPLE, "with_failures": GREEN}
_SPLIT = {
    Balancing.RANDOM: "at random",
    Balancing.ROUND_ROBIN: "in turn",
    Balancing.LEAST_IN_FLIGHT: "to the replica with the fewest in flight",
}


def probability_text(probability: float) -> str:
    """A probability as a whole percentage; above 99.5 % `>99 %`, below 0.5 % `<1 %`: the model is not more precise than that."""
    if probability >= _HIGHEST:
        return ">99 %"
    return "<1 %" if probability < 1 - _HIGHEST else f"{100 * probability:.0f} %"


def risk_answer(plan: CapacityPlan) -> Iterator[str]:
    """The probability that the SLO holds, for the planned replicas, one fewer, one more and some lost; and the cost of a missed SLO."""
    risk, splitting = plan.risk, plan.inputs.risk.splitting
    planned, more = risk.row(risk.replicas), risk.row(risk.replicas + 1)
    assert planned is not None
    assert more is not None
    demand = f"a peak demand of {_rate(plan, plan.inputs.demand_per_s)}, taken as exact,"
    if plan.inputs.risk.demand_uncertainty:
        low, high = format_rate_per_s(risk.demand_low_per_s), _rate(plan, risk.demand_high_per_s)
        demand = f"a peak demand of {low} to {high} (90 % interval)"
    split = "as measured" if splitting.shares else _SPLIT[splitting.balancing]
    known = probability_text(planned.all_up)
    others = [
        f"{row.replicas:,} with {probability_text(row.all_up)}"
        for row in (risk.row(risk.replicas - 1), more)
        if row and probability_text(row.all_up) != known
    ]
    lost = [f"with one replica lost: {probability_text(planned.one_lost)}"]
    if planned.zone_lost is not None:
        exact = " (the rule of zone loss asks for the demand itself, not for a higher peak)" * bool(plan.inputs.risk.demand_uncertainty)
        lost.append(f"with the largest of {plan.inputs.zones} zones lost: {probability_text(planned.zone_lost)}{exact}")
    if planned.with_failures is not None:
        lost.append(
            f"with failures at an availability of {100 * (plan.inputs.risk.availability or 0):.4g} %: {probability_text(planned.with_failures)}"
        )
    yield (
        f"At {demand} and with requests split {split}, {_replicas(risk.replicas)} {_verb(risk.replicas, 'keep')} the SLO with a probability of "
        f"{'; '.join([known, *others, *lost])}."
    )
    fewest = (
        f"{_replicas(risk.fewest_all_up)} {'is' if risk.fewest_all_up == 1 else 'are'} the fewest that keep the SLO with a probability of {100 * LIKELY:.0f} %"
        if risk.fewest_all_up
        else ""
    )
    if fewest and risk.fewest_one_lost:
        fewest += f", {risk.fewest_one_lost:,} with one lost"
    safe = f"{_replicas(risk.replicas)} {_verb(risk.replicas, 'keep')} it with a probability of {100 * SAFE:.0f} % up to {_rate(plan, risk.safe_demand_per_s)}"
    fleet = plan.chosen.fleet
    if fewest and fleet is not None and risk.fewest_all_up and risk.replicas > risk.fewest_all_up:
        fewest += f"; the plan has {risk.replicas - risk.fewest_all_up:,} more, for the rule of {fleet.reason}"
    yield f"{fewest or 'No number of replicas considered keeps it with a probability of 95 %'}; {safe}."
    if risk.largest_share > 1:
        percentile = plan.chosen.slo_percentile.replace("_", ".")
        busiest = "without bound: it is saturated" if risk.busiest_time_ns is None else format_duration_ns(risk.busiest_time_ns)
        yield (
            f"The busiest replica receives {risk.largest_share:.3g} times the mean: its {percentile} is {busiest}, against "
            f"{format_duration_ns(risk.even_time_ns)} at the mean rate."
        )
    yield from _cost_sentences(plan)


def _cost_sentences(plan: CapacityPlan) -> Iterator[str]:
    """The hours and the cost a year of a missed SLO, what one more replica saves of them, and the number of replicas that costs least."""
    risk, price_per_hour, outage = plan.risk, plan.chosen.price_per_hour, plan.inputs.risk.outage_cost
    planned, more = risk.row(risk.replicas), risk.row(risk.replicas + 1)
    assert planned is not None
    assert more is not None
    saved_hours = planned.missed_hours_per_year - more.missed_hours_per_year
    is_of_profile = plan.inputs.day is not None and plan.inputs.risk.peak_hours_per_day is None
    when = "a year of the demand profile" if is_of_profile else "a year at the peak demand"
    missed = f"The SLO is expected to be missed in {_hours(planned.missed_hours_per_year)} of {risk.hours_per_year:,.0f} h {when}"
    if outage is None and price_per_hour is None:
        yield f"{missed}; one more replica saves {_hours(saved_hours)} of them."
    elif outage is None and price_per_hour is not None:
        pays = ""
        if saved_hours >= 0.05:
            pays = f": it pays if such an hour costs more than {_expected(plan, price_per_hour * HOURS_PER_YEAR / saved_hours)}"
        yield f"{missed}; one more replica costs {_amount(plan, price_per_hour * HOURS_PER_YEAR)} a year and saves {_hours(saved_hours)} of them{pays}."
    elif outage is not None:
        costs = f"costs {_amount(plan, price_per_hour * HOURS_PER_YEAR)} a year and " if price_per_hour is not None else ""
        yield (
            f"{missed}, which costs {_expected(plan, planned.missed_cost_per_year or 0.0)}; one more replica {costs}saves "
            f"{_expected(plan, saved_hours * outage.per_hour)} of that."
        )
    best = risk.row(risk.cheapest_replicas) if risk.cheapest_replicas is not None else None
    if best is not None and best.fleet_cost_per_year is not None and best.missed_cost_per_year is not None:
        costs = (
            f"{_amount(plan, best.fleet_cost_per_year)} a year, and {_expected(plan, best.missed_cost_per_year)} expected for the hours in which the "
            "SLO is missed"
        )
        if best is risk.rows[-1]:
            yield (
                f"Each more replica costs less than it saves, up to {best.replicas:,}, the most considered: {costs}. Beyond, the probability of a missed SLO is "
                "too small to be told."
            )
        elif best is risk.rows[0] and best.replicas > 1:
            yield f"Each more replica costs more than it saves, from {best.replicas:,} on, the fewest considered: {costs}."
        else:
            which = "Of fleets of a fixed size, " if plan.inputs.day is not None else ""
            yield f"{which}{_replicas(best.replicas)} {_verb(best.replicas, 'cost')} least in all: {costs}."


def risk_table(plan: CapacityPlan) -> Table:
    """The probabilities, the missed hours and the costs by number of replicas."""
    currency = f" ({_currency(plan)})" if _currency(plan) else ""
    columns = (
        Column("replicas", "replicas", "count"),
        *(Column(key, heading, "share") for key, heading in _PROBABILITIES.items()),
        Column("missed_hours_per_year", "hours missed a year", "number"),
        Column("fleet_cost_per_year", f"replicas a year{currency}", "cost"),
        Column("missed_cost_per_year", f"missed hours a year{currency}", "cost"),
    )
    rows = []
    for row in plan.risk.rows:
        number = Cell(row.replicas, f"{row.replicas:,} (planned)") if row.replicas == plan.risk.replicas else row.replicas
        known = (getattr(row, key) for key in _PROBABILITIES)
        probabilities = (None if value is None else Cell(value, probability_text(value)) for value in known)
        hours = Cell(row.missed_hours_per_year, _hours(row.missed_hours_per_year))
        fleet, missed = row.fleet_cost_per_year, row.missed_cost_per_year
        costs = (
            None if fleet is None else Cell(fleet, f"{fleet:,.0f}"),
            None if missed is None else Cell(missed, _three_digits(missed)),
        )
        rows.append((number, *probabilities, hours, *costs))
    note = (
        "The probability that every replica keeps the SLO at the peak demand. It accounts for the error of the measured capacity, which all replicas share, for the variation "
        "between starts of the server, which is independent for each replica, and for the uncertainty of the demand."
    )
    planned = next(index for index, row in enumerate(plan.risk.rows) if row.replicas == plan.risk.replicas)
    shown = (max(planned - _SHOWN_AROUND, 0), min(planned + _SHOWN_AROUND + 1, len(rows)))
    if shown != (0, len(rows)):
        note += " tables/risk.csv holds more numbers of replicas."
    return Table("risk", "Risk", columns, tuple(rows), note, shown_rows=shown).without_empty_columns()


def risk_group(plan: CapacityPlan) -> ChartGroup:
    """The probability that the SLO holds, and the expected cost of a year if it is known, against the number of replicas."""
    risk, rows = plan.risk, plan.risk.rows
    numbers = [row.replicas for row in rows]
    x = Axis("replicas", scale="linear", low=numbers[0] - 0.5, high=numbers[-1] + 0.5, is_whole=True)
    planned = Level(risk.replicas, "planned", is_vertical=True, colour=MUTED)
    style: Style = "path" if len(rows) <= _FEW_POINTS else "line"
    lines = []
    for key, heading in _PROBABILITIES.items():
        shares = [(row.replicas, 100 * value) for row in rows if (value := getattr(row, key)) is not None]
        if shares:
            lines.append(Line.of("all replicas up" if key == "all_up" else heading, shares, _COLOUR_OF[key], style))
    likely = Level(100 * LIKELY, f"{100 * LIKELY:.0f} %", colour=MUTED)
    y = Axis("probability", "%", "linear", low=0.0, high=105.0)
    charts = [Chart("Probability that the SLO holds", x, y, tuple(lines), levels=(planned, likely), height_px=300)]
    if risk.cheapest_replicas is not None:
        costs = [(row.replicas, row.fleet_cost_per_year or 0.0, row.missed_cost_per_year or 0.0) for row in rows]
        total = [fleet + missed for _, fleet, missed in costs]
        lines = [
            Line.of("replicas and missed SLO", [(number, fleet + missed) for number, fleet, missed in costs], INK, style),
            Line.of("replicas", [(number, fleet) for number, fleet, _ in costs], BLUE, "dashed"),
            Line.of("missed SLO, expected", [(number, missed) for number, _, missed in costs], VERMILLION, "dashed"),
        ]
        y = Axis("cost a year", _currency(plan), "linear", low=0.0, high=1.08 * min(max(total), _MOST_COST * min(total)))
        charts.append(Chart("Expected cost of a year", x, y, tuple(lines), levels=(planned,), height_px=300))
    return ChartGroup(tuple(charts), columns=2)


def _replicas(number: int) -> str:
    return f"{number:,} replica{'' if number == 1 else 's'}"


def _verb(number: int, verb: str) -> str:
    return f"{verb}s" if number == 1 else verb


def _rate(plan: CapacityPlan, inferences_per_s: float) -> str:
    """A demand; `inferences/s` rather than `/s` if requests hold several."""
    text = format_rate_per_s(inferences_per_s)
    return text.replace("/s", " inferences/s") if plan.chosen.batch_size > 1 else text


def _three_digits(amount: float) -> str:
    return f"{float(f'{amount:.3g}'):,.0f}"


def _hours(hours: float) -> str:
    return f"{hours:,.0f} h" if hours >= 9.95 else f"{hours:.1f} h" if hours >= 0.05 else "less than 0.1 h"


def _currency(plan: CapacityPlan) -> str:
    return plan.chosen.currency or (plan.inputs.risk.outage_cost.currency if plan.inputs.risk.outage_cost else "")


def _amount(plan: CapacityPlan, amount: float) -> str:
    """A yearly amount in whole units of the plan's currency."""
    return with_currency(f"{amount:,.0f}", _currency(plan))


def _expected(plan: CapacityPlan, amount: float) -> str:
    """An expected amount, to three digits."""
    return with_currency(_three_digits(amount), _currency(plan))


RISK = PlanSubject(
    "Risk",
    lambda plan: [risk_table(plan)],
    {
        "risk": PlanPlot(
            "Probability that the SLO holds",
            "The probability that the SLO holds at the peak demand, by number of replicas, with all of them up and with some lost. The dotted vertical line is the "
            "planned number, the dashed line 95 %. If the cost of a missed hour is known, the second panel shows the expected cost of a year.",
            risk_group,
        )
    },
    risk_answer,
)
