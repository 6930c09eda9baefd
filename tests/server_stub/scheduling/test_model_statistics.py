"""Model statistics: rows S1 to S4 of the conformance checklist, and the counters themselves."""

from server_stub.models import NAMES
from server_stub.scheduling.model_statistics import FailureReason, Statistics, Timing

DURATIONS = {"success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss"}


def infer(wire, batch_size):
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [batch_size, 16], "data": [1] * 16 * batch_size} for name in ("INPUT0", "INPUT1")
    ]
    assert wire.infer({"inputs": inputs}).status == 200


def stats(wire):
    (entry,) = wire.get("/v2/models/simple/stats").json["model_stats"]
    return entry


def batch_count(entry, batch_size):
    return sum(one["compute_infer"]["count"] for one in entry["batch_stats"] if one["batch_size"] == batch_size)


def test_S1_every_request_and_every_row_is_counted(wire):
    before = stats(wire)
    for _ in range(5):
        infer(wire, 3)
    after = stats(wire)
    assert after["inference_stats"]["success"]["count"] - before["inference_stats"]["success"]["count"] == 5
    assert after["inference_count"] - before["inference_count"] == 15
    assert after["execution_count"] - before["execution_count"] == 5
    assert batch_count(after, 3) - batch_count(before, 3) == 5
    assert after["last_inference"] >= before["last_inference"]


def test_S2_all_eight_durations_are_reported(wire):
    infer(wire, 1)
    entry = stats(wire)
    assert (entry["name"], entry["version"]) == ("simple", "1")
    assert set(entry["inference_stats"]) == DURATIONS
    assert all(set(one) == {"count", "ns"} for one in entry["inference_stats"].values())
    assert {one["name"] for one in wire.get("/v2/models/stats").json["model_stats"]} == set(NAMES)


def test_S3_statistics_of_an_unknown_model_are_400(wire):
    answer = wire.get("/v2/models/nope/stats")
    assert (answer.status, answer.json) == (400, {"error": "requested model 'nope' is not available"})
    assert wire.get("/v2/models/simple/versions/9/stats").status == 400


def test_S4_the_queue_count_increases_with_each_request(wire):
    before = stats(wire)["inference_stats"]["queue"]["count"]
    infer(wire, 1)
    assert stats(wire)["inference_stats"]["queue"]["count"] == before + 1


def test_rejected_requests_are_not_counted(wire):
    before = stats(wire)
    assert wire.infer({"inputs": []}).status == 400
    assert stats(wire) == before


def test_tritonclient_reads_the_same_over_both_protocols(wire, triton_http, triton_grpc):
    infer(wire, 2)
    over_http = triton_http.get_inference_statistics("simple")["model_stats"][0]
    (over_grpc,) = triton_grpc.get_inference_statistics("simple").model_stats
    assert over_grpc.inference_count == over_http["inference_count"] > 0
    assert over_grpc.inference_stats.success.ns == over_http["inference_stats"]["success"]["ns"] > 0
    assert [one.batch_size for one in over_grpc.batch_stats] == [one["batch_size"] for one in over_http["batch_stats"]]


def test_a_success_adds_to_each_phase():
    statistics = Statistics()
    timing = Timing(started_ns=110, input_ready_ns=130, inferred_ns=170, finished_ns=250)
    statistics.add_execution(timing, [(100, 4)])
    statistics.add_execution(timing, [(100, 4)])
    entry = statistics.document("m", "1")
    assert {key: one["ns"] for key, one in entry["inference_stats"].items()} == {
        "success": 300,
        "fail": 0,
        "queue": 20,
        "compute_input": 40,
        "compute_infer": 80,
        "compute_output": 160,
        "cache_hit": 0,
        "cache_miss": 0,
    }
    assert (entry["inference_count"], entry["execution_count"]) == (8, 2)
    assert [(one["batch_size"], one["compute_infer"]) for one in entry["batch_stats"]] == [(4, {"count": 2, "ns": 80})]


def test_a_batch_is_one_execution_and_each_request_counts_its_full_times():
    statistics = Statistics(epoch_ns=lambda: 7_000_000)
    statistics.add_execution(Timing(started_ns=110, input_ready_ns=130, inferred_ns=170, finished_ns=250), [(100, 2), (60, 1), (90, 1)])
    entry = statistics.document("m", "1")
    assert {key: (one["count"], one["ns"]) for key, one in entry["inference_stats"].items() if one["count"]} == {
        "success": (3, 150 + 190 + 160),
        "queue": (3, 10 + 50 + 20),
        "compute_input": (3, 60),
        "compute_infer": (3, 120),
        "compute_output": (3, 240),
    }
    assert (entry["inference_count"], entry["execution_count"], entry["last_inference"]) == (4, 1, 7)
    assert [(one["batch_size"], one["compute_output"]) for one in entry["batch_stats"]] == [(4, {"count": 1, "ns": 80})]


def test_a_failure_adds_to_no_other_statistic():
    statistics = Statistics()
    statistics.add_failure(50, FailureReason.BACKEND)
    entry = statistics.document("m", "1")
    assert entry["inference_stats"]["fail"] == {"count": 1, "ns": 50}
    assert entry["inference_stats"]["success"]["count"] == entry["execution_count"] == entry["last_inference"] == 0
