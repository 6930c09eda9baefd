"""Measures real MLServer and KServe servers over HTTP and gRPC, and compares perfkit's counts with the servers' own.

    python -m benchmarks.peers.python_servers --mlserver PATH/bin/mlserver --kserve PATH/bin/python [--out reports/python-servers.md]

Both are servers in Python, installed by the caller (`pip install mlserver`, `pip install kserve`); one that is not given is left out. Each
serves a model that doubles four numbers and counts its requests in a file. Every case sends a fixed number of requests without a
warm-up, in a closed loop and at a low rate; the server must have counted them and the one that perfkit sends before each load, no more and no fewer, and every
request must be answered. Then a search and a gate of the server with itself, over each protocol. KServe listens on all addresses of the machine, and has no option
for less. Takes about ten minutes. The exit code is 1 if a count differs, a search names no capacity, or a gate does not decide that nothing regressed.
"""

import contextlib
import functools
import itertools
import json
import pathlib
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.server_process import PeerError, answers, free_ports, ready_server
from benchmarks.processes import run_gate, run_perfkit
from benchmarks.report import Report, describe_machine, program_options, yes_no
from perfkit.gate.sentences import format_change

MODELS = pathlib.Path(__file__).with_name("python_server_models")
LOADS: Sequence[tuple[str, dict[str, Any], int]] = (
    ("closed loop, concurrency 4", {"closed": {"concurrency": 4}}, 4000),
    ("Poisson arrivals, 50/s", {"open": {"rate": 50}}, 400),
)
FIRST_REQUESTS = 1
"""perfkit sends a request before each load, to see that the model answers as it should."""
_READY_WITHIN_S = 90
SEARCH_S, GATE_WINDOW_S = 60, 1


class PythonServer(NamedTuple):
    """A running server: where it is, and the file that grows by a byte for each request."""

    name: str
    http_port: int
    grpc_port: int
    count_file: pathlib.Path
    metrics_url: str

    def url(self, protocol: str) -> str:
        """The URL for a protocol."""
        return f"{protocol}://127.0.0.1:{self.http_port if protocol == 'http' else self.grpc_port}"

    def counted(self) -> int:
        """The requests so far, by the model's own count."""
        return self.count_file.stat().st_size


@contextlib.contextmanager
def running_server(kind: str, program: pathlib.Path) -> Iterator[PythonServer]:
    """Runs MLServer or KServe (`kind`: mlserver, kserve) for the length of the block; raises PeerError if it does not start."""
    with tempfile.TemporaryDirectory(prefix=f"perfkit-{kind}-") as name:
        folder, ports = pathlib.Path(name), free_ports(0, 0, 0)
        settings = {"MLSERVER_HOST": "127.0.0.1", "MLSERVER_PARALLEL_WORKERS": "0"}
        settings |= {f"MLSERVER_{key}_PORT": str(port) for key, port in zip(("HTTP", "GRPC", "METRICS"), ports, strict=True)}
        variables = {**settings, "COUNT_FILE": str(folder / "count"), "PYTHONPATH": str(MODELS)}
        if kind == "mlserver":
            command = [str(program), "start", str(MODELS / kind)]
        else:
            command = [str(program), str(MODELS / kind / "model.py"), *map(str, ports[:2])]
        is_ready = functools.partial(answers, f"http://127.0.0.1:{ports[0]}/v2/models/doubling/ready")
        command = ["env", *(f"{key}={value}" for key, value in variables.items()), *command]
        with ready_server(command, is_ready, folder / "log", within_s=_READY_WITHIN_S):
            metrics_port = ports[2] if kind == "mlserver" else ports[0]
            yield PythonServer(kind, ports[0], ports[1], folder / "count", f"http://127.0.0.1:{metrics_port}/metrics")


def scenario_of(server: PythonServer, protocol: str, **sections: Any) -> dict[str, Any]:
    """A scenario of the model over a protocol, with the page of the server's metrics."""
    return {
        "name": "doubling",
        "target": {"url": server.url(protocol), "model": "doubling", "metrics_url": server.metrics_url},
        "metrics": {"interval": "100ms"},
        "workload": {"inputs": {"x": {"generate": "random", "datatype": "FP32", "shape": [1, 4]}}},
        **sections,
    }


def own_means(point: Mapping[str, Any]) -> str:
    """The means of a load point by the server's page of metrics."""
    times = (point["server"] or {"times": []})["times"]
    return ", ".join(f"{one['stage']} {one['mean_ns'] / 1e6:.2f} ms of {one['count']:,}" for one in times) or "–"


def measure(server: PythonServer, protocol: str, load: dict[str, Any], requests: int) -> tuple[list[str], bool]:
    """The cells of a case's row, and whether both counts agree."""
    before = server.counted() if server.count_file.exists() else 0
    run = run_perfkit(scenario_of(server, protocol, load=load, measure={"requests": requests, "warmup": "0s", "repetitions": 1}))
    point, counted = run.point, server.counted() - before
    ok, sent = point["requests"]["ok"], point["requests"]["sent"]
    agrees = counted == sent + FIRST_REQUESTS and ok == sent == requests
    times = point["service_time_ns"]
    milliseconds = [f"{times[key] / 1e6:.2f} ms" if times.get(key) is not None else "–" for key in ("p50", "p99")]
    codes = ", ".join(sorted({warning["code"] for warning in point["warnings"]}))
    cells = [
        f"{ok:,}",
        f"{counted:,}",
        yes_no(agrees),
        yes_no(point["valid"]),
        f"{point['throughput_per_s']:,.0f}/s",
        *milliseconds,
        own_means(point),
        codes or "–",
    ]
    return cells, agrees


