"""Truth of the OpenAI figures: what perfkit measures of texts whose times, events and tokens are declared.

    python -m benchmarks.openai_truth [--rounds 1] [--seconds 10] [--lead 200us] [--realtime] [--out reports/openai-truth.md]

The bundled server answers chats, completions and embeddings of `synthetic` at declared instants; perfkit sends requests at a constant rate,
fewer than would wait for each other. The server has one CPU, perfkit another. The time that the server's front end and the kernel add
is measured first; the declared `lead` compensates for it. Each figure is compared with what was declared: times by their means and p99, numbers of
tokens exactly, and a figure that the server's answers do not tell is to be withheld. The exit code is 1 if one is not as declared.
"""

import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.processes import on_cpus, run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text
from benchmarks.synthetic_precision import ALLOWED, allowed_us

PROMPT = "one two three four five"
PROMPT_TOKENS = len(PROMPT.split())
RATE_PER_S = 23
"""Such that what perfkit does once a second falls at other instants between two requests each time."""
TIMES = {
    "first_token_time_ns": "time to first token",
    "event_gap_ns": "event gap",
    "time_per_output_token_ns": "time per output token",
    "response_time_ns": "response time",
}
ALL_USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
TOOLS = {"tools": [{"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}]}


class Case(NamedTuple):
    """Answers of so many tokens, in events that are `gap_ms` apart; the first is sent after `first_ms`."""

    title: str
    declaration: str = ""
    """Further keys of the service model."""
    endpoint: str = "chat"
    is_streamed: bool = True
    tokens: int = 16
    events: int = 16
    first_tokens: int | None = 1
    """Tokens of the first event, where a client can know them."""
    has_usage: bool = True
    extra: Mapping[str, Any] = {}
    first_ms: float = 33
    gap_ms: float = 5

    @property
    def declared_us(self) -> dict[str, float | None]:
        """The declared times; None for those that cannot be known, or do not exist."""
        last_us = 1e3 * self.gap_ms * (self.events - 1)
        per_token_us = None if self.first_tokens is None or not self.has_usage else last_us / (self.tokens - self.first_tokens)
        streamed_us = (1e3 * self.first_ms, 1e3 * self.gap_ms, per_token_us) if self.is_streamed else (None, None, None)
        return dict(zip(TIMES, (*streamed_us, 1e3 * self.first_ms + last_us), strict=True))


CASES = (
    Case("chat, usage at the end"),
    Case("chat, usage in all events", "usage=chunks", extra=ALL_USAGE),
    Case("chat, no usage", "usage=off", first_tokens=None, has_usage=False),
    Case("chat, 4 tokens an event, usage at the end", "tokens_per_event=4", events=4, first_tokens=None),
    Case("chat, 4 tokens an event, usage in all events", "tokens_per_event=4,usage=chunks", events=4, first_tokens=4, extra=ALL_USAGE),
    Case("chat, 8 tokens of reasoning first", "reasoning=8"),
    Case("chat, a tool call", extra=TOOLS),
    Case("completion", endpoint="completions"),
    Case("chat, not streamed", is_streamed=False),
    Case("embedding", endpoint="embeddings", is_streamed=False, tokens=0, events=1),
)


def measure(case: Case, lead: str, seconds: float, cpus: list[int]) -> dict[str, Any]:
    """The load point of one round."""
    declared = f"service=constant:{case.first_ms}ms,servers=64,gap={case.gap_ms}ms,lead={lead}"
    words = ",".join(filter(None, (declared, case.declaration)))
    with running_server("--model=synthetic", f"--cpus={cpus[0]}", "--synthetic", words) as server, on_cpus(cpus[-1:]):
        return run_perfkit(scenario(case, server.url(), seconds)).point


def scenario(case: Case, url: str, seconds: float) -> dict[str, Any]:
    """Requests at a constant rate: with random arrivals, those that need a new connection would be in the p99."""
    prompts = {"values": [PROMPT], "extra": dict(case.extra), **({"max_tokens": case.tokens} if case.tokens else {})}
    return {
        "target": {"url": url, "model": "synthetic", "api": "openai", "endpoint": case.endpoint},
        "workload": {"prompts": prompts},
        **({"stream": {}} if case.is_streamed else {}),
        "load": {"open": {"rate": [RATE_PER_S], "arrivals": "constant"}},
        "measure": {"warmup": "1s", "duration": f"{seconds:g}s", "repetitions": 1},
        "telemetry": False,
    }


def judge_time(page: Report, case: Case, name: str, declared_us: float | None, points: Sequence[Mapping[str, Any]]) -> None:
    """A row for one time, unless the answers cannot have it."""
    found = [point[name] for point in points]
    if declared_us is None:
        if case.is_streamed:  # a single answer has no events at all
            page.judged_row(not any(found), case.title, TIMES[name], "withheld", "withheld" if not any(found) else "shown", *["–"] * 3)
        return
    if not all(one and one["p99"] is not None for one in found):
        page.judged_row(False, case.title, TIMES[name], f"{declared_us / 1e3:g} ms", "withheld", *["–"] * 3)
        return
    mean_us, p99_us = (statistics.median(one[key] / 1e3 - declared_us for one in found) for key in ("mean", "p99"))
    limits_us = allowed_us(declared_us, declared_us)
    is_met = abs(mean_us) <= limits_us[0] and abs(p99_us) <= limits_us[1]
    allowed = f"{limits_us[0]:.0f} us, {limits_us[1]:.0f} us"
    cells = (f"{declared_us / 1e3:g} ms", f"{(declared_us + mean_us) / 1e3:.3f} ms", f"{mean_us:+.0f} us", f"{p99_us:+.0f} us", allowed)
    page.judged_row(is_met, case.title, TIMES[name], *cells)


def judge_tokens(page: Report, case: Case, point: Mapping[str, Any]) -> None:
    """The rows for tokens; those a second are declared by the answers a second."""
    counts, rate = point["tokens"], point["output_tokens_per_s"]
    ok = point["requests"]["ok"]
    if not case.has_usage:
        is_withheld = rate is None and not (counts or {}).get("reported")
        page.judged_row(
            is_withheld, case.title, "tokens, and tokens a second", "withheld", "withheld" if is_withheld else "shown", *["–"] * 3
        )
        return
    declared = (PROMPT_TOKENS, case.tokens, case.is_streamed and case.events < case.tokens)
    reported = counts["reported"]
    found = (counts["input"] / reported, counts["output"] / reported, counts["several_in_event"] == reported != 0)
    words = [f"{one[0]:g} in, {one[1]:g} out, {'several' if one[2] else 'at most one'} an event" for one in (declared, found)]
    page.judged_row(declared == found and reported == ok, case.title, "tokens of each answer", *words, *["–"] * 3)
    if case.tokens:
        expected_per_s = point["throughput_per_s"] * case.tokens
        cells = (f"{expected_per_s:.1f}/s", f"{rate:.1f}/s", f"{rate - expected_per_s:+.1f}/s", "–", "0")
        page.judged_row(abs(rate - expected_per_s) < 1e-6 * rate, case.title, "output tokens a second", *cells)


def main() -> int:
    """Prints the table."""
    lead_option = (str, "the declared lead, such as 200us (default: measured first)")
    options, cpus = (
        program_options(__doc__, out="openai-truth", rounds=1, seconds=10.0, lead=lead_option, realtime=False),
        sorted(os.sched_getaffinity(0)),
    )
    if len(cpus) < 2:
        sys.exit("openai_truth: two CPUs are needed, one for the server and one for perfkit")
    if options.realtime:  # which server and perfkit inherit with all their threads
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    page, lead = Report(options.out, "Truth of the OpenAI figures"), options.lead
    machine = describe_machine()
    if lead is None:
        first_us = measure(CASES[0], "0s", options.seconds, cpus)["first_token_time_ns"]["p50"] / 1e3
        lead = f"{max(0.0, first_us - 1e3 * CASES[0].first_ms):.0f}us"
    page.add(
        f"Answers of the bundled server with declared instants, events and tokens, measured by perfkit at {RATE_PER_S} requests a second; {rounds_text(options.rounds)} of "
        f"{options.seconds:g} s. The server has one CPU, perfkit another{', both at real-time priority' * options.realtime}; the lead is {lead}. {machine}",
        "The lead is by how much the server acts before a declared instant; it is measured first, so that a constant delay of server and client is no part of the errors.",
        f"Allowed of times, as for single answers: {ALLOWED}",
        "*Withheld* are figures that the server's answers do not tell: without usage there are no tokens, and without usage in all events the tokens of the first event are not "
        "known, unless there are as many events as tokens.",
        "",
    )
    page.table("answers", "figure", ">declared", ">measured, mean", ">off by", ">p99 off by", ">allowed", "as declared")
    for case in CASES:
        points = [measure(case, lead, options.seconds, cpus) for _ in range(options.rounds)]
        for name, declared_us in case.declared_us.items():
            judge_time(page, case, name, declared_us, points)
        for point in points:
            judge_tokens(page, case, point)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
