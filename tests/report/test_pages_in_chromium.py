"""The pages in a real browser: drawn, operated by keyboard, readable at 400 px and in both schemes, accessible, and offline."""

import functools
import re

import pytest

from perfkit.report.chart import BLUE, VERMILLION, Axis, Chart, ChartGroup, Line
from perfkit.report.page import Figure, Page, Section
from perfkit.report.render import render_html
from perfkit.report.run import write_reports
from perfkit.result.checksums import write_checksums
from perfkit.result.telemetry_file import SampledPoint, TelemetryLog
from perfkit.telemetry.series import Series
from tests.report.conftest import Synthetic
from tests.report.subject_pages import write_page

S = 1_000_000_000
HOSTILE = '</script><!--<script>window.owned = 1</script><img src=x onerror="window.owned = 1">'
LARGEST_BYTES = 2_000_000
DRAWN = """
[...document.querySelectorAll(".plot > svg")].map((svg) => {
  const { width, height } = svg.getBoundingClientRect(), shown = (one) => one.getAttribute("visibility") !== "hidden";
  return [width, height, svg.querySelectorAll(".lines path").length, [...svg.querySelectorAll(".ticks text")].filter(shown).length];
})"""
UNFOLD = "document.querySelectorAll('main > details').forEach((one) => { one.open = true; })"
STROKE = "getComputedStyle(document.querySelector('.lines path')).stroke"


def assert_drawn(browser, number):
    """That many charts have a size that can be read, lines, and ticks, and none is wider than the window; nothing is folded."""
    browser.evaluate(UNFOLD)
    assert browser.evaluate("document.documentElement.dataset.charts") == str(number)
    drawn = browser.evaluate(DRAWN)
    assert len(drawn) == number
    assert [one for one in drawn if one[0] < 180 or one[1] < 120 or not one[2] or one[3] < 2] == []
    window = browser.evaluate("innerWidth")
    assert browser.evaluate("document.documentElement.scrollWidth") <= window
    assert max(one[0] for one in drawn) <= window


def rgb(colour):
    return f"rgb({', '.join(str(int(colour[start : start + 2], 16)) for start in (1, 3, 5))})"


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
    assert_drawn(browser, 10)
    assert browser.evaluate(STROKE) == rgb(BLUE[is_dark])
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


@pytest.mark.parametrize(
    ("subject", "charts"), [("search", 4), ("gate", 3), ("compare", 6), ("history", 2), ("sweep", 1), ("plan", 14), ("tune", 1)]
)
def test_the_page_of_every_subject_is_drawn_fits_a_telephone_and_is_accessible(browser, pages, subject, charts):
    page = pages(subject)
    assert page.stat().st_size < LARGEST_BYTES
    browser.show(page, width=400, is_dark=True)
    assert browser.problems == []
    assert browser.requests == [page.as_uri()]
    assert_drawn(browser, charts)
    browser.show(page, width=1280)
    assert browser.serious() == []


@pytest.fixture
def interval_page(browser, tmp_path):
    """A chart of two values, 10 at a rate of 1, with an interval, and 20 at 3, at 1280 pixels."""
    intervals = ((1.0, 1.0, 5.0, 20.0), (3.0, 3.0, 18.0, 22.0))
    lines = (
        Line("p99", (1.0, 3.0), (10.0, 20.0), BLUE, "dots", intervals, labels=("at 50/s", "at 90/s")),
        Line("p50", (0.0, 1.0, 2.0, 3.0, 4.0), (1.0, 2.0, 3.0, 4.0, 5.0), VERMILLION),
    )
    group = ChartGroup((Chart("p99", Axis("rate", scale="linear", low=0.0, high=4.0), Axis("p99", "ms", low=0.0, high=40.0), lines),))
    page = tmp_path / "page.html"
    page.write_text(render_html(Page("An interval", (Section("", (Figure("p99", "p99", group),)),))), encoding="utf-8")
    browser.show(page, width=1280)


def corners(browser):
    """The left, top, right and bottom of the first chart's axes in the window."""
    box = browser.evaluate(
        "(({left, top, right, bottom}) => [left, top, right, bottom])(document.querySelector('.frame').getBoundingClientRect())"
    )
    return tuple(map(float, box))


