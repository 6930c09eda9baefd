"""The times of a server's stages from its page: differences over the window, percentiles as the bounds of their buckets."""

import dataclasses
import itertools

import numpy as np
import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from perfkit.figures.resources import ServerFigures
from perfkit.telemetry.prometheus.page import Sample, parse_page
from perfkit.telemetry.prometheus.server_times import KNOWN_SOURCES, ServerTimesReader, TimeCounts, added, sources_for

S, MS, US = 1_000_000_000, 1_000_000, 1_000


def measured(*texts, named=(), model="m", version="", window=None, every_ns=S, is_mix=False):
    """The times between pages read a second apart; by default from the first to the last."""
    reader = ServerTimesReader(sources_for(dict(named)), (model, version), every_ns, is_mix=is_mix)
    for place, text in enumerate(texts):
        reader.add(place * every_ns, parse_page(text).samples)
    return reader.window(*(window or (0, (len(texts) - 1) * every_ns)))


def by_stage(times):
    return {one.stage: one.figures() for one in times}


def histogram(name, counts, total, labels='model_name="m"'):
    """A page's lines of a histogram from its cumulative counts by bound."""
    rows = [f'{name}_bucket{{le="{bound}",{labels}}} {count}' for bound, count in counts.items()]
    return "\n".join(
        [f"# TYPE {name} histogram", *rows, f"{name}_sum{{{labels}}} {total}", f"{name}_count{{{labels}}} {max(counts.values())}", ""]
    )


def test_only_the_windows_times_count_and_a_percentile_is_its_bucket():
    before = histogram("request_predict_seconds", {"0.005": 10, "0.01": 10, "0.1": 90, "+Inf": 100}, 60.0)
    after = histogram("request_predict_seconds", {"0.005": 60, "0.01": 100, "0.1": 189, "+Inf": 200}, 61.0)
    (time,) = measured(before, after)
    figures = time.figures()
    assert (figures.stage, figures.metric, figures.count, figures.mean_ns) == ("inference", "request_predict_seconds", 100, 10 * MS)
    # of 100 times 50 are at most 5 ms, 90 at most 10 ms, 99 at most 100 ms, and one is longer
    assert figures.percentiles_ns == {
        "p50": (0.0, 5 * MS),
        "p90": (5 * MS, 10 * MS),
        "p95": (10 * MS, 100 * MS),
        "p99": (10 * MS, 100 * MS),
    }
    assert figures.buckets == ((5 * MS, 50), (10 * MS, 40), (100 * MS, 9), (None, 1))


def test_above_the_last_bound_a_percentile_has_no_upper_end():
    assert measured("", histogram("request_predict_seconds", {"0.5": 1, "+Inf": 2}, 3.0))[0].figures().percentiles_ns == {
        "p50": (0.0, 0.5 * S)
    }
    assert measured("", histogram("request_predict_seconds", {"0.5": 0, "+Inf": 2}, 3.0))[0].figures().percentiles_ns == {
        "p50": (0.5 * S, None)
    }


@given(
    bounds=st.lists(st.floats(0.001, 5.0), min_size=1, max_size=8, unique=True),
    batches=st.lists(st.lists(st.floats(0.0, 10.0), max_size=40), min_size=2, max_size=2),
    is_openmetrics=st.booleans(),
)
def test_the_intervals_hold_the_percentiles_of_what_prometheus_own_client_counted(bounds, batches, is_openmetrics):
    registry = prometheus_client.CollectorRegistry()
    metric = prometheus_client.Histogram("stage_seconds", "", ["model"], buckets=sorted(bounds), registry=registry)
    pages = []
    for batch in ([], *batches):
        for value in batch:
            metric.labels("m").observe(value, {"trace_id": "x"})
        page = generate_openmetrics(registry) if is_openmetrics else prometheus_client.generate_latest(registry)
        pages.append(page.decode())
    observed = batches[1]
    times = measured(*pages[1:], named={"queue": "stage_seconds"}.items())
    assert bool(times) == bool(observed)
    for one in times:
        figures = one.figures()
        assert figures.count == len(observed) == sum(count for _, count in figures.buckets)
        assert figures.mean_ns == pytest.approx(np.mean(observed) * S, abs=10)
        for name, quantile in {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}.items():
            assert (name in figures.percentiles_ns) == (len(observed) >= round(1 / (1 - quantile)))
            low_ns, high_ns = figures.percentiles_ns.get(name, (0.0, None))
            value_ns = np.quantile(observed, quantile, method="inverted_cdf") * S
            assert low_ns <= value_ns * (1 + 1e-9) + 1
            assert high_ns is None or value_ns <= high_ns * (1 + 1e-9) + 1


