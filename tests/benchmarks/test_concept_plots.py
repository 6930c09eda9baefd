"""The plots of docs/concepts: their captions are written into the pages, and the queue drawn beside the measurements is the known one."""

import pathlib
import re

import pytest

from benchmarks.concept_drawings import response_ms
from benchmarks.concept_plots import PLOTS, with_caption

CONCEPTS = pathlib.Path(__file__).parents[2] / "docs" / "concepts"


def test_the_caption_replaces_the_one_under_its_plot_alone():
    page = "![a](plots/a.svg)\n\n*old*\n\n![b](plots/b.svg)\n\n*other*\n"
    assert with_caption(page, "a", r"3 % \\1") == "![a](plots/a.svg)\n\n*3 % \\\\1*\n\n![b](plots/b.svg)\n\n*other*\n"


@pytest.mark.parametrize("page", ["", "![a](plots/a.svg)\n\nno caption\n", "![a](plots/a.svg)\n\n*x*\n" * 2])
def test_a_page_without_a_place_for_the_caption_is_refused(page):
    with pytest.raises(ValueError, match=r"plots/a\.svg must be in the page once"):
        with_caption(page, "a", "new")


def test_the_percentiles_of_the_queue_are_those_that_live_queues_were_compared_with():
    """reports/live-queue-4.md: four servers, exponential with a mean of 10 ms, at 200/s."""
    assert response_ms(0.5, 200) == pytest.approx(7.83, abs=0.005)
    assert response_ms(0.99, 200) == pytest.approx(47.64, abs=0.005)


def test_without_load_the_percentiles_are_those_of_the_service_time():
    assert response_ms(0.99, 1e-6) == pytest.approx(46.0517, abs=1e-3)


@pytest.mark.parametrize(("name", "page"), [*((name, page) for name, (page, _) in PLOTS.items()), ("false-alarms", "false-alarms")])
def test_every_plot_is_text_with_a_caption_that_names_machine_and_seed(name, page):
    caption = re.search(rf"plots/{name}\.svg\)\n\n\*(.*)\*\n", (CONCEPTS / f"{page}.md").read_text("utf-8"))
    assert caption
    assert re.search(r"\d virtual CPUs.*, Python 3\.\d+\.\d+, seed \d+\.$", caption[1])
    assert "<text" in (CONCEPTS / "plots" / f"{name}.svg").read_text("utf-8")
