"""The telemetry of `perfkit run`: the server's counts, metrics pages, the generator, live metrics."""

import json
import pathlib
import re
import urllib.parse
from http.client import HTTPConnection

import pandas as pd
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from tests.json_server import JsonHandler, serving

MS = 1_000_000


@pytest.fixture
def page():

    class Handler(JsonHandler):
        def do_GET(self):
            self.answer_bytes(
                200, b'nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\nnv_gpu_power_usage{gpu_uuid="GPU-1"} 70\nqueue_depth 3\nnv_torn{\n'
            )

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}/metrics"


def test_server_and_client_count_the_same_requests_with_the_declared_times(perfkit, write_scenario):
    finished = perfkit.measure(
        write_scenario(
            target={"model": "synthetic", "protocols": ["http", "grpc"]},
            server={"synthetic": "service=constant:10ms,servers=1,lead=0s"},
            workload={"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
            load={"closed": {"concurrency": [2]}},
            measure={"warmup": "0s", "requests": 20, "repetitions": 2, "workers": 2},
        ),
    )
    for point in [*finished.result["points"], *finished.result["summary"]]:
        server = point["server"]
        assert server["requests"] == server["client_requests"] == point["requests"]["ok"] == server["executions"] > 0
        assert (server["failed"], server["mean_batch"], server["versions"]) == (0, 1.0, ["1"])
        # the server's times are exactly the declared ones, and part of what the client measured
        assert (server["compute_input_ns"], server["compute_infer_ns"], server["compute_output_ns"]) == (0, 10 * MS, 0)
        assert server["success_ns"] == pytest.approx(server["queue_ns"] + 10 * MS, abs=1)
        assert server["success_ns"] <= server["client_mean_ns"]
        assert "server_counts_differ" not in {warning["code"] for warning in point["warnings"]}


def test_metrics_and_generator_figures_are_in_the_result_and_the_telemetry_file(perfkit, write_scenario, page):
    scenario = write_scenario(
        metrics={"url": page, "names": ["queue_*"], "interval": "50ms"}, measure={"warmup": "1s", "duration": "2s", "repetitions": 1},
        load={"closed": {"concurrency": [1], "think_time": "1ms"}},
    )  # fmt: skip
    finished = perfkit.measure(scenario)
    (point,) = finished.result["points"]
    (gpu,) = point["gpus"]
    assert (gpu["uuid"], gpu["source"], gpu["utilization_mean"], gpu["power_mean_w"], gpu["energy_source"]) == (
        "GPU-1",
        "metrics",
        0.5,
        70,
        "power",
    )
    assert point["energy_per_inference_j"] == pytest.approx(gpu["energy_j"] / point["throughput_per_s"] / point["duration_s"])
    assert [(metric["name"], metric["mean"]) for metric in point["metrics"]] == [("queue_depth", 3)]
    notes = finished.result["environment"]["telemetry"]["notes"]
    assert f"1 line of the metrics at {page} could not be parsed, and are ignored." in notes
    generator = point["generator"]
    assert generator["open_files_limit"] >= generator["open_files_max"] > 0
    assert generator["event_loop_lag_ns"]["count"] > 0
    names = set(pd.read_csv(finished.folder / "telemetry.csv").name)
    assert {"gpu_utilization", "gpu_power", "queue_depth", "event_loop_lag"} <= names
    assert perfkit.run("report", finished.folder).code == 0
    assert "queue_depth" in (finished.folder / "report.html").read_text()


def test_telemetry_can_be_turned_off(perfkit, write_quick_scenario):
    finished = perfkit.measure(write_quick_scenario(telemetry=False))
    (point, *_) = finished.result["points"]
    assert (point["server"], point["generator"]["worker_cpu_shares"], point["generator"]["machine_cpu_share"]) == (None, [], None)
    refused = perfkit.run("run", write_quick_scenario(telemetry=False), "--prometheus", "0")
    assert (refused.code, "telemetry: false" in refused.stderr) == (2, True)


# what the run below has not: GPUs, intended starts, finished load points
OF_GPUS_AND_OTHER_LOADS = {
    "perfkit_gpu_utilization_ratio", "perfkit_gpu_power_watts", "perfkit_gpu_memory_used_bytes", "perfkit_response_time_seconds",
    "perfkit_start_delay_seconds", "perfkit_point_throughput_per_second", "perfkit_point_error_ratio", "perfkit_point_valid",
    "perfkit_point_service_time_seconds", "perfkit_point_response_time_seconds",
}  # fmt: skip


def metrics_of_the_dashboard():
    """The families that docs/grafana/perfkit-live.json shows."""
    dashboard = json.loads((pathlib.Path(__file__).parents[2] / "docs" / "grafana" / "perfkit-live.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return {name.removesuffix("_total") for query in queries for name in re.findall(r"perfkit_\w+", query)}


def test_a_runs_live_metrics_are_served_while_it_runs(perfkit, write_scenario):
    scenario = write_scenario(load={"closed": {"concurrency": [8, 9]}}, measure={"warmup": "0s", "duration": "600s", "repetitions": 1})
    running = perfkit.start("run", scenario, "--prometheus", "0")
    running.wait_for_line("target: ")  # which is asked before anything is sampled
    running.wait_for_line("prometheus: ")
    url = urllib.parse.urlsplit(running.seen[-1].split()[-1])
    assert url.hostname == "127.0.0.1"
    page: dict[str, float] = {}
    while page.get("perfkit_requests_timed_total", 0) == 0:  # the first second appears when it is complete
        connection = HTTPConnection(url.hostname, url.port, timeout=60)
        connection.request("GET", url.path)
        text = connection.getresponse().read().decode()
        connection.close()
        page = {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}
    connection = HTTPConnection(url.hostname, url.port, timeout=60)
    connection.request("GET", url.path, headers={"Accept": "application/openmetrics-text"})
    families = {family.name for family in openmetrics_families(connection.getresponse().read().decode())}
    connection.close()
    assert families >= metrics_of_the_dashboard() - OF_GPUS_AND_OTHER_LOADS
    assert (page["perfkit_points"], page["perfkit_point_number"]) == (2, 1)
    assert page["perfkit_service_time_seconds"] > 0
    running.signal(2)
    assert running.finish().code == 130


def test_an_invalid_port_is_refused(perfkit, write_scenario):
    refused = perfkit.run("run", write_scenario(), "--prometheus", "grafana")
    assert (refused.code, "expected a port or host:port, found 'grafana'" in refused.stderr) == (2, True)
