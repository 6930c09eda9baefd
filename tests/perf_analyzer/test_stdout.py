"""Lines on stdout, as perf_analyzer 2.60 printed them with the same figures; what its client library times is 0 here."""

import dataclasses
import re

from perfkit.figures.resources import ComposingModelFigures, GpuFigures
from perfkit.perf_analyzer.options import LoadRange, Options
from perfkit.perf_analyzer.reports import Report
from perfkit.stats.buckets import BucketCounts
from tests.perf_analyzer.measured import measured_load, measured_window, server

SYNC = Options("simple", interval_ms=300)


def test_the_settings_of_a_single_load():
    assert list(Report(SYNC).settings()) == [
        "*** Measurement Settings ***",
        "  Batch size: 1",
        "  Service Kind: TRITON",
        '  Using "time_windows" mode for stabilization',
        "  Stabilizing using average latency and throughput",
        "  Measurement window: 300 msec",
        "  Using synchronous calls for inference",
        "",
    ]


def test_the_settings_of_a_binary_search():
    options = Options("simple", load_range=LoadRange(1, 8, 1), latency_threshold_ms=2, is_binary_search=True, interval_ms=300)
    assert list(Report(options).settings())[6:] == [
        "  Latency limit: 2 msec",
        "  Concurrency limit: 8 concurrent requests",
        "  Using Binary Search algorithm",
        "  Using synchronous calls for inference",
        "",
    ]


def test_the_settings_of_rates_with_counts():
    options = Options(
        "simple", load_mode="request_rate", load_range=LoadRange(100, 200, 100), is_async=True, measurement_mode="count_windows",
        warmup_request_count=1, percentile=90, batch_size=4,
    )  # fmt: skip
    assert list(Report(options).settings())[1:] == [
        "  Batch size: 4",
        "  Service Kind: TRITON",
        "  Sending 1 warmup request",
        '  Using "count_windows" mode for stabilization',
        "  Stabilizing using p90throughput",
        "  Minimum number of samples in each window: 50",
        "  Latency limit: 0 msec",
        "  Request Rate limit: 200 requests per seconds",
        "  Using uniform distribution on request generation",
        "  Using asynchronous calls for inference",
        "",
    ]


def test_a_load():
    report = Report(SYNC)
    assert [*report.load_begins(1), *report.load(measured_load()), *report.summary([measured_load()])] == [
        "Request concurrency: 1",
        "  Client: ",
        "    Request count: 1883",
        "    Throughput: 1727.18 infer/sec",
        "    Avg latency: 570 usec (standard deviation 395 usec)",
        "    p50 latency: 485 usec",
        "    p90 latency: 770 usec",
        "    p95 latency: 1027 usec",
        "    p99 latency: 1937 usec",
        "    Avg HTTP time: 570 usec (send/recv 0 usec + response wait 570 usec)",
        "  Server: ",
        "    Inference count: 1884",
        "    Execution count: 1884",
        "    Successful request count: 1884",
        "    Avg request latency: 63 usec (overhead 1 usec + queue 13 usec + compute input 24 usec + compute infer 9 usec + compute output 16 usec)",
        "Inferences/Second vs. Client Average Batch Latency",
        "Concurrency: 1, throughput: 1727.18 infer/sec, latency 570 usec",
    ]


def test_the_settings_of_a_decoupled_model():
    lines = list(Report(Options("repeat_int32", is_async=True, is_streaming=True)).settings(is_decoupled=True))
    assert lines[4] == "  Stabilizing using average throughput"
    assert lines[-3:] == [
        "  Using asynchronous calls for inference",
        "  Detected decoupled model, using the first response for measuring latency",
        "",
    ]


def test_a_percentile_takes_the_place_of_the_average():
    options = Options("simple", protocol="grpc", percentile=90, load_mode="request_rate", load_range=LoadRange(100, 200, 100))
    load = measured_load(100.0, protocol="grpc", inferences_per_s=99.84651, stabilizing_latency_ns=4_124_900.0, server=None)
    report = Report(options)
    lines = [*report.load_begins(100.0), *report.load(load), *report.summary([load])]
    assert lines[0] == "Request Rate: 100 inference requests per second"
    assert "    Throughput: 99.8465 infer/sec" in lines
    assert not any("Avg latency" in line for line in lines)
    assert "    Avg gRPC time: 570 usec ((un)marshal request/response 0 usec + response wait 570 usec)" in lines
    assert lines[-2:] == [
        "Inferences/Second vs. Client p90 Batch Latency",
        "Request Rate: 100, throughput: 99.8465 infer/sec, latency 4124 usec",
    ]


