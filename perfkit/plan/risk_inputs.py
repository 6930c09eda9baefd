"""The inputs of a plan's risk: how uncertain the demand is, how requests are split over replicas, and what a missed SLO costs."""

import dataclasses
from collections.abc import Iterator

from perfkit.errors import UsageError
from perfkit.plan.csv_rows import parse_csv
from perfkit.plan.price import Price, parse_price
from perfkit.stats.load_splitting import Balancing, Splitting, normalised_shares
from perfkit.units import NS_PER_S, parse_duration_ns, parse_share

_NS_PER_HOUR, _HOURS_PER_DAY, _LEAST_AVAILABILITY = 3600 * NS_PER_S, 24, 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class RiskInputs:
    """The inputs of a plan's risk."""

    demand_uncertainty: float = 0.0
    """u: the 90 % interval of the peak demand is demand/(1 + u) to demand·(1 + u); 0: the demand is exact."""
    splitting: Splitting = dataclasses.field(default_factory=Splitting)
    outage_cost: Price | None = None
    """The cost of an hour in which the SLO is missed; None if unknown."""
    peak_hours_per_day: float | None = None
    """The hours a day at the peak demand; None uses the demand profile, or all 24 hours without one."""
    availability: float | None = None
    """The share of the time in which a replica is up; None leaves out the risk of failures."""

    def assumptions(self, replicas: int, *, has_profile: bool) -> Iterator[str]:
        """What the risk of this number of replicas assumes, in sentences."""
        yield self.splitting.sentence(replicas)
        if self.demand_uncertainty:
            low, high = 1 / (1 + self.demand_uncertainty) - 1, self.demand_uncertainty
            yield f"The peak demand is lognormal: with a probability of 90 % it differs from the stated one by {100 * low:+.0f} % to {100 * high:+.0f} %."
        else:
            yield "The peak demand is taken as exact; --demand-uncertainty states how uncertain it is."
        if self.peak_hours_per_day is None and has_profile:
            yield "The hours in which the SLO is missed follow from the highest demand of each hour of the profile, served by a fixed number of replicas."
        elif self.peak_hours_per_day is None:
            yield "The demand is taken to be at its peak all day, so the hours in which the SLO is missed are an upper bound; --peak-hours limits them."
        if self.availability is not None:
            yield f"Replicas fail independently of each other, and each is up in {100 * self.availability:.4g} % of the time."


def parse_demand_uncertainty(text: str) -> float:
    """Parse `20%`, the relative uncertainty u of `RiskInputs.demand_uncertainty`; raises UsageError."""
    share = _share(text, "--demand-uncertainty", "20%")
    if not 0 < share <= 1:
        raise UsageError(f"--demand-uncertainty {text!r}: expected more than 0% and at most 100%; leave it out for an exact demand")
    return share


def parse_availability(text: str) -> float:
    """Parse `99.5%`, the share of the time in which a replica is up; raises UsageError."""
    share = _share(text, "--availability", "99.5%")
    if not _LEAST_AVAILABILITY <= share < 1:
        raise UsageError(f"--availability {text!r}: expected at least {_LEAST_AVAILABILITY:.0%} and less than 100%")
    return share


def parse_peak_hours(text: str) -> float:
    """Parse `4h`, the hours of a day with the peak demand; raises UsageError."""
    try:
        hours = parse_duration_ns(text) / _NS_PER_HOUR
    except ValueError as error:
        raise UsageError(f"--peak-hours {text!r}: {error}") from None
    if not 0 < hours <= _HOURS_PER_DAY:
        raise UsageError(f"--peak-hours {text!r}: expected more than 0 and at most 24 hours a day, such as 4h")
    return hours


def parse_outage_cost(text: str, prices: list[Price]) -> Price:
    """Parse `$500/h`, the cost of an hour in which the SLO is missed, in the currency of the prices; raises UsageError."""
    cost = parse_price(text, "--outage-cost", "the cost of an hour in which the SLO is missed")
    if other := [price.currency for price in prices if price.currency != cost.currency]:
        raise UsageError(f"--outage-cost {text!r}: the currency differs from that of --price, {other[0] or 'none'}; use one currency")
    return cost


def parse_splitting(balancing: str | None, shares: tuple[float, ...]) -> Splitting:
    """The rule of the load balancer, by default random, or the measured shares; raises UsageError if both are given."""
    if balancing and shares:
        raise UsageError(f"--shares: the measured shares replace the rule; leave out --balancing {balancing}")
    return Splitting(Balancing(balancing or Balancing.RANDOM), shares)


def parse_shares(text: str) -> tuple[float, ...]:
    """Parse `1.2,1,1,0.8`, the relative loads of the replicas; raises UsageError."""
    try:
        return normalised_shares([float(part) for part in text.split(",")])
    except ValueError:
        raise UsageError(
            f"--shares {text[:100]!r}: expected the relative loads of the replicas, above zero, such as 1.2,1,1,0.8, or a CSV file with the "
            "column requests"
        ) from None


def parse_share_counts(text: str, name: str) -> tuple[float, ...]:
    """Parse a CSV with a row for each replica and its number of requests in the column `requests`; `name` is the file's. Raises UsageError."""
    counts = []
    for row in parse_csv(text, name).rows:
        try:
            counts.append(float(row.cells["requests"]))
            normalised_shares(counts[-1:])
        except (KeyError, ValueError):
            raise UsageError(f"{row.place}: expected a column `requests` with a number above zero") from None
    if not counts:
        raise UsageError(f"{name}: expected a header with the column requests, and a row for each replica")
    return normalised_shares(counts)


def _share(text: str, option: str, example: str) -> float:
    try:
        if "%" not in text:
            raise UsageError(f"{option} {text!r}: the unit is missing; write {example}")
        return parse_share(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None