KSERVE = "".join(
    histogram(f"request_{stage}_seconds", {"0.005": 4, "+Inf": 4}, 0.001 * place) for place, stage in enumerate(("preprocess", "predict", "postprocess", "explain"), 1)
)  # fmt: skip
MLSERVER = (
    'model_infer_request_duration_count{model="m",version="None"} 8.0\nmodel_infer_request_duration_sum{model="m",version="None"} 0.016\n'
)
OVMS = "".join(
    histogram(f"ovms_{name}_us", {"10": 0, "+Inf": 4}, total, labels)
    for name, total, labels in (
        ("wait_for_infer_req_time", 40, 'name="m",version="1"'),
        ("inference_time", 400, 'name="m",version="1"'),
        ("request_time", 4000, 'interface="REST",name="m",version="1"'),
    )
)
VLLM = "".join(
    histogram(f"vllm:{name}_seconds", {"0.3": 2, "+Inf": 2}, total, 'engine="0",model_name="m"')
    for name, total in {
        "request_queue_time": 0.02,
        "request_inference_time": 0.2,
        "time_to_first_token": 0.1,
        "e2e_request_latency": 0.22,
    }.items()
)
TRITON = "".join(
    f'nv_inference_{name}{{model="m",version="1"}} {value}\n'
    for name, value in {
        "request_success": 10, "queue_duration_us": 100, "compute_input_duration_us": 20, "compute_infer_duration_us": 3000,
        "compute_output_duration_us": 40, "request_duration_us": 3300,
    }.items()
) + histogram("nv_inference_first_response_histogram_ms", {"100": 9, "+Inf": 10}, 500, 'model="m",version="1"')  # fmt: skip
DYNAMO = (
    "".join(
        histogram(f"dynamo_{name}_seconds", {"0.1": 5, "+Inf": 5}, total, labels)
        for name, total, labels in (
            ("frontend_request_duration", 0.5, 'model="m",endpoint="tensor"'),
            ("frontend_time_to_first_token", 0.25, 'model="m"'),
            ("frontend_stage_duration", 0.05, 'stage="preprocess"'),
            ("frontend_stage_duration", 0.1, 'stage="route"'),
            ("component_request_duration", 0.4, 'model="m",dynamo_component="backend"'),
            ("request_plane_queue", 0.005, ""),
        )
    )
    .replace("{}", "")
    .replace(",}", "}")
)


@pytest.mark.parametrize(
    ("page", "means_ns"),
    [
        (KSERVE, {"preprocess": 0.25 * MS, "inference": 0.5 * MS, "postprocess": 0.75 * MS, "explain": 1 * MS}),
        (MLSERVER, {"total": 2 * MS}),
        (OVMS, {"queue": 10 * US, "inference": 100 * US, "total": 1000 * US}),
        (VLLM, {"queue": 10 * MS, "inference": 100 * MS, "first_response": 50 * MS, "total": 110 * MS}),
        (
            TRITON,
            {
                "queue": 10 * US,
                "preprocess": 2 * US,
                "inference": 300 * US,
                "postprocess": 4 * US,
                "total": 330 * US,
                "first_response": 50 * MS,
            },
        ),
        (DYNAMO, {"queue": 1 * MS, "preprocess": 10 * MS, "inference": 80 * MS, "first_response": 50 * MS, "total": 100 * MS}),
    ],
    ids=["kserve", "mlserver", "openvino", "vllm", "triton", "dynamo"],
)
def test_the_metrics_of_servers_are_known_by_their_names(page, means_ns):
    found = by_stage(measured("", page))
    assert {stage: one.mean_ns for stage, one in found.items()} == pytest.approx(means_ns)
    other = page.replace('"m"', '"another"')
    assert set(by_stage(measured("", other))) == {stage for stage in means_ns if "dynamo" in page and stage in ("queue", "preprocess")}


def test_in_a_mix_a_model_has_the_times_that_name_it():
    page = KSERVE + KSERVE.replace('"m"', '"other"').replace(" 4\n", " 9\n")
    for model, count in (("m", 4), ("other", 9)):
        assert {one.count for one in by_stage(measured("", page, model=model, is_mix=True)).values()} == {count}
    assert "queue" in by_stage(measured("", DYNAMO))
    assert set(by_stage(measured("", DYNAMO, is_mix=True))) == {"inference", "first_response", "total"}


def test_no_two_known_metrics_share_their_samples():
    parts = [(part, *source.labels.items()) for source in KNOWN_SOURCES for part in source.parts if not source.count]
    assert len(parts) == len(set(parts))


