"""Model Analyzer's searches and `perfkit tune` on the same Triton and models: what each chose, in which time, and what that is worth.

    python -m benchmarks.peers.model_analyzer_tunes [--model NAME …] [--work FOLDER] [--analyzer PROGRAM] [--peers FOLDER] [--out reports/model-analyzer.md]

Each model is searched by Model Analyzer (`quick`, then `optuna`), which restarts Triton for each configuration, and then by `perfkit tune` on
a running Triton in half the time of the shorter of the two. All may vary the instances, the largest batch and dynamic batching within
the same limits, and have the same SLO. Afterwards the chosen configurations and the given one stand in one Triton, and
both perf_analyzer and perfkit measure each, in turn: its highest throughput within the SLO. The exit code is 1 if by either program the
configuration of `perfkit tune` has less than 97 % of the better one of Model Analyzer's. It takes about half an hour for a model.
`densenet` needs `onnxruntime` among the packages of Triton's Python.
"""

import argparse
import csv
import dataclasses
import functools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.peers.clients import MAX_RUN_S, ClientError, run_measured
from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.server_process import PeerError, free_ports
from benchmarks.peers.triton import Triton, running_triton
from benchmarks.processes import ROOT
from benchmarks.report import Report, describe_machine, program_options
from benchmarks.tune_live import models_folder
from server_stub.models.densenet import BATCH_NAME, seeded_file


@dataclasses.dataclass(frozen=True, slots=True)
class Space:
    """What every search of a model may vary, and its SLO."""

    slo_ms: int
    """The limit of the p99."""
    instances: tuple[int, ...] = (1, 2, 3, 4, 5)
    batches: tuple[int, ...] = (1, 2, 4, 8)
    concurrencies: tuple[int, ...] = (1, 2, 4, 8, 16, 32)


SPACES = {"crowded": Space(200), "batch_cost": Space(100), "densenet": Space(1000, (1, 2), (1, 2, 4), (1, 2, 4, 8))}
MODES = ("quick", "optuna")
_DENSENET = ROOT / "benchmarks" / "peers" / "triton_densenet_models" / "densenet"
_LEAST_SHARE = 0.97
_SEARCH_WITHIN_S = 3600
_ENDLESS_BYTES = 1_000_000  # of a log: a search that ends writes some 10 kB
_WINDOW_MS = 1500


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What a search chose."""

    name: str
    config: str
    """The model's configuration, as Triton's text; empty if the search failed."""
    words: str
    minutes: float
    tried: int


def analyze(model: str, mode: str, program: pathlib.Path, repository: pathlib.Path, peers: pathlib.Path, work: pathlib.Path) -> Choice:
    """Model Analyzer's choice, or the one that is in the folder from an earlier call."""
    if (stored := work / "choice.json").exists():
        return Choice(**json.loads(stored.read_text(encoding="utf-8")))
    work.mkdir(parents=True)
    http, grpc, metrics = free_ports(0, 0, 0)
    space = SPACES[model]
    settings = {
        "model_repository": str(repository),
        "output_model_repository_path": str(work / "variants"),
        "checkpoint_directory": str(work / "checkpoints"),
        "export_path": str(work / "export"),
        "triton_launch_mode": "local",
        "triton_server_path": str(peers / "bin" / "tritonserver"),
        "triton_http_endpoint": f"127.0.0.1:{http}",
        "triton_grpc_endpoint": f"127.0.0.1:{grpc}",
        "triton_metrics_url": f"http://127.0.0.1:{metrics}/metrics",
        "perf_analyzer_path": str(perf_analyzer_path(peers)),
        "gpus": [],
        "run_config_search_mode": mode,
        "run_config_search_max_concurrency": space.concurrencies[-1],
        "run_config_search_max_instance_count": space.instances[-1],
        "run_config_search_max_model_batch_size": space.batches[-1],
        "profile_models": {model: {"cpu_only": True, "constraints": {"perf_latency_p99": {"max": space.slo_ms}}}},
        "skip_summary_reports": False,
    }
    (work / "settings.yaml").write_text(json.dumps(settings, indent=1), encoding="utf-8")
    (work / "checkpoints").mkdir()
    began_s = time.monotonic()
    with (work / "log").open("w", encoding="utf-8") as log:
        command = [str(program), "profile", "--config-file", str(work / "settings.yaml")]
        search = subprocess.Popen(command, cwd=work, stdout=log, stderr=log, start_new_session=True)
        with search:
            while search.poll() is None and log_bytes(work) < _ENDLESS_BYTES and time.monotonic() < began_s + _SEARCH_WITHIN_S:
                time.sleep(0.2)
            is_endless = search.poll() is None
            if is_endless:
                os.killpg(search.pid, signal.SIGKILL)  # with Triton and perf_analyzer, which it started
    minutes, code = (time.monotonic() - began_s) / 60, search.returncode
    if is_endless:
        words = "did not end: it goes round configurations that it has measured" if log_bytes(work) >= _ENDLESS_BYTES else "did not end"
        return _kept(stored, Choice(f"Model Analyzer, {mode}", "", words, minutes, 0))
    file = work / "export" / "results" / "metrics-model-inference.csv"
    if code or not file.exists():
        last = (work / "log").read_text(encoding="utf-8").splitlines()[-1:]
        return _kept(stored, Choice(f"Model Analyzer, {mode}", "", f"ended with exit code {code}: {' '.join(last)}", minutes, 0))
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    best = max(
        (row for row in rows if row["Satisfies Constraints"] == "Yes"),
        key=lambda row: float(row["Throughput (infer/sec)"]),
        default=rows[0],
    )
    name = best["Model Config Path"]
    words = f"instances {best['Instance Group']}, batches of {best['Max Batch Size']}, concurrency {best['Concurrency']}"
    config = (work / "variants" / name / "config.pbtxt").read_text(encoding="utf-8")
    return _kept(stored, Choice(f"Model Analyzer, {mode}", config, words, minutes, len({row["Model Config Path"] for row in rows})))