def place(browser, x, y):
    """Where the values x of 4 and y of 40 lie in the window."""
    left, top, right, bottom = corners(browser)
    return left + x / 4 * (right - left), bottom - y / 40 * (bottom - top)


MARKS = "[...document.querySelectorAll('circle')].map((one) => { const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })"
READ = "[...document.querySelectorAll('.where, .legend .value')].map((one) => one.textContent)"
TICKS = "[...document.querySelectorAll('.ticks text')].filter((one) => one.getAttribute('visibility') === 'visible').map((one) => one.textContent)"


@pytest.mark.usefixtures("interval_page")
def test_the_mouse_reads_the_nearest_values_where_they_are_drawn(browser):
    browser.mouse("Moved", *place(browser, 1.03, 30))
    assert browser.evaluate(READ) == ["1:", " 10 ms (5 to 20), at 50/s", " 2 ms"]
    found = browser.evaluate(MARKS)
    assert [value for one in found for value in one] == pytest.approx([*place(browser, 1, 10), *place(browser, 1, 2)], abs=1.5)
    browser.mouse("Moved", *place(browser, 2.2, 30))
    assert browser.evaluate(READ) == ["2:", "", " 3 ms"], "no dot is near, and the line is joined"
    browser.mouse("Moved", 5, 5)
    assert browser.evaluate(READ) == ["", "", ""]
    assert browser.evaluate(MARKS) == []


@pytest.mark.usefixtures("interval_page")
def test_a_drag_zooms_and_a_double_click_shows_all(browser):
    assert browser.evaluate(TICKS) == ["0", "0.5", "1", "1.5", "2", "2.5", "3", "3.5", "4"]
    browser.mouse("Moved", *place(browser, 0.4, 20))
    browser.mouse("Pressed", *place(browser, 0.4, 20))
    browser.mouse("Moved", *place(browser, 1.0, 30))
    assert browser.evaluate("document.querySelector('.selection').getBoundingClientRect().width") > 50
    browser.mouse("Moved", *place(browser, 2.6, 20))
    browser.mouse("Released", *place(browser, 2.6, 20))
    assert browser.evaluate("document.querySelector('.selection').getAttribute('d')") == ""
    assert browser.evaluate(TICKS) == ["0.5", "1", "1.5", "2", "2.5"]
    left, _, right, _ = corners(browser)
    browser.mouse("Moved", left + (right - left) * 0.6 / 2.2, 300)
    assert browser.evaluate(READ)[:2] == ["1:", " 10 ms (5 to 20), at 50/s"]
    dots = "(({left, width}) => left + width / 2)(document.querySelector('.lines path[stroke-linecap]').getBoundingClientRect())"
    assert browser.evaluate(dots) == pytest.approx(left + (right - left) * 1.6 / 2.2, abs=3), "the middle of the dots at 1 and 3"
    for clicks in (1, 2):
        browser.mouse("Pressed", *place(browser, 1.0, 20), clicks)
        browser.mouse("Released", *place(browser, 1.0, 20), clicks)
    assert len(browser.evaluate(TICKS)) == 9


@pytest.mark.usefixtures("interval_page")
def test_keys_zoom_to_round_ticks_and_never_to_less_than_two_values(browser):
    browser.evaluate("document.querySelector('.plot').focus()")
    browser.press("End")
    browser.press("ArrowLeft")
    assert browser.evaluate("document.querySelector('[aria-live]').textContent") == "3: p99 20 ms (18 to 22), at 90/s, p50 4 ms"
    for _ in range(9):
        browser.press("+")
    assert browser.evaluate(TICKS) == ["1.5", "2", "2.5", "3", "3.5"], "half of the axis around 3; a quarter would have one value"


@pytest.mark.usefixtures("interval_page")
def test_a_lines_name_hides_and_shows_it(browser):
    for is_shown in (False, True):
        browser.evaluate("document.querySelector('.legend button').click()")
        assert browser.evaluate("document.querySelector('.legend button').getAttribute('aria-pressed')") == str(is_shown).lower()
        assert browser.evaluate("document.querySelector('.lines').firstElementChild.getBoundingClientRect().width > 0") is is_shown
        browser.mouse("Moved", *place(browser, 1.02, 30))
        assert browser.evaluate(READ)[1:] == [" 10 ms (5 to 20), at 50/s" * is_shown, " 2 ms"]


