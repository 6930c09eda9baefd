"""Frames of results, and the CSV that they write."""

import csv
import io

import pytest

from perfkit.result.frames import csv_text, points_frame, sweep_frame
from perfkit.result.model import Result, Search

SEARCH = Search(
    slo={"p99": "50ms"}, capacity_per_s=120.5, low_per_s=118.0, high_per_s=None, confidence=0.95, precision=0.05,
    stopped_because="precision", reason="",
)  # fmt: skip


def rows_of(frame):
    return list(csv.DictReader(io.StringIO(csv_text(frame))))


def test_a_row_has_the_figures_of_its_point(result):
    (row,) = rows_of(points_frame(result.points))
    assert row == {
        "protocol": "grpc", "load": "closed", "level": "2", "repetition": "0", "throughput_per_s": "1.5", "inferences_per_s": "1.5",
        "goodput_per_s": "", "times": "service", "samples": "3", "mean_ns": "2000000.0", "p50_ns": "2000000", "p90_ns": "", "p95_ns": "", "p99_ns": "",
        "p99_9_ns": "", "p99_99_ns": "", "max_ns": "3000000", "scheduled": "4", "ok": "3", "error_rate": "0.25", "start_delay_p99_ns": "",
        "server_queue_ns": "500000.0", "server_compute_ns": "1000000.0", "generator_cpu_share": "0.4", "energy_per_inference_j": "",
        "slo": "", "valid": "True", "warnings": "few_samples",
    }  # fmt: skip


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
