"""Pages as Triton and the DCGM exporter document them, and as the bundled server writes them."""

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.telemetry.messages import MetricsPageConfig
from perfkit.telemetry.prometheus.page import parse_page
from perfkit.telemetry.prometheus.sampler import MetricsSampler

PAGES = pathlib.Path(__file__).with_name("pages")
TRITON, DCGM = ((PAGES / name).read_text() for name in ("triton.txt", "dcgm.txt"))
S = 1_000_000_000
A, B = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"


@pytest.fixture
def sampler(page, clock):
    def make(*names, authorization="", model="simple"):
        return MetricsSampler(MetricsPageConfig(page.url, authorization, model, names, S), clock)

    return make


def sampled(sampler, page, clock, *texts):
    """One page a second, and what there is of the time from the first one to the last."""
    for second, text in enumerate(texts):
        clock.ns, page.text = second * S, text
        assert sampler.sample() == (second + 1) * S
    return sampler.window(0, (len(texts) - 1) * S)


def test_names_and_kinds_are_those_of_the_page():
    samples = {(one.name, *one.labels.values()): one for one in parse_page(TRITON).samples}
    counter = samples["nv_inference_request_success", "simple", "1"]
    assert (counter.value, counter.kind) == (120, "counter")
    assert samples["nv_inference_pending_request_count", "simple", "1"].kind == "gauge"
    assert samples["nv_inference_request_summary_us_count", "simple", "1"].kind == "summary"
    assert [one.name for one in parse_page("# TYPE a_total counter\na_total 1\nb_total 2\n").samples] == ["a_total", "b_total"]


@pytest.mark.parametrize("text", [TRITON, DCGM], ids=["triton", "dcgm"])
def test_every_sample_of_a_documented_page_is_read(text):
    page = parse_page(text)
    assert (len(page.samples), page.passed_over) == (sum(not line.startswith("#") for line in text.splitlines()), 0)


@given(st.lists(st.sampled_from(["<html>", "nv_x{", 'nv_y{a="1" 3', "%%%", "nv_z one", '{"json": 1}']), min_size=1), st.randoms())
def test_lines_that_cannot_be_read_cost_nobody_else_anything(broken, random):
    lines = DCGM.splitlines()
    for line in broken:
        lines.insert(random.randrange(len(lines)), line)
    page = parse_page("\n".join(lines) + "\n")
    assert (page.samples, page.passed_over) == (parse_page(DCGM).samples, len(broken))


@given(st.text())
def test_no_text_raises(text):
    parse_page(text)


def test_gpus_of_the_dcgm_exporter(sampler, page, clock):
    later = (
        DCGM.replace("} 5000000", "} 5620500").replace('node1"} 96', 'node1"} 94').replace("} 310.25", "} 310.75").replace("} 4\n", "} 0\n")
    )
    summary = sampled(sampler(), page, clock, DCGM, later, later.replace("5620500", "6241000")).summary
    gpus = {gpu.uuid: gpu for gpu in summary.gpus}
    assert set(gpus) == {A, B, f"{B}/7"}
    first = gpus[A]
    assert (first.name, first.index, first.source, first.mig) == ("NVIDIA A100-SXM4-80GB", 0, "metrics", False)
    assert first.utilization_mean == pytest.approx((0.96 + 0.94 + 0.94) / 3)
    assert first.power_mean_w == pytest.approx((310.25 + 310.75 + 310.75) / 3)
    assert (first.memory_used_max_bytes, first.memory_total_bytes) == (10000 * 2**20, 81000 * 2**20)
    assert (first.sm_clock_mean_mhz, first.memory_clock_mean_mhz, first.temperature_max_celsius) == (1410, 1593, 61)
    assert (first.energy_j, first.energy_source) == (pytest.approx(1241.0), "counter")
    assert (first.throttled_share, gpus[B].throttled_share) == (pytest.approx(1 / 3), 0)
    # the second has no counter: 61.5 W over two seconds
    assert (gpus[B].energy_j, gpus[B].energy_source) == (pytest.approx(123.0), "power")
    assert (gpus[f"{B}/7"].mig, gpus[f"{B}/7"].memory_used_max_bytes, gpus[f"{B}/7"].power_mean_w) == (True, 1234 * 2**20, None)


def test_throttling_and_a_page_that_says_nothing_are_remarked(sampler, page, clock):
    assert "gpu_throttled" in [one.code for one in sampled(sampler(), page, clock, DCGM).warnings]
    assert [one.code for one in sampled(sampler(), page, clock, "").warnings] == ["metrics_missing"]


