"""The pages in a real browser: drawn, operated by keyboard, readable at 400 px and in both schemes, accessible, and offline."""

import functools
import json
import pathlib
import re

import pytest

from perfkit.report.chart import BLUE, Axis, Chart, ChartGroup, Line
from perfkit.report.chart_svg import chart_block
from perfkit.report.page import Page, Section
from perfkit.report.render import render_html
from perfkit.report.run import write_reports
from perfkit.result.checksums import write_checksums
from perfkit.result.telemetry_file import SampledPoint, TelemetryLog
from perfkit.telemetry.series import Series
from tests.chromium import chromium
from tests.report.conftest import Synthetic
from tests.report.subject_pages import write_page

S = 1_000_000_000
AXE = (pathlib.Path(__file__).parent / "axe-core" / "axe.min.js").read_text(encoding="utf-8")
HOSTILE = '</script><!--<script>window.owned = 1</script><img src=x onerror="window.owned = 1">'
LARGEST_BYTES = 2_000_000
INKED = """
[...document.querySelectorAll("canvas")].map((canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, colours = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) colours.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
  return colours.size;
})"""


def serious(browser):
    """The serious violations that axe finds, each with the first element that has it."""
    browser.evaluate(AXE + "; null")
    found = json.loads(browser.evaluate("axe.run().then((found) => JSON.stringify(found.violations))"))
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")]


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def run_page(tmp_path_factory):
    """The page of a run with hostile names, a point that is not valid, and telemetry of server, GPU and generator."""
    folder = tmp_path_factory.mktemp("run") / "result"
    maker = Synthetic(
        folder, concurrencies=(1, 4, 16), repetitions=2, samples=200, cpu_share=0.95, failed=30, failed_in_s=2, stalled=(1,), name=HOSTILE
    )
    maker.write()
    log = TelemetryLog(folder)
    for (index, repetition), start_s in maker.window_starts_s.items():
        times_ns = tuple(round((start_s + at_s) * S) for at_s in range(5))
        named = {"server_queue": (1e6, {}), "gpu_power": (70.0, {"gpu": HOSTILE}), "machine_cpu_share": (0.4, {})}
        series = tuple(Series(name, "", labels, times_ns, (value,) * 5) for name, (value, labels) in named.items())
        log.add(SampledPoint(index, repetition, "http", "x", times_ns[0]), 0, series)
    log.finish()
    write_checksums(folder, ("result.json", "latency.hlog", "telemetry.parquet", "telemetry.csv"))
    write_reports(folder)
    return folder / "report.html"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The page of a subject; each is made when it is first asked for."""
    folder = tmp_path_factory.mktemp("pages")
    return functools.cache(lambda subject: write_page(subject, folder))


@pytest.mark.parametrize(("width", "is_dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_charts_are_drawn_and_nothing_scrolls_sideways(browser, run_page, width, is_dark):
    browser.show(run_page, width=width, is_dark=is_dark)
    assert browser.problems == []
    assert browser.requests == [run_page.as_uri()]
    assert browser.evaluate("window.owned") is None
    assert browser.evaluate("document.documentElement.dataset.charts") == "10"
    inked = browser.evaluate(INKED)
    assert len(inked) == 10
    assert min(inked) > 18  # as many colours as grid and text alone have, with the shades between them and the background
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 3 * 128) == is_dark
    assert run_page.stat().st_size < LARGEST_BYTES


def test_stalls_bursts_and_invalid_points_are_named_without_scrolling(browser, run_page):
    browser.show(run_page, width=1280)
    chips = (
        "Object.fromEntries([...document.querySelectorAll('li .code')].map((one) => [one.textContent, one.getBoundingClientRect().bottom]))"
    )
    bottoms = browser.evaluate(chips)
    assert set(bottoms) == {"stall", "error_burst", "generator_bound"}
    assert max(bottoms.values()) < 900


@pytest.mark.parametrize(("subject", "charts"), [("search", 4), ("gate", 2), ("compare", 5), ("history", 2), ("sweep", 1), ("plan", 14)])
def test_the_page_of_every_subject_is_drawn_fits_a_telephone_and_is_accessible(browser, pages, subject, charts):
    page = pages(subject)
    assert page.stat().st_size < LARGEST_BYTES
    browser.show(page, width=400, is_dark=True)
    assert browser.problems == []
    assert browser.requests == [page.as_uri()]
    assert browser.evaluate("document.documentElement.scrollWidth") <= 400
    inked = browser.evaluate(INKED)
    assert (len(inked), min(inked, default=19) > 18) == (charts, True)
    browser.show(page, width=1280)
    assert serious(browser) == []


def test_an_intervals_ends_lie_within_the_plot(browser, tmp_path):
    """The bar from 5 to 20 at a value of 10 begins below the upper edge of the plot, which is 8 px below that of the canvas."""
    line = Line("p99", (1.0,), (10.0,), BLUE, "dots", ((1.0, 1.0, 5.0, 20.0),), labels=("at 50/s",))
    group = ChartGroup((Chart("p99", Axis("rate", scale="linear", low=0.0, high=2.0), Axis("p99", "ms"), (line,)),))
    page = tmp_path / "page.html"
    page.write_text(render_html(Page("An interval", (Section("", (chart_block("p99", "p99", "", group),)),))), encoding="utf-8")
    browser.show(page, width=1280)
    top = browser.evaluate(
        """(() => {
        const canvas = document.querySelector("canvas"), { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 100 && data[i + 2] - data[i] > 30) return Math.floor(i / 4 / canvas.width);
        })()"""
    )
    assert 8 + 10 < top < 8 + 40
    browser.evaluate("document.querySelector('.canvas').focus()")
    browser.press("End")
    assert browser.evaluate("document.querySelector('[aria-live]').textContent") == "1: p99 10 ms (5 to 20), at 50/s"


def test_a_forecast_is_read_by_its_dates(browser, pages):
    browser.show(pages("plan"), width=1280)
    titles = browser.evaluate("[...document.querySelectorAll('.canvas')].map((one) => one.getAttribute('aria-label').split(':')[0])")
    number = titles.index("Daily peaks and their forecast")
    browser.evaluate(f"document.querySelectorAll('.canvas')[{number}].focus()")
    browser.press("Home")
    spoken = browser.evaluate(f"document.querySelectorAll('.chart')[{number}].querySelector('[aria-live]').textContent")
    assert re.match(r"^2025-06-16: measured peaks \d+/s$", spoken), spoken
    browser.press("End")
    spoken = browser.evaluate(f"document.querySelectorAll('.chart')[{number}].querySelector('[aria-live]').textContent")
    assert re.match(r"^2026-07-20: forecast, P50 \(P10 to P90\) [\d,.]+/s \([\d,.]+ to [\d,.]+\), ", spoken), spoken


@pytest.mark.parametrize("is_dark", [False, True])
def test_axe_finds_nothing_serious(browser, run_page, is_dark):
    browser.show(run_page, width=1280, is_dark=is_dark)
    browser.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    assert serious(browser) == []


def test_keys_read_values_and_zoom_all_charts_of_the_shared_axis(browser, run_page):
    browser.show(run_page, width=1280)
    browser.evaluate("document.querySelectorAll('#charts-2 .canvas')[0].focus()")
    browser.press("End")
    spoken = browser.evaluate("document.querySelector('#charts-2 [aria-live]').textContent")
    assert re.match(r"^5[89]\.5 s: p50 \d+(\.\d+)? ms, p99 \d+(\.\d+)? ms$", spoken), spoken
    places = browser.evaluate("[...document.querySelectorAll('#charts-2 .where')].map((one) => one.textContent)")
    assert len(places) == 5
    assert [place for place in places if not re.match(r"^(5[89](\.\d+)?|60) s:$", place)] == []
    is_reset_hidden = "document.querySelectorAll('.tools button')[2].hidden"
    assert browser.evaluate(is_reset_hidden) is True
    browser.press("+")
    assert browser.evaluate(is_reset_hidden) is False
    browser.press("Escape")
    assert browser.evaluate(is_reset_hidden) is True


def test_the_curves_of_the_gpus_share_cursor_and_zoom_with_the_other_charts_over_time(browser, tmp_path):
    maker = Synthetic(tmp_path / "result", protocols=("http",), concurrencies=(1, 4), repetitions=1, device="cuda")
    maker.write()
    log = TelemetryLog(maker.folder)
    for (index, repetition), start_s in maker.window_starts_s.items():
        times_ns = tuple(round((start_s + at_s) * S) for at_s in range(5))
        log.add(
            SampledPoint(index, repetition, "http", "x", times_ns[0]),
            0,
            (Series("gpu_power", "W", {"gpu": "GPU-1"}, times_ns, (70.0,) * 5),),
        )
    log.finish()
    write_checksums(maker.folder, ("result.json", "latency.hlog", "telemetry.parquet", "telemetry.csv"))
    write_reports(maker.folder)
    browser.show(maker.folder / "report.html", width=1280)
    titles = browser.evaluate("[...document.querySelectorAll('.charts')].map((one) => one.querySelector('.chart-title').textContent)")
    gpus, times = titles.index("GPU power, W"), max(number for number, title in enumerate(titles) if title == "service time, ms")
    assert 0 < times - gpus == len(titles) - 1
    resets = "[...document.querySelectorAll('.tools')].map((one) => one.lastChild.hidden)"
    places = "[...document.querySelectorAll('#charts-{} .where')].map((one) => one.textContent)"
    assert browser.evaluate(resets) == [True] * len(titles)
    for own, other in ((gpus, times), (times, gpus)):
        browser.evaluate(f"document.querySelector('#charts-{own} .canvas').focus()")
        browser.press("End")
        assert all(re.match(r"^\d+(\.\d+)? s:$", place) for place in browser.evaluate(places.format(other)))
        browser.press("+")
        assert [number for number, is_hidden in enumerate(browser.evaluate(resets)) if not is_hidden] == [gpus, times], (
            "and no other figure"
        )
        browser.press("Escape")
        assert browser.evaluate(resets) == [True] * len(titles)
    choices = "[...document.querySelectorAll('.tools select')]"
    browser.evaluate(f"{choices}[0].value = 1; {choices}[0].dispatchEvent(new Event('change'))")
    assert browser.evaluate(f"{choices}.map((one) => one.value)") == ["1", "1"]
    labels = "[...document.querySelectorAll('#charts-{} .x-label')].length"
    assert [browser.evaluate(labels.format(number)) for number in (gpus, times)] == [1, 1], "each figure has the axis's name at its end"
    assert browser.problems == []


def test_a_lines_name_hides_and_shows_it(browser, run_page):
    browser.show(run_page, width=1280)
    button = "document.querySelectorAll('#charts-1 .legend button')"
    before = browser.evaluate(INKED)
    browser.evaluate(f"{button}[0].click()")
    assert browser.evaluate(f"{button}[0].getAttribute('aria-pressed')") == "false"
    assert browser.evaluate(f"new Promise((done) => requestAnimationFrame(() => done({INKED.strip()})))") != before


def test_a_table_sorts_by_its_figures_not_by_their_texts(browser, run_page):
    browser.show(run_page, width=1280)
    column = "[...document.querySelectorAll('main table')[0].tBodies[0].rows].map((row) => row.cells[8].textContent)"
    heading = "document.querySelectorAll('main table')[0].tHead.rows[0].cells[8]"
    assert browser.evaluate(f"{heading}.textContent") == "p99.9"
    for order in ("ascending", "descending"):
        browser.evaluate(f"{heading}.querySelector('button').click()")
        assert browser.evaluate(f"{heading}.getAttribute('aria-sort')") == order
        values_ms = [float(text.replace(" ms", "")) for text in browser.evaluate(column)]
        assert values_ms == sorted(values_ms, reverse=order == "descending")
        assert len(set(values_ms)) > 3


def test_paper_has_the_pictures_in_place_of_the_charts_and_light_colours(browser, run_page):
    browser.show(run_page, width=1280, is_dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    widths = "[...document.querySelectorAll('figure {}')].map((one) => one.getBoundingClientRect().width)"
    pictures, charts = (browser.evaluate(widths.format(name)) for name in ("svg", "canvas"))
    assert len(pictures) == 3
    assert min(pictures) > 300
    assert set(charts) == {0}
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.call("Emulation.setEmulatedMedia", media="", features=[])


def test_the_pictures_stand_where_scripts_are_off(browser, run_page):
    browser.show(run_page, width=1280, has_scripts=False)
    assert (
        browser.evaluate("[...document.querySelectorAll('figure svg')].filter((one) => one.getBoundingClientRect().width > 300).length")
        == 3
    )
    assert browser.evaluate("document.querySelectorAll('canvas').length") == 0


def test_warnings_are_read_on_a_telephone_without_scrolling_sideways(browser, run_page):
    browser.show(run_page, width=400)
    table = "document.querySelector('table.wordy')"
    assert browser.evaluate(f"{table}.closest('.wide').scrollWidth - {table}.closest('.wide').clientWidth") == 0
    remedy = f"[...{table}.querySelectorAll('td')].find((one) => one.textContent.includes('measure.workers'))"
    assert browser.evaluate(f"getComputedStyle({remedy}, '::before').content") == '"remedy: "'
