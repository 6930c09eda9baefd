"""How many workers a load needs, by what a request was found to cost."""

import math
from collections.abc import Sequence

from perfkit.calibration.model import Cost
from perfkit.load.load_plan import ClosedPlan, LoadPlan
from perfkit.load.pacer import SPIN_NS
from perfkit.result.model import Protocol
from perfkit.units import NS_PER_S

# of a core, below the 0.85 at which a point is no longer valid: costs differ from those that were measured
BUSY_SHARE = 0.7


def workers_needed(costs: Sequence[Cost], *, protocol: Protocol, tensor_bytes: int, rate_per_s: float, most: int, spin_ns: int = 0) -> int:
    """As many as keep each core's busy share at 0.7, by the cost of the protocol's nearest tensor size (as a ratio); at least one, at most `most`.

    `spin_ns` is what a request costs beside that: `spin_ns_per_request`.
    """
    known = [cost for cost in costs if cost.protocol == protocol]
    if not known:
        return 1
    nearest = min(known, key=lambda cost: abs(math.log(max(cost.tensor_bytes, 1) / max(tensor_bytes, 1))))
    return max(1, min(most, math.ceil(rate_per_s * (nearest.cpu_ns_per_request + spin_ns) / NS_PER_S / BUSY_SHARE)))


def highest_rate_per_s(load: LoadPlan, answer_ns: int) -> float:
    """The highest rate that a load comes to: an open loop's own, a closed one's where every answer takes `answer_ns`."""
    if isinstance(load, ClosedPlan):
        return load.concurrency * NS_PER_S / max(answer_ns + load.think_time_ns, 1)
    return load.peak_rate_per_s


def spin_ns_per_request(load: LoadPlan) -> int:
    """An open loop spins before each arrival, to be on time: the closed loops that were calibrated do not."""
    return 0 if isinstance(load, ClosedPlan) else SPIN_NS
