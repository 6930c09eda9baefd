"""Measures a real server of OpenAI's API, and compares perfkit's counts and times with the server's and with those of OpenAI's own client.

    python -m benchmarks.peers.openai_servers --python PATH/bin/python [--rounds 3] [--out reports/openai-servers.md]

The server is Hugging Face's `transformers serve` in the given Python (`pip install 'transformers[serving]' openai torch`), on the CPU, with a model of random
weights that a script makes. Each case sends a fixed number of requests, one after the other. The server must have logged as many answers as perfkit
sent and the one before each load; its tokens must be those asked for; the times of streamed chats are compared with those of OpenAI's client, in turn. Takes about
two minutes. The exit code is 1 if a count differs.
"""

import functools
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from benchmarks.peers.server_process import PeerError, answers, free_ports, ready_server
from benchmarks.processes import run_perfkit
from benchmarks.report import Report, describe_machine, program_options, yes_no

_PROGRAMS = pathlib.Path(__file__).with_name("openai_server_models")
CASES: Mapping[str, tuple[str, bool]] = {
    "chat, streamed": ("chat", True),
    "chat, whole": ("chat", False),
    "completions, streamed": ("completions", True),
    "completions, whole": ("completions", False),
}
_REQUESTS, _TOKENS = 40, 16
_FIRST_REQUESTS = 1
"""perfkit sends a request before each load, to see that the model answers."""


def answers_in(log: pathlib.Path) -> int:
    """The calls that the server has logged as answered."""
    return sum("POST /v1/" in line and " 200 " in line for line in log.read_text(encoding="utf-8").splitlines())


def measure(url: str, model: str, endpoint: str, *, is_streamed: bool) -> dict[str, Any]:
    """The load point of a case."""
    scenario = {
        "name": "openai",
        "target": {"url": url, "api": "openai", "model": model, "endpoint": endpoint},
        "workload": {"prompts": {"values": ["hello fox"], "max_tokens": _TOKENS, "extra": {"temperature": 0}}},
        "load": {"closed": {"concurrency": 1}},
        "measure": {"requests": _REQUESTS, "warmup": "0s", "repetitions": 1},
        **({"stream": {}} if is_streamed else {}),
    }
    point: dict[str, Any] = run_perfkit(scenario).point
    return point


def read_streams(python: pathlib.Path, url: str, model: str) -> list[tuple[float, float, int]]:
    """The first and whole times in seconds, and the tokens, of streamed chats by OpenAI's client."""
    command = [str(python), str(_PROGRAMS / "read_streams.py"), url, model, str(_REQUESTS), str(_TOKENS)]
    rows: list[tuple[float, float, int]] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return rows


def compare(report: Report, options: Any, url: str, model: str, log: pathlib.Path) -> None:
    """Both tables."""
    report.table("case", ">ok", ">sent", ">logged by the server", ">output tokens", "all as asked for")
    for name, (endpoint, is_streamed) in CASES.items():
        before = answers_in(log)
        point = measure(url, model, endpoint, is_streamed=is_streamed)
        requests, tokens, logged = point["requests"], point["tokens"], answers_in(log) - before
        holds = requests["ok"] == requests["sent"] == _REQUESTS == logged - _FIRST_REQUESTS and tokens["output"] == _TOKENS * _REQUESTS
        report.is_met &= holds
        report.row(name, requests["ok"], requests["sent"], logged, tokens["output"], yes_no(holds))
    report.section("Times of streamed chats, in turn")
    report.table("round", "program", ">first token p50", ">whole answer p50", ">tokens")
    for number in range(options.rounds):
        point = measure(url, model, "chat", is_streamed=True)
        p50s = (f"{point[key]['p50'] / 1e6:.1f} ms" for key in ("first_token_time_ns", "service_time_ns"))
        report.row(number + 1, "perfkit", *p50s, point["tokens"]["output"])
        rows = read_streams(options.python, url, model)
        p50s = (f"{1e3 * statistics.median(row[place] for row in rows):.1f} ms" for place in (0, 1))
        report.row(number + 1, "OpenAI's client", *p50s, sum(row[2] for row in rows))


def main() -> int:
    """Prints and writes the report; the exit code is 1 if a count differs."""
    options = program_options(__doc__, out="openai-servers", python=(pathlib.Path, "the Python with the server's packages"), rounds=3)
    if options.python is None:
        sys.exit("openai_servers: give --python, the Python with transformers, openai and torch")
    report = Report(options.out, "A real server of OpenAI's API, and what perfkit counts of it")
    versions = "import transformers, openai; print(transformers.__version__, openai.__version__)"
    done = subprocess.run([str(options.python), "-c", versions], check=True, capture_output=True, text=True)
    transformers, client = done.stdout.split()
    report.add(
        f"{describe_machine()} `transformers serve` {transformers} on the CPU, a Llama of two layers with random weights; OpenAI's client {client}. "
        f"{_REQUESTS} requests one after the other, each for {_TOKENS} tokens."
    )
    with tempfile.TemporaryDirectory(prefix="perfkit-openai-") as name:
        folder, port = pathlib.Path(name), free_ports(0)[0]
        model, log, url = str(folder / "tiny-llama"), folder / "log", f"http://127.0.0.1:{port}"
        subprocess.run([str(options.python), str(_PROGRAMS / "make_model.py"), model], check=True, capture_output=True)
        program = str(options.python.with_name("transformers"))
        command = ["env", "HF_HUB_OFFLINE=1", program, "serve", model, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
        try:
            with ready_server(command, functools.partial(answers, f"{url}/health"), log, within_s=90):
                compare(report, options, url, model, log)
        except PeerError as error:
            sys.exit(f"openai_servers: {error}")
    return report.write()


if __name__ == "__main__":
    raise SystemExit(main())
