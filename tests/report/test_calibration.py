"""The calibration in reports; one that cannot be read is left out."""

import pytest

from perfkit.calibration.model import parse_calibration
from perfkit.report.environment import print_calibration
from perfkit.report.render import render_html, render_markdown
from perfkit.report.run import run_page, run_summary_page

SPREAD = {
    "count": 900, "min": 1, "mean": 2.0, "stddev": 1.0, "p50": 21_000, "p90": 3, "p95": 4, "p99": 150_000, "p99_9": None, "p99_99": None, "max": 1_200_000,
}  # fmt: skip
CALIBRATION = {
    "schema": "perfkit.calibration/1", "measured_at": "2026-01-02T03:04:05+00:00", "host": {}, "server_cpus": [0], "driver_cpus": [1], "rounds": 3,
    "costs": [
        {
            "protocol": "grpc", "tensor_bytes": 602_112, "cpu_ns_per_request": 200_000.0, "ceiling_per_s": 4250.0,
            "service_time_p50_ns": 240_000, "bare_p50_ns": 230_000, "overhead_p50_ns": -10_000,
        }
    ],
    "start_delay_rate_per_s": 1000.0, "start_delay_ns": SPREAD, "timer_late_ns": SPREAD, "clock_resolution_ns": 1.0,
}  # fmt: skip


def with_calibration(result, calibration):
    generator = {**result.environment["generator"], "calibration": calibration}
    return result.model_copy(update={"environment": {**result.environment, "generator": generator}})


def test_ceilings_overhead_and_delays_are_shown(synthetic):
    result = with_calibration(synthetic().write(), CALIBRATION)
    text = render_markdown(run_summary_page(result))
    assert "\nCalibrated ceiling of one worker in a closed loop: grpc, 602,112 bytes: 4,250/s.\n" in text
    page = render_html(run_page(result, {}))
    assert "<h3>Calibration</h3>" in page
    assert "at most 4,250/s per worker: 200 µs of CPU time per request; overhead of p50 -10.0 µs" in page
    assert "p50 21.0 µs, p99 150 µs, max 1.20 ms" in page
    assert "schema" not in page.split("<h3>Calibration</h3>")[1].split("</dl>")[0]


@pytest.mark.parametrize("calibration", [None, {}, "of a later version", {"schema": "perfkit.calibration/2"}, {**CALIBRATION, "costs": 1}])
def test_a_calibration_that_cannot_be_read_is_left_out(synthetic, calibration):
    result = with_calibration(synthetic().write(), calibration)
    assert "alibrat" not in render_markdown(run_summary_page(result))
    assert "alibrat" not in render_html(run_page(result, {}))


def test_the_terminal_shows_a_row_per_protocol_and_the_delays(capsys):
    print_calibration(parse_calibration(CALIBRATION))
    printed = capsys.readouterr().out
    (row,) = [line for line in printed.splitlines() if line.startswith(" grpc")]
    assert row.split() == ["grpc", "602,112", "bytes", "200", "µs", "4,250/s", "240", "µs", "230", "µs", "-10.0", "µs"]
    assert "start delay at 1,000/s: p50 21.0 µs, p99 150 µs, max 1.20 ms\n" in printed
    assert printed.endswith("resolution of the clock: 1.00 ns\n")


def test_the_share_of_transport_in_the_service_times_is_shown_where_it_is_known(synthetic):
    result = synthetic().write()
    assert "transport and wake-up" not in render_markdown(run_summary_page(result))
    known = {"http": 138_000, "grpc": 160_000}
    points = [
        one.model_copy(update={"generator": one.generator.model_copy(update={"transport_ns": known[one.protocol]})})
        for one in result.summary
    ]
    said = "Of each service time, about 138 µs (http) and about 160 µs (grpc) is transport and wake-up of both sides on this machine"
    found = result.model_copy(update={"summary": tuple(points)})
    assert said in render_markdown(run_summary_page(found))
    assert said in render_html(run_page(found, {}))