@pytest.mark.usefixtures("interval_page")
def test_the_values_of_a_chart_are_a_table(browser):
    browser.evaluate("document.querySelector('.values-table').open = true")
    rows = "new Promise((done) => setTimeout(() => done([...document.querySelectorAll('.values-table tr')].map((row) => [...row.cells].map((one) => one.textContent)))))"
    assert browser.evaluate(rows)[:3] == [["rate", "p99", "p50"], ["0", "–", "1 ms"], ["1", "10 ms (5 to 20), at 50/s", "2 ms"]]


@pytest.mark.parametrize("is_permitted", [True, False])
def test_a_command_is_copied_by_its_button_with_the_keyboard_alone(browser, pages, is_permitted):
    browser.show(pages("gate"), width=1280)
    if not is_permitted:
        browser.evaluate("navigator.clipboard.writeText = () => Promise.reject(new Error('no')); null")
    browser.call("Browser.setPermission", permission={"name": "clipboard-write"}, setting="granted")
    browser.evaluate("addEventListener('copy', () => { window.copied = getSelection().toString(); }); null")
    browser.evaluate("document.querySelector('button.copy').focus()")
    browser.press("Enter")
    said = "new Promise((done) => { const look = () => { const text = document.querySelector('.with-copy [role=status]').textContent; text ? done(text) : setTimeout(look, 10); }; look(); })"
    assert browser.evaluate(said) == "The command is copied."
    assert browser.evaluate("document.querySelector('button.copy').textContent") == "Copied the command"
    if not is_permitted:
        assert browser.evaluate("window.copied.trim() === document.querySelector('pre.command').textContent.trim()") is True
    assert browser.problems == []


def test_a_forecast_is_read_by_its_dates(browser, pages):
    browser.show(pages("plan"), width=1280)
    number = browser.evaluate("[...document.querySelectorAll('.chart-title')].map((one) => one.textContent)").index(
        "Daily peaks and their forecast"
    )
    browser.evaluate(f"document.querySelectorAll('.plot')[{number}].focus()")
    spoken = f"document.querySelectorAll('.chart')[{number}].querySelector('[aria-live]').textContent"
    browser.press("Home")
    assert re.match(r"^2025-06-16: measured peaks \d+/s$", browser.evaluate(spoken))
    browser.press("End")
    assert re.match(r"^2026-07-20: forecast, P50 \(P10 to P90\) [\d,.]+/s \([\d,.]+ to [\d,.]+\), ", browser.evaluate(spoken))


@pytest.mark.parametrize("is_dark", [False, True])
def test_axe_finds_nothing_serious(browser, run_page, is_dark):
    browser.show(run_page, width=1280, is_dark=is_dark)
    browser.evaluate("[...document.querySelectorAll('details')].forEach((one) => { one.open = true; })")
    assert browser.serious() == []


def test_keys_read_values_and_zoom_all_charts_of_the_shared_axis(browser, run_page):
    browser.show(run_page, width=1280)
    browser.evaluate(UNFOLD)
    figure = "document.querySelectorAll('figure')[3]"
    browser.evaluate(f"{figure}.querySelector('.plot').focus()")
    browser.press("End")
    spoken = browser.evaluate(f"{figure}.querySelector('[aria-live]').textContent")
    assert re.match(r"^5[89]\.5 s: p50 \d+(\.\d+)? ms, p99 \d+(\.\d+)? ms$", spoken), spoken
    places = browser.evaluate(f"[...{figure}.querySelectorAll('.where')].map((one) => one.textContent)")
    assert len(places) == 5
    assert [place for place in places if not re.match(r"^(5[89](\.\d+)?|60) s:$", place)] == []
    views = "[...{}.querySelectorAll('.values')].map((one) => one.getAttribute('viewBox').split(' ')[0])"
    before = browser.evaluate(views.format("document"))
    browser.press("+")
    after = browser.evaluate(views.format("document"))
    assert [one != other for one, other in zip(before, after, strict=True)] == [False] * 5 + [True] * 5
    assert browser.evaluate("[...document.querySelectorAll('.tools')].map((one) => one.lastChild.hidden)") == [True, True, True, False]
    browser.press("Escape")
    assert browser.evaluate(views.format("document")) == before


