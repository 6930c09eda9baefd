"""The inputs of a plan, parsed from command-line texts: SLO, demand, headroom, redundancy, risk, constraints; prices are in `input_texts`."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from perfkit.errors import UsageError
from perfkit.plan.capacity import FAILURE_HEADROOM, HEADROOM, ReplicaCount, count_replicas
from perfkit.plan.day_inputs import DayInputs
from perfkit.plan.fleet_risk import Balancing, Splitting, normalised_shares
from perfkit.plan.input_texts import Price, parse_csv, parse_price, parsed
from perfkit.result.distribution import QUANTILES
from perfkit.scenario.slo import FURTHER_TIMES
from perfkit.stats.ranking import PERCENTILE_NAMES, Constraint, parse_constraint
from perfkit.stats.ratio_interval import Estimate
from perfkit.stats.slo import SloLimits
from perfkit.units import NS_PER_S, parse_duration_ns, parse_rate_per_s, parse_share

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
    hours = parsed("--peak-hours", text, parse_duration_ns) / _NS_PER_HOUR
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
    if "%" not in text:
        raise UsageError(f"{option} {text!r}: the unit is missing; write {example}")
    return parsed(option, text, parse_share)


_LIMIT = re.compile(r"\s*(?:(?P<part>[a-z]+_[a-z]+)\.)?(?P<name>[A-Za-z0-9_.]+)\s*<=?\s*(?P<limit>[^<>=]+?)\s*")
_POWER = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>W|kW)")


@dataclasses.dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan. Demand is in inferences per second: a request of batch size 8 is eight inferences."""

    slo: SloLimits
    demands_per_s: tuple[float, ...]
    """Peak demand; the plan is for the first, and the table shows all. Output tokens per second if `is_in_tokens`, until `in_requests`."""
    average_demand_per_s: float | None = None
    """For costs; None uses the peak."""
    headroom: float = HEADROOM
    """The share of the capacity that is kept free."""
    failure_headroom: float = FAILURE_HEADROOM
    """The share that is kept free while a replica is lost."""
    redundancy: int = 0
    """The replicas that may be lost."""
    zones: int = 0
    prices: Mapping[str, Price] = dataclasses.field(default_factory=dict)
    """By configuration or label; the empty string is the general price."""
    rates_per_s: tuple[float, ...] = ()
    """The rates to predict at, in requests per second at one replica."""
    peaks: tuple[tuple[str, float], ...] = ()
    """ISO 8601 dates, each with the highest demand of that day, in inferences per second."""
    replicas_now: int | None = None
    """For the date of exhaustion; None uses the planned number."""
    lead_time_days: int | None = None
    """From an order until the new replicas are ready; None gives no order-by date."""
    idle_power_w: float | None = None
    risk: RiskInputs = dataclasses.field(default_factory=RiskInputs)
    constraints: tuple[Constraint, ...] = ()
    """Limits besides the SLO, which a configuration must satisfy to be ranked."""
    day: DayInputs | None = None
    """The demand over the day, the autoscaler, and the ways to pay for replicas; None plans for the peak alone."""
    seed: int = 0
    is_in_tokens: bool = False
    """Whether the demands were given in output tokens."""
    tokens_per_request: Estimate | None = None
    """The measured output tokens of a request; `fewest` of them divided the demands. None for demands in inferences."""

    @property
    def demand_per_s(self) -> float:
        """The peak demand of the plan."""
        return self.demands_per_s[0]

    @property
    def priced_demand_per_s(self) -> float:
        """The demand that the costs are divided by."""
        return self.demand_per_s if self.average_demand_per_s is None else self.average_demand_per_s

    def count_replicas(self, demand_per_s: float, capacity_per_s: float) -> ReplicaCount:
        """The replicas that a demand needs by the rules of the plan; the replica with the largest share decides. In inferences per second."""
        return count_replicas(
            demand_per_s,
            capacity_per_s / self.risk.splitting.largest_measured,
            headroom=self.headroom,
            failure_headroom=self.failure_headroom,
            redundancy=self.redundancy,
            zones=self.zones,
        )

    def price_of(self, configuration: str, label: str) -> Price | None:
        """The price of a configuration: by its name, else by its label, else the general one."""
        return self.prices.get(configuration) or self.prices.get(label) or self.prices.get("")


