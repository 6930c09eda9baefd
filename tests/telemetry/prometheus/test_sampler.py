"""The sampler of metrics pages, on pages as Triton and the DCGM exporter document them."""

import pathlib
import threading
import time

import pytest

from perfkit.telemetry.messages import MetricsPageConfig
from perfkit.telemetry.prometheus import sampler as sampler_module
from perfkit.telemetry.prometheus.sampler import MetricsSampler
from tests.json_server import JsonHandler, serving

PAGES = pathlib.Path(__file__).with_name("pages")
TRITON, DCGM = ((PAGES / name).read_text() for name in ("triton.txt", "dcgm.txt"))
S = 1_000_000_000
A, B = "GPU-aaaaaaaa-0000-4000-8000-000000000000", "GPU-bbbbbbbb-0000-4000-8000-000000000000"


@pytest.fixture
def make_sampler(page, clock):
    def make(*names, authorization="", model="simple"):
        return MetricsSampler(MetricsPageConfig(page.url, authorization, model, names, S), clock)

    return make


def sampled(sampler, page, clock, *texts):
    """Samples one page per second, and returns the report from the first to the last."""
    for second, text in enumerate(texts):
        clock.ns, page.text = second * S, text
        assert sampler.sample() == (second + 1) * S
    return sampler.window(0, (len(texts) - 1) * S)


def test_gpus_of_the_dcgm_exporter(make_sampler, page, clock):
    later = (
        DCGM.replace("} 5000000", "} 5620500").replace('node1"} 96', 'node1"} 94').replace("} 310.25", "} 310.75").replace("} 4\n", "} 0\n")
    )
    summary = sampled(make_sampler(), page, clock, DCGM, later, later.replace("5620500", "6241000")).summary
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


def test_throttling_and_an_empty_page_are_warnings(make_sampler, page, clock):
    assert "gpu_throttled" in [warning.code for warning in sampled(make_sampler(), page, clock, DCGM).warnings]
    assert [warning.code for warning in sampled(make_sampler(), page, clock, "").warnings] == ["metrics_missing"]


def test_tritons_gpus_and_metrics_of_the_targets_model(make_sampler, page, clock):
    later = TRITON.replace('success{model="simple",version="1"} 120', 'success{model="simple",version="1"} 420').replace('count{model="simple",version="1"} 3\n', 'count{model="simple",version="1"} 9\n').replace("81234.5", "81737.5")  # fmt: skip
    report = sampled(make_sampler(), page, clock, TRITON, later, later.replace("81737.5", "82240.5"))
    (gpu,) = report.summary.gpus
    assert (gpu.utilization_mean, gpu.memory_used_max_bytes, gpu.memory_total_bytes) == (0.87, 5 * 2**30, 40 * 2**30)
    assert (gpu.power_mean_w, gpu.energy_j, gpu.energy_source) == (251.5, pytest.approx(1006.0), "counter")
    metrics = {(metric.name, metric.labels.get("reason", "")): metric for metric in report.summary.metrics}
    assert all(metric.labels.get("model", "simple") == "simple" for metric in report.summary.metrics)
    success, pending = metrics["nv_inference_request_success", ""], metrics["nv_inference_pending_request_count", ""]
    assert (success.kind, success.rise, success.per_s) == ("counter", 300, 150)
    assert (pending.kind, pending.mean, pending.min, pending.max) == ("gauge", 7, 3, 9)
    assert metrics["nv_inference_request_summary_us_sum", ""].kind == "counter"
    assert not any(name == "nv_inference_request_summary_us" for name, _ in metrics)  # quantiles cover the server's whole life
    assert {series.name for series in report.series} >= {"gpu_utilization", "gpu_power", "nv_cpu_utilization"}


def test_only_listed_names_are_kept_besides_the_known_ones(make_sampler, page, clock):
    text = "queue_depth 3\nqueue_age 1\nother 2\n# TYPE requests_total counter\nrequests_total 8\n"
    report = sampled(make_sampler("queue_*", "requests_total"), page, clock, text, text.replace("total 8", "total 18"))
    found = {(metric.name, metric.kind, metric.rise) for metric in report.summary.metrics}
    assert found == {("queue_depth", "gauge", None), ("queue_age", "gauge", None), ("requests_total", "counter", 10)}


