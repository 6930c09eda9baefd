"""The inputs of a plan: SLO, demand and its growth, headroom, redundancy and prices; parsed from command-line texts."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from perfkit.errors import UsageError
from perfkit.plan.day_inputs import DayInputs
from perfkit.plan.price import Price
from perfkit.plan.risk_inputs import RiskInputs
from perfkit.result.distribution import QUANTILES
from perfkit.stats.capacity import FAILURE_HEADROOM, HEADROOM, ReplicaCount, count_replicas
from perfkit.stats.constraints import PERCENTILE_NAMES, Constraint, parse_constraint
from perfkit.stats.slo import SloLimits
from perfkit.units import parse_duration_ns, parse_rate_per_s, parse_share

_LIMIT = re.compile(r"\s*(?P<name>[A-Za-z0-9_.]+)\s*<=?\s*(?P<limit>[^<>=]+?)\s*")
_POWER = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<unit>W|kW)")


@dataclasses.dataclass(frozen=True, slots=True)
class PlanInputs:
    """The inputs of a plan. Demand is in inferences per second: a request of batch size 8 is eight inferences."""

    slo: SloLimits
    demands_per_s: tuple[float, ...]
    """Peak demand; the plan is for the first, and the table shows all."""
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
    """Parse limits such as `p99<50ms` and `error_rate<0.1%`, separated by commas; raises UsageError."""
    percentiles: dict[float, int] = {}
    error_rate: float | None = None
    for text in [limit for option in texts for limit in option.split(",")]:
        match = _LIMIT.fullmatch(text)
        if not match:
            raise UsageError(f"--slo {text!r}: expected a limit such as 'p99<50ms' or 'error_rate<0.1%'")
        name = match["name"].replace(".", "_").lower()
        try:
            if name == "error_rate":
                if error_rate is not None:
                    raise UsageError("--slo: error_rate has two limits; give one")
                error_rate = parse_share(match["limit"])
                continue
            if name not in QUANTILES:
                raise UsageError(
                    f"--slo {text!r}: {match['name']!r} is not a known percentile; known are {', '.join(QUANTILES)} and error_rate"
                )
            limit_ns = parse_duration_ns(match["limit"])
        except ValueError as error:
            raise UsageError(f"--slo {text!r}: {error}") from None
        if not limit_ns:
            raise UsageError(f"--slo {text!r}: a limit must be above zero")
        if percentiles.setdefault(QUANTILES[name], limit_ns) != limit_ns:
            raise UsageError(f"--slo: {name} has two limits; give one")
    if not percentiles:
        raise UsageError("--slo: a plan needs a limit on a percentile, such as 'p99<50ms'")
    return SloLimits(percentiles, error_rate)


def parse_demand_per_s(text: str, option: str = "--demand") -> float:
    """Parse a rate above zero with its unit, such as `1000/s` or `60000/m`; raises UsageError."""
    if "/" not in text:
        raise UsageError(f"{option} {text!r}: the unit is missing; write 1000/s or 60000/m")
    try:
        return parse_rate_per_s(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None


def parse_constraints(texts: Sequence[str]) -> tuple[Constraint, ...]:
    """Parse limits such as `gpu_memory<40GiB` and `price<20/h`, separated by commas; raises UsageError."""
    constraints = []
    for text in [part for option in texts for part in option.split(",")]:
        try:
            constraints.append(
                parse_constraint(text, ("gpu_memory", "price", "energy", "replicas", "capacity", "error_rate", *PERCENTILE_NAMES))
            )
        except ValueError as error:
            raise UsageError(f"--constraint {text!r}: {error}") from None
    return tuple(dict.fromkeys(constraints))


def parse_power_w(text: str, option: str = "--idle-power") -> float:
    """Parse a power such as `60W` or `0.3kW`; raises UsageError."""
    match = _POWER.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{option} {text!r}: expected a power with its unit, such as 60W")
    return float(match["amount"]) * (1000 if match["unit"] == "kW" else 1)


def parse_headroom(text: str, option: str) -> float:
    """Parse a headroom below 100 %, such as `30%`; raises UsageError."""
    if "%" not in text and text.strip() != "0":
        raise UsageError(f"{option} {text!r}: the unit is missing; write 30%")
    try:
        share = parse_share(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r}: {error}") from None
    if share >= 1:
        raise UsageError(f"{option} {text!r}: a headroom must be below 100%")
    return share
