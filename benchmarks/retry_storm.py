"""Requests that clients send again: attempts beside what was declared, and a stall that the retries outlive, named by perfkit.

    python -m benchmarks.retry_storm [--rounds 3] [--out reports/retry-storm.md]

A server that fails a declared share of its requests, each by its number, says how many attempts so many requests take; its own counters are read by this program, too. Then one that
serves 100 requests a second stands still once for 1.5 s in an open loop of 80 a second. The work of a request whose client has left is done all the same, which is what makes a storm. The
exit code is 1 if attempts, retries or outcomes are not those declared, if the goodput does not stay below a tenth of the rate after the stall without a budget, or the warning
`retry_storm` is missing then; or if with a budget of 10 % less than nine tenths are answered in the last third of the window, or the warning is given.
"""

import itertools
import sys
from typing import Any

from benchmarks.abandonment import cpu_us
from benchmarks.processes import RunningServer, run_perfkit, running_server
from benchmarks.report import RATIO_COLUMNS, Ratio, Report, describe_machine, program_options
from benchmarks.synthetic import closed_loop, open_loop, scenario
from server_stub.synthetic.declaration import parse_service_model

_FAILING = "service=constant:2ms,servers=1000,errors={share}%:503,seed={seed}"
_ATTEMPTS, _REQUESTS = 4, 300
_RATE_PER_S, _STALL_S, _PERIOD_S, _WARM_UP_S, _WINDOW_S = 80, 1.5, 30, 18, 39
_CALM_S = 9
"""So many seconds of the window lie before the stall."""
_STALLING = f"service=constant:10ms,servers=1,stall={_STALL_S}s/{_PERIOD_S}s,drain=at-pace,left=counted"
_STORM = {"attempts": 3, "backoff": "50ms..200ms", "jitter": "full", "on": ["timeout", "connect", "UNAVAILABLE"]}


def counted(server: RunningServer) -> tuple[int, int]:
    """The requests that the server answered, and those that it failed."""
    stats = server.statistics("synthetic")["inference_stats"]
    return int(stats["success"]["count"]), int(stats["fail"]["count"])


def declared(service_model: str, before: int) -> tuple[int, int]:
    """The attempts that the requests take from the server's n-th request on, and how many of them are answered."""
    model, numbers, ok = parse_service_model(service_model), itertools.count(before), 0
    last = before - 1
    for _ in range(_REQUESTS):
        for last in itertools.islice(numbers, _ATTEMPTS):
            if model.failure(last) is None:
                ok += 1
                break
    return last + 1 - before, ok


def add_exact(page: Report, protocol: str, share: int, seed: int) -> None:
    """A row: one request after the other on a server whose failures are known by their numbers."""
    service_model = _FAILING.format(share=share, seed=seed)
    retry = {"attempts": _ATTEMPTS, "backoff": "1ms..4ms", "on": [503, "UNAVAILABLE"]}
    with running_server("--model=synthetic", f"--synthetic={service_model}") as server:
        document = scenario(server.url(protocol), {**closed_loop(1), "retry": retry}, 0)
        document["measure"] = {"warmup": "0s", "requests": _REQUESTS, "repetitions": 1, "workers": 1}
        point = run_perfkit(document).point
        answered, failed = counted(server)
    requests, retries = point["requests"], point["retries"]
    # what perfkit asked before the load: until the first answer
    model = parse_service_model(service_model)
    before = next(number for number in itertools.count() if model.failure(number) is None) + 1
    attempts, ok = declared(service_model, before)
    is_right = (retries["attempts"], requests["ok"], requests["sent"]) == (attempts, ok, _REQUESTS)
    is_right &= retries["attempts"] == requests["sent"] + retries["retries"] == answered + failed - before
    is_right &= sum(retries["by_cause"].values()) == retries["retries"]
    page.judged_row(
        is_right, protocol, f"{share}%", requests["sent"], requests["ok"], ok, retries["attempts"], attempts, answered + failed - before,
        f"{retries['amplification']:.3f}",
    )  # fmt: skip


