"""The pictures of the documentation: the terminal at 80 and 140 columns, and pages in both schemes and widths.

    .venv/bin/python -m benchmarks.screens [--only run-page] [--realtime] [--pictures docs/screens]

Runs the bundled server, measures it in a terminal (tmux), and draws what the terminal and the pages show in Chromium. `--only` makes the
pictures whose names begin with a word. `--realtime` measures in the terminal at real-time priority, on a machine that is busy. Prints for each page its size and the time until its charts are drawn.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from benchmarks.processes import REALTIME, ROOT, running_server
from benchmarks.report import program_options, table_head, table_row
from benchmarks.screen_pages import PAGES, SERVER
from tests.chromium import Browser, chromium

_FOLDER = ROOT / "docs/screens"
_DURATION = "8s"
_LINES, _WAITS_S, _COLOURS = 60, 300.0, 128
_TERMINAL_PAGE = """<!DOCTYPE html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 12px 16px; background: {background}; color: {foreground}; display: inline-block; }}
pre {{ margin: 0; font: 14px/1.25 "DejaVu Sans Mono", monospace; }}
</style><pre>{code}</pre>"""


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a page: the first `height_px` pixels at a width, in the dark or the light scheme."""

    name: str
    page: str
    """A name in `PAGES`."""
    width_px: int
    is_dark: bool
    height_px: int


_HEIGHTS_PX = {
    "run": (1600, 1800), "search": (1600, 1800), "sweep": (1500, 1800), "gate": (1700, 2400), "plan": (2100, 2400), "compare": (1500, 1800),
    "history": (1300, 1500),
}  # fmt: skip
PICTURES = (
    *(
        Picture(f"{page}-page-{width_px}-{'dark' if is_dark else 'light'}", page, width_px, is_dark, height_px)
        for page, heights_px in _HEIGHTS_PX.items()
        for width_px, height_px in zip((1280, 400), heights_px, strict=True)
        for is_dark in (False, True)
    ),
    Picture("run-page-disturbed-1280-light", "trial", 1280, is_dark=False, height_px=900),
    Picture("run-page-disturbed-400-dark", "trial", 400, is_dark=True, height_px=1800),
)
_COLUMNS = (80, 140)


@contextlib.contextmanager
def terminal(command: str, columns: int, folder: pathlib.Path, prefix: str = "", lines: int = _LINES) -> Iterator[Callable[[], str]]:
    """A terminal in which a command runs; the value returns what it shows and has shown, with styles."""
    tmux = ["tmux", "-S", str(folder / f"tmux-{columns}"), "-f", "/dev/null"]
    # the pane stays after the command has ended, so that its last output can be read
    shown = f"printf '%s\\n' {shlex.quote('$ ' + command)}; exec {prefix} {command}"
    options = ["set", "-g", "remain-on-exit", "on", ";", "set", "-g", "remain-on-exit-format", "", ";"]
    new = [*tmux, "start-server", ";", *options, "new-session", "-d", "-x", str(columns), "-y", str(lines), shown]
    path = f"{ROOT / '.venv/bin'}:{os.environ.get('PATH', '')}"
    subprocess.run(new, check=True, cwd=folder, env={**os.environ, "PATH": path, "TERM": "xterm-256color"})
    try:
        yield lambda: subprocess.run([*tmux, "capture-pane", "-e", "-p", "-S", "-"], check=True, capture_output=True, text=True).stdout
    finally:
        subprocess.run([*tmux, "kill-server"], check=False)


def _wait_for(shown: Callable[[], str], has: Callable[[str], bool]) -> str:
    """What the terminal shows as soon as a condition holds; raises TimeoutError."""
    deadline_s = time.monotonic() + _WAITS_S
    while time.monotonic() < deadline_s:
        if has(Text.from_ansi(text := shown()).plain):
            return text
        time.sleep(0.2)
    raise TimeoutError(f"the terminal does not show what it should:\n{Text.from_ansi(shown()).plain}")


