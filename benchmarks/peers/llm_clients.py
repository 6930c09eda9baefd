"""perfkit beside AIPerf and guidellm on the bundled server's OpenAI API: a stall that all should see, and what an event costs them.

    python -m benchmarks.peers.llm_clients --aiperf PATH/bin/aiperf --guidellm PATH/bin/guidellm [--part stall cost] [--rate 20 100]
                                           [--streams 1 16 64] [--seconds 40] [--realtime] [--out reports/llm-clients.md]

Each of the two is installed by the caller in an environment of its own (`pip install aiperf`, `pip install guidellm`); one that is not given is left
out. All send the same prompt to chats of the model `synthetic`, streamed, with the options that their documentation recommends, and count tokens by what the server
reports. Both need a tokenizer nevertheless: guidellm's Python makes one whose tokens are words, since hubs of models may be out of reach.

*stall*: requests at a fixed rate, while no request gets its first event in one second of every ten. The truth is what the simulated queue
gives for arrivals at exactly that rate, in whole periods. *cost*: closed loops, with a long and a short run each; CPU seconds, user and system, of the client
and all processes that it started, by the requests that the server counted between them. Takes about 20 minutes.
"""

import argparse
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import psutil

from benchmarks.peers.clients import ClientError
from benchmarks.processes import ROOT, RunningServer, running_server, write_scenario
from benchmarks.report import Report, describe_machine, program_options
from server_stub.synthetic.declaration import parse_service_model
from server_stub.synthetic.simulated_queue import SimulatedQueue

OWN, AIPERF, GUIDELLM = "perfkit", "AIPerf", "guidellm"
PROMPT = "one two three four five six seven eight"
STALL = "service=constant:20ms,servers=1000,stall=1s/10s,gap=5ms,usage=chunks"
STALL_TOKENS = 8
LONG_TOKENS, SHORT_TOKENS = 64, 4
EVENTS_PER_S = 1600  # of all streams of a closed loop, or 1000 of a single one: what the server can send on time beside a busy client
COST_SECONDS, START_SECONDS = 12.0, 3.0
_TIMEOUT_S = 240
_POLL_INTERVAL_S = 0.1
_PHASES = 20
_MAKE_TOKENIZER = """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = {word: number for number, word in enumerate(["[UNK]", "token", *sys.argv[2].split()])}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(sys.argv[1])
"""


class LlmLoad(NamedTuple):
    """Chats with so many output tokens: at a rate for some time, or so many streams at a time for about that time."""

    url: str
    tokens: int
    seconds: float
    requests: int
    """What a client that takes no time in a closed loop is given in its place."""
    rate_per_s: float | None = None
    streams: int = 1


class LlmFigures(NamedTuple):
    """What a client reports, and the CPU time of its processes."""

    requests: float
    per_s: float
    first_token_p99_ms: float
    cpu_s: float
    counted: int = 0
    """The requests that the server counted."""


LlmClient = Callable[[LlmLoad, pathlib.Path], LlmFigures]


def run_tree(command: Sequence[str], folder: pathlib.Path) -> float:
    """Runs a client to its end; returns the CPU seconds of all processes that it started, also of those that it killed. Raises ClientError."""
    log = folder / "log"
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
            _note_cpu(process, seen)
            time.sleep(_POLL_INTERVAL_S)
    if process.returncode not in (0, 5):  # 5: perfkit's, where it was the bottleneck itself
        raise ClientError(
            f"{command[0]} ended with exit code {process.returncode}: {log.read_text(encoding='utf-8', errors='replace')[-1500:]}"
        )
    return sum(seen.values())


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


