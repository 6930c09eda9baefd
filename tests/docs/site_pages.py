"""The pages of the site that are looked at in a browser, and what is asked of them."""

import json
import pathlib
from typing import Any

from tests.chromium import Browser

ROOT = pathlib.Path(__file__).parents[2]
AXE = (ROOT / "tests/report/axe-core/axe.min.js").read_text(encoding="utf-8")
PAGES = (
    "index.html",
    "trust.html",
    "tutorials/first-measurement.html",
    "how-to/ci.html",
    "concepts/planning.html",
    "reference/commands.html",
    "reference/scenario-keys.html",
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


def serious(browser: Browser) -> list[tuple[str, str]]:
    """The serious violations that axe finds, each with the first element that has it."""
    browser.evaluate(AXE + "; null")
    # preload asks for style sheets, which Chromium refuses to pages from files
    found: list[dict[str, Any]] = json.loads(
        browser.evaluate("axe.run({preload: false}).then((found) => JSON.stringify(found.violations))")
    )
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]
