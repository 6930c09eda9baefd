"""What colours and line styles mean in the charts of runs, searches, sweeps and comparisons, and in pictures of them.

Other pages have colours of their own, which their legends name.

- The hue is the protocol's; in a mix the workload's, beside each other the case's or the result's.
- The shade is the load: faint for the lowest, strong for the highest.
- The line style is the percentile: p50 solid, p90 and p95 dotted, p99 and the maximum dashed.
- A hollow mark is not valid, or not known to satisfy what is asked; a cross does not satisfy it. A large square, or a large cross, is the one that was chosen.
- Red is for failures and what is not valid. What belongs to no protocol, such as what all load points did over time, is ink or another colour
  that no protocol has.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from perfkit.report.chart import BACK, BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION, Colour, Style, mixed

PROTOCOL_COLOURS: Mapping[str, Colour] = {"http": BLUE, "grpc": VERMILLION, "mixed": BLUE}
MANY_COLOURS: tuple[Colour, ...] = (
    ("#1f77b4", "#5aa9e6"), ("#d9660a", "#ff9d4d"), ("#2c8a2c", "#5fce5f"), ("#d62728", "#ff7f7f"), ("#9467bd", "#c0a0e8"),
    ("#8c564b", "#c99488"), ("#c9539f", "#f09fd2"), ("#6b6b6b", "#b5b5b5"), ("#8f8f14", "#d5d54a"), ("#0f93a5", "#4ddbe9"),
)  # fmt: skip
"""For workloads, cases, configurations, results or starts beside each other."""
OTHER_COLOURS: tuple[Colour, ...] = (INK, GREEN, PURPLE, ("#8f8f14", "#d5d54a"), ("#0f93a5", "#4ddbe9"), MUTED)
"""For what belongs to no protocol."""
PERCENTILE_STYLES: Mapping[str, Style] = {"p50": "line", "p90": "dotted", "p95": "dotted", "p99": "dashed", "max": "dashed"}
PATH_STYLES: Mapping[Style, Style] = {"line": "path", "dashed": "dashed path"}
"""The style that stands for each line style where values are joined in the order given, each with a mark."""
_Load = TypeVar("_Load", bound=Hashable)
_REACHES = (
    (0.1, 0.75),
    (0.35, 0.6),
)  # of a light and a dark background: the shares of it in the faintest shade, and of ink in the strongest


def many_colour(index: int) -> Colour:
    """The colour of the case, configuration or result with that number."""
    return MANY_COLOURS[index % len(MANY_COLOURS)]


def load_shades(loads: Sequence[_Load], hue: Colour) -> dict[_Load, Colour]:
    """A shade of the hue for each load, given the lowest first; one alone has the hue itself."""
    if len(loads) < 2:
        return dict.fromkeys(loads, hue)
    shades = dict[_Load, Colour]()
    for index, load in enumerate(loads):
        share = index / (len(loads) - 1)
        light, dark = (_shade(*scheme, share) for scheme in zip(hue, BACK, INK, _REACHES, strict=True))
        shades[load] = light, dark
    return shades


def _shade(hue: str, back: str, ink: str, reach: tuple[float, float], share: float) -> str:
    """A shade between a faint one, at share 0, and a strong one, at 1."""
    strength = share * sum(reach) - reach[0]
    return mixed(hue, back, -strength) if strength < 0 else mixed(hue, ink, strength)