def run_own(load: LlmLoad, folder: pathlib.Path) -> LlmFigures:
    """`perfkit run`, whose whole window counts."""
    rate = load.rate_per_s
    loop: dict[str, Any] = (
        {"closed": {"concurrency": [load.streams]}} if rate is None else {"open": {"rate": [rate], "arrivals": "constant"}}
    )
    scenario = {
        "target": {"url": load.url, "model": "synthetic", "api": "openai"},
        "workload": {"prompts": {"values": [PROMPT], "max_tokens": load.tokens, "extra": {"ignore_eos": True}}},
        "stream": {},
        "load": loop,
        "measure": {"warmup": "0s", "duration": f"{load.seconds:g}s", "repetitions": 1},
    }
    cpu_s = run_tree(
        [sys.executable, "-m", "perfkit", "run", str(write_scenario(folder, scenario)), "--quiet", "--out", f"{folder}/out"], folder
    )
    (point,) = json.loads((folder / "out" / "result.json").read_text(encoding="utf-8"))["points"]
    requests, p99_ns = point["requests"], point["first_token_time_ns"]["p99"]
    if requests["ok"] != requests["sent"]:
        raise ClientError(f"perfkit had failures: {requests}")
    return LlmFigures(requests["sent"], point["throughput_per_s"], float("nan") if p99_ns is None else p99_ns / 1e6, cpu_s)


def aiperf_client(program: pathlib.Path, tokenizer: pathlib.Path) -> LlmClient:
    """AIPerf, without the telemetry that needs a GPU or a server's metrics."""

    def run(load: LlmLoad, folder: pathlib.Path) -> LlmFigures:
        prompts = folder / "prompts.jsonl"
        prompts.write_text(json.dumps({"text": PROMPT}) + "\n", encoding="utf-8")
        command = [
            str(program),
            "profile",
            "--model=synthetic",
            f"--url={load.url}",
            "--endpoint-type=chat",
            "--streaming",
            f"--tokenizer={tokenizer}",
        ]
        command += [
            f"--input-file={prompts}",
            "--custom-dataset-type=single_turn",
            f"--output-tokens-mean={load.tokens}",
            "--extra-inputs=ignore_eos:true",
        ]
        command += ["--no-gpu-telemetry", "--no-server-metrics", "--ui=none", f"--artifact-dir={folder}/out"]
        if load.rate_per_s is None:
            command += [f"--concurrency={load.streams}", f"--request-count={load.requests}"]
        else:
            command += [f"--request-rate={load.rate_per_s:g}", "--arrival-pattern=constant", f"--benchmark-duration={load.seconds:g}"]
        cpu_s = run_tree(command, folder)
        report = json.loads((folder / "out" / "profile_export_aiperf.json").read_text(encoding="utf-8"))
        return LlmFigures(report["request_count"]["avg"], report["request_throughput"]["avg"], report["time_to_first_token"]["p99"], cpu_s)

    return run


def guidellm_client(program: pathlib.Path, tokenizer: pathlib.Path) -> LlmClient:
    """guidellm, which saves a sample of its requests rather than all, as its documentation recommends."""

    def run(load: LlmLoad, folder: pathlib.Path) -> LlmFigures:
        prompts, out = folder / "prompts.jsonl", folder / "out.json"
        row = json.dumps({"prompt": PROMPT, "output_tokens_count": load.tokens}) + "\n"
        prompts.write_text(row * 10_000, encoding="utf-8")  # each row is sent once
        is_open = load.rate_per_s is not None
        profile = f"kind=constant,rate={load.rate_per_s:g}" if load.rate_per_s is not None else f"kind=concurrent,streams={load.streams}"
        limit = f"kind=max_duration,seconds={load.seconds:g}" if is_open else f"kind=max_requests,count={load.requests}"
        command = [
            str(program),
            "run",
            "--backend",
            f"kind=openai_http,target={load.url},model=synthetic",
            "--profile",
            profile,
            "--constraint",
            limit,
        ]
        command += ["--tokenizer", f"kind=huggingface_auto,model={tokenizer}", "--data", f"kind=json_file,path={prompts}"]
        command += ["--metrics", "kind=generative,sample_size=20", "--output", f"kind=json,path={out}", "--disable-console"]
        cpu_s = run_tree(command, folder)
        (benchmark,) = json.loads(out.read_text(encoding="utf-8"))["benchmarks"]
        metrics = benchmark["metrics"]
        p99_ms = metrics["time_to_first_token_ms"]["successful"]["percentiles"]["p99"]
        return LlmFigures(metrics["request_totals"]["successful"], metrics["requests_per_second"]["successful"]["mean"], p99_ms, cpu_s)

    return run


