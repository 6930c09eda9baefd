"""`perfkit run` with a scan, on a bundled server whose knee is known."""

import pytest

WORKLOAD = {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_scan_finds_the_knee_of_a_server_and_proposes_load_points(perfkit, write_scenario, workers):
    scenario = write_scenario(
        target={"model": "synthetic"}, server={"synthetic": "service=constant:20ms,servers=8"}, workload=WORKLOAD, telemetry=False,
        load={"closed": {"concurrency": {"from": 1, "to": 32, "over": "8s"}}}, measure={"warmup": "200ms", "workers": workers},
    )  # fmt: skip
    finished = perfkit.measure(scenario, report=True)
    (point,) = finished.result["summary"]
    assert point["load"] == {"kind": "ramp", "start": 1, "concurrency": 32, "over_s": 8.0}
    assert point["generator"]["workers"] == workers
    assert point["requests"]["ok"] == point["requests"]["sent"]
    steps, knee = point["scan"]["steps"], point["scan"]["knee"]
    assert (steps[0]["lowest"], steps[-1]["highest"]) == (1, 31)
    # 8 ÷ 20 ms are the most, but for those that a step takes over from the one before, and a request takes at least its service time
    assert max(one["throughput_per_s"] for one in steps) <= 1.2 * 400
    assert min(one["p50_ns"] for one in steps) >= 19_000_000
    if point["valid"]:  # the load generator was not held up
        assert knee["low"] <= 8 <= knee["high"]
        assert 8 in range(point["scan"]["proposed"][0], point["scan"]["proposed"][-1])
    assert "no step is a steady load point" in (finished.folder / "report.html").read_text()
    assert (finished.folder / "plots" / "scan.svg").exists()


def test_a_scan_of_a_running_server_needs_no_scenario(perfkit, server):
    finished = perfkit.run(
        "run", server.http, "-m", "simple", "--set", "load.closed.concurrency={from: 1, to: 3, over: 1s}", "--set", "telemetry=false"
    )
    assert finished.result["summary"][0]["load"]["kind"] == "ramp"
    refused = perfkit.run("run", server.http, "-m", "simple", "--duration", "1s", "--set", "load.closed.concurrency={to: 3, over: 1s}")
    assert (refused.code, "remove measure.duration" in refused.stderr) == (2, True)
