"""Whether a server's own statistics and perfkit's figures tell one story, and what looking costs.

    python -m benchmarks.server_statistics [--seconds 10] [--no-triton] [--peers FOLDER] [--out reports/server-statistics.md]

On the bundled server and on real Triton (`benchmarks/peers/install.py` installs it), over both protocols: both sides must
have counted the same requests, and the server's mean success time must not be above the client's mean service time. On the
bundled server's model `synthetic`, 5 ms of queueing and 10 ms of compute are injected, and must appear in their fields.
Then the same load with telemetry and without, and the CPU time of the process that samples.
"""

import argparse
import contextlib
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psutil
import yaml

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import Triton, TritonError, running_triton
from perfkit.units import format_duration_ns

ROOT = pathlib.Path(__file__).parents[1]
_LOADS: Mapping[str, Mapping[str, Any]] = {
    "closed": {"closed": {"concurrency": [1, 4, 16]}},
    "open": {"open": {"rate": [100], "arrivals": "poisson"}},
}
# 20 requests 11 ms apart that nobody waits behind, then 75 every 10 ms, each _WAIT_S before the one before it has been served. They
# wake their server all alike, so that it hangs on no single one's lateness; 5 ms is the mean over all 95
_INJECTED, _EVERY_S, _IDLE, _BUSY = "service=constant:10ms,servers=1,lead=0s", 1.0, 20, 75
_WAIT_S = 0.005 * (_IDLE + _BUSY) / _BUSY
_FIRST_BUSY_S = (_IDLE - 1) * 0.011 + 0.01 - _WAIT_S
_GROUP_S = (*(number * 0.011 for number in range(_IDLE)), *(_FIRST_BUSY_S + number * 0.01 for number in range(_BUSY)))
_QUEUE_NS, _COMPUTE_NS, _WITHIN = 5_000_000, 10_000_000, 0.02
_CPU_EVERY_S = 0.5


@dataclasses.dataclass(frozen=True)
class Seen:
    """One load point on one server."""

    server: str
    point: Mapping[str, Any]

    @property
    def figures(self) -> Mapping[str, Any]:
        """The server's own; empty where it gave none."""
        return self.point["server"] or {}

    @property
    def counts_agree(self) -> bool:
        """Whether both sides counted the same requests."""
        return bool(self.figures) and self.figures["requests"] == self.figures["client_requests"] > 0

    @property
    def is_inside(self) -> bool:
        """Whether the server's mean success time is not above the client's mean."""
        return bool(self.figures) and self.figures["success_ns"] <= self.figures["client_mean_ns"]

    def row(self) -> str:
        """As Markdown."""
        load, figures = self.point["load"], self.figures
        title = f"concurrency {load['concurrency']}" if load["kind"] == "closed" else f"{load['rate_per_s']:g}/s {load['arrivals']}"
        if not figures:
            return f"| {self.server} | {self.point['protocol']} | {title} | none | | | | | | no | no |"
        times = " | ".join(
            format_duration_ns(figures[name]) if figures[name] else "0"
            for name in ("queue_ns", "compute_infer_ns", "success_ns", "client_mean_ns")
        )
        agree, inside = ("yes" if one else "**no**" for one in (self.counts_agree, self.is_inside))
        return f"| {self.server} | {self.point['protocol']} | {title} | {figures['requests']:,} | {figures['client_requests']:,} | {times} | {agree} | {inside} |"


