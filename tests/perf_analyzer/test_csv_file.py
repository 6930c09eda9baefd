"""perf_analyzer's CSV reports: the header of the real one, and its units."""

import csv
import dataclasses
import io

from perfkit.figures.resources import ComposingModelFigures, GpuFigures
from perfkit.perf_analyzer.options import Options
from perfkit.perf_analyzer.reports import composing_csv_files, csv_text
from tests.perf_analyzer.measured import measured_load, server

# written by perf_analyzer 2.60 with --verbose-csv and --collect-metrics
HEADER = (
    "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,"
    "Server Compute Output,Client Recv,p50 latency,p90 latency,p95 latency,p99 latency,Avg latency,request/response,response wait"
)
GPU_HEADER = ",Avg GPU Utilization,Avg GPU Power Usage,Max GPU Memory Usage,Total GPU Memory"


def test_the_plain_report():
    header = HEADER.removesuffix(",Avg latency,request/response,response wait")
    assert csv_text(Options("m"), [measured_load()]) == f"{header}\n1,1727.18,0,508,13,24,9,16,0,485,770,1027,1937\n"


def test_rows_ascend_by_throughput():
    loads = [measured_load(1, inferences_per_s=1853.55), measured_load(2, inferences_per_s=1676.93)]
    rows = csv_text(Options("m", is_verbose_csv=True), loads).splitlines()
    assert rows[0] == HEADER
    assert [row.split(",")[:2] for row in rows[1:]] == [["2", "1676.93"], ["1", "1853.55"]]


def test_gpu_cells_end_with_a_semicolon_and_are_empty_without_gpus():
    options = Options("m", is_verbose_csv=True, collects_metrics=True)
    gpus = [
        GpuFigures(f"GPU-{number}", "H", "metrics", utilization_mean=0.5, memory_used_max_bytes=2_000_000_000, power_mean_w=50.25)
        for number in (1, 2)
    ]
    assert csv_text(options, [measured_load()]) == f"{HEADER}{GPU_HEADER}\n1,1727.18,0,508,13,24,9,16,0,485,770,1027,1937,570,0,570,,,,\n"
    (row,) = csv.DictReader(io.StringIO(csv_text(options, [measured_load(gpus=tuple(gpus))])))
    assert row["Avg GPU Utilization"] == "GPU-1:0.5;GPU-2:0.5;"
    assert row["Avg GPU Power Usage"] == "GPU-1:50.25;GPU-2:50.25;"
    assert row["Max GPU Memory Usage"] == "GPU-1:2000000000;GPU-2:2000000000;"
    assert row["Total GPU Memory"] == ""


def test_a_percentile_has_a_column_in_the_place_of_its_number_and_no_average():
    percentiles = {50: 1_000, 75: 2_000, 90: 3_000, 95: 4_000, 99: 5_000}
    options = Options("m", is_verbose_csv=True, percentile=75, load_mode="request_rate")
    text = csv_text(options, [measured_load(99.5, percentiles_ns=percentiles, responses_per_s=12.0, server=None)])
    assert text == (
        "Request Rate,Inferences/Second,Response Throughput,Client Send,Client Recv,p50 latency,p75 latency,p90 latency,p95 latency,"
        "p99 latency,request/response,response wait\n99.5,1727.18,12,0,0,1,2,3,4,5,0,0\n"
    )


def test_a_response_cache_has_columns_of_its_own():
    figures = dataclasses.replace(server(10, 20, 30, 40), cache_hits=3, cache_misses=1, cache_hit_ns=5_900.0, cache_miss_ns=7_000.0)
    row = csv_text(Options("m"), [measured_load(server=figures)]).splitlines()
    assert row[0].split(",")[3:11] == [
        "Network+Server Send/Recv", "Server Queue", "Server Compute Input", "Server Compute Infer", "Server Compute Output",
        "Server Cache Hit", "Server Cache Miss", "Client Recv",
    ]  # fmt: skip
    assert row[1].split(",")[3:11] == ["458", "10", "20", "30", "40", "5", "7", "0"]


def test_composing_models_have_files_of_their_own():
    step = ComposingModelFigures("step", ("3",), 10, 0, 5000.0, 1000.0, 20_000.0, 2000.0, 4, 2.5, success_ns=31_000.0)
    figures = server(1, 2, 3, 4, count=40)
    figures = dataclasses.replace(figures, composing_models=(step,))
    assert composing_csv_files(Options("m"), [measured_load(server=figures)]) == {
        "step_v3": (
            "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv,Server Queue,Server Compute Input,Server Compute Infer,"
            "Server Compute Output,Client Recv\n1,431.796,0,3,5,1,20,2,0\n"
        )
    }
    assert composing_csv_files(Options("m"), [measured_load()]) == {}
