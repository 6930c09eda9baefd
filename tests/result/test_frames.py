"""Frames of results, and the CSV that they write."""

import csv
import io

import pytest

from perfkit.result.counts import Tokens
from perfkit.result.frames import START_FIGURES, addresses_frame, csv_text, points_frame, sweep_frame
from perfkit.result.model import Result
from perfkit.result.point_parts import Replica
from perfkit.result.search import Search

SEARCH = Search(
    slo={"p99": "50ms"}, capacity_per_s=120.5, low_per_s=118.0, high_per_s=None, confidence=0.95, precision=0.05,
    stopped_because="precision", reason="",
)  # fmt: skip


def rows_of(frame):
    return list(csv.DictReader(io.StringIO(csv_text(frame))))


def test_a_row_has_the_figures_of_its_point(result):
    (row,) = rows_of(points_frame(result.points))
    assert row == {
        **dict.fromkeys(("attempts", "retries", "amplification"), ""),
        "abandoned": "0", **dict.fromkeys(("abandoned_after_p50_ns", "abandoned_after_p99_ns", "wasted_share", "held_after_ns"), ""),
        "workload": "", "alone": "False", "protocol": "grpc", "load": "closed", "level": "2", "repetition": "0", "throughput_per_s": "1.5", "inferences_per_s": "1.5",
        "goodput_per_s": "", "times": "service", "samples": "3", "mean_ns": "2000000.0", "p50_ns": "2000000", "p90_ns": "", "p95_ns": "", "p99_ns": "",
        "p99_9_ns": "", "p99_99_ns": "", "max_ns": "3000000", "scheduled": "4", "ok": "3", "error_rate": "0.25", "start_delay_p99_ns": "",
        **dict.fromkeys(("sequences_ended", "sequences_failed", "sequence_p50_ns", "sequence_p99_ns"), ""),
        **dict.fromkeys(("output_tokens_per_s", "input_tokens_per_s", "input_tokens", "output_tokens", "output_tokens_per_answer"), ""),
        **dict.fromkeys((f"{name}_{percentile}_ns" for name in ("first_token", "event_gap", "per_token") for percentile in ("p50", "p99")), ""),
        **dict.fromkeys(("responses_per_s", "first_response_p50_ns", "first_response_p99_ns", "response_gap_p50_ns", "response_gap_p99_ns"), ""),
        "connections": "2", "connect_p50_ns": "", "connect_p99_ns": "",
        **dict.fromkeys(START_FIGURES, ""),
        **dict.fromkeys(("after_gap_p50_ns", "following_p50_ns", "gaps_reconnected"), ""),
        **dict.fromkeys(("gap_penalty_ns", "gap_penalty_low_ns", "gap_penalty_high_ns"), ""),
        "server_cpu_per_request_ns": "600000.0", "server_cpus": "0.9",
        "server_queue_ns": "500000.0", "server_compute_ns": "1000000.0", "generator_cpu_share": "0.4", "energy_per_inference_j": "",
        "slo": "", "valid": "True", "warnings": "few_samples",
    }  # fmt: skip


@pytest.mark.parametrize(("reported", "mean"), [(4, "2.5"), (0, "")])
def test_the_tokens_of_an_answer_are_the_mean_of_those_that_report_them(result, reported, mean):
    tokens = Tokens(input=7, output=10, reported=reported, several_in_event=0)
    (row,) = rows_of(points_frame([result.points[0].model_copy(update={"tokens": tokens})]))
    assert row["output_tokens_per_answer"] == mean


def test_each_address_of_a_point_has_a_row(result):
    distribution = result.points[0].service_time_ns
    address = Replica(address="http://a", requests=4, ok=3, errors=1, throughput_per_s=1.5, times_ns=distribution, connections=2)
    assert addresses_frame(result.points).empty
    (row,) = rows_of(addresses_frame([result.points[0].model_copy(update={"replicas": (address,)})]))
    assert row.items() >= {
        "protocol": "grpc", "level": "2", "address": "http://a", "throughput_per_s": "1.5", "times": "service", "samples": "3",
        "p50_ns": "2000000", "p99_ns": "", "scheduled": "4", "ok": "3", "error_rate": "0.25", "connections": "2",
    }.items()  # fmt: skip


def test_columns_of_numbers_can_be_computed_with(result):
    frame = points_frame([*result.points, *result.summary])
    assert frame["throughput_per_s"].sum() == pytest.approx(3.0)
    assert frame["p50_ns"].tolist() == [2_000_000, 2_000_000]


def test_a_sweep_has_its_keys_first_and_the_capacity_of_each_search_after_its_points(result):
    searched = result.model_copy(update={"search": SEARCH})
    cases: list[tuple[dict[str, object], Result | None]] = [
        ({"workload.batch_size": 4}, searched),
        ({"server.threads": 2}, result),
        ({"workload.batch_size": 8}, None),
    ]
    point, capacity, other = rows_of(sweep_frame(cases))
    assert list(point) == [
        "workload.batch_size", "server.threads", "protocol", "load", "level", "throughput_per_s", "inferences_per_s", "p50_ns", "p95_ns",
        "p99_ns", "error_rate", "slo", "valid", "capacity_low_per_s", "capacity_high_per_s",
    ]  # fmt: skip
    assert [(row["workload.batch_size"], row["server.threads"]) for row in (point, capacity, other)] == [("4", ""), ("4", ""), ("", "2")]
    assert (point["load"], point["level"], point["p50_ns"], point["valid"]) == ("closed", "2", "2000000", "True")
    given = {name: value for name, value in capacity.items() if value}
    assert given == {"workload.batch_size": "4", "load": "search", "level": "120.5", "valid": "True", "capacity_low_per_s": "118.0"}


def test_a_sweep_without_results_has_its_columns_alone():
    frame = sweep_frame([({"workload.batch_size": 4}, None)])
    assert frame.empty
    assert csv_text(frame).startswith("workload.batch_size,protocol,load,level,")
