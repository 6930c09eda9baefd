"""The trial of a Triton with odd models: its cases without a Triton."""

import pytest

from benchmarks.peers.triton import ODD_MODELS
from benchmarks.processes import PerfkitRun
from benchmarks.triton_trial import CASES, scenario
from perfkit.scenario.model import Scenario

QUEUE = "a full queue and a time-out in it"
REJECTED = {"rejected": 5, "sent": 9, "ok": 4}


def failures(*causes):
    return [{"status": "503", "message": f"m{number}", "cause": cause, "count": count} for number, (cause, count) in enumerate(causes)]


def run_with(code=0, **point):
    return PerfkitRun(code, {"points": [{"warnings": [], "server": None, "requests": REJECTED, **point}]}, "")


def composing(*models):
    return {"composing_models": [{"name": name, "compute_infer_ns": ns} for name, ns in models]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_s_scenario_is_valid_and_triton_has_its_model(case):
    assert Scenario.model_validate(scenario(case, "http://127.0.0.1:1")).target.model == case.model
    assert (ODD_MODELS / case.model / "config.pbtxt").exists()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("one failed trial request", run_with(warnings=[{"code": "probe_retried"}]), PerfkitRun(6, None, "the probe request failed")),
        ("errors counted as successes", run_with(warnings=[{"code": "server_counts_errors"}]), run_with(warnings=[{"code": "server_counts_differ"}])),
        ("distinct messages", run_with(failures=failures((None, 3), (None, 2))), run_with(failures=failures((None, 3)))),
        (QUEUE, run_with(failures=failures(("queue_full", 3), ("queue_timeout", 2))), run_with(failures=failures(("queue_full", 3), (None, 2)))),
        ("an optional input left out", run_with(requests={"ok": 9, "sent": 9}), run_with()),
        ("an ensemble's models", run_with(server=composing(("resize", 4e6), ("classify", 9e6))), run_with(server={"requests": 1})),
        ("restricted metadata", PerfkitRun(6, None, "restricted: give target.headers"), PerfkitRun(6, None, "not a v2 server")),
        ("a model reloaded in mid-run", run_with(warnings=[{"code": "server_counters_reset"}]), run_with(server={"requests": 1, "client_requests": 4})),
    ],
)  # fmt: skip
def test_a_case_tells_a_right_result_from_a_wrong_one(name, right, wrong):
    (case,) = (case for case in CASES if case.name == name)
    assert case.find(right)[1]
    assert not case.find(wrong)[1]
