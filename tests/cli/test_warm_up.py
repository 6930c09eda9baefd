"""`perfkit run` with a warm-up that has a load of its own."""

import json
import urllib.request


def executed(server):
    with urllib.request.urlopen(f"{server.http}/v2/models/simple/stats") as answer:  # noqa: S310 - our own URL
        return json.load(answer)["model_stats"][0]["inference_count"]


def test_the_warm_up_sends_its_load_and_the_result_has_none_of_it(perfkit, write_quick_scenario, server):
    before = executed(server)
    warm_up = {"load": {"open": {"rate": 400}}, "for": "500ms"}
    scenario = write_quick_scenario(
        load={"closed": {"concurrency": 1, "think_time": "50ms"}}, measure={"warmup": warm_up, "requests": 10, "repetitions": 1}
    )
    (point,) = perfkit.measure(scenario).result["points"]
    assert (point["warmup_s"], point["requests"]["ok"]) == (1.5, 10)
    # about 200, and at most 20 in a second of the load point's own load
    assert executed(server) - before > 10 + 20 + 100


def test_a_replay_can_begin_on_a_warm_target(perfkit, write_quick_scenario, tmp_path):
    (tmp_path / "trace.csv").write_text("timestamp_s\n" + "\n".join(f"{number / 50}" for number in range(20)) + "\n")
    replay = {"replay": {"trace": "trace.csv", "columns": {"time": "timestamp_s", "unit": "s"}}}
    warm_up = {"load": {"closed": {"concurrency": 2, "think_time": "5ms"}}, "for": "300ms"}
    (point,) = perfkit.measure(write_quick_scenario(load=replay, measure={"warmup": warm_up, "repetitions": 1})).result["points"]
    assert (point["warmup_s"], point["requests"]["scheduled"], point["requests"]["ok"]) == (0.3, 20, 20)
