"""The site's main pages in a real browser: for screen readers, on a telephone, without other hosts, and its search without a web server."""

import pytest

from tests.docs.site_pages import PAGES, open_page, widest

# `benchmarks.documentation_site` asks axe about every page in both; each takes it seconds
WITH_AXE = {False: ("index.html",), True: ("tutorials/first-measurement.html", "concepts/planning.html")}


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (400, True)])
def test_a_page_fits_has_nothing_serious_and_asks_no_other_host(browser, site, page, width, is_dark):
    open_page(browser, site / page, width, is_dark=is_dark)
    scheme = browser.evaluate("document.body.dataset.mdColorScheme")
    assert scheme == ("slate" if is_dark else "default")
    assert widest(browser) == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert browser.problems == []
    if page in WITH_AXE[is_dark]:
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
