"""The proof on a GPU: a dry run of each part on the CPU, and the comparison of readings that only a GPU gives."""

import contextlib
import dataclasses
import datetime
import importlib
import json
import math
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
import yaml

from benchmarks.gpu import prove, prove_gate, prove_memory, prove_plan, prove_server, prove_telemetry
from benchmarks.gpu.direct import time_calls
from benchmarks.gpu.proof import Proof, UnavailableError
from benchmarks.gpu.prove_default import SCENARIO, TUNED, mean_rates, ratios_to_tuned, smallest_steps, tuned_scenario
from benchmarks.gpu.prove_gate import restarts_fit
from benchmarks.gpu.prove_server import add_fallbacks, check_ratios, compare, compare_with_torch, direct_rate, threads_in_use
from benchmarks.gpu.prove_telemetry import SmiReading, check_energy, compare_curves, parse_gpu_metrics, parse_smi, time_mean
from benchmarks.processes import ROOT, write_scenario
from perfkit.figures.resources import GpuFigures
from perfkit.scenario.file import read_scenario
from perfkit.telemetry.series import Series
from server_stub.executors.array import Executor
from tests import forked
from tests.json_server import JsonHandler, serving
from tests.queue_results import Writer
from tests.telemetry.fake_nvml.library import FakeNvml, compiled

NS_PER_S = 10**9


@pytest.fixture(autouse=True)
def _perfkit_is_forked(monkeypatch):
    for module in (prove_gate, prove_plan):
        monkeypatch.setattr(module, "subprocess", forked.by_forks)


@pytest.fixture
def proof(tmp_path):
    return Proof("server", "A title", "cpu", tmp_path, 100.0)


@pytest.mark.parametrize(
    ("part", "skipped", "without_gpu"),
    [
        ("default", ["direct calls beside PyTorch's graph"], ["direct ÷ PyTorch's graph"]),
        ("server", ["tests on a GPU", "FP16 beside PyTorch's graph"], ["tests"]),
        ("telemetry", ["curves under served load", "energy of a matrix product"], list(prove.REQUIRED["telemetry"])),
        ("memory", ["batch 1, CUDA shared memory"], list(prove.REQUIRED["memory"][:2])),
        ("plan", [], []),
        ("gate", [], []),
    ],
)
def test_a_dry_run_on_the_cpu_does_every_step_that_needs_no_gpu(part, skipped, without_gpu, tmp_path):
    proof = prove.prove(part, "cpu", tmp_path, is_short=True)
    assert proof.failed == []
    assert [sentence.partition(":")[0] for sentence in proof.skipped] == skipped
    report = (tmp_path / f"gpu-{part}.md").read_text()
    assert "**A dry run on the CPU: the steps work, and no figure here says anything about a GPU.**" in report
    assert json.loads((tmp_path / f"gpu-{part}.json").read_text())["part"] == part
    assert proof.is_passed
    prove.add_missing(proof)  # a figure that is required under another name than it is shown would always be missing
    assert [check.figure for check in proof.checks if check.measured == "not measured"] == without_gpu


def test_a_plan_is_made_from_results_and_is_part_of_the_report(proof, tmp_path):
    folder = Writer(tmp_path / "results")((20, 40, 60, 80, 95, 120), overloaded_from=100)
    prove_plan.add_plan(proof, [folder], tmp_path / "plan")
    assert proof.raw["plan"]["configurations"][0]["label"] == "gpu"
    assert "## The plan" in proof.lines
    assert "### The answer" in proof.lines


def test_a_gate_restarts_its_servers_only_if_that_fits_in_the_budget():
    assert restarts_fit(9.0, 400.0)
    assert not restarts_fit(10.0, 400.0)  # ten pairs would fit, but not if two of them must be measured again
    assert not restarts_fit(0.0, prove.PARTS["gate"][1])  # so that the part does not spend a start on finding out