def test_a_warning_about_delays_leaves_two_decimals_for_good():
    options = Options("simple", load_mode="request_rate", load_range=LoadRange(20000, 20000, 1))
    load = measured_load(20000.0, delayed_share=0.99951, inferences_per_s=1670.2, requests_per_s=1677.634)
    report = Report(options)
    lines = list(report.load(load))
    assert lines[2:5] == [
        "    Avg send request rate: 1677.63 infer/sec",
        "    [WARNING] Perf Analyzer was not able to keep up with the desired request rate. 99.95% of the requests were delayed. ",
        "    Throughput: 1670.20 infer/sec",
    ]
    assert list(report.summary([load]))[1] == "Request Rate: 20000.00, throughput: 1670.20 infer/sec, latency 570 usec"


def test_verbose_lines_of_windows_and_of_the_client():
    times = BucketCounts.of([1_000_000, 3_000_000])
    windows = [measured_window(120.0, times=times), measured_window(0.0, requests=0)]
    report = Report(Options("simple", is_verbose=True))
    passes = list(report.window_passes(windows, before=3))
    assert re.fullmatch(r"  Pass \[4\] throughput: 120 infer/sec\. Avg latency: (1999|2000) usec \(std \d+ usec\)\. ", passes[0])
    assert passes[1] == "  Pass [5] cb::Error: No valid requests recorded within time interval. Please use a larger time window."
    lines = list(report.load(measured_load(cpu_share=0.0412)))
    assert lines[lines.index("    Throughput: 1727.18 infer/sec") + 1] == "    Avg client overhead: 4.12%"
    assert "    Avg HTTP time: 570 usec (send 0 usec + response wait 570 usec + receive 0 usec)" in lines
    grpc = Report(Options("simple", is_verbose=True, percentile=90))
    assert list(grpc.window_passes(windows[:1])) == [f"  Pass [1] throughput: 120 infer/sec. p90 latency: {times.largest_ns // 1000} usec"]
    assert "    Avg gRPC time: 570 usec (marshal 0 usec + response wait 570 usec + unmarshal 0 usec)" in list(
        grpc.load(measured_load(protocol="grpc"))
    )


def test_sequences_streams_gpus_and_composing_models():
    step = ComposingModelFigures("step", ("3",), 10, 0, 5000.0, 1000.0, 20_000.0, 2000.0, 4, 2.5, success_ns=31_000.0)
    other = ComposingModelFigures("a", ("1",), 10, 0, 1000.0, 2000.0, 3000.0, 1000.0, 10, 1.0, success_ns=7000.0)
    figures = server(0, 0, 0, 0, 40, count=10)
    figures = dataclasses.replace(figures, composing_models=(step, other), cache_hits=4, cache_misses=6)
    gpu = GpuFigures("GPU-1", "H", "metrics", utilization_mean=0.25, memory_used_max_bytes=1000, power_mean_w=50.5, memory_total_bytes=4000)
    options = Options("simple", is_streaming=True, collects_metrics=True)
    load = measured_load(server=figures, sequences=7, sequences_per_s=2.5, responses_per_s=30.0, gpus=(gpu,))
    lines = list(Report(options).load(load))
    assert "    Sequence count: 7 (2.5 seq/sec)" in lines
    assert "    Response Throughput: 30 infer/sec" in lines
    assert "    " in lines, "instead of the average gRPC time of a model that is not decoupled"
    assert not any("Avg gRPC time" in line for line in lines)
    assert lines[lines.index("  Server: ") :] == [
        "  Server: ",
        "    Inference count: 10",
        "    Execution count: 10",
        "    Cache hit count: 4",
        "    Cache miss count: 6",
        "    Successful request count: 10",
        "    Avg request latency: 40 usec (overhead 5 usec + queue 6 usec + compute 29 usec)",
        "",
        "  Composing models: ",
        "  a, version: 1",
        "      Inference count: 10",
        "      Execution count: 10",
        "      Successful request count: 10",
        "      Avg request latency: 7 usec (overhead 0 usec + queue 1 usec + compute input 2 usec + compute infer 3 usec + compute output 1 usec)",
        "  step, version: 3",
        "      Inference count: 10",
        "      Execution count: 4",
        "      Successful request count: 10",
        "      Avg request latency: 31 usec (overhead 3 usec + queue 5 usec + compute input 1 usec + compute infer 20 usec + compute output 2 usec)",
        "  Server Prometheus Metrics: ",
        "    Avg GPU Utilization:",
        "      GPU-1 : 25%",
        "    Avg GPU Power Usage:",
        "      GPU-1 : 50.5 watts",
        "    Max GPU Memory Usage:",
        "      GPU-1 : 1000 bytes",
        "    Total GPU Memory:",
        "      GPU-1 : 4000 bytes",
    ]
