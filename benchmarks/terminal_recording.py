"""A recording of `perfkit run` in a terminal, as an animated picture for the documentation; it is played once and ends with the summary.

    .venv/bin/python -m benchmarks.terminal_recording [--out docs/screens/terminal-run.gif]

Measures the bundled server in a terminal of 90 columns (tmux), takes what it shows five times a second, and draws it in Chromium.
"""

import io
import itertools
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from PIL import Image
from rich.text import Text

from benchmarks.processes import ROOT, running_server
from benchmarks.report import option_parser
from benchmarks.screen_pages import SERVER
from benchmarks.screens import terminal, terminal_page
from tests.chromium import Browser, chromium

_COLUMNS, _LINES = 90, 34
_EVERY_S, _WITHIN_S = 0.2, 120.0
_LONGEST_MS, _LAST_MS, _COLOURS = 1000, 4000, 32


def record(shown: Callable[[], str]) -> list[tuple[float, str]]:
    """What the terminal shows whenever that changes, with the time in seconds, until the command has ended; raises TimeoutError."""
    began_s, frames = time.monotonic(), list[tuple[float, str]]()
    while (at_s := time.monotonic() - began_s) < _WITHIN_S:
        text = shown()
        if not frames or frames[-1][1] != text:
            frames.append((at_s, text))
        if "exit code" in Text.from_ansi(text).plain:
            return frames
        time.sleep(_EVERY_S)
    raise TimeoutError("the command has not ended")


def durations_ms(at_s: Sequence[float]) -> list[int]:
    """How long each frame is shown: as it was, but at most a second; the last one longer."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(at_s)]
    return [*(min(round(gap * 1000), _LONGEST_MS) for gap in gaps), _LAST_MS]


def _draw(browser: Browser, text: str, folder: pathlib.Path) -> Image.Image:
    page = terminal_page("\n".join(text.rstrip().splitlines()[-_LINES:]), _COLUMNS, folder / "frame.html")
    browser.show(page, width=1000)
    width_px, height_px = browser.evaluate("[document.body.offsetWidth, document.body.offsetHeight]")
    browser.screenshot(folder / "frame.png", height_px=height_px)
    with Image.open(io.BytesIO((folder / "frame.png").read_bytes())) as picture:
        return picture.convert("RGB").crop((0, 0, width_px, height_px))


def on_one_canvas(pictures: Sequence[Image.Image]) -> list[Image.Image]:
    """The pictures at the top of canvases as large as the largest of them, in the colour of their corner."""
    size = max(picture.width for picture in pictures), max(picture.height for picture in pictures)
    canvases = []
    for picture in pictures:
        canvas = Image.new("RGB", size, picture.getpixel((0, 0)))
        canvas.paste(picture)
        canvases.append(canvas)
    return canvases


def main() -> int:
    """Records, and writes the picture."""
    options = option_parser(__doc__, out=ROOT / "docs/screens/terminal-run.gif").parse_args()
    with tempfile.TemporaryDirectory(prefix="perfkit-recording-") as temporary, chromium() as browser:
        folder = pathlib.Path(temporary)
        with running_server(*SERVER) as server:
            command = f"perfkit run {server.url()} -m synthetic --shape INPUT0=4 -c 1,4,16 --duration 3s --out result"
            with terminal(command, _COLUMNS, folder, lines=_LINES) as shown:
                frames = record(shown)
        pictures = on_one_canvas([_draw(browser, text, folder) for _, text in frames])
    palette = pictures[-1].quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    first.save(
        options.out, save_all=True, append_images=others, duration=durations_ms([at_s for at_s, _ in frames]), optimize=True, disposal=1
    )
    print(f"{options.out}: {len(pictures)} frames, {options.out.stat().st_size / 1000:,.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
