"""Pictures of the site's main pages, to be looked at: `.venv/bin/python -m docs_build.screens [--out build/docs-screens]`.

Builds the site, and saves each page at 1280 and 400 pixels in the light and the dark scheme. Prints pages that are wider than the window and what axe finds.
"""

import argparse
import pathlib
import subprocess
import sys

from tests.chromium import Browser, chromium
from tests.docs.site_pages import PAGES, ROOT, open_page, widest


def main() -> int:
    """Makes the pictures; the exit code is 1 if a page is too wide or has serious violations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "build/docs-screens", metavar="FOLDER", help="default: build/docs-screens"
    )
    parser.add_argument("--height", type=int, default=1600, metavar="PIXELS", help="how much of a page; default: 1600")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    site = ROOT / "build/docs-site"
    subprocess.run([sys.executable, "-m", "mkdocs", "--quiet", "build", "--site-dir", site], cwd=ROOT, check=True)
    with chromium() as browser:
        problems = [
            problem for page in PAGES for problem in _save(browser, site / page, options.out / page.replace("/", "-"), options.height)
        ]
    print(*problems, sep="\n")
    return 1 if problems else 0


def _save(browser: Browser, page: pathlib.Path, picture: pathlib.Path, height_px: int) -> list[str]:
    found = []
    for width_px in (1280, 400):
        for scheme in ("light", "dark"):
            open_page(browser, page, width_px, is_dark=scheme == "dark")
            name = picture.with_name(f"{picture.stem}-{width_px}-{scheme}.png")
            browser.screenshot(name, height_px=height_px)
            found += [f"{name.name}: wider than the window: {what}" for what in widest(browser)]
            found += [f"{name.name}: {rule}: {html}" for rule, html in browser.serious()]
    return found


if __name__ == "__main__":
    sys.exit(main())
