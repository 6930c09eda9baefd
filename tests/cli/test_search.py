"""`perfkit run` with `load: search`: its files, output and exit codes."""

import json
import signal

SYNTHETIC = {
    "target": {"model": "synthetic"}, "workload": {"inputs": {"INPUT0": {"generate": "ones", "shape": [4]}}}, "telemetry": False,
}  # fmt: skip


def test_a_search_writes_its_probes_its_outcome_and_a_plot(perfkit, write_scenario):
    # every answer takes longer than the SLO allows, also on an overloaded machine, and there are two rates
    limits = {"slo": {"p95": "1us", "error_rate": "5%"}, "start_rate": 80, "min_rate": 80, "max_rate": 160}
    server = {"synthetic": "service=constant:1ms,servers=100"}
    scenario = write_scenario(**SYNTHETIC, server=server, load={"search": limits}, measure={"warmup": "100ms", "duration": "500ms"})
    finished = perfkit.measure(scenario, code=1)
    search, points = finished.result["search"], finished.result["points"]
    assert search["stopped_because"] == "never_met"
    assert [point["load"]["rate_per_s"] for point in points] == [80, 160]
    assert search["slo"] == {"p95": "1us", "error_rate": "5%"}
    assert [probe["rate_per_s"] for probe in search["probes"]] == [point["load"]["rate_per_s"] for point in points]
    assert points[0]["load"] == {
        "kind": "open",
        "rate_per_s": 80.0,
        "arrivals": "poisson",
        "burstiness": None,
        "max_in_flight": None,
        "speed": None,
        "surge": None,
    }
    assert set(search) >= {"capacity_per_s", "low_per_s", "high_per_s", "confidence", "stopped_because"}
    assert search["reason"] in finished.stdout
    assert perfkit.run("report", finished.folder).code == 0
    for name in ("report.html", "report.md"):
        assert "is missed at every rate that was probed" in (finished.folder / name).read_text()
    assert (finished.folder / "plots" / "search.svg").read_text().startswith("<?xml")


def test_an_interrupted_search_keeps_its_probes(perfkit, write_scenario):
    load = {
        "search": {"slo": {"p99": "1h"}, "start_rate": 200}
    }  # each probe has 200 requests, for the p99, and meets the SLO until the generator is the bottleneck
    running = perfkit.start("run", write_scenario(**SYNTHETIC, load=load, measure={"warmup": "50ms", "duration": "300ms"}))
    running.wait_for_line("[1/30]")
    running.signal(signal.SIGINT)
    finished = running.finish()
    assert finished.code == 130
    assert finished.result["status"] == "interrupted"
    assert finished.result["search"]["stopped_because"] == "interrupted"
    assert len(finished.result["search"]["probes"]) >= 1


def test_a_search_is_validated_without_sending_requests(perfkit, write_scenario):
    load = {"search": {"slo": {"p99": "1ms"}, "precision": "5%", "budget": "20m"}}
    assert perfkit.run("validate", write_scenario(load=load, measure={"duration": "1s"})).code == 0
    refused = perfkit.run(
        "validate", write_scenario(load={"search": {"slo": {"p99": "1ms"}, "presision": "5%"}}, measure={"duration": "1s"})
    )
    assert refused.code == 2
    assert "unknown key; did you mean 'precision'?" in refused.stderr
    assert "Search" in json.dumps(json.loads(perfkit.run("schema").stdout))
