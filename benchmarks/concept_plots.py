"""Draws the plots of docs/concepts from runs of perfkit, and writes what was measured under each of them in its page.

    python -m benchmarks.concept_plots [--results FOLDER] [--realtime] [--only loops]

Measures the bundled server's model `synthetic`, whose service times are declared, for about ten minutes in all; results that are already in the
folder are drawn again. `--realtime` runs generator and server at real-time priority, on a machine that is busy (not those of the gate,
which shows the machine's own noise). `--only` draws the plots whose names begin with a word.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
from collections.abc import Callable

import matplotlib.style

from benchmarks.concept_drawings import PLOT_STYLE, Measure, Plot, false_alarms, load, loops, omission, percentiles, saturation, warm_up
from benchmarks.concept_runs import RUNS, SEED, measure, measure_gate
from benchmarks.concept_style import render_svg
from benchmarks.processes import REALTIME, ROOT

CONCEPTS = ROOT / "docs" / "concepts"
PLOTS: dict[str, tuple[str, Callable[[Measure], Plot]]] = {
    "loops": ("loops", loops),
    "omission": ("coordinated-omission", omission),
    "warm-up": ("warm-up", warm_up),
    "percentiles": ("percentiles", percentiles),
    "saturation": ("saturation", saturation),
    "load": ("saturation", load),
}
"""By name: the page, and the function that draws it; besides `false-alarms`, of a gate."""


def with_caption(page: str, name: str, caption: str) -> str:
    """The page with the caption as the paragraph under the plot; raises ValueError if the page does not show it."""
    changed, found = re.subn(rf"(\]\(plots/{re.escape(name)}\.svg\)\n\n)\*[^\n]*\n", lambda match: f"{match[1]}*{caption}*\n", page)
    if found != 1:
        raise ValueError(f"plots/{name}.svg must be in the page once, with a paragraph in italics under it")
    return changed


def describe_measurement(is_realtime: bool) -> str:
    """The last sentence of each caption: when, on what machine, with which seed."""
    priority = ", at real-time priority" if is_realtime else ""
    return f"{datetime.datetime.now(datetime.UTC):%-d %B %Y}, {os.cpu_count()} virtual CPUs{priority}, Python {platform.python_version()}, seed {SEED}."


def main() -> None:
    """Measures, draws, and writes plots and captions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--results", type=pathlib.Path, default=ROOT / "build" / "concepts", metavar="FOLDER", help="where results are kept"
    )
    parser.add_argument("--realtime", action="store_true", help="generator and server at real-time priority")
    parser.add_argument("--only", default="", metavar="WORD", help="the plots whose names begin with it")
    options = parser.parse_args()
    prefix = REALTIME if options.realtime else ()
    with matplotlib.style.context(PLOT_STYLE, after_reset=True):
        for name, (page, draw) in PLOTS.items():
            if name.startswith(options.only):
                plot = draw(lambda run: measure(RUNS[run], options.results, prefix))
                _write(name, page, plot, describe_measurement(options.realtime))
        if "false-alarms".startswith(options.only):
            _write("false-alarms", "false-alarms", false_alarms(measure_gate(options.results)), describe_measurement(is_realtime=False))


def _write(name: str, page: str, plot: Plot, measurement: str) -> None:
    (CONCEPTS / "plots").mkdir(exist_ok=True)
    (CONCEPTS / "plots" / f"{name}.svg").write_text(render_svg(plot.figure, name), encoding="utf-8")
    file = CONCEPTS / f"{page}.md"
    file.write_text(with_caption(file.read_text(encoding="utf-8"), name, f"{plot.caption} {measurement}"), encoding="utf-8")
    print(f"{name}: {plot.caption}")


if __name__ == "__main__":
    main()
