"""`perfkit plan`: makes a capacity plan from results and writes its folder."""

import argparse
import functools
import json
import math
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import default_place, whole_number
from perfkit.cli.output import note_unverified, reader_may_leave
from perfkit.text import sentence as harmless_sentence

if TYPE_CHECKING:
    from perfkit.plan.day_inputs import DayInputs
    from perfkit.plan.input_texts import Price


_LARGEST_INPUT_BYTES = 2**26
_OUTCOMES = {
    "holds": (ExitCode.DONE, "all limits are kept"),
    "cannot be told": (ExitCode.INCONCLUSIVE, "whether all limits are kept cannot be told"),
    "violated": (ExitCode.VIOLATED, "a limit is violated"),
}
"""The exit code and the words for the verdict on the chosen configuration."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    add, count = parser.add_argument, whole_number(0, 1_000_000)
    repeatable = functools.partial(add, action="append")
    results = "a result folder or its result.json; results with one label are one configuration"
    add("results", nargs="+", metavar="[LABEL=]RESULT", help=results)
    repeatable(
        "--slo",
        required=True,
        metavar="LIMIT",
        help="limits such as 'p99<50ms' or 'p99<20s,first_token.p99<500ms,error_rate<0.1%%'; may be repeated",
    )
    demand = "peak demand in inferences, such as 1000/s, or in output tokens, such as 5000tok/s; if repeated, the plan is for the first; default: the peak of --profile, from which the first must not differ"
    repeatable("--demand", default=[], metavar="RATE", help=demand)
    average = "the demand that costs are divided by; default: the mean of --profile, else the peak demand"
    add("--average-demand", metavar="RATE", help=average)
    add("--headroom", default="30%", metavar="SHARE", help="free capacity with all replicas up; default 30%%")
    add("--failure-headroom", default="10%", metavar="SHARE", help="free capacity while replicas are down; default 10%%")
    add("--redundancy", type=count, default=0, metavar="K", help="the number of replicas that may be down; default 0")
    add("--zones", type=count, default=0, metavar="N", help="survive the loss of one of N zones")
    price = "price of a replica, such as $2.50/h; may be repeated with labels"
    repeatable("--price", default=[], metavar="[LABEL=]PRICE", help=price)
    constraint = "a limit such as 'gpu_memory<40GiB', 'price<20/h', 'energy<3J' or 'replicas<=16'; may be repeated"
    repeatable("--constraint", default=[], metavar="LIMIT", help=constraint)
    at = "predict the percentiles at this rate of one replica, with 90 %% intervals; may be repeated"
    repeatable("--at", default=[], metavar="RATE", help=at)
    add("--peaks", type=pathlib.Path, metavar="CSV", help="daily peaks (columns date, peak_per_s), to forecast the date of exhaustion")
    add("--lead-time", metavar="TIME", help="time from an order until the replicas are ready, such as 6w or 45d, for the order-by date")
    add("--replicas", type=count, metavar="N", help="current number of replicas, for that date; default: as planned")
    uncertainty = "relative uncertainty u: the 90 %% interval of the peak demand is demand/(1 + u) to demand * (1 + u); default: exact"
    add("--demand-uncertainty", metavar="SHARE", help=uncertainty)
    balancing = "how the load balancer chooses a replica; default random"
    add("--balancing", choices=("random", "round-robin", "least-in-flight"), help=balancing)
    shares = "measured relative loads of the replicas, such as 1.2,1,1,0.8, or a CSV file with the column requests"
    add("--shares", metavar="LOADS", help=shares)
    add("--outage-cost", metavar="PRICE", help="cost of an hour in which the SLO is missed, such as $500/h")
    add("--peak-hours", metavar="TIME", help="hours of a day with the peak demand, such as 4h; default: those of --profile, else all")
    add("--availability", metavar="SHARE", help="share of the time in which a replica is up, such as 99.5%%")
    _add_day_options(parser)
    add("--idle-power", metavar="POWER", help="idle power of all GPUs together, such as 60W, to report energy above idle")
    add("--seed", type=whole_number(0, 2**32 - 1), default=0, help="seed of the intervals' random numbers; default 0")
    add("--out", type=pathlib.Path, metavar="DIR", help=f"the plan's folder; {default_place('plan')}")
    add("--format", choices=("text", "json"), default="text", help="output on stdout: the summary, or plan.json")
    add("--quiet", action="store_true", help="print no warnings on stderr")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    from perfkit.errors import UsageError
    from perfkit.plan.configuration import plan_capacity
    from perfkit.plan.evidence import gather_evidence, read_sources
    from perfkit.plan.forecast import parse_lead_time_days, parse_peaks
    from perfkit.plan.input_texts import parse_prices
    from perfkit.plan.inputs import (
        PlanInputs,
        RiskInputs,
        parse_availability,
        parse_constraints,
        parse_demand_per_s,
        parse_demand_uncertainty,
        parse_headroom,
        parse_outage_cost,
        parse_peak_hours,
        parse_power_w,
        parse_slo,
        parse_splitting,
    )
    from perfkit.plan.model import plan_document

    if options.zones == 1:
        raise UsageError("--zones 1: no replica survives the loss of the only zone; give at least 2")
    if options.replicas == 0:
        raise UsageError("--replicas 0: give at least 1")
    if options.replicas and not options.peaks:
        raise UsageError("--replicas: the date on which they are exhausted comes from a forecast; add --peaks with daily peaks")
    if options.lead_time and not options.peaks:
        raise UsageError("--lead-time: the date of an order comes from a forecast; add --peaks with daily peaks")
    peaks = parse_peaks(_read(options.peaks, "--peaks"), str(options.peaks)) if options.peaks else ()
    prices = parse_prices(options.price)
    day = _day_inputs(options, list(prices.values()))
    demands_per_s, average_per_s, is_in_tokens = _demands(options)
    inputs = PlanInputs(
        slo=parse_slo(options.slo),
        demands_per_s=_peak_demands_per_s(demands_per_s, day),
        average_demand_per_s=day.profile.mean_per_s if average_per_s is None and day else average_per_s,
        headroom=parse_headroom(options.headroom, "--headroom"),
        failure_headroom=parse_headroom(options.failure_headroom, "--failure-headroom"),
        redundancy=options.redundancy,
        zones=options.zones,
        prices=prices,
        rates_per_s=tuple(parse_demand_per_s(text, "--at") for text in options.at),
        peaks=peaks,
        replicas_now=options.replicas,
        lead_time_days=parse_lead_time_days(options.lead_time) if options.lead_time else None,
        idle_power_w=parse_power_w(options.idle_power) if options.idle_power else None,
        risk=RiskInputs(
            demand_uncertainty=parse_demand_uncertainty(options.demand_uncertainty) if options.demand_uncertainty else 0.0,
            splitting=parse_splitting(options.balancing, _shares(options.shares)),
            outage_cost=parse_outage_cost(options.outage_cost, list(prices.values())) if options.outage_cost else None,
            peak_hours_per_day=parse_peak_hours(options.peak_hours) if options.peak_hours else None,
            availability=parse_availability(options.availability) if options.availability else None,
        ),
        constraints=parse_constraints(options.constraint),
        day=day,
        seed=options.seed,
        is_in_tokens=is_in_tokens,
    )
    if inputs.average_demand_per_s is not None and inputs.average_demand_per_s > inputs.demand_per_s:
        raise UsageError(f"--average-demand {options.average_demand}: the average is above the peak demand, {inputs.demand_per_s:g}/s")
    # imported only now: wrong options should not wait for it
    from perfkit.report.plan import (
        CAVEATS,
        check_plan_folder,
        headline,
        plan_notes,
        predictions,
        write_plan,
    )
    from perfkit.report.terminal import fill, print_status_line, terminal_width
    from perfkit.result.output_folder import default_folder

    folder = options.out or default_folder("plan")
    check_plan_folder(folder)
    sources = read_sources(options.results)
    if not options.quiet:
        note_unverified(source.folder for source in sources)
    plan = plan_capacity(gather_evidence(sources), inputs)
    write_plan(plan, folder)
    with reader_may_leave():
        if options.format == "json":
            print(json.dumps(plan_document(plan), indent=1))
        else:
            for sentence in [*headline(plan, is_listed=sys.stdout.isatty()), *predictions(plan)]:
                print(fill(harmless_sentence(sentence), terminal_width()))
            sys.stdout.flush()  # the answer comes before its caveats
    if not options.quiet:
        for title, sentences in plan_notes(plan):
            if title == "Notes" and sys.stderr.isatty():
                print(
                    f"{len(sentences)} note{'s' * (len(sentences) > 1)} (plan.html has {'them' if len(sentences) > 1 else 'it'})",
                    file=sys.stderr,
                )
            elif title in CAVEATS:
                for sentence in sentences:
                    print(fill(f"perfkit: {title.lower()}: {harmless_sentence(sentence)}", terminal_width(), sys.stderr), file=sys.stderr)
    with reader_may_leave():
        if options.format != "json":
            print(f"{folder}{os.sep}: plan.html, plan.md, plan.json, tables, plots")
    code, limits = _OUTCOMES[plan.verdict]
    number = len(plan.configurations)
    print_status_line("complete", f"{number:,} configuration{'s' * (number != 1)}; {limits}", code, "green" if code == 0 else "yellow")
    return code


def _read(file: pathlib.Path, option: str) -> str:
    """The text of an option's file; raises UsageError."""
    from perfkit.errors import UsageError
    from perfkit.input_file import read_bounded

    try:
        return read_bounded(file, _LARGEST_INPUT_BYTES, may_be_pipe=True).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option} {file}: cannot be read: {error}") from None


