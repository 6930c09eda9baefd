"""perfkit, AIPerf and guidellm as clients of OpenAI's API: one run of each, with the figures that it reports and its CPU time on the way."""

import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import psutil

from benchmarks.peers.clients import ClientError
from benchmarks.processes import ROOT, RunningServer, write_scenario

OWN, AIPERF, GUIDELLM = "perfkit", "AIPerf", "guidellm"
PROMPT = "one two three four five six seven eight"
_TIMEOUT_S = 240
_POLL_INTERVAL_S = 0.1
MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {word: number for number, word in enumerate(["[UNK]", "token", *sys.argv[2].split()])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


class LlmLoad(NamedTuple):
    """Chats with these output tokens, in this order: at a rate for some time, or so many streams at a time until all are answered."""

    server: RunningServer
    tokens: Sequence[int]
    seconds: float = 0.0
    rate_per_s: float | None = None
    streams: int = 1


class Sample(NamedTuple):
    """The CPU time of a client's processes so far, and the requests that the server has answered since it began."""

    cpu_s: float
    counted: int


class LlmFigures(NamedTuple):
    """What a client reports, and the samples of its run; `verdict` is why perfkit calls its own point not valid."""

    per_s: float
    first_token_p99_ms: float
    samples: Sequence[Sample]
    verdict: str = ""


LlmClient = Callable[[LlmLoad, pathlib.Path], LlmFigures]


def run_tree(command: Sequence[str], folder: pathlib.Path, server: RunningServer) -> list[Sample]:
    """Runs a client to its end; returns samples of the CPU seconds of all processes that it started, also of those that it killed. Raises ClientError."""
    log, before = folder / "log", server.inference_count("synthetic")
    samples = list[Sample]()
    with log.open("wb") as stream:
        process = psutil.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, cwd=ROOT)
        seen: dict[tuple[int, float], float] = {}
        end_s = time.monotonic() + _TIMEOUT_S
        while process.poll() is None:
            if time.monotonic() > end_s:
                for one in [*process.children(recursive=True), process]:
                    one.kill()
                process.wait()
                raise ClientError(f"{command[0]} did not end within {_TIMEOUT_S} s")
            counted = server.inference_count("synthetic") - before
            _note_cpu(process, seen)
            samples.append(Sample(sum(seen.values()), counted))
            time.sleep(_POLL_INTERVAL_S)
    if process.returncode not in (0, 5):  # 5: perfkit's, where it was the bottleneck itself
        raise ClientError(
            f"{command[0]} ended with exit code {process.returncode}: {log.read_text(encoding='utf-8', errors='replace')[-1500:]}"
        )
    return [*samples, Sample(sum(seen.values()), server.inference_count("synthetic") - before)]


def _note_cpu(process: psutil.Process, seen: dict[tuple[int, float], float]) -> None:
    """Notes the CPU seconds of a process and its descendants so far."""
    try:
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for one in family:
        try:
            times = one.cpu_times()
            seen[one.pid, one.create_time()] = times.user + times.system
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue


