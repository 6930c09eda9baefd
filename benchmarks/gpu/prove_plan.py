"""The part `plan`: the capacity of the GPU under p99 < 10 ms by a search, and a plan of how many such GPUs a demand needs."""

import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any

from benchmarks.gpu.proof import Proof
from benchmarks.gpu.prove_server import MODEL, WORKERS, Extent, serve
from benchmarks.processes import ROOT, RunningServer, run_perfkit
from benchmarks.report import table_head, table_row

PERCENTILE, LIMIT, DEMAND = "p99", "10ms", "20000/s"
_DRY = ("p50", "20ms", "1000/s")
_DRY_MODEL, _DRY_SERVICE = "synthetic", "service=exponential:5ms"
"""A dry run searches on a simulated queue: few of the CPU's answers come within seconds."""
_AFTER_SEARCH_S, _LONGEST_SEARCH_S, _SHORTEST_SEARCH_S = 15.0, 100, 30
"""What stays for the search's own start and end and for the plan, and the limits of a search's budget on a GPU."""


def prove(proof: Proof) -> None:
    """Measure the part."""
    if not proof.has_onnx():
        return
    work = proof.out / "gpu-plan"
    shutil.rmtree(work, ignore_errors=True)
    more = ("--synthetic", _DRY_SERVICE) if proof.is_dry_run else ()
    with serve(proof, (), *more, model=_DRY_MODEL if proof.is_dry_run else MODEL) as server:
        # a search that its budget ends may have too few rates for a plan
        rates = proof.attempt("closed and open loops", 2 if proof.is_dry_run else 30, lambda: _rates(proof, server, work))
        need_s = 2 if proof.is_dry_run else _SHORTEST_SEARCH_S + _AFTER_SEARCH_S
        search = proof.attempt("search", need_s, lambda: _search(proof, server, work / "search"))
    results = [*(rates or ()), *([work / "search"] if search is not None else [])]
    if results:
        proof.attempt("plan", 1, lambda: add_plan(proof, results, work / "plan"))


def _limit(proof: Proof) -> tuple[str, str, str]:
    """The percentile, its limit and the demand."""
    return _DRY if proof.is_dry_run else (PERCENTILE, LIMIT, DEMAND)


def _scenario(proof: Proof, server: RunningServer, name: str, load: dict[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "name": f"gpu-{name}",
        "target": {"url": server.url("http"), "model": _DRY_MODEL if proof.is_dry_run else MODEL},
        # the search's arrivals are others than those of the open loops, since a plan counts the same ones once
        "workload": {
            "seed": 1 if "search" in load else 0,
            "variants": 4,
            **({"inputs": {"INPUT0": {"shape": [1], "generate": "zeros"}}} if proof.is_dry_run else {}),
        },
        "load": load,
        "telemetry": not proof.is_short,
        "measure": {
            "warmup": f"{Extent.of(proof).warmup_s}s",
            **({} if proof.is_dry_run else {"workers": WORKERS}),
            "duration": f"{seconds}s",
            **({} if "search" in load else {"repetitions": 1}),
        },
    }


def _rates(proof: Proof, server: RunningServer, work: pathlib.Path) -> list[pathlib.Path]:
    """The results of a closed loop, which gives the saturated throughput, and of open loops at shares of it."""
    seconds = 0.2 if proof.is_short else 1.0 if proof.is_dry_run else 2.0
    concurrency = 8 if proof.is_dry_run else 128
    saturated, results = 200.0, []  # the simulated queue's, where time is short
    if not proof.is_short:
        closed = run_perfkit(_scenario(proof, server, "closed", {"closed": {"concurrency": [concurrency]}}, seconds), out=work / "closed")
        proof.raw["closed"] = closed.points
        saturated, results = max(point["throughput_per_s"] for point in closed.points), [work / "closed"]
    # the limit on the p99 is met far below the saturated throughput of a GPU that executes batches
    shares = (0.2, 0.4, 0.6, 0.8, 2.0) if proof.is_dry_run else (0.05, 0.1, 0.2, 0.4, 0.8)
    rates = [round(share * saturated, 1) for share in shares]
    proof.raw["open"] = run_perfkit(_scenario(proof, server, "open", {"open": {"rate": rates}}, seconds), out=work / "open").points
    return [*results, work / "open"]


def _search(proof: Proof, server: RunningServer, out: pathlib.Path) -> dict[str, Any]:
    seconds, budget_s, probes = (0.2, 2, 3) if proof.is_short else (1.0, 10, 8) if proof.is_dry_run else (4.0, search_budget_s(proof), 16)
    percentile, limit, _ = _limit(proof)
    start = {"start_rate": "100/s" if proof.is_dry_run else "1000/s"}
    load = {"search": {"slo": {percentile: limit}, "budget": f"{budget_s}s", "precision": "20%", "max_probes": probes, **start}}
    run = run_perfkit(_scenario(proof, server, "search", load, seconds), out=out)
    if run.result is None:
        raise RuntimeError(f"the search ended with exit code {run.exit_code}: {run.stderr[-800:]}")
    found: dict[str, Any] = run.result["search"]
    proof.raw["search"] = found
    figures = [found[key] for key in ("low_per_s", "capacity_per_s", "high_per_s")]
    low, capacity, high = ("unknown" if figure is None else f"{figure:,.0f}/s" for figure in figures)
    proof.add(
        f"## The highest rate of single images at {percentile} < {limit}, Poisson arrivals, over HTTP",
        "",
        f"{capacity} (90 % interval {low} to {high}); the search ended because of `{found['stopped_because']}`, exit code {run.exit_code}.",
        "",
        *table_head(">rate", ">p50", ">p99", "valid"),
        *(_probe(point) for point in run.result["points"]),
    )
    proof.check(f"capacity at {percentile} < {limit}", capacity, "known", is_met=figures[1] is not None)
    return found


def search_budget_s(proof: Proof) -> int:
    """What a search on a GPU may take, so that the plan is made within the part's own budget."""
    return max(_SHORTEST_SEARCH_S, min(_LONGEST_SEARCH_S, int(proof.remaining_s - _AFTER_SEARCH_S)))


def _probe(point: dict[str, Any]) -> str:
    times = point["response_time_ns"] or {}
    p50, p99 = ("–" if times.get(name) is None else f"{times[name] / 1e6:.2f} ms" for name in ("p50", "p99"))
    return table_row(f"{point['load']['rate_per_s']:,.0f}/s", p50, p99, "yes" if point["valid"] else "no")


def add_plan(proof: Proof, results: list[pathlib.Path], out: pathlib.Path) -> None:
    """Make the plan from result folders, and add it to the report."""
    percentile, limit, demand = _limit(proof)
    command = [sys.executable, "-m", "perfkit", "plan", *(f"gpu={folder}" for folder in results), "--quiet"]
    command += ["--slo", f"{percentile}<{limit}", "--demand", demand, "--redundancy", "1", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=max(20, proof.remaining_s))
    if ended.returncode == 3 and proof.is_dry_run:  # windows of tenths of a second often carry no plan
        proof.add("## The plan", "", f"None could be made: {ended.stderr.strip()[-800:]}")
        return
    if ended.returncode:
        raise RuntimeError(f"perfkit plan ended with exit code {ended.returncode}: {ended.stderr.strip()[-800:]}")
    proof.raw["plan"] = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    _, _, body = (out / "plan.md").read_text(encoding="utf-8").partition("\n")  # the title names model and date
    text = "## The plan\n" + body.replace("\n## ", "\n### ")
    proof.add(*text.strip().splitlines())