def log_bytes(work: pathlib.Path) -> int:
    """The length of a search's log."""
    return (work / "log").stat().st_size


def _kept(stored: pathlib.Path, choice: Choice) -> Choice:
    stored.write_text(json.dumps(dataclasses.asdict(choice)), encoding="utf-8")
    return choice


def tune(model: str, time_limit_s: float, triton: Triton, work: pathlib.Path) -> Choice:
    """The choice of `perfkit tune`; raises PeerError."""
    space = SPACES[model]
    spaces = (f"instance_group.count={_list(space.instances)}", f"max_batch_size={_list(space.batches)}", "dynamic_batching=off,on")
    command = [
        sys.executable, "-m", "perfkit", "tune", triton.url(), "-m", model, "--slo", f"p99={space.slo_ms}ms", "-c", _list(space.concurrencies),
        *(word for space in spaces for word in ("--space", space)), "--time", f"{time_limit_s:.0f}s", "--out", str(work), "--quiet",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        raise PeerError(f"perfkit tune ended with exit code {done.returncode}: {done.stderr[-1000:]}")
    outcome = json.loads((work / "tune.json").read_text(encoding="utf-8"))
    best = work / "best.config.pbtxt"
    config = best.read_text(encoding="utf-8") if best.exists() else ""
    tried = sum(row["state"] != "waiting" for row in outcome["rows"])
    return Choice("perfkit tune", config, outcome["sentence"], outcome["duration_s"] / 60, tried)


def _list(values: Sequence[int]) -> str:
    return ",".join(map(str, values))


def by_perf_analyzer(peers: pathlib.Path, triton: Triton, model: str, space: Space, folder: pathlib.Path) -> float:
    """The highest throughput within the SLO by perf_analyzer, per second; raises ClientError."""
    report = folder / "report.csv"
    best = 0.0
    for concurrency in space.concurrencies[1:]:
        report.unlink(missing_ok=True)
        options = ["-u", f"127.0.0.1:{triton.http_port}", "--async", "--concurrency-range", str(concurrency)]
        windows = ["-p", str(_WINDOW_MS), "-s", "999", "-r", "3", "--percentile", "99", "-f", str(report)]
        run_measured([str(perf_analyzer_path(peers)), "-m", model, *options, *windows], timeout_s=MAX_RUN_S)
        with report.open(encoding="utf-8") as file:
            (row,) = csv.DictReader(file)
        if float(row["p99 latency"]) <= 1e3 * space.slo_ms:
            best = max(best, float(row["Inferences/Second"]))
    return best


def by_perfkit(triton: Triton, model: str, space: Space, folder: pathlib.Path) -> float:
    """The highest throughput within the SLO by `perfkit run`, per second, as perf_analyzer's of all points, valid or not; raises ClientError."""
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    options = [
        "-c",
        _list(space.concurrencies[1:]),
        "--duration",
        f"{3 * _WINDOW_MS}ms",
        "--set",
        "measure.repetitions=1",
        "--out",
        str(out),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", "run", triton.url(), "-m", model, *options, "--quiet"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 5):
        raise ClientError(f"perfkit run ended with exit code {done.returncode}: {done.stderr[-1000:]}")
    points = json.loads((out / "result.json").read_text(encoding="utf-8"))["points"]
    measured = [(one["service_time_ns"], one["throughput_per_s"]) for one in points]
    # the longest time, where requests are too few for a p99
    return max((rate for times, rate in measured if (times["p99"] or times["max"]) <= 1e6 * space.slo_ms), default=0.0)


def measure(
    choices: Mapping[str, Choice], model: str, repository: pathlib.Path, options: argparse.Namespace, work: pathlib.Path
) -> dict[str, dict[str, list[float]]]:
    """The throughput of each configuration within the SLO by each program, in rounds; all stand in one Triton. Raises PeerError, ClientError."""
    models, names = work / "chosen", {name: f"chosen_{number}" for number, name in enumerate(choices)}
    for name, choice in choices.items():
        shutil.copytree(repository / model, models / names[name])
        text = re.sub(r'(?m)^\s*name\s*:\s*"[^"]*"\s*$', "", choice.config, count=1)
        (models / names[name] / "config.pbtxt").write_text(f'name: "{names[name]}"\n{text}', encoding="utf-8")
    found: dict[str, dict[str, list[float]]] = {name: {"perf_analyzer": [], "perfkit": []} for name in choices}
    order = random.Random(0)
    with running_triton(options.peers, models=models) as triton:
        for number in range(options.rounds):
            for name in order.sample(list(choices), len(choices)):
                chosen, space = names[name], SPACES[model]
                programs: Mapping[str, Callable[[], float]] = {
                    "perf_analyzer": functools.partial(by_perf_analyzer, options.peers, triton, chosen, space, work),
                    "perfkit": functools.partial(by_perfkit, triton, chosen, space, work),
                }
                for program, run in programs.items():
                    found[name][program].append(run())
                    print(f"round {number + 1}, {name}, {program}: {found[name][program][-1]:.1f}/s", file=sys.stderr, flush=True)
    return found


def compare(model: str, report: Report, options: argparse.Namespace, work: pathlib.Path) -> None:
    """The section of a model. Raises PeerError, ClientError."""
    for folder in ("tune", "chosen"):
        shutil.rmtree(work / folder, ignore_errors=True)
    program = (options.analyzer or options.peers / "model-analyzer" / "bin" / "model-analyzer").absolute()
    with models_folder() as repository:
        if model == "densenet":
            shutil.copytree(_DENSENET, repository / model)
            shutil.copy(seeded_file(BATCH_NAME), repository / model / "1" / "model.onnx")
        given = Choice("as given", (repository / model / "config.pbtxt").read_text(encoding="utf-8"), "–", 0.0, 0)
        searched = [analyze(model, mode, program, repository, options.peers, work / mode) for mode in MODES]
        chosen = [one for one in searched if one.config]
        if not chosen:
            raise PeerError(f"neither search of Model Analyzer chose a configuration of {model}")
        minutes = min(one.minutes for one in chosen) / 2
        with running_triton(options.peers, models=repository, options=["--model-control-mode=explicit", f"--load-model={model}"]) as triton:
            tuned = tune(model, 60 * minutes, triton, work / "tune")
        tuned = tuned if tuned.config else dataclasses.replace(tuned, config=given.config)
        choices = {one.name: one for one in (given, *chosen, tuned)}
        found = measure(choices, model, repository, options, work)
    report.section(f"{model}, p99 within {SPACES[model].slo_ms} ms")
    report.table("search", "chosen", ">minutes", ">configurations", ">by perf_analyzer", ">by perfkit")
    for choice in (given, *searched, tuned):
        cells = (
            f"{statistics.median(values):,.0f}/s ({min(values):,.0f} to {max(values):,.0f})"
            for values in found.get(choice.name, {"perf_analyzer": [0.0], "perfkit": [0.0]}).values()
        )
        report.row(choice.name, choice.words, f"{choice.minutes:.1f}", choice.tried, *cells)
    for by in ("perf_analyzer", "perfkit"):
        best = max(statistics.median(found[one.name][by]) for one in chosen)
        report.is_met &= statistics.median(found[tuned.name][by]) >= _LEAST_SHARE * best


def main() -> int:
    """Prints and writes the report; the exit code is 1 if a configuration of `perfkit tune` is worse, or a program failed."""
    options = program_options(
        __doc__, out="model-analyzer", model=([*SPACES], "the models"), analyzer=(pathlib.Path, "Model Analyzer's program"), rounds=3,
        work=(pathlib.Path, "a folder in which Model Analyzer's choices are kept for a further call"), peers=peers_folder(None),
    )  # fmt: skip
    report = Report(options.out, "Model Analyzer's searches and `perfkit tune` on the same Triton")
    report.add(
        f"{describe_machine()} Model Analyzer 1.58.0 with perf_analyzer 2.60, on a Triton that it starts for each configuration; `perfkit tune` on one that runs, in half the time at most. "
        "The figures of the chosen configurations: the highest throughput within the SLO, measured afterwards in turn; median, least and most of the rounds."
    )
    try:
        with tempfile.TemporaryDirectory(prefix="perfkit-analyzer-") as name:
            for model in options.model:
                compare(model, report, options, (options.work or pathlib.Path(name)).absolute() / model)
    except (ClientError, PeerError, subprocess.TimeoutExpired) as error:
        sys.exit(f"model_analyzer_tunes: {error}")
    return report.write()


if __name__ == "__main__":
    raise SystemExit(main())
