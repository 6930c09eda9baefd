"""`perfkit run` of a mix on live servers: load points, sums, logs, reports, and what other commands say about it."""

import json

import pytest

from perfkit.result.file import read_result
from perfkit.result.frames import points_frame
from perfkit.result.interval_log import check_log

MEASURE = {"warmup": "100ms", "requests": 200, "repetitions": 2}


def mix(server, **changes):
    return {
        "name": "mix",
        "workloads": [
            {"name": "small", "weight": 7, "model": "simple", "target": {"url": server.http}, "slo": {"error_rate": "50%"}},
            {"name": "other", "weight": 3, "model": "simple_identity", "target": {"url": server.grpc}, "batch_size": 2,
             "inputs": {"INPUT0": {"strings": ["a"], "shape": [2]}}},
        ],
        "load": {"closed": {"concurrency": 2, "think_time": "4ms"}},
        "measure": MEASURE,
        **changes,
    }  # fmt: skip


@pytest.fixture
def measure(perfkit, tmp_path):
    def run(document, **how):
        path = tmp_path / "mix.json"
        path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
        finished = perfkit.measure(path, **how)
        return finished, read_result(finished.folder)[0]

    return run


def assert_the_parts_add_up(result):
    for points in (result.summary, result.points):
        together = [point for point in points if not point.alone]
        for name in type(together[0].requests).model_fields:
            whole = sum(getattr(point.requests, name) for point in together if point.workload is None)
            assert whole == sum(getattr(point.requests, name) for point in together if point.workload is not None), name
        inferences = {
            is_part: sum(point.inferences_per_s * point.duration_s for point in together if (point.workload is not None) is is_part)
            for is_part in (False, True)
        }
        assert inferences[True] == pytest.approx(inferences[False])


def test_a_weighted_mix_over_both_protocols_has_load_points_for_each_workload_and_the_whole(measure, server, perfkit, tmp_path):
    finished, result = measure(mix(server, alone=True), report=True)
    titles = [point.title for point in result.summary]
    assert titles == [
        "mixed, concurrency 2", "small, http, concurrency 2", "other, grpc, concurrency 2", "small alone, http, concurrency 1",
        "other alone, grpc, concurrency 1",
    ]  # fmt: skip
    assert_the_parts_add_up(result)
    whole, small, other, *_ = result.summary
    assert small.requests.sent / whole.requests.sent == pytest.approx(0.7, abs=0.01)
    assert other.requests.sent / whole.requests.sent == pytest.approx(0.3, abs=0.01)
    assert other.inferences_per_s == pytest.approx(2 * other.throughput_per_s)
    assert (whole.slo, small.slo and small.slo.verdict, other.slo) == (None, "satisfied", None)
    assert whole.server is None, "two models"
    for part in (small, other):
        assert part.server is None or part.server.requests == part.server.client_requests
    check_log(finished.folder, result)
    frame = points_frame(result.summary)
    assert frame["workload"].tolist() == [None, "small", "other", "small", "other"]
    assert frame["alone"].tolist() == [False, False, False, True, True]
    markdown, page = ((finished.folder / name).read_text() for name in ("report.md", "report.html"))
    assert "## Workloads alone and together" in markdown
    assert "Workloads alone and together" in page
    assert "small, alone" in finished.stdout
    for command in (
        ("plan", finished.folder, "--slo", "p99<1s", "--demand", "1/s"),
        ("baseline", finished.folder, "--out", tmp_path / "b.json"),
    ):
        refused = perfkit.run(*command)
        assert (refused.code, "mix" in refused.stderr) == (2, True), refused.stderr
    compared = perfkit.run("compare", finished.folder, finished.folder)
    assert "small, http, concurrency 2" in compared.stdout + compared.stderr


def test_closed_and_open_loads_of_their_own_run_together(measure, server):
    entries = mix(server)["workloads"]
    loads = ({"closed": {"concurrency": 1, "think_time": "5ms"}}, {"open": {"rate": 50}})
    own = [
        {key: value for key, value in entry.items() if key != "weight"} | {"load": load} for entry, load in zip(entries, loads, strict=True)
    ]
    length = {"warmup": "100ms", "duration": "500ms", "repetitions": 2, "workers": 1}
    _, result = measure(mix(server, workloads=own, load=None, measure=length, telemetry=False))
    whole, closed, opened = result.summary
    assert (whole.load.kind, closed.load.kind, opened.load.kind) == ("mixed", "closed", "open")
    assert (whole.load.concurrency, whole.load.rate_per_s) == (1, 50)
    assert whole.response_time_ns is None
    assert opened.response_time_ns is not None
    assert whole.service_time_ns.count == closed.service_time_ns.count + opened.service_time_ns.count
    assert_the_parts_add_up(result)


def test_several_workers_add_up_to_the_same_mix(measure, server):
    load = {"open": {"rate": 100}}
    _, result = measure(mix(server, load=load, measure={**MEASURE, "requests": 60, "workers": 2}, telemetry=False))
    assert [point.load.rate_per_s for point in result.summary] == pytest.approx([100, 70, 30])
    assert {point.generator.workers for point in result.summary} == {2}
    assert_the_parts_add_up(result)


def test_the_bundled_server_serves_all_models_of_a_mix_and_errors_name_the_workload(perfkit, tmp_path):
    document = {
        "workloads": [{"name": "a", "weight": 1, "model": "simple"}, {"name": "b", "weight": 1, "model": "simple", "batch_size": 99}],
        "load": {"closed": {"concurrency": 1}},
    }
    path = tmp_path / "mix.json"
    path.write_text(json.dumps(document))
    finished = perfkit.run("run", path)
    assert finished.code == 2
    assert "workload 'b': workload.batch_size: model 'simple' takes at most" in finished.stderr
    gated = perfkit.run("gate", path, "--baseline", "http://127.0.0.1:1", "--candidate", "http://127.0.0.1:1")
    assert gated.code == 2
    assert "mix" in gated.stderr


def test_each_workload_has_the_times_of_its_model_by_the_servers_page_of_metrics(measure, server):
    page = {"target": {"metrics_url": server.metrics}, "metrics": {"interval": "20ms"}}
    _, result = measure(mix(server, alone=True, measure={**MEASURE, "requests": 80}, **page))
    whole, *workloads = result.summary
    assert whole.server is None or whole.server.times == ()
    for pooled in workloads:
        points = [point for point in result.points if point.title == pooled.title]
        counts = [time.count for point in (*points, pooled) for time in point.server.times if time.stage == "total"]
        assert len(counts) == 3, "two repetitions, and both together"
        assert [0 < count <= point.requests.sent for count, point in zip(counts, (*points, pooled), strict=True)] == [True] * 3
        assert counts[2] == counts[0] + counts[1]