def measure(folder: pathlib.Path, scenario: Mapping[str, Any], watch: "CpuWatch | None" = None) -> list[dict[str, Any]]:
    """The points of a run; raises RuntimeError where there are none."""
    file, out = folder / "scenario.yaml", folder / "out"
    file.write_text(yaml.safe_dump(scenario))
    command = [sys.executable, "-m", "perfkit", "run", str(file), "--out", str(out), "--quiet", "--format", "json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    with watch.following(process.pid) if watch else contextlib.nullcontext():
        stdout, stderr = process.communicate()
    if not stdout:
        raise RuntimeError(f"perfkit run ended with {process.returncode}: {stderr[-1000:]}")
    points: list[dict[str, Any]] = json.loads(stdout)["points"]
    return points


class CpuWatch:
    """The CPU share of the process that samples, between the first and the last time that it was looked at."""

    def __init__(self) -> None:
        self.shares: list[float] = []
        self._seen: list[tuple[float, float]] = []
        self._end = threading.Event()

    @contextlib.contextmanager
    def following(self, pid: int) -> Iterator[None]:
        """Looks at the sampling child of a run, for the length of the block."""
        self._end, self._seen = threading.Event(), []
        thread = threading.Thread(target=self._look, args=(pid,))
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()
            if len(self._seen) > 4:  # the first looks see it import its libraries
                (then_s, before_s), (now_s, after_s) = self._seen[3], self._seen[-1]
                self.shares.append((after_s - before_s) / (now_s - then_s))

    def _look(self, pid: int) -> None:
        while not self._end.wait(_CPU_EVERY_S):
            with contextlib.suppress(psutil.Error):
                for child in psutil.Process(pid).children():
                    if "perfkit.telemetry.sampler_process" in child.cmdline():
                        used = child.cpu_times()
                        self._seen.append((time.monotonic(), used.user + used.system))


def scenario(model: str, load: Mapping[str, Any], seconds: float, **more: Any) -> dict[str, Any]:
    """A scenario of one repetition and one worker."""
    measured = {"warmup": "1s", "duration": f"{seconds:g}s", "repetitions": 1, "workers": 1}
    return {"target": {"model": model}, "load": dict(load), "measure": measured, **more}


def compare(folder: pathlib.Path, seconds: float, triton: Triton | None) -> list[Seen]:
    """Every load over every protocol on every server."""
    urls: dict[str, Mapping[str, str | None]] = {"bundled server": {"http": None, "grpc": None}}
    if triton is not None:
        urls[f"Triton {triton.version}"] = {"http": f"http://127.0.0.1:{triton.http_port}", "grpc": f"grpc://127.0.0.1:{triton.grpc_port}"}
    found = []
    for server, by_protocol in urls.items():
        for protocol, url in by_protocol.items():
            for kind, load in _LOADS.items():
                print(f"{server}, {protocol}, {kind} …", file=sys.stderr)
                one = scenario("simple", load, seconds)
                one["target"] |= {"protocols": [protocol]} if url is None else {"url": url}
                found += [Seen(server, point) for point in measure(folder, one)]
    return found


def inject(folder: pathlib.Path, seconds: float) -> list[Seen]:
    """A declared queue of 5 ms in the mean and a compute time of 10 ms, over both protocols."""
    instants = (group * _EVERY_S + apart for group in range(round(seconds / _EVERY_S)) for apart in _GROUP_S)
    (folder / "trace.txt").write_text("".join(f"{instant:.6f}\n" for instant in instants))
    more = {"server": {"synthetic": _INJECTED}, "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}}}
    one = scenario("synthetic", {"open": {"arrivals": "trace", "trace": "trace.txt"}}, seconds, **more)
    one["target"]["protocols"], one["measure"]["warmup"] = ["http", "grpc"], "0s"
    return [Seen("synthetic", point) for point in measure(folder, one)]


def cost(folder: pathlib.Path, seconds: float, rounds: int) -> tuple[list[str], CpuWatch]:
    """p99 with telemetry and without, in turn, each with its 95 % interval."""
    watch, rows = CpuWatch(), []
    for number in range(rounds):
        for telemetry in (True, False):
            print(f"cost, round {number + 1} of {rounds}, telemetry {'on' if telemetry else 'off'} …", file=sys.stderr)
            more = {
                "server": {"synthetic": "service=exponential:5ms,servers=4"},
                "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
            }
            one = scenario("synthetic", {"open": {"rate": [200], "arrivals": "poisson"}}, seconds, telemetry=telemetry, **more)
            (point,) = measure(folder, one, watch if telemetry else None)
            low, high = point["intervals"].get("p99", (None, None))
            times = [format_duration_ns(value) if value else "–" for value in (point["response_time_ns"]["p99"], low, high)]
            rows.append(f"| {number + 1} | {'on' if telemetry else 'off'} | {times[0]} | {times[1]} to {times[2]} |")
    return rows, watch


def report(seen: Sequence[Seen], injected: Sequence[Seen], rows: Sequence[str], watch: CpuWatch, note: str) -> str:
    """The whole of it as Markdown."""
    lines = ["# The server's statistics beside perfkit's figures", ""]
    lines += [
        "Requests are those of the whole load point, its warm-up included, on either side; times are means. The server's success time must not be",
        "above the client's mean service time over the same requests.", "",
        "| server | protocol | load | server counted | perfkit counted | queue | compute infer | success | client's mean | counts agree | inside |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---|---|",
        *(one.row() for one in seen), "",
    ]  # fmt: skip
    lines += [note, ""] if note else []
    lines += [
        "## 5 ms of queueing and 10 ms of compute", "",
        (f"The model `synthetic` (`{_INJECTED}`): every {_EVERY_S:g} s {_IDLE} requests 11 ms apart, which wait for nobody, and {_BUSY} more, "
        f"one every 10 ms, each {_WAIT_S * 1e3:.2f} ms before the one before it has been served: 5 ms on average over all."),
        "",
        "| protocol | requests | queue | off by | compute infer | off by | within 2 % |", "|---|---:|---:|---:|---:|---:|---|",
    ]  # fmt: skip
    for one in injected:
        off = [one.figures[name] / expected - 1 for name, expected in (("queue_ns", _QUEUE_NS), ("compute_infer_ns", _COMPUTE_NS))]
        within = "yes" if max(map(abs, off)) <= _WITHIN else "**no**"
        queue, compute = (format_duration_ns(one.figures[name]) for name in ("queue_ns", "compute_infer_ns"))
        lines.append(
            f"| {one.point['protocol']} | {one.figures['requests']:,} | {queue} | {off[0]:+.2%} | {compute} | {off[1]:+.2%} | {within} |"
        )
    share = (
        f"{max(watch.shares):.2%} of a core in the busiest of {len(watch.shares)} runs"
        if watch.shares
        else "not known: the runs were too short"
    )
    lines += [
        "", "## What looking costs", "",
        f"The process that samples took {share}: the generator twice a second, the server's statistics once. No GPU was sampled here.", "",
        "p99 of the response time at 200/s (Poisson, exponential service of 5 ms on four servers), with telemetry and without:", "",
        "| round | telemetry | p99 | its 95 % interval |", "|---:|---|---:|---|", *rows, "",
    ]  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    """Measures, and writes the report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0, help="the length of each window")
    parser.add_argument("--rounds", type=int, default=3, help="how often p99 is measured with telemetry and without")
    parser.add_argument("--no-triton", action="store_true", help="the bundled server alone")
    parser.add_argument("--peers", type=pathlib.Path, help="where the peers are installed")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "reports" / "server-statistics.md")
    options = parser.parse_args()
    note = ""
    with tempfile.TemporaryDirectory(prefix="perfkit-statistics-") as name, contextlib.ExitStack() as stack:
        folder, triton = pathlib.Path(name), None
        if not options.no_triton:
            try:
                triton = stack.enter_context(running_triton(peers_folder(options.peers)))
            except TritonError as error:
                note = f"Triton did not take part: {error}"
                print(note, file=sys.stderr)
        seen = compare(folder, options.seconds, triton)
        injected = inject(folder, options.seconds)
        rows, watch = cost(folder, options.seconds, options.rounds)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(report(seen, injected, rows, watch, note), encoding="utf-8")
    print(options.out)
    return 0 if all(one.counts_agree and one.is_inside for one in (*seen, *injected)) else 1


if __name__ == "__main__":
    sys.exit(main())
