"""Compares the server's own statistics with perfkit's figures.

    python -m benchmarks.server_statistics [--seconds 10] [--no-triton] [--before CHECKOUT] [--peers FOLDER] [--out reports/server-statistics.md]

On the bundled server and on a real Triton (`benchmarks/peers/install.py` installs it), over both protocols: server and perfkit
must count the same requests, and the server's mean success time must not exceed the client's mean service time; the exit code is
1 otherwise. On the bundled server's model `synthetic`, 5 ms of queueing and 10 ms of compute are injected and must appear in
their fields. How long a sweep pauses between its load points is measured with and without another client of the model, also of another
checkout (`--before`); a median of this one's pauses of more than half a second is a failure, too. It takes 5 minutes, 2 more with `--before`.
`benchmarks.telemetry_cost` measures what reading the statistics costs.
"""

import contextlib
import itertools
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.peers.install import peers_folder
from benchmarks.peers.server_process import PeerError
from benchmarks.peers.triton import running_triton
from benchmarks.processes import BEFORE, BEFORE_OPTION, OWN, THIS, Checkout, run_perfkit, running_server, write_scenario
from benchmarks.report import Report, program_options, yes_no
from benchmarks.synthetic import INPUT, closed_loop, open_loop
from perfkit.result.interval_log import read_window_starts
from perfkit.units import format_duration_ns

# every period: 20 requests 11 ms apart, which do not queue, then 75 requests 10 ms apart, each _WAIT_S before its predecessor
# ends. All busy requests wake the server in the same way, so no single late wake-up counts much; 5 ms is the mean of all 95
_DECLARATION, _PERIOD_S, _IDLE, _BUSY = "service=constant:10ms,servers=1,lead=0s", 1.0, 20, 75
_WAIT_S = 0.005 * (_IDLE + _BUSY) / _BUSY
_FIRST_BUSY_S = (_IDLE - 1) * 0.011 + 0.01 - _WAIT_S
_OFFSETS_S = (*(number * 0.011 for number in range(_IDLE)), *(_FIRST_BUSY_S + number * 0.01 for number in range(_BUSY)))
_SWEEP, _ALLOWED_PAUSE_S, _OTHERS_PER_S = 10, 0.5, 200.0
_INJECTED_NS, _ALLOWED_SHARE = {"queue_ns": 5_000_000, "compute_infer_ns": 10_000_000}, 0.02


