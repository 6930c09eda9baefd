"""perfkit beside AIPerf and guidellm on the bundled server's OpenAI API: a stall that all should see, and what an event costs them.

    python -m benchmarks.peers.llm_clients --aiperf PATH/bin/aiperf --guidellm PATH/bin/guidellm [--part stall cost most] [--rate 20 100]
                                           [--streams 1 16 64] [--rounds 2] [--seconds 40] [--realtime stall] [--out reports/llm-clients.md]

Each of the two is installed by the caller in an environment of its own (`pip install aiperf`, `pip install guidellm`); one that is not given is left
out. All send the same prompt to chats of the model `synthetic`, streamed, with the options that their documentation recommends, and count tokens by what the server
reports. Both need a tokenizer nevertheless: guidellm's Python makes one whose tokens are words, since hubs of models may be out of reach.

*stall*: requests at a fixed rate, while no request gets its first event in one second of every ten. The truth is what the simulated queue
gives for arrivals at exactly that rate, in whole periods. *cost*: closed loops that send short answers first and long ones then; CPU seconds, user and
system, of the client and all processes that it started, between two instants of each half, by the requests that the server counted between them. What
clients do before their first request and after their last one is not in it. *most*: twice as many streams each time, until a client delivers less than
the declared times give, or perfkit calls its own point not valid. The stall takes about 5 minutes, the cost 4, the most streams 4.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.peers.clients import ClientError
from benchmarks.peers.llm_programs import (
    AIPERF,
    GUIDELLM,
    MAKE_TOKENIZER,
    OWN,
    PROMPT,
    LlmClient,
    LlmLoad,
    Sample,
    aiperf_client,
    guidellm_client,
    measured,
    run_own,
    version,
)
from benchmarks.processes import RunningServer, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text
from server_stub.synthetic.declaration import parse_service_model
from server_stub.synthetic.simulated_queue import SimulatedQueue

STALL = "service=constant:20ms,servers=1000,stall=1s/10s,gap=5ms,usage=chunks"
STALL_TOKENS = 8
LONG_TOKENS, SHORT_TOKENS = 32, 4
EVENTS_PER_S = 1600  # of all streams of a closed loop, or 1000 of a single one: what the server can send on time beside a busy client
COST_SECONDS = 2.0  # of the requests of each length, whose first and last are left out
MOST_GAP_MS, MOST_TOKENS, MOST_SECONDS, MOST_STREAMS = 40.0, 16, 6.0, 4096
KEPT_SHARE = 0.9  # of the declared rate, below which a client counts as behind: its first and last requests are in the rate
_LEFT_OUT = 8  # besides one for each stream: what clients ask before their load is counted, too
_PHASES = 20


@contextlib.contextmanager
def priority(options: argparse.Namespace, part: str) -> Iterator[None]:
    """Runs the block, with the servers and clients that it starts, at real-time priority if that is wanted for this part."""
    if part in options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


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
        f"Chats at a fixed rate for {options.seconds:g} s, {STALL_TOKENS} tokens each, one run of each client{_at(options, 'stall')}, beginning at any instant of a period. In one second of every ten no request gets its first event; all that wait get it at the "
        f"end of that second (`{STALL}`). The *truth* depends on when in a period the requests begin; *off by* is the distance to it.",
        "",
    )
    report.table("client", ">rate", ">delivered", ">p99, time to first token", ">truth", ">off by", ">CPU per request, with start-up")
    for rate_per_s in options.rate:
        low_ms, high_ms = true_p99s_ms(rate_per_s, options.seconds)
        for name, client in clients.items():
            with running_server("--model=synthetic", "--synthetic", STALL) as server:
                begin_stalls(server)
                tokens = [STALL_TOKENS] * round(1.2 * rate_per_s * options.seconds)
                found = measured(client, LlmLoad(server, tokens, options.seconds, rate_per_s=rate_per_s))
            off_ms = found.first_token_p99_ms - min(max(found.first_token_p99_ms, low_ms), high_ms)
            truth, off = f"{low_ms:.0f} to {high_ms:.0f} ms", f"{off_ms:+.1f} ms" if off_ms else "within"
            cpu = f"{1e3 * found.samples[-1].cpu_s / found.samples[-1].counted:.1f} ms"
            report.row(name, f"{rate_per_s:g}/s", f"{found.per_s:.1f}/s", f"{found.first_token_p99_ms:.1f} ms", truth, off, cpu)


def _at(options: argparse.Namespace, part: str) -> str:
    return " at real-time priority" * (part in options.realtime)


class Cost(NamedTuple):
    """The CPU milliseconds of a request with the fewer, and with the more tokens."""

    short_ms: float
    long_ms: float

    @property
    def event_us(self) -> float:
        """CPU microseconds of an event."""
        return 1e3 * (self.long_ms - self.short_ms) / (LONG_TOKENS - SHORT_TOKENS)


def cost_of(client: LlmClient, streams: int, gap_ms: float) -> Cost:
    """The cost of requests from one run, of short answers first and long ones then; raises ClientError."""
    left_out, counts = streams + _LEFT_OUT, list[int]()
    for tokens in (SHORT_TOKENS, LONG_TOKENS):
        stream_s = 0.005 + gap_ms * (tokens - 1) / 1e3
        counts.append(2 * left_out + max(2, round(COST_SECONDS / stream_s)) * streams)
    short, long = counts
    declared = f"service=constant:5ms,servers=1000,gap={gap_ms:g}ms,usage=chunks"
    with running_server("--model=synthetic", "--synthetic", declared) as server:
        found = measured(client, LlmLoad(server, [SHORT_TOKENS] * short + [LONG_TOKENS] * long, streams=streams))
    return Cost(_cpu_ms(found.samples, left_out, short - left_out), _cpu_ms(found.samples, short + left_out, short + long - left_out))


def _cpu_ms(samples: Sequence[Sample], begin: int, end: int) -> float:
    """CPU milliseconds of a request, from the first sample with so many requests answered to the first with so many more."""
    first, last = (next((sample for sample in samples if sample.counted >= count), samples[-1]) for count in (begin, end))
    if last.counted <= first.counted:
        raise ClientError(f"the server counted no requests between the samples with {begin} and {end}, but {samples[-1].counted} in all")
    return 1e3 * (last.cpu_s - first.cpu_s) / (last.counted - first.counted)


def compare_costs(report: Report, clients: Mapping[str, LlmClient], options: argparse.Namespace) -> None:
    """The section on the cost of requests and events."""
    report.section(
        "CPU per request and per event",
        f"Closed loops; events of one token. The cost of an event is that by which requests of {LONG_TOKENS} tokens cost more than those of {SHORT_TOKENS}, shared among "
        f"the tokens between. Medians of {rounds_text(options.rounds)}{_at(options, 'cost')}, with the lowest and the highest; the ratio of medians only where no two rounds are in the other order. What clients do before "
        "the first and after the last requests is not in it, such as the reading of prompts and the making of reports.",
        "",
    )
    report.table(
        "streams",
        ">gap of the events",
        "client",
        f">CPU per request of {SHORT_TOKENS}",
        f">of {LONG_TOKENS}",
        ">per event",
        f">of {LONG_TOKENS}, beside perfkit",
    )
    for streams in options.streams:
        gap_ms = max(1.0, streams * 1e3 / EVENTS_PER_S)
        costs: dict[str, list[Cost]] = {name: [] for name in clients}
        for _ in range(options.rounds):
            for name, client in clients.items():
                costs[name].append(cost_of(client, streams, gap_ms))
        own_ms = [cost.long_ms for cost in costs[OWN]]
        for name, found in costs.items():
            columns = [cost.short_ms for cost in found], [cost.long_ms for cost in found], [cost.event_us for cost in found]
            cells = [_with_range(values, unit) for values, unit in zip(columns, ("ms", "ms", "us"), strict=True)]
            report.row(streams, f"{gap_ms:g} ms", name, *cells, _ratio(columns[1], own_ms) if name != OWN else "")


def compare_most_streams(report: Report, clients: Mapping[str, LlmClient], options: argparse.Namespace) -> None:
    """The section on the highest number of streams that a client drives."""
    stream_s = (5 + MOST_GAP_MS * (MOST_TOKENS - 1)) / 1e3
    declared = f"service=constant:5ms,servers={MOST_STREAMS},gap={MOST_GAP_MS:g}ms,usage=chunks"
    report.section(
        "The most streams",
        f"Closed loops of answers of {MOST_TOKENS} tokens, {MOST_GAP_MS:g} ms apart (`{declared}`), about {MOST_SECONDS:g} s each{_at(options, 'most')}, with twice as many streams each time, until a client "
        f"delivers less than {KEPT_SHARE:.0%} of what the declared times give, or perfkit calls its own point not valid. The server shares the CPUs: it may be what falls behind. perfkit alone says so itself; of the others it has to be "
        "compared with what was declared.",
        "",
    )
    report.table("client", ">streams", ">delivered", ">of the declared", ">CPU per request", ">CPUs used", "verdict of perfkit")
    for name, client in clients.items():
        streams, is_behind = 16, False
        while not is_behind and streams <= MOST_STREAMS:
            count = (2 + round(MOST_SECONDS / stream_s)) * streams  # in whole waves: a last one of fewer would lower the rate
            try:
                with running_server("--model=synthetic", "--synthetic", declared, "--max-connections=100000") as server:
                    found = measured(client, LlmLoad(server, [MOST_TOKENS] * count, streams=streams))
            except ClientError as error:
                report.row(name, streams, "failed", "", "", "", str(error).partition("\n")[0][:80])
                break
            kept = found.per_s * stream_s / streams
            cpu_ms = _cpu_ms(found.samples, streams, count - streams)
            verdict = (found.verdict or "valid") if name == OWN else ""
            used = f"{cpu_ms * found.per_s / 1e3:.2f}"
            report.row(name, streams, f"{found.per_s:.1f}/s", f"{kept:.0%}", f"{cpu_ms:.2f} ms", used, verdict)
            is_behind, streams = bool(found.verdict) or kept < KEPT_SHARE, 2 * streams


def _with_range(values: Sequence[float], unit: str) -> str:
    digits = 0 if unit == "us" else 2
    whole = f"{statistics.median(values):.{digits}f} {unit}"
    return whole if len(values) == 1 else f"{whole} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _ratio(values: Sequence[float], own: Sequence[float]) -> str:
    """The ratio of medians; none for a single round, and where the ranges overlap."""
    if len(values) == 1 or (min(values) <= max(own) and min(own) <= max(values)):
        return "–"
    return f"{statistics.median(values) / statistics.median(own):.1f} times"


def main() -> int:
    """Prints the tables."""
    options = program_options(
        __doc__, out="llm-clients", aiperf=pathlib.Path, guidellm=pathlib.Path, part=(["stall", "cost", "most"], "what to measure"), rate=([20.0, 100.0], "requests a second"),
        streams=([1, 16, 64], "streams of the closed loops"), seconds=(40.0, "length of a run with stalls"), rounds=(2, "how often each cost is measured"),
        realtime=("", "the part whose servers and clients run at real-time priority, on a machine that is busy"),
    )  # fmt: skip
    report = Report(options.out, "perfkit, AIPerf and guidellm on declared times")
    clients: dict[str, LlmClient] = {OWN: run_own}
    names = [OWN]
    with tempfile.TemporaryDirectory(prefix="perfkit-tokenizer-") as name:
        programs = {AIPERF: options.aiperf, GUIDELLM: options.guidellm}
        made_by = next((program for program in programs.values() if program is not None), None)
        if made_by is not None:
            subprocess.run([str(made_by.with_name("python")), "-c", MAKE_TOKENIZER, name, PROMPT], check=True)
        for label, make in ((AIPERF, aiperf_client), (GUIDELLM, guidellm_client)):
            if programs[label] is not None:
                clients[label] = make(programs[label], pathlib.Path(name))
                names.append(f"{label} {version(programs[label], label.lower())}")
        report.add(
            f"{', '.join(names)}; one after the other on the bundled server's OpenAI API, all on the same CPUs. {describe_machine()}",
            "All take the numbers of tokens from the server. AIPerf and guidellm want a tokenizer nevertheless; it is one made by a script, whose tokens are words.",
        )
        try:
            for part, compare in (("stall", compare_stalls), ("cost", compare_costs), ("most", compare_most_streams)):
                if part in options.part:
                    with priority(options, part):
                        compare(report, clients, options)
        except ClientError as error:
            sys.exit(f"llm_clients: {error}")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