def test_a_scenarios_metric_comes_before_a_known_one_and_its_unit_is_the_end_of_its_name():
    page = KSERVE + histogram("waited_ms", {"1": 2, "+Inf": 4}, 8.0, "") + histogram("held", {"+Inf": 4}, 8.0, "")
    found = by_stage(measured("", page.replace(",}", "}").replace("{}", ""), named={"queue": "waited_ms", "inference": "held"}.items()))
    assert {stage: (one.metric, one.mean_ns) for stage, one in found.items() if stage in ("queue", "inference")} == {
        "queue": ("waited_ms", 2 * MS),
        "inference": ("held", 2 * S),
    }
    assert found["queue"].percentiles_ns["p50"] == (0.0, 1 * MS)


def test_versions_are_added_unless_the_scenario_names_one():
    page = OVMS + "".join(line.replace('version="1"', 'version="2"') + "\n" for line in OVMS.splitlines() if not line.startswith("#"))
    assert by_stage(measured("", page))["queue"].count == 8
    assert by_stage(measured("", page, version="2"))["queue"].count == 4


def test_of_different_bounds_those_that_all_have_are_kept():
    first, second = TimeCounts(3, 30.0, {1.0: 1, 2.0: 2, float("inf"): 3}), TimeCounts(2, 20.0, {2.0: 1, 4.0: 2, float("inf"): 2})
    assert first.plus(second) == TimeCounts(5, 50.0, {2.0: 3, float("inf"): 5})


@pytest.mark.parametrize(("start_s", "end_s", "expected"), [(0.5, 3.5, (1, 4)), (1.0, 3.0, (1, 3)), (1.6, 1.9, (1, 2)), (2.9, 4.0, (3, 4))])
def test_a_window_is_counted_between_readings(start_s, end_s, expected):
    # the nth reading has counted n(n+1)/2 times, so each pair of readings has a count of its own
    totals = list(itertools.accumulate(range(5)))
    pages = [f"request_predict_seconds_count {count}\nrequest_predict_seconds_sum {count}\n" for count in totals]
    (time,) = measured(*pages, window=(round(start_s * S), round(end_s * S)))
    first, last = expected
    assert time.counts.count == totals[last] - totals[first]


def test_a_window_without_readings_at_its_ends_has_no_times():
    page = "request_predict_seconds_count {0}\nrequest_predict_seconds_sum {0}\n"
    pages = [page.format(count) for count in range(3)]
    assert measured(*pages, window=(5 * S, 9 * S)) == ()  # the page was not read within it
    assert measured(*pages, window=(-9 * S, 1 * S)) == ()  # nor before its second half
    assert measured(page.format(9), page.format(3)) == ()  # the server restarted
    assert measured(page.format(9), page.format(3), page.format(20)) == ()


def test_of_a_long_window_the_times_are_exact_although_few_readings_are_kept():
    readings = 20_001
    reader = ServerTimesReader(sources_for({}), ("m", ""), S)
    for place in range(readings):
        reader.add(place * S, [Sample("request_predict_seconds_count", {}, 3.0 * place, "histogram")])
    assert len(reader._readings) < 2500
    (time,) = reader.window(0, (readings - 1) * S)
    assert time.counts.count == 3 * (readings - 1)


def test_counts_that_do_not_rise_with_the_bounds_have_a_mean_alone():
    (time,) = measured("", histogram("request_predict_seconds", {"0.1": 3, "0.2": 2, "+Inf": 4}, 4.0))
    assert (time.figures().mean_ns, time.figures().percentiles_ns) == (1 * S, {})


def test_windows_are_pooled_by_adding_their_counts():
    (first,) = measured("", histogram("request_predict_seconds", {"0.1": 3, "+Inf": 4}, 1.0))
    (both,) = added([first, first])
    assert both.figures() == dataclasses.replace(first.figures(), count=8, buckets=((0.1 * S, 6), (None, 2)))


def test_the_servers_part_of_a_result_takes_the_means_and_knows_what_is_missing():
    times = tuple(one.figures() for one in measured("", KSERVE))
    server = ServerFigures.of_page(times, 5, 7.0)
    assert (server.source, server.requests, server.failed, server.executions, server.success_ns) == ("metrics", 4, None, None, None)
    assert (server.queue_ns, server.compute_input_ns, server.compute_infer_ns, server.compute_output_ns) == (
        None,
        0.25 * MS,
        0.5 * MS,
        0.75 * MS,
    )
    assert (server.missing, server.client_requests, server.client_mean_ns) == (("queue",), 5, 7.0)
