"""The tables of the server's and the GPUs' own figures."""

import pytest

from perfkit.figures.resources import ComposingModelFigures, GpuFigures, ServerCpuFigures, ServerFigures, ServerTimeFigures
from perfkit.report.server_tables import (
    composing_models_table,
    connections_table,
    gpu_table,
    replicas_table,
    server_table,
    server_times_table,
)
from perfkit.result.counts import Connections
from perfkit.result.point_parts import Replica


@pytest.fixture
def points(synthetic):
    return synthetic(protocols=("http",), concurrencies=(1, 2)).write().summary


def test_the_server_table_has_means_per_request_and_dashes_without_statistics(points):
    server = ServerFigures(
        requests=1200, failed=0, success_ns=40e6, queue_ns=0.0, compute_input_ns=1e6, compute_infer_ns=38e6, compute_output_ns=None,
        executions=600, mean_batch=2.0, client_requests=1201, client_mean_ns=41.5e6,
    )  # fmt: skip
    table = server_table([points[0].model_copy(update={"server": server}), points[1]])
    assert table.texts[0] == ["http", "1", "1,200", "0", "1.00 ms", "38.0 ms", "–", "40.0 ms", "41.5 ms", "2.00"]
    assert table.texts[1][2:] == ["–"] * 8
    assert [cells[2].note for _, cells in table.cells] == [
        "perfkit counted 1,201 answers, including the warm-up's",
        "the server reported no statistics for this load point: the warnings say why",
    ]
    assert server_table(points).rows == ()


def test_a_page_of_metrics_gives_the_split_its_buckets_and_what_it_lacks(points):
    times = (
        ServerTimeFigures("inference", "request_predict_seconds", 1200, 38e6, {"p50": (25e6, 50e6), "p90": (50e6, None)}),
        ServerTimeFigures("preprocess", "request_preprocess_seconds", 1199, 1e6, {"p50": (0.0, 5e6)}),
    )
    server = ServerFigures.of_page(times, 1201, 41.5e6)
    shown = [points[0].model_copy(update={"server": server})]
    table = server_table(shown)
    assert table.texts == [["http", "1", "1,200", "–", "1.00 ms", "38.0 ms", "–", "–", "41.5 ms", "–"]]
    assert table.cells[0][1][2].note == "perfkit counted 1,201 answers in the window"
    assert "Not on the page: queue, post-processing." in table.note
    assert [row[1:] for row in server_times_table(shown).texts] == [
        ["inference", "request_predict_seconds", "1,200", "38.0 ms", "25.0 ms to 50.0 ms", "above 50.0 ms", "–"],
        ["pre-processing", "request_preprocess_seconds", "1,199", "1.00 ms", "up to 5.00 ms", "–", "–"],
    ]
    assert server_times_table(points).rows == ()


def test_the_server_table_has_the_cpu_time_of_a_server_that_perfkit_started(points):
    table = server_table([points[0].model_copy(update={"server_cpu": ServerCpuFigures(0.5, 250_000.0)}), points[1]])
    assert [column.heading for column in table.columns][-2:] == ["CPU time", "CPUs"]
    assert [row[-2:] for row in table.texts] == [["250 µs", "0.50"], ["–", "–"]]
    assert "CPU time is that of all the server's processes in the window" in table.note


def test_the_models_of_an_ensemble_have_a_row_each(points):
    models = (
        ComposingModelFigures("resize", ("1", "2"), 1200, 0, 163_000.0, 0.0, 4.2e6, 31_000.0, 600, 2.0),
        ComposingModelFigures("classify", ("1",), 1200, 0, 23.4e6, None, 9.25e6, None, 0, None),
    )
    server = ServerFigures(1200, 0, 40e6, 0.0, 1e6, 38e6, None, 600, 2.0, composing_models=models)
    table = composing_models_table([points[0].model_copy(update={"server": server}), points[1]])
    assert table.texts == [
        ["http, concurrency 1", "resize", "1, 2", "1,200", "163 µs", "0", "4.20 ms", "31.0 µs", "2.00"],
        ["http, concurrency 1", "classify", "1", "1,200", "23.4 ms", "–", "9.25 ms", "–", "–"],
    ]
    assert composing_models_table(points).rows == ()


def test_addresses_and_rotated_connections_have_tables_where_there_are_any(points):
    times = points[0].times.model_copy(update={"p50": 1_000_000, "p99": None})
    one = Replica(
        address="http://a",
        requests=300,
        ok=297,
        errors=3,
        throughput_per_s=99.0,
        times_ns=times,
        intervals={"p50": (9e5, 1.1e6)},
        connections=4,
    )
    counts = points[0].requests.model_copy(update={"sent": 400})
    table = replicas_table([points[0].model_copy(update={"replicas": (one,), "requests": counts}), points[1]])
    assert table.texts == [["http, concurrency 1", "http://a", "300", "75.0%", "3", "99.0/s", "1.00 ms", "–", "4"]]
    assert [cell.note for cell in table.cells[0][1]][6] == "95% interval: 900 µs to 1.10 ms"
    opened = Connections(opened=40, reconnects=1, rotated=36, connect_time_ns=times)
    table = connections_table([points[0].model_copy(update={"connections": opened}), points[1]])
    assert table.texts[0] == ["http", "1", "40", "36", "1", "1.00 ms", "–"]
    assert (replicas_table(points).rows, connections_table(points).rows) == ((), ())


def test_the_gpu_table_has_a_row_per_load_point_and_gpu(points):
    gpus = (
        GpuFigures(
            uuid="GPU-0123456789abcdef", name="H100", source="nvml", utilization_mean=0.876, memory_used_max_bytes=3 * 2**30,
            power_mean_w=312.4, energy_j=1234.5, energy_source="power", sm_clock_mean_mhz=1410.0, throttled_share=0.0,
        ),
        GpuFigures(uuid="GPU-1", name="", source="metrics"),
    )  # fmt: skip
    table = gpu_table([points[0].model_copy(update={"gpus": gpus, "energy_per_inference_j": 0.12345}), points[1]])
    assert table.texts == [
        [
            "http, concurrency 1", "H100 GPU-01234567", "driver", "88%", "3.0 GiB", "312 W", "1,234 J (from power)", "1,410 MHz", "0%", "0.123 J",
        ],
        ["http, concurrency 1", "GPU GPU-1", "metrics", *["–"] * 6, "0.123 J"],
    ]  # fmt: skip
