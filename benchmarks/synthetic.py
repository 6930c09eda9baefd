"""Runs on the bundled server's model `synthetic`, whose service times are declared."""

from typing import Any

from benchmarks.processes import run_perfkit, running_server

INPUT = {"INPUT0": {"generate": "ones", "shape": [4]}}


def open_loop(*rates: float, arrivals: str = "poisson") -> dict[str, Any]:
    """The load of an open loop at one or more rates."""
    return {"open": {"rate": [*rates], "arrivals": arrivals}}


def closed_loop(*concurrency: int) -> dict[str, Any]:
    """The load of a closed loop."""
    return {"closed": {"concurrency": [*concurrency]}}


def scenario(url: str | list[str], load: dict[str, Any], seconds: float, *, seed: int = 0, **sections: Any) -> dict[str, Any]:
    """One window at each load; keys of `target`, `workload` and `measure` in `sections` are added to those here, other sections are whole."""
    document: dict[str, Any] = {
        "target": {"url": url, "model": "synthetic"},
        "workload": {"seed": seed, "inputs": INPUT},
        "load": load,
        "measure": {"warmup": "1s", "duration": f"{seconds:g}s", "repetitions": 1},
    }
    own = ("target", "workload", "measure")
    return {**document, **{name: {**document[name], **value} if name in own else value for name, value in sections.items()}}


def measure(
    declaration: str, load: dict[str, Any], seconds: float, *, seed: int = 0, realtime: bool = False, **sections: Any
) -> dict[str, Any]:
    """The load point of one run on a server of its own."""
    with running_server("--model=synthetic", f"--synthetic={declaration}", realtime=realtime) as server:
        return run_perfkit(scenario(server.url(), load, seconds, seed=seed, **sections), realtime=realtime).point


def measure_lead_us(seconds: float, *, realtime: bool) -> int:
    """The `lead` that compensates for the time added by the server's front end and the kernel."""
    point = measure("service=constant:10ms,lead=0us", closed_loop(1), seconds, realtime=realtime)
    return int(max(0, round(point["service_time_ns"]["p50"] / 1e3 - 10_000)))