def agreement(point: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether server and perfkit counted the same requests, and whether the server's mean success time is within the client's mean service time."""
    figures = point["server"]
    if not figures:
        return False, False
    return figures["requests"] == figures["client_requests"] > 0, figures["success_ns"] <= figures["client_mean_ns"]


def add_rows(page: Report, server: str, points: list[dict[str, Any]]) -> None:
    """A line for each load point on a server."""
    for point in points:
        load, figures = point["load"], point["server"] or {}
        title = f"concurrency {load['concurrency']}" if load["kind"] == "closed" else f"{load['rate_per_s']:g}/s {load['arrivals']}"
        counts = [f"{figures[name]:,}" if figures else "none" for name in ("requests", "client_requests")]
        names = ("queue_ns", "compute_infer_ns", "success_ns", "client_mean_ns")
        times = [format_duration_ns(figures[name]) if figures.get(name) else "0" for name in names]
        agreed = agreement(point)
        page.is_met &= all(agreed)
        page.row(server, point["protocol"], title, *counts, *times, *map(yes_no, agreed))


def inject(seconds: float) -> list[dict[str, Any]]:
    """Injects a mean queue time of 5 ms and a compute time of 10 ms, over both protocols."""
    instants = (period * _PERIOD_S + offset_s for period in range(round(seconds / _PERIOD_S)) for offset_s in _OFFSETS_S)
    with tempfile.TemporaryDirectory(prefix="perfkit-statistics-") as folder:
        trace = pathlib.Path(folder, "trace.txt")
        trace.write_text("".join(f"{instant:.6f}\n" for instant in instants), encoding="ascii")
        return run_perfkit({
            "target": {"model": "synthetic", "protocols": ["http", "grpc"]}, "server": {"synthetic": _DECLARATION}, "workload": {"inputs": INPUT},
            "load": {"open": {"arrivals": "trace", "trace": str(trace)}},
            "measure": {"warmup": "0s", "duration": f"{seconds:g}s", "repetitions": 1, "workers": 1},
        }).points  # fmt: skip


@contextlib.contextmanager
def other_client(url: str) -> Iterator[None]:
    """Loads the model from another process for the length of the block; raises RuntimeError if it has ended before."""
    measured = {"warmup": "0s", "duration": "1h", "repetitions": 1, "workers": 1}
    other = {"target": {"url": url, "model": "simple"}, "load": open_loop(_OTHERS_PER_S), "measure": measured, "telemetry": False}
    with tempfile.TemporaryDirectory(prefix="perfkit-other-", ignore_cleanup_errors=True) as name:
        folder = pathlib.Path(name)
        command = [*THIS.perfkit, "run", str(write_scenario(folder, other)), "--quiet", "--out", f"{name}/out"]
        with subprocess.Popen(command, cwd=THIS.folder, stdout=subprocess.DEVNULL) as process:
            try:
                while process.poll() is None and not list(folder.glob("out.partial/measured/*.log")):
                    time.sleep(0.1)
                yield
                if process.poll() is not None:
                    raise RuntimeError(f"the other client ended with exit code {process.returncode} before the sweeps did")
            finally:
                process.kill()


def pauses_s(url: str, checkout: Checkout) -> list[float]:
    """The seconds between the load points of a sweep: from the end of a window to the begin of the next; raises RuntimeError if a load point failed."""
    measured = {"warmup": "0s", "duration": "1s", "repetitions": 1, "workers": 1}
    scenario = {"target": {"url": url, "model": "simple"}, "load": closed_loop(*range(1, _SWEEP + 1)), "measure": measured}
    with tempfile.TemporaryDirectory(prefix="perfkit-pauses-") as name:
        out = pathlib.Path(name, "out")
        run = run_perfkit(scenario, out=out, checkout=checkout)
        requests = [point["requests"] for point in run.points]
        starts_s = sorted(read_window_starts(out).values())
    # exit code 5 is accepted: the sweep shares the machine with its server, so that the load generator may be the bottleneck
    if (
        run.exit_code not in (0, 5)
        or not len(requests) == len(starts_s) == _SWEEP
        or any(not 0 < one["ok"] == one["sent"] for one in requests)
    ):
        raise RuntimeError(f"the sweep ended with exit code {run.exit_code} and these requests: {requests}")
    return [later - earlier - 1 for earlier, later in itertools.pairwise(starts_s)]


def add_pauses(page: Report, urls: Mapping[str, str], before: Checkout | None) -> None:
    """The part on the time between load points."""
    page.section(
        "Pauses between load points",
        f"{_SWEEP} load points of 1 s: from the end of a window to the begin of the next one. The other client sends {_OTHERS_PER_S:g} requests/s to the same model.",
        "",
    )
    page.table("server", "other client", "perfkit", ">median", ">longest", ">sum", f"median at most {_ALLOWED_PAUSE_S:g} s")
    checkouts = {OWN: THIS} if before is None else {BEFORE: before, OWN: THIS}
    for (server, url), is_shared in itertools.product(urls.items(), (False, True)):
        with other_client(url) if is_shared else contextlib.nullcontext():
            for name, checkout in checkouts.items():
                pauses = pauses_s(url, checkout)
                cells = (f"{value:.2f} s" for value in (statistics.median(pauses), max(pauses), sum(pauses)))
                row = (server, yes_no(is_shared), name, *cells)
                if name == OWN:
                    page.judged_row(statistics.median(pauses) <= _ALLOWED_PAUSE_S, *row)
                else:
                    page.row(*row, "")


def main() -> int:
    """Measures, and writes the report."""
    options = program_options(
        __doc__,
        out="server-statistics",
        seconds=10.0,
        no_triton=(False, "measure the bundled server only"),
        before=BEFORE_OPTION,
        peers=pathlib.Path,
    )
    page, note = Report(options.out, "The server's statistics compared with perfkit's figures"), list[str]()
    page.add(
        "Both count the requests of a whole load point, with its warm-up; times are means. The server's success time must not exceed",
        "the client's mean service time of the same requests.",
        "",
    )
    page.table("server", "protocol", "load", ">server counted", ">perfkit counted", ">queue", ">compute infer", ">success", ">client's mean",
               "counts agree", "within client's time")  # fmt: skip
    with contextlib.ExitStack() as stack:
        targets = {"bundled server": {protocol: {"protocols": [protocol]} for protocol in ("http", "grpc")}}
        if not options.no_triton:
            try:
                triton = stack.enter_context(running_triton(peers_folder(options.peers)))
                targets[f"Triton {triton.version}"] = {protocol: {"url": triton.url(protocol)} for protocol in ("http", "grpc")}  # type: ignore[dict-item] # a list or a text
            except PeerError as error:
                note = ["", f"Triton was not measured: {error}"]
        measured = {"warmup": "1s", "duration": f"{options.seconds:g}s", "repetitions": 1, "workers": 1}
        for name, by_protocol in targets.items():
            for target in by_protocol.values():
                for load in (closed_loop(1, 4, 16), open_loop(100)):
                    add_rows(page, name, run_perfkit({"target": {"model": "simple", **target}, "load": load, "measure": measured}).points)
        bundled = stack.enter_context(running_server("--model", "simple"))
        add_pauses(
            page,
            {"bundled server": bundled.url(), **{name: str(one["http"]["url"]) for name, one in targets.items() if "url" in one["http"]}},
            options.before,
        )
    page.section(
        "5 ms of queueing and 10 ms of compute",
        f"The model `synthetic` (`{_DECLARATION}`), with a schedule that repeats after {_PERIOD_S:g} s. {_IDLE} requests arrive 11 ms apart "
        f"and do not queue; the other {_BUSY} arrive 10 ms apart and queue for {_WAIT_S * 1e3:.2f} ms each. The mean over all is 5 ms.",
        "",
    )
    page.table("protocol", ">requests", ">queue", ">error", ">compute infer", ">error", "within 2 %")
    for point in inject(options.seconds):
        errors = {name: point["server"][name] / expected - 1 for name, expected in _INJECTED_NS.items()}
        cells = [cell for name, error in errors.items() for cell in (format_duration_ns(point["server"][name]), f"{error:+.2%}")]
        page.row(point["protocol"], f"{point['server']['requests']:,}", *cells, yes_no(max(map(abs, errors.values())) <= _ALLOWED_SHARE))
        page.is_met &= all(agreement(point))
    page.add(*note)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
