"""Measures real MLServer and KServe servers over HTTP and gRPC, and compares perfkit's counts with the servers' own.

    python -m benchmarks.peers.python_servers --mlserver PATH/bin/mlserver --kserve PATH/bin/python [--out reports/python-servers.md]

Both are servers in Python, installed by the caller (`pip install mlserver`, `pip install kserve`); one that is not given is left out. Each
serves a model that doubles four numbers and counts its requests in a file. Every case sends a fixed number of requests without a
warm-up, in a closed loop and at a low rate; the server must have counted them and the one that perfkit sends before each load, no more and no fewer, and every
request must be answered. KServe listens on all addresses of the machine, and has no option for less. Takes a minute. The exit code is 1 if a count differs.
"""

import contextlib
import itertools
import json
import pathlib
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.server_process import PeerError, free_ports, ready_server
from benchmarks.processes import run_perfkit
from benchmarks.report import Report, describe_machine, program_options, yes_no

MODELS = pathlib.Path(__file__).with_name("python_server_models")
LOADS: Sequence[tuple[str, dict[str, Any], int]] = (
    ("closed loop, concurrency 4", {"closed": {"concurrency": 4}}, 4000),
    ("Poisson arrivals, 50/s", {"open": {"rate": 50}}, 400),
)
FIRST_REQUESTS = 1
"""perfkit sends a request before each load, to see that the model answers as it should."""
_READY_WITHIN_S = 90


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

        def is_ready() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[0]}/v2/models/doubling/ready", timeout=5):
                return True

        command = ["env", *(f"{key}={value}" for key, value in variables.items()), *command]
        with ready_server(command, is_ready, folder / "log", within_s=_READY_WITHIN_S):
            metrics_port = ports[2] if kind == "mlserver" else ports[0]
            yield PythonServer(kind, ports[0], ports[1], folder / "count", f"http://127.0.0.1:{metrics_port}/metrics")


def measure(server: PythonServer, protocol: str, load: dict[str, Any], requests: int) -> tuple[list[str], bool]:
    """The cells of a case's row, and whether both counts agree."""
    before = server.counted() if server.count_file.exists() else 0
    scenario = {
        "name": "doubling",
        "target": {"url": server.url(protocol), "model": "doubling", "metrics_url": server.metrics_url},
        "metrics": {"interval": "100ms"},
        "workload": {"inputs": {"x": {"generate": "random", "datatype": "FP32", "shape": [1, 4]}}},
        "load": load,
        "measure": {"requests": requests, "warmup": "0s", "repetitions": 1},
    }
    run = run_perfkit(scenario)
    point, counted = run.point, server.counted() - before
    ok, sent = point["requests"]["ok"], point["requests"]["sent"]
    agrees = counted == sent + FIRST_REQUESTS and ok == sent == requests
    times = point["service_time_ns"]
    milliseconds = [f"{times[key] / 1e6:.2f} ms" if times.get(key) is not None else "–" for key in ("p50", "p99")]
    codes = ", ".join(sorted({warning["code"] for warning in point["warnings"]}))
    own = point["server"] or {"times": []}
    stages = ", ".join(f"{one['stage']} {one['mean_ns'] / 1e6:.2f} ms of {one['count']:,}" for one in own["times"])
    cells = [
        f"{ok:,}",
        f"{counted:,}",
        yes_no(agrees),
        yes_no(point["valid"]),
        f"{point['throughput_per_s']:,.0f}/s",
        *milliseconds,
        stages or "–",
        codes or "–",
    ]
    return cells, agrees


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
    try:
        for kind, program in programs.items():
            with running_server(kind, program) as server:
                versions.append(version_of(server))
                for protocol, (name, load, requests) in itertools.product(("http", "grpc"), LOADS):
                    cells, agrees = measure(server, protocol, load, requests)
                    report.is_met &= agrees
                    report.row(kind, protocol, name, *cells)
    except (PeerError, RuntimeError) as error:
        sys.exit(f"python_servers: {error}")
    report.add(
        "",
        f"The servers are {' and '.join(versions)}.",
        "Each case sends a fixed number of requests, without a warm-up. *Equal*: all were answered, and the model counted exactly those and the",
        f"{FIRST_REQUESTS} that perfkit sends before a load to see that the model answers. Times are service times; neither server has v2 statistics, so the server's own",
        "means are those of its page of metrics, between two readings of it. *Valid* is about the times, not the counts.",
    )
    return report.write()


def version_of(server: PythonServer) -> str:
    """The name and version that the server gives itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/v2", timeout=10) as response:
        document = json.load(response)
    return f"{document['name']} {document['version']}"


if __name__ == "__main__":
    sys.exit(main())
