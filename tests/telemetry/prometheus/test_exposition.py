"""A run's live metrics, read with Prometheus' own parser."""

import contextlib
import http.client
import math
import socket
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.bounded_server import MOST_CONNECTIONS
from perfkit.telemetry.messages import IntervalTimes, LiveMetric
from perfkit.telemetry.prometheus.exposition import CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE, Exposition, LiveRun
from perfkit.telemetry.series import Series

MS = 1_000_000


def published(metrics):
    run = LiveRun(list)
    run.publish("key", metrics)
    return run


def families_of(page):
    return list(text_string_to_metric_families(page.decode()))


def samples_of(page):
    samples = [sample for family in families_of(page) for sample in family.samples]
    values = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples}
    assert len(values) == len(samples)
    return values


labels = st.dictionaries(st.sampled_from(["gpu", "load", "worker"]), st.text(st.characters(exclude_categories=["Cs"])), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["a", "b_per_s"]), labels, st.floats(allow_nan=False)), max_size=6))
def test_the_parser_reads_back_every_sample(metrics):
    page = published([LiveMetric(name, "A \\ and\na line.", "gauge", own, value) for name, own, value in metrics]).page()
    assert samples_of(page) == {(f"perfkit_{name}", tuple(sorted(own.items()))): value for name, own, value in metrics}
    families = families_of(page)
    assert len({family.name for family in families}) == len(families)
    assert {(family.type, family.documentation) for family in families} <= {("gauge", "A \\ and\na line.")}


def test_counters_keep_their_name_and_gauges_theirs():
    metrics = [LiveMetric("requests_timed_total", "", "counter", {}, 3), LiveMetric("nv_x_total", "", "gauge", {}, 4)]
    page = published(metrics).page()
    assert samples_of(page) == {("perfkit_requests_timed_total", ()): 3, ("perfkit_nv_x_total", ()): 4}
    assert "# TYPE perfkit_requests_timed_total counter\n" in page.decode()
    assert "# TYPE perfkit_nv_x_total gauge\n" in page.decode()


def test_characters_that_prometheus_does_not_allow_in_names_are_replaced():
    page = published([LiveMetric("DCGM x.y", "", "gauge", {"model-name": "m"}, 1)]).page()
    assert samples_of(page) == {("perfkit_DCGM_x_y", (("model_name", "m"),)): 1}


def test_the_page_has_the_last_published_metrics_and_the_newest_samples():
    run = LiveRun(lambda: [Series("gpu_power", "W", {"gpu": "GPU-1"}, (1, 2), (3.0, 4.5))])
    run.publish("started", [LiveMetric("point_number", "The number.", "gauge", {}, 1)])
    run.publish("started", [LiveMetric("point_number", "The number.", "gauge", {}, 2)])
    assert samples_of(run.page()) == {("perfkit_point_number", ()): 2, ("perfkit_gpu_power_watts", (("gpu", "GPU-1"),)): 4.5}


@pytest.mark.parametrize(
    ("name", "unit", "value", "exposed", "base"),
    [
        ("server_queue", "ns", 1_500_000, "perfkit_server_queue_seconds", 0.0015),
        ("cpu_s", "s", 2.5, "perfkit_cpu_seconds", 2.5),
        ("worker_cpu_share", "share", 0.25, "perfkit_worker_cpu_ratio", 0.25),
        ("gpu_sm_clock", "MHz", 1410, "perfkit_gpu_sm_clock_hertz", 1.41e9),
        ("gpu_memory_used", "bytes", 7, "perfkit_gpu_memory_used_bytes", 7),
        ("server_answers_per_s", "per_s", 12, "perfkit_server_answers_per_second", 12),
        ("gpu_pcie_sent", "bytes_per_s", 3, "perfkit_gpu_pcie_sent_bytes_per_second", 3),
        ("server_mean_batch", "count", 4, "perfkit_server_mean_batch", 4),
        ("nv_gpu_utilization", "", 0.5, "perfkit_nv_gpu_utilization", 0.5),
    ],
)
def test_names_of_series_end_in_base_units_and_values_are_in_them(name, unit, value, exposed, base):
    run = LiveRun(lambda: [Series(name, unit, {}, (1,), (value,))])
    ((key, sample),) = samples_of(run.page()).items()
    assert key == (exposed, ())
    assert sample == pytest.approx(base)


