"""The part `gate`: a paired gate of DenseNet-121 in FP32 against FP16, in short windows, with the effect that it can detect."""

import contextlib
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks.gpu.proof import Proof
from benchmarks.gpu.prove_server import serve
from benchmarks.processes import ROOT, run_perfkit, write_scenario
from benchmarks.report import table_head, table_row
from perfkit.gate.folder import VERDICT_FILE, read_verdict
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import Verdict

MODEL = "densenet_onnx"
BASELINE, CANDIDATE = "precision=fp32", "precision=fp16"
_DECIDED = (0, 1, 3)  # pass, regressed, inconclusive
_RUNS = 2 + 2 * 12  # the trial of both servers, the ten pairs of a gate, and two pairs that are measured again
_RUN_S, _STOP_S, _MARGIN_S = 5.0, 10.0, 25.0  # a run's warm-up, window and report; what stays for stopping, and for that and the verdict


def prove(proof: Proof) -> None:
    """Measure the part."""
    if not proof.has_onnx():
        return
    verdict = proof.attempt("gate", 20 if proof.is_dry_run else 85, lambda: _gate(proof))
    if verdict is not None:
        report(proof, verdict)


def _gate(proof: Proof) -> Verdict:
    out = proof.out / "gpu-gate"
    for folder in proof.out.glob("gpu-gate*/"):
        shutil.rmtree(folder)
    if proof.is_short:  # pairs of restarted servers take a minute: the gate is made from one result, compared with itself
        stored = str(_stored(proof))
        _run(proof, [], [stored, stored], out)
    else:
        # a start is not tried where even starts that take no time would not fit
        start_s = _start_s(proof) if restarts_fit(0.0, proof.remaining_s) else None
        file = write_scenario(proof.out, _scenario(proof))
        with contextlib.ExitStack() as running:
            if start_s is not None and restarts_fit(start_s, proof.remaining_s):
                targets = [f"cmd:{shlex.join(_command(proof, (option,)))} --grpc-port {{port}}" for option in (BASELINE, CANDIDATE)]
            else:
                why = f"{proof.remaining_s:.0f} s are left" if start_s is None else f"a start takes {start_s:.0f} s"
                proof.skip("restarting the servers between runs", f"{why}; the verdict covers two processes only")
                servers = [running.enter_context(serve(proof, (option,), model=MODEL)) for option in (BASELINE, CANDIDATE)]
                targets = [server.url("grpc") for server in servers]
            _run(proof, [str(file), "--pairs", "10"], targets, out)
        file.unlink()
    return read_verdict(out / VERDICT_FILE)


def restarts_fit(start_s: float, remaining_s: float) -> bool:
    """Whether all runs of a gate, each with a restarted server, end in time."""
    return _RUNS * (start_s + _RUN_S) < remaining_s - _MARGIN_S


def _start_s(proof: Proof) -> float:
    """What a start of the server takes."""
    started_s = proof.now_s()
    with serve(proof, (BASELINE,), model=MODEL):
        return proof.now_s() - started_s


def _command(proof: Proof, settings: Sequence[str]) -> list[str]:
    ports = ["--http-port", "0", "--metrics-port", "0", "--exit-with-stdin"]
    return [sys.executable, "-m", "server_stub", "--device", proof.device, "--model", MODEL, *ports, "--onnx", *settings]


def _stored(proof: Proof) -> pathlib.Path:
    """The result of one server."""
    out = proof.out / "gpu-gate-stored"
    with serve(proof, (BASELINE,), model=MODEL) as server:
        scenario = _scenario(proof)
        scenario["target"] = {"model": MODEL, "url": server.url("grpc")}
        run = run_perfkit({**scenario, "measure": {**scenario["measure"], "repetitions": 3}}, out=out)
    if run.result is None:
        raise RuntimeError(f"perfkit run ended with exit code {run.exit_code}: {run.stderr[-800:]}")
    return out


def _scenario(proof: Proof) -> dict[str, Any]:
    seconds, warmup_s = (0.2, 0.0) if proof.is_short else (2.0, 0.3) if proof.is_dry_run else (1.5, 0.3)
    return {
        "name": "gpu-gate",
        "target": {"model": MODEL, "protocols": ["grpc"]},
        "workload": {"variants": 2},
        "load": {"closed": {"concurrency": 2}},
        "measure": {"warmup": f"{warmup_s}s", "duration": f"{seconds}s"},
        "gate": {"metrics": ["throughput", "p50"]},
        "gpu": {"idle": "0s"},
        "telemetry": not proof.is_short,
    }


def _run(proof: Proof, arguments: list[str], targets: list[str], out: pathlib.Path) -> None:
    command = [sys.executable, "-m", "perfkit", "gate", *arguments, "--baseline", targets[0], "--candidate", targets[1]]
    process = subprocess.Popen(
        [*command, "--quiet", "--out", str(out)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        text, _ = process.communicate(timeout=max(20.0, proof.remaining_s - _STOP_S))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=_STOP_S)
        raise RuntimeError(f"the gate did not end within the budget: {text[-600:]}") from None
    finally:
        process.kill()  # its servers end with it
    proof.raw["output"] = text[-20_000:]
    is_decided = process.returncode in _DECIDED or (proof.is_dry_run and (out / VERDICT_FILE).exists())  # short windows are often invalid
    if not is_decided:
        raise RuntimeError(f"perfkit gate ended with exit code {process.returncode}: {text[-800:]}")


def report(proof: Proof, verdict: Verdict) -> None:
    """The verdict, and per metric the change with its interval and the minimum detectable effect."""
    proof.raw["verdict"] = verdict.model_dump(mode="json", by_alias=True)
    effect = verdict.minimum_detectable_effect
    stated = "unknown" if effect is None else f"{effect:.1%}"
    rows = [
        table_row(
            one.metric,
            format_change(one),
            "–" if one.minimum_detectable_effect is None else f"{one.minimum_detectable_effect:.1%}",
            one.verdict,
        )
        for one in verdict.comparisons
    ]
    proof.add(
        f"## The verdict on {CANDIDATE} against {BASELINE}: {verdict.kind}",
        "",
        " ".join(verdict.reasons),
        "",
        *table_head("metric", "change [interval]", ">minimum detectable effect", "verdict"),
        *rows,
        "",
        f"{verdict.pairs} pairs, two requests in flight over gRPC. A positive change is more throughput, or more time.",
    )
    proof.check("minimum detectable effect of the gate", stated, "stated", is_met=effect is not None)
