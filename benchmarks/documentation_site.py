"""Looks at every page of the documentation site in Chromium: `make docs && python -m benchmarks.documentation_site`.

    python -m benchmarks.documentation_site [--site build/docs-site] [--page tutorials/*.html] [--pictures FOLDER]

Each page is opened in a window of 1280 pixels with light colours, and of 400 pixels with dark ones, as a telephone has it. Nothing on it may be wider than
the window, nor have a serious violation of accessibility (axe-core), an error in its scripts, or a request to another host. Other pages than those in
tests/docs/site_pages.py are looked at here alone. It takes about five minutes; the exit code is 1 if a page has any of these.
"""

import argparse
import fnmatch
import pathlib
import sys

from tests.chromium import Browser, chromium
from tests.docs.site_pages import ROOT, open_page, widest

WINDOWS = ((1280, False), (400, True))


def main() -> int:
    """Runs the program and returns its exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--site", type=pathlib.Path, default=ROOT / "build/docs-site", help="the built site")
    parser.add_argument("--page", action="append", metavar="PATTERN", help="only these pages, such as reports/*; repeated for several")
    parser.add_argument("--pictures", type=pathlib.Path, metavar="FOLDER", help="a folder for a picture of each page in each window")
    options = parser.parse_args()
    site = options.site.absolute()
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    pages = [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in options.page or ["*"])]
    if not pages:
        parser.error(f"{options.site} has no such page: make docs")
    wrong = 0
    with chromium() as browser:
        for name in pages:
            for width, is_dark in WINDOWS:
                found = faults(browser, site / name, width, is_dark=is_dark)
                wrong += bool(found)
                for one in found:
                    print(f"{name}, {width} px, {'dark' if is_dark else 'light'}: {one}", flush=True)
                if options.pictures:
                    options.pictures.mkdir(parents=True, exist_ok=True)
                    browser.screenshot(options.pictures.absolute() / f"{name.removesuffix('.html').replace('/', '-')}-{width}.png")
    print(f"{len(pages)} pages in {len(WINDOWS)} windows: {wrong} with faults")
    return 1 if wrong else 0


def faults(browser: Browser, page: pathlib.Path, width: int, *, is_dark: bool) -> list[str]:
    """What is wrong with a page in a window."""
    open_page(browser, page, width, is_dark=is_dark)
    found = [f"wider than the window: {element}" for element in widest(browser)]
    found += [f"asks another host: {url}" for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))]
    found += [f"says: {problem}" for problem in browser.problems]
    return found + [f"{rule}: {element}" for rule, element in browser.serious()]


if __name__ == "__main__":
    sys.exit(main())
