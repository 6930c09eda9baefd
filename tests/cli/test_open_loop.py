"""`perfkit run` with arrivals, and with an SLO: results and exit codes."""

import pytest

from tests.bundled_server import bundled_server

OPEN = {"open": {"rate": 100, "arrivals": "poisson"}}
SHORT = {"warmup": "100ms", "duration": "300ms", "repetitions": 2}


def test_arrivals_are_measured_from_their_intended_start(perfkit, write_scenario, slow_server):
    finished = perfkit.measure(write_scenario(**slow_server, load=OPEN, measure=SHORT))
    points = finished.result["points"]
    expected = [(repetition, protocol, 100.0) for repetition in (0, 1) for protocol in ("http", "grpc")]
    assert [(one["repetition"], one["protocol"], one["load"]["rate_per_s"]) for one in points] == expected
    for one in points:
        counts = one["requests"]
        assert counts["scheduled"] == counts["dropped"] + counts["sent"] > 0
        assert counts["sent"] == sum(value for key, value in counts.items() if key not in ("scheduled", "dropped", "sent"))
        assert one["response_time_ns"]["count"] == one["service_time_ns"]["count"] == one["start_delay_ns"]["count"]
        assert one["response_time_ns"]["max"] >= one["service_time_ns"]["min"] > 0
    tags = {
        line.split(",")[0].removeprefix("Tag=") for line in (finished.folder / "latency.hlog").read_text().splitlines() if "Tag=" in line
    }
    assert tags == {
        f"p{point}.r{repetition}.{kind}" for point in range(2) for repetition in (0, 1) for kind in ("service", "response", "delay")
    }
    assert "response times, finished − intended start" in finished.stdout


def test_both_protocols_and_every_run_get_the_same_arrivals(perfkit, write_quick_scenario):
    scenario = write_quick_scenario(
        load={"open": {"rate": 100}}, measure={**SHORT, "repetitions": 1}, target={"model": "simple", "protocols": ["http", "grpc"]}
    )
    counts = [one["requests"]["scheduled"] for _ in range(2) for one in perfkit.run("run", scenario).result["points"]]
    assert len(counts) == 4
    assert len(set(counts)) == 1


def test_a_trace_is_sent_as_written(perfkit, write_scenario, slow_server, tmp_path):
    (tmp_path / "trace.txt").write_text("# seconds\n" + "\n".join(str(1000 + number * 0.01) for number in range(50)))
    load = {"open": {"arrivals": "trace", "trace": "trace.txt"}}
    measure = {"warmup": "0s", "duration": "700ms", "repetitions": 1}
    for point in perfkit.measure(write_scenario(**slow_server, load=load, measure=measure)).result["points"]:
        assert point["requests"]["scheduled"] == 50
        assert point["load"]["arrivals"] == "trace"


@pytest.mark.parametrize(
    ("text", "measure", "message"),
    [
        ("", {"warmup": "0s"}, "contains no arrivals"),
        ("1\n0.5\n", {"warmup": "0s"}, "the timestamps decrease"),
        ("a\n", {"warmup": "0s"}, "not a list of seconds, one per line"),
        ("1 2\n", {"warmup": "0s"}, "expected one number per line"),
        ("1\n1e300\n", {"warmup": "0s"}, "expected one number per line, between -1e+09 and 1e+09"),
        ("1\nnan\n", {"warmup": "0s"}, "expected one number per line"),
        ("1\n2\n", {"warmup": "0s", "requests": 3}, "3 requests need as many arrivals, and"),
        ("1\n", {"warmup": "1s"}, "set measure.warmup to 0s"),
    ],
)
def test_an_unusable_trace_is_reported_before_anything_starts(perfkit, write_scenario, tmp_path, text, measure, message):
    (tmp_path / "trace.txt").write_text(text)
    scenario = write_scenario(load={"open": {"arrivals": "trace", "trace": "trace.txt"}}, measure=measure)
    for command in ("run", "validate"):
        finished = perfkit.run(command, scenario)
        assert finished.code == 2, finished.stderr
        assert message in finished.stderr
        assert "Traceback" not in finished.stderr
        assert "server:" not in finished.stderr, "it is told before anything is started"


@pytest.fixture(scope="module")
def failing_server():
    """Every second request fails."""
    with bundled_server("--model", "synthetic", "--synthetic", "service=constant:1ms,servers=8,seed=7,errors=50%:503") as urls:
        yield urls.http


@pytest.mark.parametrize(
    ("slo", "options", "code", "verdict"),
    [
        # no percentile decides: where neighbours disturb the machine, requests resemble each other, and no fixed number of them carries one
        ({"error_rate": "90%"}, [], 0, "satisfied"),
        ({"error_rate": "10%"}, [], 1, "violated"),
        ({"p99_99": "10s"}, [], 3, "inconclusive"),
        ({"p99_99": "10s"}, ["--on-inconclusive", "pass"], 0, "inconclusive"),
    ],
)
def test_an_slo_decides_the_exit_code(perfkit, write_scenario, failing_server, slow_server, slo, options, code, verdict):
    sections = {
        "target": {"model": "synthetic", "url": failing_server},
        "workload": slow_server["workload"],
        "telemetry": False,
        "load": {"closed": {"concurrency": 1}},
        "measure": {"warmup": "0s", "requests": 200, "repetitions": 1, "abort_error_rate": "100%"},  # half of them fail
    }
    finished = perfkit.measure(write_scenario(**sections, slo=slo), *options, code=code)
    assert [one["slo"]["verdict"] for one in finished.result["summary"]] == [verdict]
    assert f"SLO {verdict}" in finished.stderr
