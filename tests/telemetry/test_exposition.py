"""What a live run tells, read with Prometheus' own parser."""

import http.client
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.messages import IntervalTimes, Metric
from perfkit.telemetry.prometheus.exposition import CONTENT_TYPE, Exposition, PublishedRun, render
from perfkit.telemetry.prometheus.live_times import LiveTimes
from perfkit.telemetry.series import Series

MS = 1_000_000


def parsed(text):
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


labels = st.dictionaries(st.sampled_from(["gpu", "load", "worker"]), st.text(st.characters(exclude_categories=["Cs"])), max_size=3)


@given(st.lists(st.tuples(st.sampled_from(["a", "b_per_s"]), labels, st.floats(allow_nan=False)), max_size=6))
def test_the_parser_reads_back_what_was_rendered(metrics):
    text = render([Metric(name, "Says \\ what\nit is.", "gauge", some, value) for name, some, value in metrics])
    expected = {(f"perfkit_{name}", tuple(sorted(some.items()))): value for name, some, value in metrics}
    assert parsed(text) == expected
    heads = [line.split()[2] for line in text.split("\n") if line.startswith("# TYPE ")]
    assert len(heads) == len(set(heads))


def test_names_that_prometheus_does_not_know_are_changed():
    assert parsed(render([Metric("DCGM x.y", "", "gauge", {"model-name": "m"}, 1)])) == {("perfkit_DCGM_x_y", (("model_name", "m"),)): 1}


def test_the_page_has_what_was_published_last_and_the_newest_samples():
    series = Series("gpu_power", "W", {"gpu": "GPU-1"}, (1, 2), (3.0, 4.5))
    run = PublishedRun(lambda: [series])
    run.publish("started", [Metric("point_number", "Which.", "gauge", {}, 1)])
    run.publish("started", [Metric("point_number", "Which.", "gauge", {}, 2)])
    assert parsed(run.text()) == {("perfkit_point_number", ()): 2, ("perfkit_gpu_power", (("gpu", "GPU-1"),)): 4.5}


def fetch(port, path):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_it_is_served_on_a_free_port_and_closed():
    server = Exposition(("127.0.0.1", 0), PublishedRun(lambda: [Series("x", "", {}, (1,), (math.pi,))]))
    try:
        status, content_type, text = fetch(server.port, "/metrics")
        assert (status, content_type, parsed(text)) == (200, CONTENT_TYPE, {("perfkit_x", ()): math.pi})
        assert fetch(server.port, "/nothing")[0] == 404
        with pytest.raises(OSError, match="in use"):
            Exposition(("127.0.0.1", server.port), PublishedRun(list))
    finally:
        server.close()
    with pytest.raises(ConnectionRefusedError):
        fetch(server.port, "/metrics")


def bucket_counts(*times_ms):
    return BucketCounts.of(np.array(times_ms) * MS)


def test_the_newest_second_is_shown_and_all_are_counted():
    times = LiveTimes()
    times.add(IntervalTimes(1, 0, {"service_time": bucket_counts(1, 2, 3)}))
    times.add(IntervalTimes(1, 1, {"service_time": bucket_counts(10, 10)}))
    times.add(IntervalTimes(1, 1, {"service_time": bucket_counts(10, 10)}))  # the other worker's part
    times.add(IntervalTimes(1, 0, {"service_time": bucket_counts(99)}))  # a late part of an older one
    found = parsed(render(times.metrics()))
    assert found["perfkit_requests_timed_total", ()] == 8
    assert found["perfkit_service_time_seconds", (("quantile", "0.99"),)] == pytest.approx(0.01, rel=1e-3)
    times.add(IntervalTimes(2, 0, {"service_time": bucket_counts(20), "response_time": bucket_counts(30)}))
    found = parsed(render(times.metrics()))
    assert found["perfkit_response_time_seconds", (("quantile", "0.5"),)] == pytest.approx(0.03, rel=1e-3)