def _shares(text: str | None) -> tuple[float, ...]:
    """The relative loads of the replicas, from a list or a file; empty without the option."""
    from perfkit.plan.inputs import parse_share_counts, parse_shares

    if not text:
        return ()
    return parse_share_counts(_read(pathlib.Path(text), "--shares"), text) if text.endswith(".csv") else parse_shares(text)


def _add_day_options(parser: argparse.ArgumentParser) -> None:
    """Adds --profile, and the options that need it."""
    add, count = parser.add_argument, whole_number(1, 1_000_000)
    profile = (
        "demand over the day (columns hour or time, demand_per_s, and weekday for a week), for a schedule of replicas and an autoscaler"
    )
    add("--profile", type=pathlib.Path, metavar="CSV", help=profile)
    add("--cold-start", metavar="TIME", help="time from the start of a replica until it takes requests, such as 90s; default: as measured")
    add("--scale-down-delay", metavar="TIME", help="how long the autoscaler waits before it stops replicas; default 5m")
    add("--min-replicas", type=count, metavar="N", help="fewest replicas of the autoscaler; default: one more than --redundancy")
    add("--max-replicas", type=count, metavar="N", help="most replicas of the autoscaler; default: as many as serve the peak")
    add("--reserved-price", metavar="PRICE", help="price of a reserved replica, which is paid for at all times, such as $1.60/h")
    add("--spot-price", metavar="PRICE", help="price of a spot replica, such as $0.90/h; needs --spot-interruptions")
    add("--spot-interruptions", metavar="RATE", help="share of the spot replicas that is interrupted in an hour, such as 5%%/h")
    add("--purchase", metavar="AMOUNT", help="purchase price of a replica, such as $30,000; needs --lifetime and --electricity")
    add("--lifetime", metavar="TIME", help="time over which a purchase is written off, such as 3y")
    add("--electricity", metavar="PRICE", help="price of electricity, such as $0.25/kWh")
    missed = "share of the time in which the recommended way may miss the SLO, such as 0.5%%; default 1%%, or any with --outage-cost"
    add("--allowed-missed-time", metavar="SHARE", help=missed)
    add("--power", metavar="POWER", help="power of a bought replica, such as 700W; default: as measured")