def show_terminals(url: str, folder: pathlib.Path, prefix: str = "") -> Iterator[tuple[str, pathlib.Path]]:
    """Measures in terminals of each width; the names and HTML files of the live view and of the summary."""
    for columns in _COLUMNS:
        command = f"perfkit run {url} -m synthetic -c 1,4,16 --shape INPUT0=4 --duration {_DURATION} --out columns-{columns}"
        with terminal(command, columns, folder, prefix) as shown:
            live = _wait_for(shown, lambda text: "load point 2 of" in text and "p99" in text and _bars(text) >= 4)
            yield f"terminal-live-{columns}", terminal_page(live, columns, folder / f"live-{columns}.html")
            summary = _wait_for(shown, lambda text: "exit code" in text)
            yield f"terminal-summary-{columns}", terminal_page(summary, columns, folder / f"summary-{columns}.html")


def _bars(text: str) -> int:
    """The seconds in the live view's sparkline of the throughput."""
    line = next((line for line in text.splitlines() if line.startswith("throughput")), "")
    return sum(line.count(bar) for bar in "▁▂▃▄▅▆▇█")


def terminal_page(text: str, columns: int, file: pathlib.Path) -> pathlib.Path:
    """Writes what a terminal shows as an HTML page, and returns its file."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    file.write_text(console.export_html(theme=MONOKAI, inline_styles=True, code_format=_TERMINAL_PAGE), encoding="utf-8")
    return file


def save_picture(browser: Browser, file: pathlib.Path, width_px: int, height_px: int) -> None:
    """Saves the top of the page that the browser shows, in few colours, rare ones among them, which takes a third of the bytes."""
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    browser.screenshot(file, height_px=height_px)
    with Image.open(file) as picture:
        small = picture.convert("RGB").crop((0, 0, min(width_px, picture.width), picture.height))
    small.quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(file, optimize=True)


def _drawing_ms(browser: Browser, file: pathlib.Path) -> tuple[float, float]:
    """The time from the start of a page to its drawn charts, and the CPU time of its main thread, in milliseconds; the least of five."""
    browser.call("Performance.disable")
    browser.call("Performance.enable", timeDomain="threadTicks")
    drawn_ms, cpu_ms = list[float](), list[float]()
    for _ in range(5):
        browser.show(file, width=1280)
        metrics = {one["name"]: one["value"] for one in browser.call("Performance.getMetrics")["metrics"]}
        drawn_ms.append(browser.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
        cpu_ms.append(metrics["TaskDuration"] * 1000)
    return min(drawn_ms), min(cpu_ms)


def main() -> int:
    """Makes the pictures, and prints the sizes and drawing times of the pages."""
    options = program_options(
        __doc__,
        pictures=(_FOLDER, "the folder of the pictures"),
        only=("", "make only pictures whose names begin with this word"),
        realtime=False,
    )
    options.pictures.mkdir(parents=True, exist_ok=True)
    chosen = [one for one in PICTURES if one.name.startswith(options.only)]
    needs_terminals = options.only.startswith("terminal") or not options.only or any(one.page == "run" for one in chosen)
    lines = table_head("page", ">size", ">drawn after", ">CPU time")
    with tempfile.TemporaryDirectory(prefix="perfkit-screens-") as temporary, chromium() as browser:
        folder = pathlib.Path(temporary)
        if needs_terminals:
            with running_server(*SERVER, realtime=options.realtime) as server:
                for name, file in show_terminals(server.url(), folder, shlex.join(REALTIME) if options.realtime else ""):
                    if name.startswith(options.only):
                        browser.show(file, width=1280)
                        width_px, height_px = browser.evaluate("[document.body.offsetWidth, document.body.offsetHeight]")
                        save_picture(browser, options.pictures / f"{name}.png", width_px, height_px)
        pages = {page: PAGES[page](folder) for page in dict.fromkeys(one.page for one in chosen)}
        for one in chosen:
            browser.show(pages[one.page], width=one.width_px, is_dark=one.is_dark)
            save_picture(browser, options.pictures / f"{one.name}.png", one.width_px, one.height_px)
        for page, file in pages.items():
            drawn_ms, cpu_ms = _drawing_ms(browser, file)
            lines.append(table_row(page, f"{file.stat().st_size / 1000:,.0f} kB", f"{drawn_ms:.0f} ms", f"{cpu_ms:.0f} ms"))
    print(*lines, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
