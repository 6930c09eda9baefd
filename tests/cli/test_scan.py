"""`perfkit run` with a scan, on the bundled server; the knee is tested in virtual time."""

import pytest

WORKLOAD = {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_scan_has_steps_up_to_its_end_a_page_and_a_chart(perfkit, write_scenario, workers):
    scenario = write_scenario(
        target={"model": "synthetic"}, server={"synthetic": "service=constant:20ms,servers=8"}, workload=WORKLOAD, telemetry=False,
        load={"closed": {"concurrency": {"from": 1, "to": 32, "over": "2s"}}}, measure={"warmup": "200ms", "workers": workers},
    )  # fmt: skip
    finished = perfkit.measure(scenario, report=True)
    (point,) = finished.result["summary"]
    assert point["load"] == {"kind": "ramp", "start": 1, "concurrency": 32, "over_s": 2.0}
    assert point["generator"]["workers"] == workers
    assert point["requests"]["ok"] == point["requests"]["sent"]
    steps = point["scan"]["steps"]
    assert (len(steps), steps[0]["lowest"], steps[-1]["highest"]) == (16, 1, 32)
    assert "no step is a steady load point" in (finished.folder / "report.html").read_text()
    assert (finished.folder / "plots" / "scan.svg").exists()


def test_a_scan_of_a_running_server_needs_no_scenario(perfkit, server):
    finished = perfkit.run(
        "run", server.http, "-m", "simple", "--set", "load.closed.concurrency={from: 1, to: 3, over: 1s}", "--set", "telemetry=false"
    )
    assert finished.result["summary"][0]["load"]["kind"] == "ramp"
    refused = perfkit.run("run", server.http, "-m", "simple", "--duration", "1s", "--set", "load.closed.concurrency={to: 3, over: 1s}")
    assert (refused.code, "remove measure.duration" in refused.stderr) == (2, True)