def test_an_unreadable_page_is_noted_once_and_read_again(make_sampler, page, clock):
    sampler = make_sampler()
    page.status = 503
    assert sampler.start()
    sampled(sampler, page, clock, "x 1", "x 1")
    assert sampler.notes == [f"The metrics at {page.url} could not be read, and perfkit keeps trying: HTTP 503"]
    page.status, clock.ns, page.text = 200, 5 * S, "nv_x 1\nbroken{\n"
    sampler.sample()
    assert [series.name for series in sampler.latest()] == ["nv_x"]
    assert sampler.notes[1:] == [f"1 line of the metrics at {page.url} could not be parsed, and are ignored."]


def test_the_number_of_metrics_and_the_size_of_a_page_are_limited(make_sampler, page, clock):
    sampler = make_sampler("x*")
    report = sampled(sampler, page, clock, "".join(f"x{number} 1\n" for number in range(501)), "#" * (2**24 + 1))
    assert len(report.summary.metrics) == 500
    assert sampler.notes == [
        f"The metrics at {page.url} have more than 500 series: only the first 500 are kept.",
        f"The metrics at {page.url} could not be read, and perfkit keeps trying: {page.url[:-8]}: the answer announces 16,777,217 B, more than 16,777,216 B",
    ]


def test_the_newest_samples_of_gpus_and_metrics_are_available(make_sampler, page, clock):
    sampler, text = make_sampler("queue"), f'queue {{}}\nnv_gpu_power_usage{{{{gpu_uuid="{A}"}}}} {{}}\n'
    sampled(sampler, page, clock, text.format(1, 70), text.format(2, 71))
    assert [(series.name, series.values) for series in sampler.latest()] == [("queue", (2,)), ("gpu_power", (71,))]


def test_credentials_are_sent_in_the_header(make_sampler, page, clock):
    sampled(make_sampler(authorization="Basic dTpw"), page, clock, "")
    assert page.headers["authorization"] == "Basic dTpw"


def test_a_redirect_is_not_followed_and_its_place_is_told(make_sampler, page):
    page.status, page.location = 307, "http://u:secret@host/metrics/?state=secret"
    sampler = make_sampler()
    sampler.sample()
    (note,) = sampler.notes
    assert note == (
        f"The metrics at {page.url} could not be read, and perfkit keeps trying: "
        "HTTP 307 to http://<redacted>@host/metrics/: redirects are not followed, so give the final URL"
    )