def test_the_page_conforms_to_openmetrics_with_units():
    run = LiveRun(lambda: [Series("gpu_energy", "J", {"gpu": "GPU-1"}, (1,), (4.5,)), Series("nv_inferences_total", "", {}, (1,), (3.0,))])
    run.add_times(IntervalTimes(1, 0, {"service_time": counts(1, 2, 3), "start_delay": counts(1)}))
    run.publish("started", [LiveMetric("point_info", 'A "quoted"\nline \\.', "gauge", {"scenario": 'a"b\n'}, 1)])
    text = run.page(is_openmetrics=True).decode()
    families = {family.name: family for family in openmetrics_families(text)}  # it raises ValueError for what does not conform
    assert text.endswith("# EOF\n")
    assert {name: (family.type, family.unit) for name, family in families.items()} == {
        "perfkit_gpu_energy_joules": ("gauge", "joules"),
        "perfkit_nv_inferences_total": ("gauge", ""),
        "perfkit_requests_timed": ("counter", ""),
        "perfkit_service_time_seconds": ("gauge", "seconds"),
        "perfkit_start_delay_seconds": ("gauge", "seconds"),
        "perfkit_point_info": ("gauge", ""),
    }
    assert families["perfkit_requests_timed"].samples[0].value == 3


def test_openmetrics_is_served_to_those_who_ask_for_it():
    server = Exposition(("127.0.0.1", 0), LiveRun(list))
    try:
        asked = fetch(server.port, "/metrics", {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"})
        assert asked == (200, OPENMETRICS_CONTENT_TYPE, b"# EOF\n")
    finally:
        server.close()


def fetch(port, path, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def test_the_page_is_served_on_a_free_port_until_it_is_closed():
    server = Exposition(("127.0.0.1", 0), LiveRun(lambda: [Series("x", "", {}, (1,), (math.pi,))]))
    try:
        status, content_type, page = fetch(server.port, "/metrics")
        assert (status, content_type, samples_of(page)) == (200, CONTENT_TYPE, {("perfkit_x", ()): math.pi})
        assert fetch(server.port, "/nothing")[0] == 404
        with pytest.raises(OSError, match="in use"):
            Exposition(("127.0.0.1", server.port), LiveRun(list))
    finally:
        server.close()
    with pytest.raises(ConnectionRefusedError):
        fetch(server.port, "/metrics")


def test_idle_and_dripping_clients_make_room_for_those_that_ask():
    server = Exposition(("127.0.0.1", 0), LiveRun(list))
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(3 * MOST_CONNECTIONS)]
    try:
        for client in idle[::2]:
            with contextlib.suppress(OSError):  # it has made room already
                client.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        assert fetch(server.port, "/metrics")[0] == 200
        assert threading.active_count() < 3 * MOST_CONNECTIONS
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""
    finally:
        for client in idle:
            client.close()
        server.close()


def counts(*times_ms):
    return BucketCounts.of(np.array(times_ms, dtype=np.int64) * MS)


def test_percentiles_are_of_the_newest_second_and_the_count_is_of_all():
    run = LiveRun(list)
    run.add_times(IntervalTimes(1, 0, {"service_time": counts(1, 2, 3)}))
    run.add_times(IntervalTimes(1, 1, {"service_time": counts(10, 10)}))
    run.add_times(IntervalTimes(1, 1, {"service_time": counts(10, 10)}))  # another worker's part
    run.add_times(IntervalTimes(1, 0, {"service_time": counts(99)}))  # a late part of an earlier second
    samples = samples_of(run.page())
    assert samples["perfkit_requests_timed_total", ()] == 8
    assert samples["perfkit_service_time_seconds", (("quantile", "0.99"),)] == pytest.approx(0.01, rel=1e-3)
    run.add_times(IntervalTimes(2, 0, {"service_time": counts(20), "response_time": counts(30)}))
    assert samples_of(run.page())["perfkit_response_time_seconds", (("quantile", "0.5"),)] == pytest.approx(0.03, rel=1e-3)
