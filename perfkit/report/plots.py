"""The style of every plot, and figures as SVG text: the same values give the same bytes."""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.rcsetup import cycler
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from perfkit.text.foreign import LONGEST, visible

WIDTH_IN, PANEL_IN = 10.5, 3.5
NS_PER_MS = 1e6
INK, MUTED = "#24292f", "#57606a"
BLUE, VERMILLION, GREEN, PURPLE = "#0072b2", "#d55e00", "#007a5a", "#8a4f7d"  # after Okabe and Ito, for colour-blind readers
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=(BLUE, VERMILLION, GREEN, PURPLE)),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8.5,
    "grid.color": "#e4e7ea",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "svg.fonttype": "none",
    "text.parse_math": False,  # a dollar sign in a name is no formula
    "text.color": INK,
    "xtick.bottom": False,  # the grid marks the place
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "ytick.left": False,
}
NUMBERS = FuncFormatter(lambda value, _: f"{value:,.6g}")
_LONG_NUMBER = re.compile(r'(?<=[\s"(])-?\d+\.\d{3,}(?=[\s")])')
_AUTOMATIC_ID = re.compile(r'<g id="[A-Za-z0-9.]+_\d+">')


def render_svgs(figures: Callable[[], Iterable[tuple[str, Figure | None]]]) -> dict[str, str]:
    """SVG by name, in perfkit's style whatever the user's matplotlibrc says; `figures` yields names and figures, None to leave one out."""
    with matplotlib.style.context(STYLE, after_reset=True):
        return {name: render_svg(figure, name) for name, figure in figures() if figure is not None}


def render_svg(figure: Figure, name: str) -> str:
    """The figure as SVG; `name` keeps its ids apart from those of other figures on a page. Foreign text in it becomes harmless."""
    for text in figure.findobj(Text):
        text.set_text(visible(text.get_text()[:LONGEST]))
    with mpl.rc_context({"svg.hashsalt": f"perfkit {name}"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that the font lacks, and of labels that leave no room
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = _AUTOMATIC_ID.sub("<g>", visible(written.getvalue()))  # numbered ids would occur twice in a page of several plots
    svg = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", svg)
    lines = (line.strip() for line in svg.splitlines())
    return re.sub(r"\n(?=[MLQCz] ?[-\d\"]|z)", "", "\n".join(filter(None, lines))) + "\n"


def plot_series(panel: Axes, values: Sequence[tuple[float, float]], **style: Any) -> None:
    """Draws a line through the values, if there are any; without a marker of its own, a single value is a dot."""
    if values:
        panel.plot(*zip(*values, strict=True), **{"marker": "o" if len(values) == 1 else None, **style})


def separate_repetition(panels: Iterable[Axes], start_s: float) -> None:
    """Draws a dotted line where a repetition follows another one."""
    for panel in panels if start_s else ():
        panel.axvline(start_s, color=MUTED, lw=0.8, ls=":")


def legend_key(**style: Any) -> Line2D:
    """A line for a legend alone."""
    return Line2D([], [], **style)


def add_legend(figure: Figure, *keys: Line2D) -> None:
    """Adds a legend to the right of the panels."""
    figure.legend(handles=keys, loc="outside right upper")


def scale_times(panel: Axes, lowest: float, highest: float) -> None:
    """Scales a panel's times: from zero, or logarithmically where the values span more than a decade."""
    if lowest > 0 and highest > 12 * lowest:
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter(NUMBERS)
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_ylim(lowest / 1.15, highest * 1.15)
    else:
        panel.set_ylim(0, highest * 1.06)
