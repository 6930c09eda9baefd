"""What all charts against the load have in common: the x axis, and the lines' colours and styles."""

import math
from collections.abc import Iterator, Sequence

from perfkit.report.chart import BLUE, VERMILLION, Axis, Colour, Style
from perfkit.result.model import Point

PROTOCOL_COLOURS: dict[str, Colour] = {"http": BLUE, "grpc": VERMILLION, "mixed": BLUE}
PERCENTILES: tuple[tuple[str, Style], ...] = (("p50", "line"), ("p99", "dashed"))


def load_axis(points: Sequence[Point]) -> Axis:
    """The x axis of the load points."""
    levels = sorted({point.load.level for point in points})
    return Axis(
        "concurrency (requests in flight)" if points[0].load.kind == "closed" else "offered rate (requests per second)",
        scale="log", ticks=tuple(_ticks(levels)), low=levels[0] / 1.2, high=levels[-1] * 1.2,
    )  # fmt: skip


def _ticks(levels: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Ticks at the measured loads, without those whose labels would overlap."""
    apart, last = (levels[-1] / levels[0]) ** (1 / 10), -math.inf
    for level in levels:
        if level >= last * apart or last == -math.inf:
            yield level, f"{level:,.6g}"
            last = level
