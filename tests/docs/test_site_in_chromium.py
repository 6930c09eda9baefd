"""The site's main pages in a real browser: for screen readers, on a telephone, without other hosts, and its search without a web server."""

import pytest

from tests.docs.site_pages import PAGES, open_page, widest

# `benchmarks.documentation_site` opens every page in both windows, and asks axe about it, which takes seconds
NARROW, WIDE = [(page, 400, True) for page in PAGES], [(page, 1280, False) for page in ("index.html", "reference/commands.html")]
WITH_AXE = {("tutorials/first-measurement.html", True), ("index.html", False)}


@pytest.mark.parametrize(("page", "width", "is_dark"), [*NARROW, *WIDE])
def test_a_page_fits_has_nothing_serious_and_asks_no_other_host(browser, site, page, width, is_dark):
    open_page(browser, site / page, width, is_dark=is_dark)
    scheme = browser.evaluate("document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if is_dark else "default")
    assert widest(browser) == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert browser.problems == []
    if (page, is_dark) in WITH_AXE:
        assert browser.serious() == []


def test_the_search_finds_a_warning_without_a_web_server(browser, site):
    open_page(browser, site / "index.html", 1280)
    found = browser.evaluate("""new Promise((done) => {
      const query = document.querySelector("[data-md-component=search-query]");
      const toggle = document.querySelector("#__search");
      toggle.checked = true;
      toggle.dispatchEvent(new Event("change"));
      query.focus();
      query.value = "late_starts";
      query.dispatchEvent(new KeyboardEvent("keyup", {bubbles: true}));
      const look = () => {
        const links = [...document.querySelectorAll(".md-search-result__link")].map((one) => one.getAttribute("href"));
        links.length ? done(links) : setTimeout(look, 50);
      };
      look();
    })""")
    assert any("reference/warnings.html" in link for link in found)