def search(server: PythonServer, protocol: str) -> tuple[list[str], bool]:
    """The cells of a search's row, and whether it names a capacity."""
    load = {"search": {"precision": "20%", "budget": f"{SEARCH_S}s"}}
    run = run_perfkit(scenario_of(server, protocol, load=load, measure={"duration": "2s", "warmup": "0s"}, slo={"p90": "20ms"}))
    if run.result is None or not (found := run.result.get("search")):
        raise RuntimeError(f"a search ended with exit code {run.exit_code} and no result: {run.stderr[-1000:]}")
    low, capacity, high = (found[f"{name}per_s"] for name in ("low_", "capacity_", "high_"))
    interval = "–" if low is None or high is None else f"{low:,.0f} to {high:,.0f}/s"
    capacity_text = "–" if capacity is None else f"{capacity:,.0f}/s"
    return [capacity_text, interval, str(len(found["probes"])), own_means(run.points[-1]), found["reason"]], low is not None


def gate(server: PythonServer, protocol: str, folder: pathlib.Path) -> tuple[list[str], bool]:
    """The cells of a row of a gate of the running server with itself, and whether nothing regressed."""
    load = {"closed": {"concurrency": 2}}
    metrics = {"metrics": ["throughput", "p50"]}
    scenario = scenario_of(server, protocol, load=load, gate=metrics, measure={"duration": f"{GATE_WINDOW_S}s", "warmup": "200ms"})
    verdict = run_gate(folder / f"{server.name}-{protocol}", scenario, server.url(protocol), server.url(protocol), "--pairs", "10")
    runs = sorted((folder / f"{server.name}-{protocol}").rglob("result.json"))
    means = own_means(json.loads(runs[-1].read_text(encoding="utf-8"))["points"][-1]) if runs else "–"
    changes = "; ".join(f"{one.metric} {format_change(one)}" for one in verdict.gated if one.metric != "error_rate")
    return [verdict.kind, f"{verdict.pairs} ({verdict.disturbed_pairs})", changes, means], verdict.kind in ("pass", "inconclusive")


def main() -> int:
    """Runs every case of the given servers."""
    options = program_options(
        __doc__,
        out="python-servers",
        mlserver=(pathlib.Path, "MLServer's program, bin/mlserver of its environment"),
        kserve=(pathlib.Path, "the Python of an environment with KServe"),
    )
    programs = {kind: path.absolute() for kind, path in (("mlserver", options.mlserver), ("kserve", options.kserve)) if path}
    if not programs:
        sys.exit("python_servers: give --mlserver, --kserve or both")
    report, versions = Report(options.out, "Real MLServer and KServe servers, and what perfkit counts of them"), []
    report.add(f"`python -m benchmarks.peers.python_servers`, over HTTP and gRPC on the loopback. {describe_machine()}", "")
    report.table(
        "server",
        "protocol",
        "load",
        ">ok",
        ">counted by the model",
        "equal",
        "valid",
        ">throughput",
        ">p50",
        ">p99",
        "the server's own means",
        "warnings",
    )
    further: dict[str, list[tuple[str, str, list[str], bool]]] = {"searches": [], "gates": []}
    try:
        for kind, program in programs.items():
            with running_server(kind, program) as server, tempfile.TemporaryDirectory(prefix="perfkit-gates-") as folder:
                versions.append(version_of(server))
                for protocol, (name, load, requests) in itertools.product(("http", "grpc"), LOADS):
                    cells, agrees = measure(server, protocol, load, requests)
                    report.is_met &= agrees
                    report.row(kind, protocol, name, *cells)
                for protocol in ("http", "grpc"):
                    further["searches"].append((kind, protocol, *search(server, protocol)))
                    further["gates"].append((kind, protocol, *gate(server, protocol, pathlib.Path(folder))))
    except (PeerError, RuntimeError) as error:
        sys.exit(f"python_servers: {error}")
    report.add(
        "",
        f"The servers are {' and '.join(versions)}.",
        "Each case sends a fixed number of requests, without a warm-up. *Equal*: all were answered, and the model counted exactly those and the",
        f"{FIRST_REQUESTS} that perfkit sends before a load to see that the model answers. Times are service times; neither server has v2 statistics, so the server's own",
        "means are those of its page of metrics, between two readings of it. *Valid* is about the times, not the counts.",
    )
    report.section("Searches", f"The highest rate with p90 up to 20 ms, within {SEARCH_S} s and probes of 2 s.", "")
    report.table("server", "protocol", ">capacity", "interval", ">probes", "the server's own means, last probe", "result", "found")
    for kind, protocol, cells, is_met in further["searches"]:
        report.judged_row(is_met, kind, protocol, *cells)
    report.section(
        "Gates",
        f"The running server with itself, two requests in flight, windows of {GATE_WINDOW_S} s and at most 10 pairs.",
        "",
    )
    report.table("server", "protocol", "verdict", ">pairs (disturbed)", "changes", "the server's own means, last run", "nothing regressed")
    for kind, protocol, cells, is_met in further["gates"]:
        report.judged_row(is_met, kind, protocol, *cells)
    return report.write()


def version_of(server: PythonServer) -> str:
    """The name and version that the server gives itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2", timeout=10) as response:
        document = json.load(response)
    return f"{document['name']} {document['version']}"


if __name__ == "__main__":
    sys.exit(main())