def parse_slo(texts: Sequence[str]) -> SloLimits:
    """Parse limits such as `p99<50ms`, `first_token.p99<500ms` and `error_rate<0.1%`, separated by commas; raises UsageError."""
    percentiles: dict[float, int] = {}
    parts: dict[str, dict[float, int]] = {}
    error_rate: float | None = None
    for text in [limit for option in texts for limit in option.split(",")]:
        match = _LIMIT.fullmatch(text)
        if not match:
            raise UsageError(f"--slo {text!r}: expected a limit such as 'p99<50ms' or 'error_rate<0.1%'")
        name, part = match["name"].replace(".", "_").lower(), match["part"] or ""
        if part and part not in FURTHER_TIMES:
            raise UsageError(f"--slo {text!r}: {part!r} is not a known part of an answer; known are {', '.join(FURTHER_TIMES)}")
        if name == "error_rate" and not part:
            if error_rate is not None:
                raise UsageError("--slo: error_rate has two limits; give one")
            error_rate = parsed("--slo", text, parse_share, match["limit"])
            continue
        if name not in QUANTILES:
            raise UsageError(
                f"--slo {text!r}: {match['name']!r} is not a known percentile; known are {', '.join(QUANTILES)} and error_rate"
            )
        limit_ns = parsed("--slo", text, parse_duration_ns, match["limit"])
        if not limit_ns:
            raise UsageError(f"--slo {text!r}: a limit must be above zero")
        limited = parts.setdefault(FURTHER_TIMES[part], {}) if part else percentiles
        if limited.setdefault(QUANTILES[name], limit_ns) != limit_ns:
            raise UsageError(f"--slo: {f'{part}.' if part else ''}{name} has two limits; give one")
    if not percentiles:
        raise UsageError(
            "--slo: a plan needs a limit on a percentile of the response time, such as 'p99<50ms': its curves are of response times"
        )
    return SloLimits(percentiles, error_rate, further_ns=parts)


def parse_demand_per_s(text: str, option: str = "--demand") -> float:
    """Parse a rate above zero with its unit, such as `1000/s` or `60000/m`; raises UsageError."""
    if "/" not in text:
        raise UsageError(f"{option} {text!r}: the unit is missing; write 1000/s or 60000/m")
    return parsed(option, text, parse_rate_per_s)


_TOKENS = re.compile(r"\s*tok(?:en)?s?\s*(?=/)")


def parse_demands_per_s(texts: Sequence[str], option: str = "--demand") -> tuple[tuple[float, ...], bool]:
    """Parse `1000/s`, or output tokens such as `5000tok/s`: the rates, and whether they are in tokens; raises UsageError for both together."""
    are_in_tokens = {bool(_TOKENS.search(text)) for text in texts}
    if len(are_in_tokens) > 1:
        raise UsageError(f"{option} {texts[0]!r} and the others: give all in output tokens, such as 5000tok/s, or none")
    return tuple(dict.fromkeys(parse_demand_per_s(_TOKENS.sub("", text), option) for text in texts)), are_in_tokens == {True}


def parse_constraints(texts: Sequence[str]) -> tuple[Constraint, ...]:
    """Parse limits such as `gpu_memory<40GiB` and `price<20/h`, separated by commas; raises UsageError."""
    known = ("gpu_memory", "price", "energy", "replicas", "capacity", "error_rate", *PERCENTILE_NAMES)
    separate = [part for option in texts for part in option.split(",")]
    return tuple(dict.fromkeys(parsed("--constraint", text, lambda text: parse_constraint(text, known)) for text in separate))


def parse_power_w(text: str, option: str = "--idle-power") -> float:
    """Parse a power such as `60W` or `0.3kW`; raises UsageError."""
    match = _POWER.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{option} {text!r}: expected a power with its unit, such as 60W")
    return float(match["amount"]) * (1000 if match["unit"] == "kW" else 1)


def parse_headroom(text: str, option: str) -> float:
    """Parse a headroom below 100 %, such as `30%`; raises UsageError."""
    share = 0.0 if text.strip() == "0" else _share(text, option, "30%")
    if share >= 1:
        raise UsageError(f"{option} {text!r}: a headroom must be below 100%")
    return share
