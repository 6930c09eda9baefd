"""Compares perfkit with perf_analyzer on a real Triton: the throughput and p50 that each reports.

    python -m benchmarks.triton_clients [--rounds 5] [--seconds 5] [--peers FOLDER] [--out reports/triton-clients.md]

Model `simple` (Python backend), 8 requests in flight, over HTTP and over gRPC. The clients share the machine with Triton: CPU
time that a client uses is missing on the server, so the client with the lower cost measures the faster server.
"""

import pathlib
import random
import statistics
import sys

from benchmarks.peers.clients import ClientError, Speed, measure_perf_analyzer, measure_perfkit
from benchmarks.peers.install import peers_folder, perf_analyzer_path
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import ROOT
from benchmarks.report import RATIO_COLUMNS, Ratio, describe_machine, option_parser, table_head, table_row, write_report

CONCURRENCY = 8
PROTOCOLS, CLIENTS = ("http", "grpc"), ("perfkit", "perf_analyzer")
Speeds = dict[tuple[str, str], list[Speed]]


def tables(speeds: Speeds) -> list[str]:
    """The medians of each client, and the ratios between the clients."""
    lines = table_head("protocol", "client", ">throughput", ">p50")
    for (protocol, client), rounds in speeds.items():
        per_s, p50_us = (statistics.median(getattr(speed, field) for speed in rounds) for field in ("per_s", "p50_us"))
        lines.append(table_row(protocol, client, f"{per_s:,.0f}/s", f"{p50_us / 1e3:.2f} ms"))
    lines += ["", *table_head("perfkit / perf_analyzer", *RATIO_COLUMNS)]
    for protocol in PROTOCOLS:
        pairs = list(zip(*(speeds[protocol, client] for client in CLIENTS), strict=True))
        throughput = Ratio(f"throughput, {protocol}", tuple(own.per_s / peer.per_s for own, peer in pairs), low=1)
        p50 = Ratio(f"p50, {protocol}", tuple(own.p50_us / peer.p50_us for own, peer in pairs), high=1)
        lines += [table_row(ratio.name, *ratio.cells) for ratio in (throughput, p50)]
    return lines


def measure(folder: pathlib.Path | None, rounds: int, seconds: float) -> tuple[str, Speeds]:
    """Triton's version, and both clients' figures in every round; raises PeerError or ClientError."""
    speeds: Speeds = {(protocol, client): [] for protocol in PROTOCOLS for client in CLIENTS}
    order = random.Random(0)
    with running_triton(peers_folder(folder)) as triton:
        for number in range(rounds):
            for protocol in PROTOCOLS:
                url = triton.url(protocol)
                for client in order.sample(CLIENTS, len(CLIENTS)):
                    if client == "perfkit":
                        speed = measure_perfkit(url, "simple", concurrency=CONCURRENCY, seconds=seconds)
                    else:
                        program = perf_analyzer_path(folder)
                        speed = measure_perf_analyzer(program, url, "simple", concurrency=CONCURRENCY, seconds=seconds)
                    speeds[protocol, client].append(speed)
                    text = f"{speed.per_s:,.0f}/s, p50 {speed.p50_us / 1e3:.2f} ms"
                    print(f"round {number + 1}, {protocol}, {client}: {text}", flush=True)
        return triton.version, speeds


def main() -> int:
    """Measures, and prints and writes the report."""
    parser = option_parser(__doc__, out=ROOT / "reports" / "triton-clients.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="length of a client's run (default %(default)s)")
    parser.add_argument("--peers", type=pathlib.Path, help="folder of the peers")
    options = parser.parse_args()
    machine = describe_machine()
    try:
        version, speeds = measure(options.peers, options.rounds, options.seconds)
    except (PeerError, ClientError, OSError) as error:
        sys.stderr.write(f"triton_clients: {error}\n")
        return 1
    page = [
        "# perfkit and perf_analyzer on a real Triton",
        "",
        f"Triton {version}, model `simple` (Python backend), {CONCURRENCY} requests in flight; {options.rounds} rounds of",
        f"{options.seconds:g} s, the clients in random order within each. Clients and server share the CPUs, so the absolute figures are",
        f"valid for this machine only; the ratios are those of consecutive runs. {machine}",
        "",
        *tables(speeds),
    ]
    print("\n".join(page))
    write_report(options.out, page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
