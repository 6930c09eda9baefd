"""The pictures of the documentation, made from real output: the terminal at 80 and 140 columns, and pages in both schemes and widths.

    .venv/bin/python -m benchmarks.screens [--only run-page] [--realtime] [--pictures docs/screens]

Runs the bundled server, measures it in a terminal (tmux), and draws what the terminal and the pages show in Chromium. `--only` makes the
pictures whose names begin with a word. `--realtime` measures in the terminal at real-time priority, on a machine that is busy. Prints for each page its size and the time until its charts are drawn.
"""

import contextlib
import dataclasses
import datetime
import io
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping

from PIL import Image
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

import perfkit
from benchmarks.processes import REALTIME, ROOT, RunningServer, running_server
from benchmarks.report import program_options, table_head, table_row
from benchmarks.synthetic import open_loop, scenario
from perfkit.cli.main import main as main_of_perfkit
from perfkit.clock import utc_now
from perfkit.gate.arm import parse_arm
from perfkit.gate.folder import FixedSettings, GateFolder, GateManifest
from perfkit.gate.paired_gate import GateRequest
from perfkit.gate.pairs import ArmRun
from perfkit.gate.verdict import MetricNoise, Timing
from perfkit.measurement.control import RunObserver
from perfkit.scenario.file import read_scenario
from perfkit.units import NS_PER_S
from tests.chromium import Browser, chromium
from tests.cli.gate_scenario import write_gate_scenario
from tests.report.subject_pages import plan_page
from tests.simulated_pairs import OPEN, disturbed, make_pairs

_FOLDER = ROOT / "docs/screens"
SERVER = ("--model=synthetic", "--synthetic=service=lognormal:60ms:cv=0.3,servers=4")
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


def _run_page(folder: pathlib.Path) -> pathlib.Path:
    """The page of the run whose terminal is shown."""
    return folder / "columns-140" / "report.html"


class Disturbance(RunObserver):
    """From second 4 to 6 of their windows, stops the server in the first load point, and unloads its model in the second."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        """Starts the timers of this load point, after a warm-up of a second."""
        signals, actions = (signal.SIGSTOP, signal.SIGCONT), ("unload", "load")
        for number in range(2 if index < 2 else 0):
            act, argument = (self._server.process.send_signal, signals[number]) if index == 0 else (self._change_model, actions[number])
            threading.Timer(5.0 + 2.0 * number, act, (argument,)).start()

    def _change_model(self, action: str) -> None:
        path = f"127.0.0.1:{self._server.http_port}/v2/repository/models/synthetic/{action}"
        urllib.request.urlopen(f"http://{path}", b"{}", timeout=10).close()


def _disturbed_page(folder: pathlib.Path) -> pathlib.Path:
    """Three load points: one with a stall, one with an error burst, and one with a higher rate than one worker can send."""
    laws = ("--synthetic=service=lognormal:5ms:cv=0.5,servers=4", "--model-control-mode=explicit")
    with running_server("--model=synthetic", *laws) as server:
        document = scenario(server.url(), open_loop(200, 400, 60_000), 10, name="page-trial", measure={"workers": 1, "drain": "2s"})
        perfkit.run(document, out=folder / "disturbed", observer=Disturbance(server))
    return folder / "disturbed" / "report.html"


def _plan_page(folder: pathlib.Path) -> pathlib.Path:
    """The plan of two simulated servers, whose true capacities are known."""
    (folder / "plan").mkdir()
    return plan_page(folder / "plan")


def _gate_page(folder: pathlib.Path) -> pathlib.Path:
    """The page of `perfkit gate` for simulated pairs, in which the candidate's p99 is 12 % longer, and two of which were disturbed."""
    place = folder / "gate"
    place.mkdir()
    scenario = write_gate_scenario(place, "throughput", "p50", "p95", "p99", name="simple")
    targets = ["cmd:./server-1.4 --port {port}", "cmd:./server-1.5 --port {port}"]
    words = ["gate", scenario.name, "--baseline", targets[0], "--candidate", targets[1], "--out", "reports/gate", "--html", "gate.html"]
    loaded = read_scenario(scenario)
    baseline, candidate = (parse_arm("", target, loaded.scenario) for target in targets)
    started_at = (utc_now() - datetime.timedelta(minutes=5)).isoformat(timespec="milliseconds")
    noise = tuple(MetricNoise(metric=name, load_point=OPEN, between=0.02, within_one_second=0.015) for name in ("p50", "p95", "p99"))
    timing = Timing(window_s=3.0, window_chosen_by="trial", run_overhead_s=2.5, load_points=2, noise=noise)
    pairs = [pair.model_copy(update={"candidate": _slower(pair.candidate)}) for pair in make_pairs(12, noise=0.02, cpu=1.0, seed=3)]
    with contextlib.chdir(place), contextlib.redirect_stdout(io.StringIO()):
        gate = GateFolder(
            pathlib.Path("reports/gate"),
            GateManifest(inputs=GateRequest(loaded, baseline, candidate).inputs, seed=1, started_at=started_at),
        )
        gate.fix(FixedSettings(warmup_ns=NS_PER_S, window_ns=3 * NS_PER_S, concurrency=4, rate_per_s=70.0, timing=timing))
        for pair in [*disturbed(pairs[:2], 0.2), *pairs[2:]]:
            gate.add(pair)
        main_of_perfkit([*words, "--quiet"])  # decides from the pairs that are there
    return place / "gate.html"


def _slower(run: ArmRun) -> ArmRun:
    """The run, with a p99 that is 12 % longer."""
    points = [point.model_copy(update={"figures": {**point.figures, "p99": 1.12 * (point.figures["p99"] or 0.0)}}) for point in run.points]
    return run.model_copy(update={"points": tuple(points)})


PAGES: Mapping[str, Callable[[pathlib.Path], pathlib.Path]] = {
    "run": _run_page,
    "trial": _disturbed_page,
    "plan": _plan_page,
    "gate": _gate_page,
}
"""By name, a function that makes a page in a working folder and returns its file. The terminals have been shown before."""
_HEIGHTS_PX = {"run": (1600, 1800), "plan": (2100, 2400), "gate": (1700, 2400)}
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