def test_a_page_that_arrives_byte_by_byte_is_given_up_in_time(clock, monkeypatch):
    monkeypatch.setattr(sampler_module, "_TIMEOUT_NS", S // 5)
    given_up = threading.Event()

    class Handler(JsonHandler):
        def do_GET(self):
            try:
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while True:
                    self.wfile.write(b"x")
                    time.sleep(0.01)
            finally:
                given_up.set()

    with serving(Handler) as port:
        sampler = MetricsSampler(MetricsPageConfig(f"http://127.0.0.1:{port}/metrics", "", "m", (), S), clock)
        sampler.sample()
        assert given_up.wait(60)
    assert sampler.notes[0].endswith("no complete answer within 200 ms")


def test_a_refused_connection_is_noted(clock):
    sampler = MetricsSampler(MetricsPageConfig("http://127.0.0.1:1/metrics", "", "m", (), S), clock)
    sampler.sample()
    assert "could not be read" in sampler.notes[0]


COUNTER = "# TYPE nv_inference_count counter\nnv_inference_count {}\n"


@pytest.fixture
def counting(make_sampler, page, clock):
    """A sampler that has read the counter at 0 s and 1 s."""
    sampler = make_sampler()
    for second, value in ((0, 100), (1, 200)):
        clock.ns, page.text = second * S, COUNTER.format(value)
        sampler.sample()
    return sampler


def test_a_counters_rise_extends_to_the_end_of_the_window(counting, page, clock):
    clock.ns, page.text = 2 * S, COUNTER.format(300)  # the page when the window is requested
    (counter,) = counting.window(S // 2, 19 * S // 10).summary.metrics
    assert (counter.rise, counter.per_s) == (pytest.approx(140), pytest.approx(100))


def test_a_counter_whose_page_became_unreadable_has_no_rise(counting, page, clock):
    clock.ns, page.status = 9 * S, 503
    (counter,) = counting.window(0, 9 * S).summary.metrics
    assert (counter.kind, counter.rise, counter.per_s) == ("counter", None, None)


@pytest.mark.parametrize("end_ns", [3 * S // 2, 2 * S], ids=["after the window's last sample", "within the window"])
def test_a_counter_that_falls_is_a_warning_and_has_no_rise(counting, page, clock, end_ns):
    clock.ns, page.text = 2 * S, COUNTER.format(3)
    report = counting.window(S // 2, end_ns)
    assert ([warning.code for warning in report.warnings], report.summary.metrics[0].rise) == (["metrics_reset"], None)


@pytest.mark.parametrize(("starts", "codes"), [((5, 5, 5), []), ((5, 5, 7), ["metrics_reset"])])
def test_a_server_that_started_within_the_window_is_a_warning(make_sampler, page, clock, starts, codes):
    pages = [f"nv_pending 1\n# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {start}\n" for start in starts]
    report = sampled(make_sampler(), page, clock, *pages)
    assert [warning.code for warning in report.warnings] == codes
    assert [metric.name for metric in report.summary.metrics] == ["nv_pending"]


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_values_that_are_not_finite_are_ignored(make_sampler, page, clock, value):
    text = (
        f'DCGM_FI_DEV_POWER_USAGE{{UUID="{A}"}} {value}\nDCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{UUID="{A}"}} {value}\nnv_x {value}\nnv_y 1\n'
    )
    summary = sampled(make_sampler(), page, clock, text, text).summary
    assert ([metric.name for metric in summary.metrics], summary.gpus) == (["nv_y"], ())


@pytest.mark.parametrize(("reasons", "share"), [(0x1, 0), (0x2, 0), (0x10, 0), (0x100, 0), (0x4, 1), (0x40, 1), (0x82, 1)])
def test_clocks_set_by_the_user_are_not_throttling(make_sampler, page, clock, reasons, share):
    text = f'DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{UUID="{A}"}} {reasons}\n'
    assert sampled(make_sampler(), page, clock, text, text).summary.gpus[0].throttled_share == share


@pytest.mark.parametrize("value", ["9.2e41", "-9.2e41", "1.7e308", "-1.7e308", "NaN", "+Inf", "-Inf"])
def test_absurd_values_are_ignored_and_every_figure_stays_finite(make_sampler, page, clock, value):
    names = (
        "nv_gpu_power_usage",
        "nv_gpu_memory_used_bytes",
        "nv_energy_consumption",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
    )
    gpus = "".join(f'{name}{{gpu_uuid="{A}"}} {value}\n' for name in names)
    counter = f"# TYPE nv_x_total counter\nnv_x_total {value}\n# TYPE nv_y gauge\nnv_y {value}\nnv_z 3\n"
    sampler = make_sampler()
    report = sampled(sampler, page, clock, gpus + counter, gpus + counter)
    assert report.summary.gpus == ()
    assert [(metric.name, metric.mean) for metric in report.summary.metrics] == [("nv_z", 3)]
    expected = f"Values of nv_gpu_power_usage such as {float(value):g} at {page.url} are absurd, and are ignored."
    assert sampler.notes == ([expected] if "e" in value else [])


def test_negative_counters_are_ignored_and_negative_gauges_and_temperatures_are_not(make_sampler, page, clock):
    text = f'# TYPE nv_x_total counter\nnv_x_total -3\nnv_y -3\nDCGM_FI_DEV_GPU_TEMP{{UUID="{A}"}} -4\nDCGM_FI_DEV_POWER_USAGE{{UUID="{A}"}} -4\n'
    summary = sampled(make_sampler(), page, clock, text, text).summary
    assert [(metric.name, metric.mean) for metric in summary.metrics] == [("nv_y", -3)]
    assert [(gpu.temperature_max_celsius, gpu.power_mean_w) for gpu in summary.gpus] == [(-4, None)]


def test_a_page_of_very_many_gpus_keeps_256_and_an_index_of_any_length_is_no_error(make_sampler, page, clock):
    text = "".join(f'nv_gpu_power_usage{{gpu_uuid="{index}",gpu="{"9" * 5000}"}} 1\n' for index in range(257))
    sampler = make_sampler()
    gpus = sampled(sampler, page, clock, text, text).summary.gpus
    assert (len(gpus), {gpu.index for gpu in gpus}) == (256, {None})
    assert "more than 256 GPUs" in sampler.notes[0]


def test_after_a_restart_that_the_start_time_shows_the_stages_have_no_times(make_sampler, page, clock):
    text = "process_start_time_seconds {}\nrequest_predict_seconds_sum {}\nrequest_predict_seconds_count {}\n"
    same = sampled(make_sampler(), page, clock, text.format(5, 1, 10), text.format(5, 2, 30))
    assert [(time.stage, time.counts.count, time.counts.total_ns) for (time,) in same.summary.times.values()] == [("inference", 20, S)]
    restarted = sampled(make_sampler(), page, clock, text.format(5, 1, 10), text.format(6, 2, 30))
    assert (restarted.summary.times, [warning.code for warning in restarted.warnings]) == ({}, ["metrics_reset", "metrics_missing"])
