"""Prometheus metrics: rows M1 and M2 of the conformance checklist."""

import http.client
import re
from types import SimpleNamespace

from server_stub.metrics import render
from server_stub.scheduling.model_statistics import FailureReason, Statistics, Timing

LINE = re.compile(r'(nv_inference_\w+)\{((?:\w+="(?:[^"\\]|\\.)*",?)+)\} (\d+)')


def read(text):
    """All samples by name and labels. Every line that is not a comment must be one."""
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            samples[name, labels] = int(value)
    return samples


def model(statistics, name="m", pending=0):
    return SimpleNamespace(statistics=lambda: statistics.document(name, "1"), failures=statistics.failures, pending=pending)


def test_every_statistic_is_rendered_under_its_metric_name():
    statistics = Statistics()
    statistics.add_execution(Timing(1_000_000, 1_002_000, 1_005_000, 1_009_999), [(0, 2), (500_000, 1)])
    statistics.add_failure(7, FailureReason.REJECTED)
    text = render([model(statistics, pending=3)])
    assert read(text) == {
        ("nv_inference_request_success", 'model="m",version="1"'): 2,
        ("nv_inference_count", 'model="m",version="1"'): 3,
        ("nv_inference_exec_count", 'model="m",version="1"'): 1,
        ("nv_inference_request_duration_us", 'model="m",version="1"'): 1009 + 510,
        ("nv_inference_queue_duration_us", 'model="m",version="1"'): 1500,
        ("nv_inference_compute_input_duration_us", 'model="m",version="1"'): 4,
        ("nv_inference_compute_infer_duration_us", 'model="m",version="1"'): 6,
        ("nv_inference_compute_output_duration_us", 'model="m",version="1"'): 9,
        ("nv_inference_request_failure", 'model="m",reason="REJECTED",version="1"'): 1,
        ("nv_inference_request_failure", 'model="m",reason="CANCELED",version="1"'): 0,
        ("nv_inference_request_failure", 'model="m",reason="BACKEND",version="1"'): 0,
        ("nv_inference_request_failure", 'model="m",reason="OTHER",version="1"'): 0,
        ("nv_inference_pending_request_count", 'model="m",version="1"'): 3,
    }
    for name, _ in read(text):
        kind = "gauge" if "pending" in name else "counter"
        assert text.count(f"# TYPE {name} {kind}\n") == 1
        assert text.count(f"# HELP {name} ") == 1


def test_model_names_are_escaped():
    text = render([model(Statistics(), name='a"b\\c\nd')])
    assert 'nv_inference_count{model="a\\"b\\\\c\\nd",version="1"} 0\n' in text


def test_M2_served_requests_are_counted(server, wire):
    def scrape():
        connection = http.client.HTTPConnection("127.0.0.1", server.metrics_port, timeout=30)
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        assert (response.status, response.getheader("Content-Type")) == (200, "text/plain; version=0.0.4; charset=utf-8")
        return read(text)

    before = scrape()
    inputs = [{"name": name, "datatype": "INT32", "shape": [2, 16], "data": [1] * 32} for name in ("INPUT0", "INPUT1")]
    assert wire.infer({"inputs": inputs}).status == 200
    after = scrape()
    (stats,) = wire.get("/v2/models/simple/stats").json["model_stats"]
    labels = 'model="simple",version="1"'
    assert after["nv_inference_count", labels] - before["nv_inference_count", labels] == 2
    assert after["nv_inference_request_success", labels] == stats["inference_stats"]["success"]["count"]
    assert after["nv_inference_request_duration_us", labels] == stats["inference_stats"]["success"]["ns"] // 1000
    assert {labels for _, labels in after if "reason" not in labels} == {
        f'model="{entry["name"]}",version="1"' for entry in wire.get("/v2/models/stats").json["model_stats"]
    }


# the names that perf_analyzer looks for
GPU_LINE = re.compile(
    r'\n(nv_gpu_utilization|nv_gpu_power_usage|nv_gpu_memory_used_bytes|nv_gpu_memory_total_bytes)\{gpu_uuid="([^"]+)"\} (\d+\.?\d*)'
)
GPUS = """epoch_us 1700000000000000
gpu
uuid GPU-a
memory_total 50000000000
memory_used 20000000000
power_mw 250500
utilization 75
gpu
uuid GPU-b
memory_total 1024
memory_used 512
power_mw 1000
utilization 0
fail nvmlDeviceGetPowerUsage 3
"""


def test_M1_GPU_metrics_have_the_format_that_perf_analyzer_reads(start_server, compiled_nvml, tmp_path, monkeypatch):
    script = tmp_path / "gpus.txt"
    script.write_text(GPUS)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(compiled_nvml.parent))
    monkeypatch.setenv("PERFKIT_FAKE_NVML_SCRIPT", str(script))
    started = start_server("--model", "simple", "--device", "cpu")
    connection = http.client.HTTPConnection("127.0.0.1", started.metrics_port, timeout=30)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    assert started.end()[0] == 0
    samples_by_gpu = {(name, uuid): float(value) for name, uuid, value in GPU_LINE.findall(text)}
    assert samples_by_gpu == {
        ("nv_gpu_utilization", "GPU-a"): 0.75,
        ("nv_gpu_power_usage", "GPU-a"): 250.5,
        ("nv_gpu_memory_used_bytes", "GPU-a"): 2e10,
        ("nv_gpu_memory_total_bytes", "GPU-a"): 5e10,
        ("nv_gpu_utilization", "GPU-b"): 0.0,
        ("nv_gpu_memory_used_bytes", "GPU-b"): 512,
        ("nv_gpu_memory_total_bytes", "GPU-b"): 1024,
    }
    energy = re.findall(r'\nnv_energy_consumption\{gpu_uuid="GPU-a"\} (\d+\.\d+)\n', text)
    assert len(energy) == 1


def test_without_a_gpu_there_are_no_gpu_metrics():
    assert "nv_gpu" not in render([])