def test_triton_s_metrics_of_the_target_s_model_and_its_gpus(sampler, page, clock):
    later = TRITON.replace('success{model="simple",version="1"} 120', 'success{model="simple",version="1"} 420').replace('count{model="simple",version="1"} 3\n', 'count{model="simple",version="1"} 9\n').replace("81234.5", "81737.5")  # fmt: skip
    observed = sampled(sampler(), page, clock, TRITON, later, later.replace("81737.5", "82240.5"))
    (gpu,) = observed.summary.gpus
    assert (gpu.utilization_mean, gpu.memory_used_max_bytes, gpu.memory_total_bytes) == (0.87, 5 * 2**30, 40 * 2**30)
    assert (gpu.power_mean_w, gpu.energy_j, gpu.energy_source) == (251.5, pytest.approx(1006.0), "counter")
    metrics = {(one.name, one.labels.get("reason", "")): one for one in observed.summary.metrics}
    assert all(one.labels.get("model", "simple") == "simple" for one in observed.summary.metrics)
    success, pending = metrics["nv_inference_request_success", ""], metrics["nv_inference_pending_request_count", ""]
    assert (success.kind, success.rise, success.per_s) == ("counter", 300, 150)
    assert (pending.kind, pending.mean, pending.min, pending.max) == ("gauge", 7, 3, 9)
    assert metrics["nv_inference_request_summary_us_sum", ""].kind == "counter"
    assert not any(name == "nv_inference_request_summary_us" for name, _ in metrics)  # its quantiles are of the server's whole life
    assert {series.name for series in observed.series} >= {"gpu_utilization", "gpu_power", "nv_cpu_utilization"}


def test_listed_names_are_kept_and_others_are_not(sampler, page, clock):
    text = "queue_depth 3\nqueue_age 1\nother 2\n# TYPE requests_total counter\nrequests_total 8\n"
    observed = sampled(sampler("queue_*", "requests_total"), page, clock, text, text.replace("total 8", "total 18"))
    assert {(one.name, one.kind) for one in observed.summary.metrics} == {
        ("queue_depth", "gauge"),
        ("queue_age", "gauge"),
        ("requests_total", "counter"),
    }
    assert [one.rise for one in observed.summary.metrics if one.kind == "counter"] == [10]


def test_a_counter_that_falls_is_remarked_and_has_no_rise(sampler, page, clock):
    text = "# TYPE nv_inference_count counter\nnv_inference_count 5\n"
    observed = sampled(sampler(), page, clock, text, text.replace("5", "2"))
    assert ([one.code for one in observed.warnings], observed.summary.metrics[0].rise) == (["metrics_reset"], None)


def test_a_page_that_is_not_there_is_said_once_and_asked_again(sampler, page, clock):
    one = sampler()
    page.status = 503
    assert one.start()
    sampled(one, page, clock, "x 1", "x 1")
    assert one.notes == [f"The metrics at {page.url} could not be read (Service Unavailable); they are asked for again."]
    page.status, clock.ns, page.text = 200, 5 * S, "nv_x 1\nbroken{\n"
    one.sample()
    assert [series.name for series in one.latest()] == ["nv_x"]
    assert one.notes[1:] == [f"1 line of the metrics at {page.url} could not be read, and were passed over."]


def test_credentials_go_into_the_header(sampler, page, clock):
    sampled(sampler(authorization="Basic dTpw"), page, clock, "")
    assert page.headers["Authorization"] == "Basic dTpw"


def test_nobody_listening_is_said(clock):
    one = MetricsSampler(MetricsPageConfig("http://127.0.0.1:1/metrics", "", "m", (), S), clock)
    one.sample()
    assert "could not be read" in one.notes[0]


COUNTER = "# TYPE nv_inference_count counter\nnv_inference_count {}\n"


def test_a_counter_s_rise_reaches_to_the_window_s_end_however_old_the_last_sample_is(sampler, page, clock):
    one = sampler()
    for second, value in ((0, 100), (1, 200)):
        clock.ns, page.text = second * S, COUNTER.format(value)
        one.sample()
    clock.ns, page.text = 2 * S, COUNTER.format(300)  # what it is when the window is asked for
    (counter,) = one.window(S // 2, 19 * S // 10).summary.metrics
    assert (counter.rise, counter.per_s) == (pytest.approx(140), pytest.approx(100))


def test_a_counter_whose_page_went_away_has_no_rise(sampler, page, clock):
    one = sampler()
    for second, value in ((0, 100), (1, 200)):
        clock.ns, page.text = second * S, COUNTER.format(value)
        one.sample()
    clock.ns, page.status = 9 * S, 503
    (counter,) = one.window(0, 9 * S).summary.metrics
    assert (counter.kind, counter.rise, counter.per_s) == ("counter", None, None)


def test_a_counter_that_falls_behind_the_window_s_last_sample_has_no_rise(sampler, page, clock):
    one = sampler()
    clock.ns, page.text = S, COUNTER.format(900)
    one.sample()
    clock.ns, page.text = 2 * S, COUNTER.format(3)
    observed = one.window(S // 2, 3 * S // 2)
    assert ([warning.code for warning in observed.warnings], observed.summary.metrics[0].rise) == (["metrics_reset"], None)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_what_an_exporter_does_not_know_is_left_out(sampler, page, clock, value):
    text = (
        f'DCGM_FI_DEV_POWER_USAGE{{UUID="{A}"}} {value}\nDCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{UUID="{A}"}} {value}\nnv_x {value}\nnv_y 1\n'
    )
    summary = sampled(sampler(), page, clock, text, text).summary
    assert ([one.name for one in summary.metrics], summary.gpus) == (["nv_y"], ())


@pytest.mark.parametrize(("reasons", "share"), [(0x1, 0), (0x2, 0), (0x10, 0), (0x100, 0), (0x4, 1), (0x40, 1), (0x82, 1)])
def test_clocks_that_were_asked_for_are_no_throttling(sampler, page, clock, reasons, share):
    text = f'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{UUID="{A}"}} {reasons}\n'
    assert sampled(sampler(), page, clock, text, text).summary.gpus[0].throttled_share == share