def test_without_a_driver_nothing_is_proved_and_the_exit_code_is_3(tmp_path):
    (tmp_path / "libcuda.so.1").touch()  # no library, and it hides the machine's own, if there is one
    command, environment = [sys.executable, "-m", "benchmarks.gpu.prove"], {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 3
    assert ended.stderr.startswith("prove-gpu: the NVIDIA driver is not installed (")
    assert ended.stderr.endswith("DEVICE=cpu makes a dry run without a GPU.\n")


def test_a_failing_step_is_reported_and_the_next_one_goes_on(proof, tmp_path):
    assert proof.attempt("first", 1, lambda: 1 / 0) is None
    assert proof.attempt("second", 1, lambda: 7) == 7
    assert proof.failed == ["first: ZeroDivisionError: division by zero"]
    assert not proof.is_passed
    text = (tmp_path / "gpu-server.md").read_text()
    assert "- first: ZeroDivisionError: division by zero" in text
    assert "1 / 0" in json.loads((tmp_path / "gpu-server.json").read_text())["tracebacks"]["first"]


def test_a_step_without_time_or_without_what_it_needs_is_skipped_with_its_reason(tmp_path):
    now_s = iter(range(0, 1000, 10))
    proof = Proof("server", "A title", "cpu", tmp_path, 100.0, now_s=lambda: next(now_s))

    def unavailable():
        raise UnavailableError("TensorRT is not installed")

    assert proof.attempt("a", 1, unavailable) is None
    assert proof.attempt("b", 95, lambda: 1) is None
    assert proof.skipped[0] == "a: TensorRT is not installed"
    assert proof.skipped[1].startswith("b: it needs about 95 s, and ")
    assert proof.is_passed


def test_a_part_on_a_gpu_whose_figures_were_skipped_does_not_pass(proof):
    on_gpu = dataclasses.replace(proof, device="cuda")
    on_gpu.check("served ÷ direct over http", "0.97", "at least 0.95", is_met=True)
    on_gpu.skip("tests on a GPU", "no time is left")
    assert on_gpu.is_passed
    prove.add_missing(on_gpu)
    assert [check.figure for check in on_gpu.checks if not check.is_met] == list(prove.REQUIRED["server"][1:])
    assert not on_gpu.is_passed


def test_a_step_that_outlasts_the_part_ends_with_it_and_the_report_has_what_came_before(tmp_path):
    """A part alone has no other process that ends it."""
    code = (
        "import sys, time, types\n"
        "from benchmarks.gpu import prove\n"
        "def steps(proof):\n"
        "    proof.attempt('first', 0, lambda: proof.add('Measured before.'))\n"
        "    proof.attempt('hangs', 0, lambda: time.sleep(600))\n"
        "    proof.attempt('last', 1, lambda: proof.add('Not reached.'))\n"
        "sys.modules['benchmarks.gpu.prove_plan'] = types.SimpleNamespace(prove=steps)\n"
        "prove.PARTS['plan'] = ('A title', 2.0)\n"
        "sys.exit(prove.main())\n"
    )
    command = [sys.executable, "-c", code, "--part", "plan", "--device", "cpu", "--out", str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    text = (tmp_path / "gpu-plan.md").read_text()
    assert "- hangs: TimeoutError: the part's time is over" in text
    assert "- last: it needs about 1 s, and 0 s" in text
    assert "Measured before." in text
    assert "Not reached." not in text


class Timed(Executor):
    """The first call takes 0.5 s, others 5 ms, or 0.2 s while another thread calls too."""

    def __init__(self):
        self._calls = self._inside = 0

    def execute(self, inputs):
        self._calls, self._inside = self._calls + 1, self._inside + 1
        time.sleep(0.5 if self._calls == 1 else 0.005)
        if self._inside > 1:
            time.sleep(0.195)
        self._inside -= 1
        return {}


def test_direct_calls_count_only_after_the_warm_up_and_are_made_by_one_thread_and_by_several():
    """The limits are far from what either mistake would give."""
    alone, together = time_calls(Timed(), {4: [{}, {}]}, 0.2)
    assert [(point["batch"], point["threads"]) for point in (alone, together)] == [(4, 1), (4, 2)]
    assert 5 <= alone["p50_ms"] < 150
    assert together["p50_ms"] >= 150
    assert together["images_per_s"] <= 2 * 4 / 0.15


def test_an_error_of_a_direct_call_is_raised():
    class Broken(Executor):
        def execute(self, inputs):
            raise ValueError("no such input")

    with pytest.raises(ValueError, match="no such input"):
        time_calls(Broken(), {1: [{}, {}]}, 0.1)


# 2, 4 and 16 ms a call of one thread; three threads give twice as much
CALLED = [
    {"batch": batch, "threads": threads, "images_per_s": (1 if threads == 1 else 2) * rate}
    for batch, rate in ((1, 500.0), (8, 2000.0), (64, 4000.0))
    for threads in (1, 2, 3)
]


def test_the_direct_rate_of_any_number_of_rows_follows_from_the_time_of_a_call():
    assert direct_rate(CALLED, 8, 1) == pytest.approx(2000)
    assert direct_rate(CALLED, 36, 1) == pytest.approx(36 / 0.010)  # half way from 4 to 16 ms
    assert direct_rate(CALLED, 36, 3) == pytest.approx(2 * 36 / 0.010)


@pytest.mark.parametrize(
    ("concurrency", "batch", "rows", "threads"),
    [(1, 1, 1.0, 1), (2, 1, 1.0, 2), (128, 1, 18.6, 3), (16, 8, 64.0, 2), (4, 2, 8.0, 1), (5, 1, 2.2, 3)],
)
def test_direct_calls_are_made_by_as_many_threads_as_executions_can_be_in_flight(concurrency, batch, rows, threads):
    assert threads_in_use(concurrency, batch, rows, 3) == threads


def test_what_is_served_is_compared_with_direct_calls_of_as_many_rows_as_were_executed_together():
    point = {"protocol": "http", "images_per_s": 3600.0, "mean_batch": 8.0, "concurrency": 16}
    points = [
        {**point, "batch": 1, "concurrency": 1, "mean_batch": 1.0, "images_per_s": 400.0},
        {**point, "batch": 2},
        {**point, "batch": 64, "mean_batch": None, "images_per_s": 8000.0},
        {**point, "batch": 32, "images_per_s": None},
    ]
    compared = compare(points, {"threads": 3, "points": CALLED})
    assert [(one.batch, one.concurrency, one.rows, one.threads) for one in compared] == [
        (1, 1, 1, 1), (2, 16, 8, 3), (64, 16, 64, 3), (32, 16, 8, 3),
    ]  # fmt: skip
    assert [one.ratio for one in compared] == pytest.approx([0.8, 0.9, 1.0, 0.0])
    assert compare(points, None) == []


@pytest.mark.parametrize(
    ("rates", "expected", "measured", "is_met"),
    [
        ((500.0, 480.0), 2, "2 of 2 points; least 0.960 at batch 1, 2 in flight", True),
        ((500.0, 470.0), 2, "1 of 2 points; least 0.940 at batch 1, 2 in flight", False),
        ((500.0, 480.0), 12, "2 of 12 points; least 0.960 at batch 1, 2 in flight; 10 not measured", False),
    ],
)
def test_every_load_point_must_be_measured_and_as_fast_as_direct_calls(proof, rates, expected, measured, is_met):
    compared = [prove_server.Compared("http", 1, number, 1.0, 1, rate, 500.0) for number, rate in enumerate(rates, 1)]
    check_ratios(proof, "http", compared, expected)
    assert [(check.figure, check.measured, check.is_met) for check in proof.checks] == [("served ÷ direct over http", measured, is_met)]


def test_a_model_that_falls_back_to_something_slower_fails_the_proof(proof):
    add_fallbacks(
        proof, {"provider": "cuda", "models": {"a": {"graphs": True}, "b": {"graphs": False, "fallback": "no graphs: no memory"}}}
    )
    assert proof.failed == ["b is not executed as it should be: no graphs: no memory"]


def test_direct_calls_are_divided_by_the_rate_of_the_graph_of_pytorch(proof, monkeypatch):
    def rates(*per_s):
        return [
            {"batch": batch, "images_per_s": rate, "memory_format": "channels_last"} for batch, rate in zip((1, 8, 64), per_s, strict=True)
        ]

    monkeypatch.setattr(prove_server, "call_directly", lambda *_: {"threads": 3, "points": CALLED})
    monkeypatch.setattr(prove_server, "run_json", lambda *_: {"torch": "2.11", "points": {"tf32": rates(625.0, 2000.0, 3200.0)}})
    on_gpu = dataclasses.replace(proof, device="cuda")
    assert compare_with_torch(on_gpu, "tf32", (1, 8, 64), 0.4) == pytest.approx([0.8, 1.0, 1.25])
    assert "| 8 | 2,000 | 4,000 | 2,000 | channels_last | 1.00 |" in on_gpu.lines


def test_without_pytorch_the_comparison_is_skipped_with_its_reason_and_the_direct_calls_stay(proof, monkeypatch):
    monkeypatch.setattr(prove_server, "call_directly", lambda *_: {"threads": 3, "points": CALLED})
    monkeypatch.setattr(prove_server, "run_json", lambda *_: (_ for _ in ()).throw(UnavailableError("it needs torch")))
    on_gpu = dataclasses.replace(proof, device="cuda")
    assert on_gpu.attempt("PyTorch", 1, lambda: compare_with_torch(on_gpu, "tf32", (1, 8, 64), 0.4)) is None
    assert on_gpu.skipped == ["PyTorch: it needs torch"]
    assert "| 8 | 2,000 | 4,000 | – | – | – |" in on_gpu.lines


def test_the_graph_of_pytorch_without_pytorch_ends_with_exit_code_2_and_a_sentence(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")  # it hides the machine's own, if there is one
    command, environment = [sys.executable, "-m", "benchmarks.gpu.torch_limit"], {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == "PyTorch's graph is not measured, because it needs torch and torchvision: no torch here\n"


def test_the_smallest_step_from_one_load_point_to_the_next_is_found_for_each_protocol():
    rates = {("http", 1): 96.0, ("http", 4): 2.4, ("http", 8): 2.7, ("grpc", 1): 90.0, ("grpc", 4): 180.0, ("grpc", 8): 171.0}
    points = [
        {"protocol": protocol, "load": {"concurrency": concurrency}, "throughput_per_s": rate}
        for (protocol, concurrency), rate in reversed(rates.items())
    ]
    assert smallest_steps(points) == pytest.approx({"http": 0.025, "grpc": 0.95})


def test_rates_with_defaults_are_compared_with_those_of_tuned_options_at_each_point_of_both_protocols():
    points = [
        {"protocol": protocol, "load": {"concurrency": concurrency}, "throughput_per_s": rate}
        for protocol, concurrency, rate in [
            ("http", 1, 90.0), ("http", 1, 110.0), ("http", 8, 300.0), ("http", 8, None), ("http", 16, 7.0), ("grpc", 1, 50.0),
        ]
    ]  # fmt: skip
    shipped = mean_rates(points)
    assert shipped == {("http", 1): 100.0, ("http", 8): 150.0, ("http", 16): 7.0, ("grpc", 1): 50.0}
    ratios = ratios_to_tuned(shipped, {("http", 1): 80.0, ("http", 8): 300.0}, (1, 8))
    assert {key: ratio for key, ratio in ratios.items() if not math.isnan(ratio)} == {("http", 1): 1.25, ("http", 8): 0.5}
    assert set(ratios) == {("http", 1), ("http", 8), ("grpc", 1), ("grpc", 8)}  # what is missing is in it, and is within no limits


def test_the_tuned_scenario_is_the_shipped_one_with_the_options_that_are_named(tmp_path):
    shipped = read_scenario(SCENARIO).scenario
    tuned = read_scenario(write_scenario(tmp_path, tuned_scenario(yaml.safe_load(SCENARIO.read_text())))).scenario
    assert tuned.server is not None
    assert tuned.server.onnx is not None
    assert tuned.server.onnx.arguments() == ("precision=tf32", "layout=nhwc", "graphs=on", "instances=3", "max_batch=64")
    assert set(TUNED) == {"precision", "layout", "graphs", "instances", "max_batch"}
    assert shipped.server is not None
    assert shipped.server.onnx is None
    assert (tuned.target, tuned.workload) == (shipped.target, shipped.workload)
    assert set(tuned.load.closed.concurrency) <= set(shipped.load.closed.concurrency)


@pytest.mark.parametrize("part", prove.PARTS)
def test_the_steps_of_a_part_fit_into_its_budget_on_a_gpu(part, tmp_path, monkeypatch):
    """A step that needs more than the whole budget would always be skipped."""
    module = importlib.import_module(f"benchmarks.gpu.prove_{part}")
    title, budget_s = prove.PARTS[part]
    on_gpu = Proof(part, title, "cuda", tmp_path, budget_s)
    needs_s: list[float] = []
    monkeypatch.setattr(Proof, "has_onnx", lambda _: True)
    monkeypatch.setattr(Proof, "attempt", lambda _self, _name, need_s, _step: needs_s.append(need_s))
    monkeypatch.setattr(module, "serve", lambda *_, **__: contextlib.nullcontext(), raising=False)
    module.prove(on_gpu)
    assert needs_s
    assert sum(needs_s) <= budget_s - 5


def test_a_search_leaves_time_for_the_plan(tmp_path):
    now_s = iter((0.0, 40.0, 100.0))
    on_gpu = Proof("plan", "A title", "cuda", tmp_path, 115.0, now_s=lambda: next(now_s))
    assert prove_plan.search_budget_s(on_gpu) == 60
    assert prove_plan.search_budget_s(on_gpu) == 30


def test_all_parts_fit_into_15_minutes_of_a_gpu_with_its_start_and_the_wheels():
    assert sum(seconds for _, seconds in prove.PARTS.values()) <= 15 * 60 - 75


def test_other_outputs_in_one_way_are_seen_although_their_mean_is_the_same(proof):
    row = {"batch": 8, "protocol": "http", "p50_ms": 1.0, "images_per_s": 100.0}
    logits = np.linspace(-3, 3, 100, dtype=np.float32)
    for other, is_met in ((logits + np.float32(0.01), True), (logits[::-1], False)):
        proof.checks.clear()
        prove_memory.report(
            proof, [{**row, "way": "in the request", "outputs": logits}, {**row, "way": "system shared memory", "outputs": other}], 4
        )
        assert [check.is_met for check in proof.checks] == [is_met]


def test_a_required_figure_that_is_missed_fails_the_proof_on_a_gpu_alone(proof):
    proof.check("ratio", "0.90", "at least 0.95", is_met=False)
    assert proof.is_passed
    assert not dataclasses.replace(proof, device="cuda").is_passed


def test_readings_of_nvidia_smi_have_the_instant_of_their_timestamp():
    stamp = datetime.datetime(2026, 11, 22, 10, 30, 0, 250_000).astimezone()  # local time, as nvidia-smi prints it
    line, now_ns, wall_ns = (
        f"{stamp:%Y/%m/%d %H:%M:%S}.250, 97, 512.37, 1980, 4096\n",
        70 * NS_PER_S,
        int(stamp.timestamp() * 1e9) + 8 * NS_PER_S,
    )
    assert parse_smi(line, now_ns, wall_ns) == SmiReading(62 * NS_PER_S, (97.0, 512.37, 1980.0, 4096.0))
    assert parse_smi("[N/A], 97, [N/A], 1980, 4096\n", 5, wall_ns) == SmiReading(5, (97.0, None, 1980.0, 4096.0))


def test_a_value_holds_until_the_next_one():
    assert time_mean([0, 10, 30], [1.0, 2.0, 5.0], (5, 40)) == pytest.approx((5 * 1 + 20 * 2 + 10 * 5) / 35)
    assert time_mean([10], [4.0], (20, 30)) == 4.0
    assert time_mean([10], [4.0], (5, 30)) is None


def test_metrics_of_the_first_gpu_are_read():
    page = '# HELP x\nnv_gpu_utilization{gpu_uuid="GPU-1"} 0.5\nnv_gpu_utilization{gpu_uuid="GPU-2"} 0.9\nnv_inference_count{model="m"} 3\n'
    assert parse_gpu_metrics(page) == {"nv_gpu_utilization": 0.5}


def curves(sampled_w, read_w):
    """Ten seconds of constant power by both readers."""
    times_ns = tuple(second * NS_PER_S for second in range(11))
    series = Series("gpu_power", "W", {"gpu": "0"}, times_ns, (sampled_w,) * 11)
    return [series], [SmiReading(time_ns, (50.0, read_w, 1980.0, 1024.0)) for time_ns in times_ns], (0, 10 * NS_PER_S)


@pytest.mark.parametrize(("sampled_w", "is_met"), [(400.0, True), (419.0, True), (430.0, False)])
def test_power_by_two_readers_is_compared_over_the_span_that_both_cover(proof, sampled_w, is_met):
    compare_curves(proof, *curves(sampled_w, 400.0))
    (check,) = proof.checks
    assert (check.figure, check.is_met) == ("mean power: NVML sampler and nvidia-smi", is_met)
    assert (proof.out / "gpu-server-power.svg").read_text().startswith("<?xml")
    assert "| gpu_utilization | – | reported | – | – |" in "\n".join(proof.lines)


@pytest.mark.parametrize(
    ("counted_j", "source", "is_met"), [(4000.0, "counter", True), (4100.0, "counter", False), (4000.0, "power", False)]
)
def test_energy_is_taken_two_ways_and_must_agree_within_2_percent(proof, counted_j, source, is_met):
    figures = GpuFigures("GPU-1", "H200", "nvml", power_mean_w=400.0, energy_j=counted_j, energy_source=source, power_source="instant")
    _, readings, span = curves(400.0, 398.0)
    check_energy(proof, figures, readings, span)
    assert [check.is_met for check in proof.checks] == [is_met]


class Metrics(JsonHandler):
    def do_GET(self):
        self.answer_bytes(200, b'nv_gpu_utilization{gpu_uuid="GPU-a"} 0.5\n')


def test_all_readers_sample_during_a_load(tmp_path, tmp_path_factory):
    """On a fake NVML library and a fake nvidia-smi, both with a constant 100 W."""
    shutil.copy(compiled(tmp_path_factory), tmp_path)
    script, smi, out = tmp_path / "script.txt", tmp_path / "nvidia-smi", tmp_path / "out"
    script.write_text("gpu\nuuid GPU-a\npower_mw 100000\nutilization 50\nmemory_used 1073741824\nsm_clock 1980\n")
    smi.write_text("#!/bin/sh\nwhile :; do echo \"$(date '+%Y/%m/%d %H:%M:%S.%3N'), 50, 100.00, 1980, 1024\"; sleep 0.1; done\n")
    smi.chmod(0o755)
    environment = {**FakeNvml(tmp_path).environment(script), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with serving(Metrics) as port:
        command = [sys.executable, str(ROOT / "tests/benchmarks/sample_fake_gpu.py"), f"http://127.0.0.1:{port}/metrics", str(out)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    assert json.loads(ended.stdout) == [
        ["mean power: NVML sampler and nvidia-smi", True],
        ["energy: counter and integrated power", True],
        ["the server's metric nv_gpu_utilization", True],
    ]
    assert "Energy per image, from `perfkit run`: 250.00 mJ." in (out / "gpu-telemetry.md").read_text()
    assert json.loads((out / "gpu-telemetry.json").read_text())["gpu"]["uuid"] == "GPU-a"


def test_without_nvidia_smi_the_curves_are_skipped_with_that_reason(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="nvidia-smi cannot be started"), prove_telemetry.reading_smi([]):
        pass
