"""Pages of metrics as Triton and the DCGM exporter document them, and invalid ones."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.telemetry.prometheus.page import parse_page

PAGES = pathlib.Path(__file__).with_name("pages")
TRITON, DCGM = ((PAGES / name).read_text() for name in ("triton.txt", "dcgm.txt"))


def test_names_and_kinds_are_those_of_the_page():
    samples = {(sample.name, *sample.labels.values()): sample for sample in parse_page(TRITON).samples}
    counter = samples["nv_inference_request_success", "simple", "1"]
    assert (counter.value, counter.kind) == (120, "counter")
    assert samples["nv_inference_pending_request_count", "simple", "1"].kind == "gauge"
    assert samples["nv_inference_request_summary_us_count", "simple", "1"].kind == "summary"
    assert [sample.name for sample in parse_page("# TYPE a_total counter\na_total 1\nb_total 2\n").samples] == ["a_total", "b_total"]


@pytest.mark.parametrize("text", [TRITON, DCGM], ids=["triton", "dcgm"])
def test_every_sample_of_a_documented_page_is_read(text):
    page = parse_page(text)
    assert (len(page.samples), page.invalid_lines) == (sum(not line.startswith("#") for line in text.splitlines()), 0)


@given(st.lists(st.sampled_from(["<html>", "nv_x{", 'nv_y{a="1" 3', "%%%", "nv_z one", '{"json": 1}']), min_size=1), st.randoms())
def test_an_invalid_line_loses_only_that_line(broken, random):
    lines = DCGM.splitlines()
    for line in broken:
        lines.insert(random.randrange(len(lines)), line)
    page = parse_page("\n".join(lines) + "\n")
    assert (page.samples, page.invalid_lines) == (parse_page(DCGM).samples, len(broken))


@given(st.text())
def test_parsing_raises_for_no_text(text):
    parse_page(text)


def test_openmetrics_keeps_the_names_of_its_samples_with_exemplars_and_timestamps():
    text = '# TYPE a counter\n# UNIT a seconds\na_total{x="1"} 3.0 1520879607.789 # {trace_id="t"} 0.5\na_created{x="1"} 1.5\n# TYPE b unknown\nb 2\n# EOF\n'
    page = parse_page(text)
    assert [(sample.name, sample.value, sample.kind) for sample in page.samples] == [
        ("a_total", 3, "counter"),
        ("a_created", 1.5, "untyped"),
        ("b", 2, "unknown"),
    ]
    assert page.invalid_lines == 0