def stall_run(protocol: str, budget: str | None) -> dict[str, Any]:
    """A load point with one stall, from about 10 to 12 s of the window."""
    retry = {**_STORM, **({"budget": budget} if budget else {})}
    with running_server("--model=synthetic", f"--synthetic={_STALLING}") as server:
        target, measure = {"timeout": "1s", "max_connections": 1024}, {"warmup": f"{_WARM_UP_S}s", "workers": 1, "drain": "5s"}
        load = {**open_loop(_RATE_PER_S), "retry": retry}
        return run_perfkit(scenario(server.url(protocol), load, _WINDOW_S, target=target, measure=measure)).point


def add_stall(page: Report, protocol: str, budget: str | None) -> None:
    """A row: what was sent and answered before the stall, and in the last third of the window."""
    point = stall_run(protocol, budget)
    retries, ok = point["retries"], point["throughput_series_per_s"]
    attempts, again = retries["attempts_series_per_s"], retries["retries_series_per_s"]
    third = _WINDOW_S // 3
    late = [sum(series[-third:]) / third for series in (ok, attempts, again)]
    offered = late[1] - late[2]
    codes = {warning["code"] for warning in point["warnings"]}
    is_named = "retry_storm" in codes
    is_right = (not is_named and late[0] >= 0.9 * offered) if budget else (is_named and late[0] <= 0.1 * offered)
    page.judged_row(
        is_right, protocol, budget or "none", f"{sum(ok[:_CALM_S]) / _CALM_S:.1f}/s", f"{offered:.1f}/s", f"{late[1]:.1f}/s",
        f"{late[0]:.1f}/s", f"{retries['amplification']:.2f}", f"{retries['over_budget']:,}", "retry_storm" if is_named else "–",
        "yes" if "busy_machine" in codes else "no",
    )  # fmt: skip


def add_cost(page: Report, rounds: int) -> None:
    """What a request costs the worker where failed ones would be sent again, beside a load without `retry`, in turn on one server."""
    with running_server("--model=synthetic", "--synthetic=service=constant:10ms,servers=1000") as server:
        costs_us = [(cpu_us(server.url()), cpu_us(server.url(), retry={})) for _ in range(rounds)]
    page.section(
        "CPU of the generator",
        "1,000 requests a second, none of which fails; CPU of a request ÷ that without `retry`, of the same round.",
        "",
    )
    page.table("load", *RATIO_COLUMNS)
    page.row("with `retry`", *Ratio("retry", tuple(one / plain for plain, one in costs_us)).cells)


def main() -> int:
    """Prints the tables."""
    options = program_options(__doc__, out="retry-storm", rounds=3)
    page = Report(options.out, "Retries")
    page.add(describe_machine())
    page.section(
        "Attempts",
        f"{_REQUESTS} requests, one after the other, with up to {_ATTEMPTS} attempts each; the server fails the declared share with 503 or UNAVAILABLE.",
        "",
    )
    page.table(
        "protocol", ">declared to fail", ">requests", ">ok", ">declared", ">attempts", ">declared", ">server's count", ">amplification",
        "as it must be",
    )  # fmt: skip
    for seed, (protocol, share) in itertools.product(range(1, options.rounds + 1), itertools.product(("http", "grpc"), (20, 60))):
        add_exact(page, protocol, share, seed)
    page.section(
        "A stall, and what the retries make of it",
        f"{_RATE_PER_S} requests a second for {_WINDOW_S} s at a server that serves 100, and stands still once for {_STALL_S} s after about 10 s; "
        "1 s of patience, up to 3 attempts.",
        "",
    )
    page.table(
        "protocol", "budget", ">ok before", ">offered, last third", ">attempts, last third", ">ok, last third", ">amplification", ">over budget",
        "named", "machine busy", "as it must be",
    )  # fmt: skip
    for _ in range(options.rounds):
        for protocol, budget in itertools.product(("http", "grpc"), (None, "10%")):
            add_stall(page, protocol, budget)
    add_cost(page, options.rounds)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
