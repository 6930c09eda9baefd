"""`perfkit run` with a trace: what is sent at which instant, and what is said of a trace that cannot be replayed."""

import json

import pytest

from tests.json_server import serving, v2_handler


def rows(*given):
    return "".join(json.dumps(row) + "\n" for row in given)


def request(value):
    return {"inputs": [{"name": "i", "datatype": "FP32", "shape": [1], "data": [value]}]}


def test_a_trace_is_replayed_with_its_requests(perfkit, write_scenario, tmp_path):
    bodies = []

    class Noting(v2_handler(lambda _: None)):  # type: ignore[misc]  # a class made by a function
        def body(self):
            read = super().body()
            if self.path.endswith("infer"):
                bodies.append(json.loads(read)["inputs"][0]["data"])
            return read

    values = [1.0, 2.0, 2.0, 3.0, 1.0]
    (tmp_path / "t.jsonl").write_text(
        rows(*({"timestamp_ms": 200 * number, "request": request(value)} for number, value in enumerate(values)))
    )
    with serving(Noting) as port:
        scenario = write_scenario(
            target={"url": f"http://127.0.0.1:{port}", "model": "m"},
            load={"replay": {"trace": "t.jsonl", "speed": 2}},
            measure={"repetitions": 1},
        )
        (point,) = perfkit.measure(scenario).result["points"]
    # the first is the trial request; the server's threads may be late in any order
    assert sorted(bodies[1:]) == sorted([value] for value in values)
    assert (point["requests"]["scheduled"], point["requests"]["ok"]) == (5, 5)
    assert point["duration_s"] == pytest.approx(0.5)
    assert point["load"] == {
        "kind": "open", "rate_per_s": 10.0, "arrivals": "trace", "burstiness": None, "max_in_flight": None, "speed": 2.0, "surge": None,
    }  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trace_is_shared_by_workers_over_both_protocols(perfkit, write_scenario, slow_server, tmp_path, workers):
    shapes = [{"INPUT0": [1, 1 + number % 3]} for number in range(30)]
    (tmp_path / "t.jsonl").write_text(rows(*({"timestamp_ms": 20 * number, "shapes": one} for number, one in enumerate(shapes))))
    load, measure = {"replay": {"trace": "t.jsonl"}}, {"repetitions": 1, "workers": workers}
    result = perfkit.measure(write_scenario(**{**slow_server, "workload": {}}, load=load, measure=measure)).result
    for point in result["points"]:
        assert (point["requests"]["scheduled"], point["generator"]["workers"]) == (30, workers)


def test_the_models_of_a_trace_are_the_workloads_of_a_mix(perfkit, write_scenario, server, tmp_path):
    models = ["simple", "other", "simple", "simple", "other", "simple"]
    (tmp_path / "t.jsonl").write_text(rows(*({"timestamp_ms": 100 * number, "model": model} for number, model in enumerate(models))))
    workloads = [
        {"name": name, "model": model, "load": {"replay": {"trace": "t.jsonl", "model": name}}}
        for name, model in (("simple", "simple"), ("other", "simple_identity"))
    ]
    inputs = {"INPUT0": {"strings": ["x"], "shape": [1]}}
    scenario = write_scenario(
        target={"url": server.http}, load=None, workloads=[workloads[0], {**workloads[1], "inputs": inputs}], measure={"repetitions": 1}
    )
    points = perfkit.measure(scenario).result["points"]
    assert [(point.get("workload"), point["requests"]["ok"]) for point in points] == [(None, 6), ("simple", 4), ("other", 2)]
    assert [point["duration_s"] for point in points] == pytest.approx([0.6] * 3)


@pytest.mark.parametrize(
    ("replay", "measure", "message"),
    [
        ({"trace": "gone.csv"}, {}, "does not exist"),
        ({"trace": "t.csv"}, {"warmup": "1s"}, "set measure.warmup to 0s"),
        ({"trace": "t.csv", "speed": 0}, {}, "load.replay.speed"),
        ({"trace": "t.csv", "model": "x"}, {}, "load.replay.model"),
        ({"trace": "t.csv", "sped": 2}, {}, "did you mean 'speed'?"),
        ({"trace": "t.csv"}, {"requests": 7}, "7 requests need as many arrivals"),
    ],
)
def test_an_unusable_trace_is_reported_before_anything_starts(perfkit, write_scenario, tmp_path, replay, measure, message):
    (tmp_path / "t.csv").write_text("timestamp_ms,model\n0,a\n1,a\n")
    scenario = write_scenario(load={"replay": replay}, measure=measure)
    for command in ("run", "validate"):
        finished = perfkit.run(command, scenario)
        assert finished.code == 2, finished.stderr
        assert message in finished.stderr
        assert "server:" not in finished.stderr, "it is told before anything is started"
