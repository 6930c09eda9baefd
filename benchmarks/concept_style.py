"""The style of the plots of docs/concepts, and matplotlib figures as SVG text: the same values give the same bytes."""

import io
import re
import warnings
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FuncFormatter

from perfkit.report.chart import BLUE, GREEN, INK, MUTED, PURPLE, VERMILLION

NS_PER_MS = 1e6
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED[0],
    "axes.grid": True,
    "axes.labelcolor": INK[0],
    "axes.prop_cycle": cycler(color=[light for light, _ in (BLUE, VERMILLION, GREEN, PURPLE, INK, MUTED)]),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK[0],
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
    "text.color": INK[0],
    "xtick.bottom": False,  # the grid marks the place
    "xtick.labelcolor": INK[0],
    "ytick.labelcolor": INK[0],
    "ytick.left": False,
}
NUMBERS = FuncFormatter(lambda value, _: f"{value:,.6g}")
_LONG_NUMBER = re.compile(r'(?<=[\s"(])-?\d+\.\d{3,}(?=[\s")])')
_AUTOMATIC_ID = re.compile(r'<g id="[A-Za-z0-9.]+_\d+">')
_HASHED_ID = re.compile(r'(?<=[#"])[A-Za-z][0-9a-f]{10}(?=[")])')


def render_svg(figure: Figure, name: str) -> str:
    """The figure as SVG; `name` keeps its ids apart from those of other figures on a page."""
    with mpl.rc_context({"svg.hashsalt": f"perfkit {name}"}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of letters that the font lacks, and of labels that leave no room
        written = io.StringIO()
        figure.savefig(written, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = _AUTOMATIC_ID.sub("<g>", written.getvalue())  # numbered ids would occur twice in a page of several plots
    svg = _LONG_NUMBER.sub(lambda match: f"{float(match[0]):.2f}", svg)
    # hashes of positions, whose last digits differ from one layout of the same figure to the next
    hashed = {found: number for number, found in enumerate(dict.fromkeys(_HASHED_ID.findall(svg)))}
    prefix = re.sub(r"\W", "-", name)
    svg = _HASHED_ID.sub(lambda match: f"{prefix}-id{hashed[match[0]]}", svg)
    lines = (line.strip() for line in svg.splitlines())
    return re.sub(r"\n(?=[MLQCz] ?[-\d\"]|z)", "", "\n".join(filter(None, lines))) + "\n"