def measured(client: LlmClient, server: RunningServer, load: LlmLoad) -> LlmFigures:
    """A run of a client, with the requests that the server counted."""
    before = server.inference_count("synthetic")
    with tempfile.TemporaryDirectory(prefix="perfkit-llm-") as name:
        figures = client(load, pathlib.Path(name))
    return figures._replace(counted=server.inference_count("synthetic") - before)


def begin_stalls(server: RunningServer) -> None:
    """Sends the first request, with which the periods of the stalls begin, so that no client's run ends in a stall by design."""
    body = json.dumps({"model": "synthetic", "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=10)
    connection.request("POST", "/v1/chat/completions", body)
    connection.getresponse().read()
    connection.close()


def true_p99s_ms(rate_per_s: float, seconds: float) -> tuple[float, float]:
    """The lowest and the highest p99 of the time to the first token, of requests at exactly this rate: it depends on when in a period they begin."""
    p99s_ms = []
    for phase in range(_PHASES):
        queue = SimulatedQueue(parse_service_model(STALL))
        queue.arrive(0)
        arrivals_ns = [round((number + phase / _PHASES) * 1e9 / rate_per_s) for number in range(round(rate_per_s * seconds))]
        p99s_ms.append(float(np.percentile([queue.arrive(arrived_ns).departed_ns - arrived_ns for arrived_ns in arrivals_ns], 99)) / 1e6)
    return min(p99s_ms), max(p99s_ms)


def compare_stalls(report: Report, clients: Mapping[str, LlmClient], options: argparse.Namespace) -> None:
    """The section on stalls."""
    report.section(
        "A stall of 1 s in 10",
        f"Chats at a fixed rate for {options.seconds:g} s, {STALL_TOKENS} tokens each, beginning at any instant of a period. In one second of every ten no request gets its first event; all that wait get it at the "
        f"end of that second (`{STALL}`). The *truth* depends on when in a period the requests begin; *off by* is the distance to it.",
        "",
    )
    report.table("client", ">rate", ">delivered", ">p99, time to first token", ">truth", ">off by", ">CPU per request, with start-up")
    for rate_per_s in options.rate:
        low_ms, high_ms = true_p99s_ms(rate_per_s, options.seconds)
        for name, client in clients.items():
            with running_server("--model=synthetic", "--synthetic", STALL) as server:
                begin_stalls(server)
                found = measured(client, server, LlmLoad(server.url(), STALL_TOKENS, options.seconds, 0, rate_per_s=rate_per_s))
            off_ms = found.first_token_p99_ms - min(max(found.first_token_p99_ms, low_ms), high_ms)
            truth, off = f"{low_ms:.0f} to {high_ms:.0f} ms", f"{off_ms:+.1f} ms" if off_ms else "within"
            cpu = f"{1e3 * found.cpu_s / found.counted:.1f} ms"
            report.row(name, f"{rate_per_s:g}/s", f"{found.per_s:.1f}/s", f"{found.first_token_p99_ms:.1f} ms", truth, off, cpu)


def cpu_ms(client: LlmClient, server: RunningServer, tokens: int, streams: int, gap_ms: float) -> float:
    """CPU milliseconds of a request, between a short and a long run."""
    stream_s = 0.005 + gap_ms * (tokens - 1) / 1e3
    runs = []
    for seconds in (START_SECONDS, COST_SECONDS):
        requests = max(2, round(seconds / stream_s)) * streams
        runs.append(measured(client, server, LlmLoad(server.url(), tokens, seconds, requests, streams=streams)))
    short, long = runs
    if long.counted <= short.counted:
        raise ClientError(f"the server counted {short.counted} requests of a short run and {long.counted} of a long one")
    return 1e3 * (long.cpu_s - short.cpu_s) / (long.counted - short.counted)


def compare_costs(report: Report, clients: Mapping[str, LlmClient], options: argparse.Namespace) -> None:
    """The section on the cost of requests and events."""
    report.section(
        "CPU per request and per event",
        f"Closed loops; events of one token. The cost of an event is that by which requests of {LONG_TOKENS} tokens cost more than those of {SHORT_TOKENS}, shared among "
        f"the tokens between; medians of {options.rounds} rounds.",
        "",
    )
    report.table(
        "streams",
        ">gap of the events",
        "client",
        f">CPU per request of {SHORT_TOKENS}",
        f">of {LONG_TOKENS}",
        ">per event",
        ">of 64, beside perfkit",
    )
    for streams in options.streams:
        gap_ms = max(1.0, streams * 1e3 / EVENTS_PER_S)
        declared = f"service=constant:5ms,servers=1000,gap={gap_ms:g}ms,usage=chunks"
        own_ms = float("nan")
        for name, client in clients.items():
            with running_server("--model=synthetic", "--synthetic", declared) as server:
                short_ms, long_ms = (
                    statistics.median(cpu_ms(client, server, tokens, streams, gap_ms) for _ in range(options.rounds))
                    for tokens in (SHORT_TOKENS, LONG_TOKENS)
                )
            own_ms = long_ms if name == OWN else own_ms
            event_us = 1e3 * (long_ms - short_ms) / (LONG_TOKENS - SHORT_TOKENS)
            cells = (f"{short_ms:.2f} ms", f"{long_ms:.2f} ms", f"{event_us:.0f} us", f"{long_ms / own_ms:.1f} times")
            report.row(streams, f"{gap_ms:g} ms", name, *cells)


def version(program: pathlib.Path, package: str) -> str:
    """The version of a package beside a program of its environment."""
    code = f"import importlib.metadata; print(importlib.metadata.version({package!r}))"
    return subprocess.run([str(program.with_name("python")), "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Prints the tables."""
    options = program_options(
        __doc__, out="llm-clients", aiperf=pathlib.Path, guidellm=pathlib.Path, part=(["stall", "cost"], "what to measure"), rate=([20.0, 100.0], "requests a second"),
        streams=([1, 16, 64], "streams of the closed loops"), seconds=40.0, rounds=1, realtime=False,
    )  # fmt: skip
    if options.realtime:  # which servers and clients inherit
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    report = Report(options.out, "perfkit, AIPerf and guidellm on declared times")
    clients: dict[str, LlmClient] = {OWN: run_own}
    names = [OWN]
    with tempfile.TemporaryDirectory(prefix="perfkit-tokenizer-") as name:
        programs = {AIPERF: options.aiperf, GUIDELLM: options.guidellm}
        made_by = next((program for program in programs.values() if program is not None), None)
        if made_by is not None:
            subprocess.run([str(made_by.with_name("python")), "-c", _MAKE_TOKENIZER, name, PROMPT], check=True)
        for label, make in ((AIPERF, aiperf_client), (GUIDELLM, guidellm_client)):
            if programs[label] is not None:
                clients[label] = make(programs[label], pathlib.Path(name))
                names.append(f"{label} {version(programs[label], label.lower())}")
        report.add(
            f"{', '.join(names)}; one after the other on the bundled server's OpenAI API, all on the same {os.cpu_count()} CPUs"
            f"{', at real-time priority' * options.realtime}. {describe_machine()}",
            "All take the numbers of tokens from the server. AIPerf and guidellm want a tokenizer nevertheless; it is one made by a script, whose tokens are words.",
        )
        try:
            if "stall" in options.part:
                compare_stalls(report, clients, options)
            if "cost" in options.part:
                compare_costs(report, clients, options)
        except ClientError as error:
            sys.exit(f"llm_clients: {error}")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
