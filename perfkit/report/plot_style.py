"""How plots look: sizes, colours, and figures as SVG text, the same values giving the same bytes."""

import io
import re
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH_IN = 10.5
NS_PER_MS = 1e6
INK, MUTED, GRID = "#24292f", "#57606a", "#e4e7ea"
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#007a5a", "#8a4f7d"  # after Okabe and Ito, for colour-blind readers
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.bottom": False,  # the grid marks the place
    "ytick.left": False,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
}
NUMBERS = FuncFormatter(lambda value, _: f"{value:,.6g}")
_LONG_NUMBER = re.compile(r'(?<=[\s"(])-?\d+\.\d{3,}(?=[\s")])')
_AUTOMATIC_ID = re.compile(r'<g id="[A-Za-z0-9.]+_\d+">')


def drawn(make: Callable[[], Figure], name: str) -> str:
    """A figure in the house's style as SVG; `name` keeps its ids apart from those of others."""
    with mpl.rc_context():
        mpl.rcdefaults()  # a matplotlibrc of the user must not change the picture
        mpl.rcParams.update(STYLE)
        return svg(make(), name)


def svg(figure: Figure, name: str) -> str:
    """A figure as text; `name` keeps the ids of several apart."""
    with mpl.rc_context({"svg.hashsalt": f"perfkit {name}"}):
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = _AUTOMATIC_ID.sub("<g>", written.getvalue())  # the ids that count upwards would meet in a page of several plots
    text = _LONG_NUMBER.sub(lambda found: f"{float(found[0]):.2f}", text)
    lines = (line.strip() for line in text.splitlines())
    return re.sub(r"\n(?=[MLQCz] ?[-\d\"]|z)", "", "\n".join(filter(None, lines))) + "\n"


def scale_times(panel: Axes, lowest: float, highest: float) -> None:
    """Scales the times of a panel: from zero; logarithmic where the values lie more than a decade apart."""
    if lowest > 0 and highest > 12 * lowest:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(NUMBERS)
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_ylim(lowest / 1.15, highest * 1.15)
    else:
        panel.set_ylim(0, highest * 1.06)