def _day_inputs(options: argparse.Namespace, prices: "Sequence[Price]") -> "DayInputs | None":
    """The inputs for a demand over the day; None without `--profile`, which the other options need. Raises UsageError."""
    from perfkit.errors import UsageError
    from perfkit.plan.day_inputs import DayInputs, parse_allowed_missed_time, parse_price_like, parse_purchase, parse_seconds, parse_spot
    from perfkit.plan.inputs import parse_power_w
    from perfkit.plan.steps import SCALE_DOWN_DELAY_S, parse_profile

    if options.profile is None:
        names = ("cold_start", "scale_down_delay", "min_replicas", "max_replicas", "reserved_price", "spot_price", "spot_interruptions",
                 "purchase", "lifetime", "electricity", "power", "allowed_missed_time")  # fmt: skip
        if given := [f"--{name.replace('_', '-')}" for name in names if getattr(options, name) is not None]:
            raise UsageError(
                f"{given[0]} needs --profile, the demand over the day; a constant demand is a file with the lines hour,demand_per_s and 0,1000"
            )
        return None
    power_w = parse_power_w(options.power, "--power") if options.power else None
    delay = options.scale_down_delay
    return DayInputs(
        profile=parse_profile(_read(options.profile, "--profile"), str(options.profile)),
        cold_start_s=parse_seconds(options.cold_start, "--cold-start") if options.cold_start else None,
        scale_down_delay_s=SCALE_DOWN_DELAY_S if delay is None else parse_seconds(delay, "--scale-down-delay"),
        minimum=options.min_replicas,
        maximum=options.max_replicas,
        reserved_per_hour=parse_price_like("--reserved-price", options.reserved_price, prices) if options.reserved_price else None,
        spot=parse_spot(options.spot_price, options.spot_interruptions, prices),
        purchase=parse_purchase(options.purchase, options.lifetime, options.electricity, power_w, prices),
        allowed_missed_time=parse_allowed_missed_time(options.allowed_missed_time) if options.allowed_missed_time else None,
    )


