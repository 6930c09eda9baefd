"""`perfkit run` with cold starts and idle gaps on the bundled server."""

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

from tests import forked

MS = 1_000_000
WORKLOAD = {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}}


@pytest.fixture(scope="module")
def repository():
    """The bundled server, whose clients may load and unload `synthetic`: its first request takes 80 ms, warm ones about 2 ms."""
    model = ("--model", "synthetic", "--synthetic", "service=constant:2ms,slow_start=40x/40ms", "--model-control-mode", "explicit")
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", *model]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        ready = json.loads(process.stdout.readline())
        yield {"http": f"http://127.0.0.1:{ready['http_port']}", "grpc": f"grpc://127.0.0.1:{ready['grpc_port']}"}
        process.stdin.close()


def is_ready(urls):
    with urllib.request.urlopen(f"{urls['http']}/v2/models/synthetic/ready") as answer:  # noqa: S310 - our own URL
        return answer.status == 200


def test_a_model_is_reloaded_over_both_protocols_and_its_first_answers_are_as_declared(perfkit, write_scenario, repository):
    scenario = write_scenario(
        target={"model": "synthetic", "urls": repository}, workload=WORKLOAD, load={"cold_start": {"requests": 60}},
        measure={"repetitions": 2},
    )  # fmt: skip
    finished = perfkit.measure(scenario, report=True)
    assert sorted((point["repetition"], point["protocol"]) for point in finished.result["points"]) == [
        (0, "grpc"),
        (0, "http"),
        (1, "grpc"),
        (1, "http"),
    ]
    for point in finished.result["summary"]:
        assert point["load"] == {"kind": "cold_start", "by": "reload", "requests": 60}
        assert point["requests"]["ok"] == 120
        starts = point["cold_start"]["starts"]
        assert [start["repetition"] for start in starts] == [0, 1]
        for start in starts:
            # every load makes a new model, whose service is slow at first; its answers leave up to 0.2 ms early
            assert start["first_answer_ns"] >= 79 * MS
            assert start["first_answer_ns"] == start["times_ns"][0] > start["warm_p50_ns"]
            assert 0 < start["load_ns"] <= start["ready_ns"] < start["first_answer_after_ns"]
            assert len(start["times_ns"]) == 60
        assert point["server"] is None
    assert "Cold starts" in (finished.folder / "report.html").read_text()
    assert (finished.folder / "plots" / "cold_start.svg").exists()
    assert is_ready(repository)


def test_an_interrupt_between_starts_leaves_a_loaded_model_and_a_result(perfkit, write_scenario, repository):
    scenario = write_scenario(
        target={"model": "synthetic", "url": repository["http"]}, workload=WORKLOAD, load={"cold_start": {"requests": 40}},
        measure={"repetitions": 500}, telemetry=False,
    )  # fmt: skip
    running = perfkit.start("run", scenario)
    running.wait_for_line("[2/500]")
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert (finished.code, finished.result["status"]) == (130, "interrupted")
    assert len(finished.result["points"]) >= 2
    assert is_ready(repository)


def test_the_bundled_server_is_restarted_at_the_same_address(perfkit, write_scenario):
    scenario = write_scenario(
        target={"model": "synthetic"}, server={"synthetic": "service=constant:2ms"}, workload=WORKLOAD,
        load={"cold_start": {"by": "restart", "requests": 40}}, measure={"repetitions": 2},
    )  # fmt: skip
    (point,) = perfkit.measure(scenario).result["summary"]
    for start in point["cold_start"]["starts"]:
        assert start["unload_ns"] is None
        assert start["load_ns"] is None
        assert 0 < start["ready_ns"] < start["first_answer_after_ns"]
    assert point["requests"]["ok"] == 80


def test_a_server_without_model_control_is_named_with_its_option(perfkit, write_scenario, server):
    for url in (server.http, server.grpc):
        finished = perfkit.run(
            "run",
            write_scenario(target={"model": "simple", "url": url}, load={"cold_start": {}}, measure={"repetitions": 1}, telemetry=False),
        )
        assert finished.code == 2
        assert "--model-control-mode explicit" in finished.stderr.splitlines()[-1]
        assert finished.stderr.splitlines()[-1].startswith(f"perfkit: {url}: the model 'simple' cannot be unloaded: ")


def test_the_first_request_after_an_idle_gap_pays_at_least_what_is_declared(perfkit, write_scenario):
    scenario = write_scenario(
        target={"model": "synthetic", "protocols": ["http", "grpc"]}, server={"synthetic": "service=exponential:3ms,after_gap=30ms/100ms"},
        workload=WORKLOAD, load={"idle": {"gap": "120ms", "then": 3}}, measure={"warmup": "0s", "requests": 80, "repetitions": 1},
    )  # fmt: skip
    # random service times: of constant ones a drifting machine would decide which lie above the median, and the interval would be open
    finished = perfkit.measure(scenario, report=True)
    for point in finished.result["summary"]:
        assert point["load"] == {"kind": "idle", "gap_s": 0.12, "then": 3}
        # answers leave up to 0.2 ms early
        assert point["after_gap_time_ns"]["min"] >= 29.8 * MS
        assert point["idle"]["gaps"] == point["after_gap_time_ns"]["count"] == 20
        assert point["idle"]["penalty_ns"]["low"] <= point["idle"]["penalty_ns"]["value"] <= point["idle"]["penalty_ns"]["high"]
        assert point["idle"]["reconnected"] == 0
    assert (finished.folder / "plots" / "idle.svg").exists()