def test_a_load_point_is_chosen(browser, run_page):
    browser.show(run_page, width=1280)
    browser.evaluate(UNFOLD)
    choice = "document.querySelector('select')"
    assert browser.evaluate(f"[...{choice}.options].slice(0, 2).map((one) => one.text)") == ["all", "http, concurrency 1, 1 (not valid)"]
    browser.evaluate(f"{choice}.value = 0; {choice}.dispatchEvent(new Event('change'))")
    ticks = browser.evaluate(
        f"[...{choice}.closest('figure').querySelectorAll('.chart')].map((one) => one.querySelector('.ticks text:last-child').textContent)"
    )
    assert ticks == ["5"] * 5


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
    gpus, times = titles.index("GPU power"), max(number for number, title in enumerate(titles) if title == "service time")
    assert 0 < gpus < times == len(titles) - 1
    browser.evaluate(UNFOLD)
    resets = "[...document.querySelectorAll('.tools')].map((one) => one.lastChild.hidden)"
    places = "[...document.querySelectorAll('figure')[{}].querySelectorAll('.where')].map((one) => one.textContent)"
    assert browser.evaluate(resets) == [True] * len(titles)
    for own, other in ((gpus, times), (times, gpus)):
        browser.evaluate(f"document.querySelectorAll('figure')[{own}].querySelector('.plot').focus()")
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
    labels = "document.querySelectorAll('figure')[{}].querySelectorAll('.label').length"
    assert [browser.evaluate(labels.format(number)) for number in (gpus, times)] == [1, 1], "each figure has the axis's name at its end"
    assert browser.problems == []


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


def test_paper_has_the_charts_without_tools_in_light_colours(browser, run_page):
    browser.show(run_page, width=400, is_dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate("document.querySelectorAll('main > details:not([open])').length") == 0
    assert browser.evaluate(
        "[...document.querySelectorAll('.tools, .values-table')].every((one) => one.getBoundingClientRect().width === 0)"
    )
    assert browser.evaluate("document.querySelectorAll('.plot > svg')[5].viewBox.baseVal.width") == 880, (
        "as wide as it was drawn, not as a telephone"
    )
    assert browser.evaluate(STROKE) == rgb(BLUE[0])
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate("document.querySelectorAll('main > details[open]').length") == 0
    browser.call("Emulation.setEmulatedMedia", media="", features=[])


@pytest.mark.parametrize("width", [1280, 400])
def test_charts_are_read_where_scripts_are_off(browser, run_page, width):
    browser.show(run_page, width=width, has_scripts=False)
    browser.evaluate(UNFOLD)
    drawn = browser.evaluate(DRAWN)
    assert len(drawn) == 10
    assert min(one[0] for one in drawn) > 300
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    names = browser.evaluate("[...document.querySelectorAll('.legend')[1].querySelectorAll('.key')].map((one) => one.textContent.trim())")
    assert names[:2] == ["http p50", "http p99"]
    assert browser.evaluate("document.querySelectorAll('button').length") == 0


def test_warnings_are_read_on_a_telephone_without_scrolling_sideways(browser, run_page):
    browser.show(run_page, width=400)
    table = "document.querySelector('table.wordy')"
    assert browser.evaluate(f"{table}.closest('.wide').scrollWidth - {table}.closest('.wide').clientWidth") == 0
    remedy = f"[...{table}.querySelectorAll('td')].find((one) => one.textContent.includes('measure.workers'))"
    assert browser.evaluate(f"getComputedStyle({remedy}, '::before').content") == '"remedy: "'


def test_every_load_point_has_its_name_and_the_hint_stands_once_below_the_charts(browser, pages):
    shown = "[...document.querySelector('.ticks').children].filter((one) => one.getAttribute('visibility') === 'visible').map((one) => one.textContent)"
    for width in (1280, 400):
        browser.show(pages("compare"), width=width)
        assert browser.evaluate(shown) == ["http, 1", "http, 4", "grpc, 1", "grpc, 4"]
    below = "[...document.querySelectorAll('.hint')].map((one) => one.previousElementSibling.classList.contains('charts'))"
    assert browser.evaluate(below) == [True]