def write_rows(path: pathlib.Path, rows: Iterable[Mapping[str, object]]) -> pathlib.Path:
    """A file of JSON lines."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def run_own(load: LlmLoad, folder: pathlib.Path) -> LlmFigures:
    """`perfkit run`, whose whole window counts."""
    rate, is_open = load.rate_per_s, load.rate_per_s is not None
    prompts = write_rows(folder / "prompts.jsonl", ({"prompt": PROMPT, "max_tokens": tokens} for tokens in load.tokens))
    scenario = {
        "target": {"url": load.server.url(), "model": "synthetic", "api": "openai"},
        "workload": {"prompts": {"file": str(prompts), "extra": {"ignore_eos": True}}},
        "stream": {},
        "load": {"open": {"rate": [rate], "arrivals": "constant"}} if is_open else {"closed": {"concurrency": [load.streams]}},
        "measure": {"warmup": "0s", "repetitions": 1} | ({"duration": f"{load.seconds:g}s"} if is_open else {"requests": len(load.tokens)}),
    }
    command = [sys.executable, "-m", "perfkit", "run", str(write_scenario(folder, scenario)), "--quiet", "--out", f"{folder}/out"]
    samples = run_tree(command, folder, load.server)
    (point,) = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["points"]
    requests, p99_ns = point["requests"], point["first_token_time_ns"]["p99"]
    if requests["ok"] != requests["sent"]:
        raise ClientError(f"perfkit had failures: {requests}")
    verdict = "" if point["valid"] else ", ".join(f"`{warning['code']}`" for warning in point["warnings"])
    return LlmFigures(point["throughput_per_s"], float("nan") if p99_ns is None else p99_ns / 1e6, samples, verdict)


def aiperf_client(program: pathlib.Path, tokenizer: pathlib.Path) -> LlmClient:
    """AIPerf, without the telemetry that needs a GPU or a server's metrics."""

    def run(load: LlmLoad, folder: pathlib.Path) -> LlmFigures:
        rows = ({"text": PROMPT, "output_length": tokens} for tokens in load.tokens)
        command = [
            str(program),
            "profile",
            "--model=synthetic",
            f"--url={load.server.url()}",
            "--endpoint-type=chat",
            "--streaming",
            f"--tokenizer={tokenizer}",
            "--use-server-token-count",
            f"--input-file={write_rows(folder / 'prompts.jsonl', rows)}",
            "--custom-dataset-type=single_turn",
            "--dataset-sampling-strategy=sequential",
            "--extra-inputs=ignore_eos:true",
        ]
        command += ["--no-gpu-telemetry", "--no-server-metrics", "--ui=none", f"--artifact-dir={folder}/out"]
        if load.rate_per_s is None:
            command += [f"--concurrency={load.streams}", f"--request-count={len(load.tokens)}"]
        else:
            command += [f"--request-rate={load.rate_per_s:g}", "--arrival-pattern=constant", f"--benchmark-duration={load.seconds:g}"]
        samples = run_tree(command, folder, load.server)
        report = json.loads((folder / "out" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
        return LlmFigures(report["request_throughput"]["avg"], report["time_to_first_token"]["p99"], samples)

    return run


def guidellm_client(program: pathlib.Path, tokenizer: pathlib.Path) -> LlmClient:
    """guidellm, which saves a sample of its requests rather than all, as its documentation recommends."""

    def run(load: LlmLoad, folder: pathlib.Path) -> LlmFigures:
        out = folder / "out.json"
        rows = ({"prompt": PROMPT, "output_tokens_count": tokens} for tokens in load.tokens)
        prompts = write_rows(folder / "prompts.jsonl", rows)  # each row is sent once
        is_open = load.rate_per_s is not None
        profile = f"kind=constant,rate={load.rate_per_s:g}" if load.rate_per_s is not None else f"kind=concurrent,streams={load.streams}"
        limit = f"kind=max_duration,seconds={load.seconds:g}" if is_open else f"kind=max_requests,count={len(load.tokens)}"
        command = [
            str(program),
            "run",
            "--backend",
            f"kind=openai_http,target={load.server.url()},model=synthetic",
            "--profile",
            profile,
            "--constraint",
            limit,
        ]
        command += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}", "--data", f"kind=json_file,path={prompts}"]
        command += ["--metrics", "kind=generative,sample_size=20", "--output", f"kind=json,path={out}", "--disable-console"]
        samples = run_tree(command, folder, load.server)
        (benchmark,) = json.loads(out.read_text(encoding="utf-8"))["benchmarks"]
        metrics = benchmark["metrics"]
        p99_ms = metrics["time_to_first_token_ms"]["successful"]["percentiles"]["p99"]
        return LlmFigures(metrics["requests_per_second"]["successful"]["mean"], p99_ms, samples)

    return run


def measured(client: LlmClient, load: LlmLoad) -> LlmFigures:
    """A run of a client."""
    with tempfile.TemporaryDirectory(prefix="perfkit-llm-") as name:
        return client(load, pathlib.Path(name))


def version(program: pathlib.Path, package: str) -> str:
    """The version of a package in the environment that a program is installed in."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.run([str(program.with_name("python")), "-c", code], check=True, capture_output=True, text=True).stdout.strip()
