"""The options of `perfkit plan` for a demand that changes over the day."""

import argparse
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfkit.cli.options import whole_number

if TYPE_CHECKING:
    from perfkit.plan.day_inputs import DayInputs
    from perfkit.plan.input_texts import Price


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
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


def parse(options: argparse.Namespace, prices: "Sequence[Price]", read: Callable[[pathlib.Path, str], str]) -> "DayInputs | None":
    """The inputs; None without `--profile`, which the other options need. `read` reads the file of an option. Raises UsageError."""
    from perfkit.errors import UsageError
    from perfkit.plan.autoscaling import SCALE_DOWN_DELAY_S
    from perfkit.plan.day_inputs import DayInputs, parse_allowed_missed_time, parse_price_like, parse_purchase, parse_seconds, parse_spot
    from perfkit.plan.inputs import parse_power_w
    from perfkit.plan.steps import parse_profile

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
        profile=parse_profile(read(options.profile, "--profile"), str(options.profile)),
        cold_start_s=parse_seconds(options.cold_start, "--cold-start") if options.cold_start else None,
        scale_down_delay_s=SCALE_DOWN_DELAY_S if delay is None else parse_seconds(delay, "--scale-down-delay"),
        minimum=options.min_replicas,
        maximum=options.max_replicas,
        reserved_per_hour=parse_price_like("--reserved-price", options.reserved_price, prices) if options.reserved_price else None,
        spot=parse_spot(options.spot_price, options.spot_interruptions, prices),
        purchase=parse_purchase(options.purchase, options.lifetime, options.electricity, power_w, prices),
        allowed_missed_time=parse_allowed_missed_time(options.allowed_missed_time) if options.allowed_missed_time else None,
    )


def demands_per_s(given: tuple[float, ...], day: "DayInputs | None") -> tuple[float, ...]:
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
