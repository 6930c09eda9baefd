"""NVIDIA's Model Analyzer on a real Triton without a GPU: its settings, one run, and its report.

It measures the model of `triton_ranked_models` without dynamic batching (`paced`) and with it (`paced_dynamic`), each with one instance and
with two. It also measures each model as it stands in the repository, which is with one instance: two of the six configurations are copies.
"""

import csv
import html
import json
import pathlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from benchmarks.peers.install import perf_analyzer_path
from benchmarks.peers.server_process import PeerError, free_ports

TEMPLATE = pathlib.Path(__file__).parent / "triton_ranked_models" / "paced"
MODELS = {"paced": "", "paced_dynamic": "dynamic_batching { }\n"}
CONCURRENCIES, LIMIT_MS = (2, 4, 8), 50
COPIES = {f"{model}_config_default": f"{model}_config_0" for model in MODELS}
"""The configurations that Model Analyzer measures twice: the repository's, and the equal one that it writes for one instance."""
_TIMEOUT_S = 1800


class Setting(NamedTuple):
    """A configuration under a load."""

    configuration: str
    concurrency: int


class Figures(NamedTuple):
    """The figures that Model Analyzer reports for a setting."""

    throughput_per_s: float
    p99_ms: float
    is_within: bool
    """Whether it reports that the constraint holds."""
    requests: int


class Analysis(NamedTuple):
    """One run of Model Analyzer: its ranking, best first, its figures, its sentence about the best configuration, and its duration."""

    ranking: list[str]
    figures: dict[Setting, Figures]
    sentence: str
    took_s: float


def write_models(folder: pathlib.Path) -> None:
    """Writes the model repository: one model without dynamic batching, and one with it."""
    for name, addition in MODELS.items():
        shutil.copytree(TEMPLATE, folder / name)
        file = folder / name / "config.pbtxt"
        file.write_text(file.read_text(encoding="utf-8").replace('"paced"', f'"{name}"') + addition, encoding="utf-8")


def analyzer_settings(work: pathlib.Path, peers: pathlib.Path) -> dict[str, Any]:
    """Model Analyzer's configuration file."""
    http, grpc, metrics = free_ports(0, 0, 0)
    instances = {"instance_group": [[{"kind": "KIND_CPU", "count": count}] for count in (1, 2)]}
    return {
        "model_repository": str(work / "models"),
        "output_model_repository_path": str(work / "variants"),
        "checkpoint_directory": str(work / "checkpoints"),
        "export_path": str(work / "export"),
        "triton_launch_mode": "local",
        "triton_server_path": str(peers / "bin" / "tritonserver"),
        "triton_http_endpoint": f"localhost:{http}",
        "triton_grpc_endpoint": f"localhost:{grpc}",
        "triton_metrics_url": f"http://localhost:{metrics}/metrics",
        "client_protocol": "grpc",
        "perf_analyzer_path": str(perf_analyzer_path(peers)),
        "perf_output": True,
        "perf_output_path": str(work / "perf_analyzer.txt"),
        "gpus": [],
        "collect_cpu_metrics": True,
        "run_config_search_mode": "brute",
        "run_config_search_disable": True,
        "batch_sizes": [1],
        "concurrency": list(CONCURRENCIES),
        "objectives": ["perf_throughput"],
        "constraints": {"perf_latency_p99": {"max": LIMIT_MS}},
        "num_configs_per_model": 10,
        "num_top_model_configs": 10,
        "inference_output_fields": ["model_config_path", "concurrency", "satisfies_constraints", "perf_throughput", "perf_latency_p99"],
        "profile_models": {model: {"model_config_parameters": instances} for model in MODELS},
    }


def analyze(program: pathlib.Path, work: pathlib.Path, peers: pathlib.Path) -> Analysis:
    """Runs Model Analyzer in an empty folder; raises PeerError if it fails."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    write_models(work / "models")
    settings = work / "settings.yaml"
    settings.write_text(json.dumps(analyzer_settings(work, peers), indent=1), encoding="utf-8")
    start_s = time.monotonic()
    with (work / "log").open("w", encoding="utf-8") as log:
        command = [str(program), "profile", "--config-file", str(settings)]
        code = subprocess.run(command, cwd=work, stdout=log, stderr=log, check=False, timeout=_TIMEOUT_S).returncode
    took_s = time.monotonic() - start_s
    summary = work / "export/reports/summaries/Best Configs Across All Models/result_summary.html"
    if code or not summary.exists():
        tail = (work / "log").read_text(encoding="utf-8").splitlines()[-10:]
        raise PeerError("\n".join([f"Model Analyzer ended with exit code {code}; its last output:", *tail]))
    ranking, sentence = read_summary(summary.read_text(encoding="utf-8"))
    counts = request_counts((work / "perf_analyzer.txt").read_text(encoding="utf-8"))
    rows = csv.DictReader((work / "export/results/metrics-model-inference.csv").read_text(encoding="utf-8").splitlines())
    return Analysis(ranking, read_figures(rows, counts), sentence, took_s)


def read_summary(page: str) -> tuple[list[str], str]:
    """The configurations of a summary's table, best first, and its sentence about the best."""
    ranking = [re.findall(r"<td[^>]*>(.*?)</td>", row)[0] for row in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL) if "<td" in row]
    found = re.search(r"In (?:<[^>]*>)?\d+(?:<[^>]*>)? measurements.*?constraints\.", page, re.DOTALL)
    sentence = " ".join(re.sub(r"<[^>]*>", "", html.unescape(found[0])).split()) if found else ""
    return ranking, sentence


def request_counts(output: str) -> dict[tuple[str, str], int]:
    """The requests of each measurement in the concatenated outputs of perf_analyzer, by its throughput and p99 (ms) with one decimal."""
    pattern = r"Request count: (\d+)\n.*?Throughput: ([\d.]+) infer/sec.*?p99 latency: (\d+) usec"
    found = re.findall(pattern, output, re.DOTALL)
    return {(f"{float(per_s):.1f}", f"{int(p99_us) / 1e3:.1f}"): int(count) for count, per_s, p99_us in found}


def read_figures(rows: Iterable[Mapping[str, str]], counts: Mapping[tuple[str, str], int]) -> dict[Setting, Figures]:
    """The rows of Model Analyzer's table of measurements; `counts` are those of `request_counts`."""
    figures = {}
    for row in rows:
        per_s, p99_ms = float(row["Throughput (infer/sec)"]), float(row["p99 Latency (ms)"])
        setting = Setting(row["Model Config Path"], int(row["Concurrency"]))
        requests = counts.get((f"{per_s:.1f}", f"{p99_ms:.1f}"), 0)
        figures[setting] = Figures(per_s, p99_ms, row["Satisfies Constraints"] == "Yes", requests)
    return figures


def write_variants(variants: pathlib.Path, repository: pathlib.Path) -> list[str]:
    """Makes a repository of all configurations that Model Analyzer wrote, each as a model of its own name; returns the names."""
    names = sorted(path.name for path in variants.iterdir())
    for name in names:
        shutil.copytree(variants / name, repository / name)
        file = repository / name / "config.pbtxt"
        file.write_text(re.sub(r'^name: ".*"', f'name: "{name}"', file.read_text(encoding="utf-8"), flags=re.MULTILINE), encoding="utf-8")
    return names


def analyzer_version(program: pathlib.Path) -> str:
    """The version that Model Analyzer reports."""
    return subprocess.run([str(program), "--version"], capture_output=True, text=True, check=False).stdout.strip().rpartition(" ")[2]
