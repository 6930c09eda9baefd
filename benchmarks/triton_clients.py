"""perfkit beside perf_analyzer on real Triton: what each says of the same server within the same minute.

    python -m benchmarks.triton_clients [--rounds 5] [--seconds 5] [--peers FOLDER] [--out reports/triton-clients.md]

Model `simple` (Python backend), 8 requests in flight, over HTTP and over gRPC. Both clients share the machine with
Triton, so what a client takes of it the server does not have: the leaner one sees the faster server.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import re
import statistics
import sys
import tempfile

import yaml

from benchmarks.peers.clients import LONGEST_S, ROOT, ClientError, duration_us, run_measured
from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import Triton, TritonError, running_triton

CONCURRENCY = 8
PROTOCOLS = ("http", "grpc")
CLIENTS = ("perfkit", "perf_analyzer")
_WINDOWS = 3


@dataclasses.dataclass(frozen=True)
class Figures:
    """What a client said of Triton."""

    per_s: float
    p50_us: float


def measure_perfkit(triton: Triton, protocol: str, seconds: float) -> Figures:
    """`perfkit run` with one closed loop, as anybody would. Raises ClientError."""
    port = triton.http_port if protocol == "http" else triton.grpc_port
    document = {
        "target": {"url": f"{protocol}://127.0.0.1:{port}", "model": "simple"},
        "load": {"closed": {"concurrency": CONCURRENCY}},
        "measure": {"warmup": "1s", "duration": f"{seconds}s", "repetitions": 1},
    }
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name, "triton.yaml")
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        # 5: where the machine is all taken, a loop whose core is busy says so
        run_measured(
            [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", f"{name}/out"],
            accepted=(0, 5),
            longest_s=LONGEST_S + seconds,
        )
        (point,) = json.loads(pathlib.Path(name, "out", "result.json").read_text(encoding="utf-8"))["points"]
    if point["requests"]["ok"] != point["requests"]["sent"]:
        raise ClientError(f"perfkit had failures: {point['requests']}")
    return Figures(point["throughput_per_s"], point["service_time_ns"]["p50"] / 1e3)


def measure_perf_analyzer(triton: Triton, protocol: str, seconds: float, program: pathlib.Path) -> Figures:
    """The same through perf_analyzer, over windows that add up to as long; its own judgement of stability is left out. Raises ClientError."""
    port = triton.http_port if protocol == "http" else triton.grpc_port
    window_ms = str(round(1000 * seconds / _WINDOWS))
    command = [str(program), "-m", "simple", "-i", protocol, "-u", f"127.0.0.1:{port}", "--concurrency-range", str(CONCURRENCY)]
    usage = run_measured(
        [*command, "--measurement-interval", window_ms, "--stability-percentage", "999", "--max-trials", str(_WINDOWS)],
        longest_s=LONGEST_S + seconds,
    )
    per_s, p50 = re.search(r"Throughput: ([\d.e+]+) infer/sec", usage.output), re.search(r"p50 latency: (\d+) usec", usage.output)
    if per_s is None or p50 is None:
        raise ClientError(f"perf_analyzer said something unexpected: {usage.output[-1000:]}")
    return Figures(float(per_s[1]), duration_us(f"{p50[1]}us"))


def write_page(version: str, found: dict[tuple[str, str], list[Figures]], rounds: int, seconds: float) -> str:
    """The report."""
    lines = [
        "# perfkit beside perf_analyzer on real Triton",
        "",
        f"Triton {version}, model `simple` (Python backend), {CONCURRENCY} requests in flight; {rounds} rounds of {seconds:g} s, the clients in",
        "random order within each. Clients and server share the machine's CPUs, so the figures stand for this machine alone;",
        f"the ratios are of runs a few seconds apart. {os.cpu_count()} CPUs, shared with other work; load average {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| protocol | client | throughput | p50 |",
        "|---|---|---:|---:|",
    ]
    for protocol in PROTOCOLS:
        for client in CLIENTS:
            figures = found[protocol, client]
            per_s, p50_us = (statistics.median(getattr(one, field) for one in figures) for field in ("per_s", "p50_us"))
            lines.append(f"| {protocol} | {client} | {per_s:,.0f}/s | {p50_us / 1e3:.2f} ms |")
    lines += ["", "| perfkit / perf_analyzer | median | rounds | asked | reached |", "|---|---:|---:|---:|---|"]
    for protocol in PROTOCOLS:
        pairs = list(zip(*(found[protocol, client] for client in CLIENTS), strict=True))
        for field, name, asked in (("per_s", "throughput", "at least 1"), ("p50_us", "p50", "at most 1")):
            ratios = [getattr(own, field) / getattr(peer, field) for own, peer in pairs]
            median = statistics.median(ratios)
            reached = "yes" if (median >= 1 if field == "per_s" else median <= 1) else "no"
            lines.append(f"| {name}, {protocol} | {median:.3g} | {min(ratios):.3g} to {max(ratios):.3g} | {asked} | {reached} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of a client's run")
    parser.add_argument("--peers", type=pathlib.Path, help="where the peers are installed")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "reports" / "triton-clients.md")
    options = parser.parse_args()
    folder = peers_folder(options.peers)
    found: dict[tuple[str, str], list[Figures]] = {(protocol, client): [] for protocol in PROTOCOLS for client in CLIENTS}
    order = random.Random(0)
    try:
        with running_triton(folder) as triton:
            for number in range(options.rounds):
                for protocol in PROTOCOLS:
                    for client in order.sample(CLIENTS, len(CLIENTS)):
                        if client == "perfkit":
                            figures = measure_perfkit(triton, protocol, options.seconds)
                        else:
                            figures = measure_perf_analyzer(triton, protocol, options.seconds, folder / "bin" / "perf_analyzer")
                        found[protocol, client].append(figures)
                        print(
                            f"round {number + 1}, {protocol}, {client}: {figures.per_s:,.0f}/s, p50 {figures.p50_us / 1e3:.2f} ms",
                            flush=True,
                        )
            page = write_page(triton.version, found, options.rounds, options.seconds)
    except (TritonError, ClientError, OSError) as error:
        sys.stderr.write(f"triton_clients: {error}\n")
        return 1
    options.out.write_text(page, encoding="utf-8")
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