def _demands(options: argparse.Namespace) -> tuple[tuple[float, ...], float | None, bool]:
    """The peak demands, the average one, and whether they are in output tokens; raises UsageError if their units differ."""
    from perfkit.errors import UsageError
    from perfkit.plan.inputs import parse_demands_per_s

    demands_per_s, is_in_tokens = parse_demands_per_s(options.demand)
    if is_in_tokens and (options.profile or options.peaks):
        raise UsageError("--demand in tokens: --profile and --peaks are in inferences; give --demand in inferences, too, such as 1000/s")
    if not options.average_demand:
        return demands_per_s, None, is_in_tokens
    averages_per_s, is_average_in_tokens = parse_demands_per_s([options.average_demand], "--average-demand")
    if is_in_tokens != is_average_in_tokens:
        raise UsageError(
            f"--average-demand {options.average_demand}: give it in the unit of --demand: output tokens, such as 5000tok/s, or inferences, such as 1000/s"
        )
    return demands_per_s, averages_per_s[0], is_in_tokens


def _peak_demands_per_s(given: tuple[float, ...], day: "DayInputs | None") -> tuple[float, ...]:
    """The peak demands, by default the profile's peak.

    Raises UsageError if there is neither, or if the first demand differs from the profile's peak.
    """
    from perfkit.errors import UsageError

    if not given:
        if day is None:
            raise UsageError(
                "--demand is missing: give the peak demand, such as --demand 1000/s, or the demand over the day, --profile day.csv"
            )
        return (day.profile.peak_per_s,)
    if day is not None and not math.isclose(given[0], day.profile.peak_per_s, rel_tol=1e-6):
        factor = given[0] / day.profile.peak_per_s
        raise UsageError(
            f"--demand {given[0]:g}/s is not the peak of --profile, {day.profile.peak_per_s:g}/s: leave it out, or multiply the profile's column "
            f"demand_per_s by {factor:.4g}"
        )
    return given
