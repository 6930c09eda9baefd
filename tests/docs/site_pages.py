"""The pages of the site that are looked at in a browser, and what is asked of them."""

import pathlib

from tests.chromium import Browser

ROOT = pathlib.Path(__file__).parents[2]
PAGES = (
    "index.html",
    "tutorials/first-measurement.html",
    "how-to/ci.html",
    "concepts/planning.html",
    "reference/commands.html",
    "reference/warnings.html",
    "reports/peers.html",
)
_TOO_WIDE = """
(() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("main *")].filter((one) => one.getBoundingClientRect().right > width + 1).slice(0, 3)
    .map((one) => one.outerHTML.slice(0, 120));
})()"""


def open_page(browser: Browser, page: pathlib.Path, width: int, *, is_dark: bool = False) -> None:
    """Loads a page of the site in a window of that width."""
    browser.show(page, width=width, is_dark=is_dark)


def widest(browser: Browser) -> list[str]:
    """Elements that make the page wider than the window; empty if it is not."""
    found: list[str] = browser.evaluate(_TOO_WIDE)
    return found
