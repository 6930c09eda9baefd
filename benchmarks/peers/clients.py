"""The clients that are compared: their command lines for a load, and the figures that they report."""

import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from benchmarks.peers.canned import INPUTS, LARGE_MODEL, MODEL, VERSION, framed
from benchmarks.processes import ROOT, Checkout, peak_memory_kib, process_tree, run_perfkit, write_scenario
from perfkit.protocol import protobuf, rest
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array

_POLL_INTERVAL_S = 0.1
_WINDOWS = 3
MAX_RUN_S = 120
_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6}


class ClientError(Exception):
    """A client failed, or printed something unexpected; the message says which and what."""


class HungError(ClientError):
    """A client did not end in time and was killed: perf_analyzer hangs now and then."""


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """A load on a canned server's port; the body is twice `elements` INT32."""

    protocol: Literal["http", "grpc"]
    elements: int
    port: int
    concurrency: int
    seconds: float
    requests: int
    """Replaces the seconds for a client that takes a number of requests."""

    @property
    def model(self) -> str:
        """For a large body over HTTP, the model whose server reads the whole body."""
        return LARGE_MODEL if self.protocol == "http" and self.elements > 4096 else MODEL

    @property
    def url(self) -> str:
        """The URL of the requests."""
        path = rest.model_path(self.model, VERSION, "infer") if self.protocol == "http" else protobuf.method_path("ModelInfer")
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def request(self) -> InferRequest:
        """The request: zeros."""
        zeros = np.zeros((1, self.elements), np.int32)
        return InferRequest(self.model, tuple(tensor_from_array(name, Datatype.INT32, zeros) for name in INPUTS), version=VERSION)


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """A program's output, and the resources that it used according to the kernel."""

    output: str
    cpu_s: float
    """User and system time of the process and of all processes that it started."""
    peak_mib: float
    """VmHWM of its largest process."""


@dataclasses.dataclass(frozen=True, slots=True)
class Reported:
    """The figures of one run."""

    requests: int
    per_s: float
    p50_us: float
    usage: Usage


class Speed(NamedTuple):
    """Requests per second, and the median and mean request time that a client reports; nan if it reports none."""

    per_s: float
    p50_us: float
    mean_us: float = float("nan")


def run_measured(command: Sequence[str], *, accepted_codes: Sequence[int] = (0,), timeout_s: float, cwd: pathlib.Path = ROOT) -> Usage:
    """Runs a program to its end, in a folder. Raises ClientError at another exit code, and HungError at the timeout."""
    with tempfile.TemporaryFile() as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=cwd)
        peak_kib, end_s, hangs = 0, time.monotonic() + timeout_s, False
        try:
            # wait4 returns the resources used by the process and by the children that it waited for
            while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                peak_kib = max(peak_kib, *map(peak_memory_kib, process_tree(process.pid)))
                if hangs := time.monotonic() > end_s:
                    os.kill(process.pid, signal.SIGKILL)  # Popen.kill() would reap it
                time.sleep(_POLL_INTERVAL_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
        _, status, taken = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        stream.seek(0)
        output = stream.read().decode(errors="replace")
    if hangs:
        raise HungError(f"{shlex.join(command)[:200]} did not end within {timeout_s:g} s")
    if process.returncode not in accepted_codes:
        raise ClientError(f"{shlex.join(command)[:200]} ended with exit code {process.returncode}: {output[-1000:]}")
    return Usage(output, taken.ru_utime + taken.ru_stime, peak_kib / 1024)


Client: TypeAlias = Callable[[Load, pathlib.Path], Reported]
"""A load generator: it runs the load, with a folder for its files, and raises ClientError."""


def run_wrk(load: Load, folder: pathlib.Path, prefix: Sequence[str] = ()) -> Reported:
    """wrk: HTTP only, one thread; its script reads the body from a file. `prefix` is put before the command."""
    headers, buffers = rest.encode_infer_request(load.request)
    body, script = folder / "body", folder / "post.lua"
    body.write_bytes(b"".join(buffers))
    lines = ['wrk.method = "POST"', f'wrk.body = io.open("{body}", "rb"):read("*a")']
    script.write_text("\n".join([*lines, *(f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items())]), encoding="utf-8")
    seconds = str(max(1, round(load.seconds)))
    usage = run_measured(
        [
            *prefix,
            "wrk",
            "-t1",
            f"-c{load.concurrency}",
            f"-d{seconds}s",
            "--latency",
            "--timeout",
            f"{MAX_RUN_S}s",
            "-s",
            str(script),
            load.url,
        ],
        timeout_s=MAX_RUN_S + load.seconds,
    )
    return read_wrk(usage)


def run_h2load(load: Load, folder: pathlib.Path, prefix: Sequence[str] = ()) -> Reported:
    """h2load: it sends the bytes of a gRPC call over HTTP/2; the median comes from its log. `prefix` is put before the command."""
    message, log = folder / "message", folder / "h2load.log"
    message.write_bytes(framed(protobuf.encode_infer_request(load.request)))
    log.unlink(missing_ok=True)
    # only when the median is needed: it keeps every request until the end
    times = [f"--log-file={log}"] if load.concurrency == 1 else []
    headers = ("-H", "content-type: application/grpc", "-H", "te: trailers")
    seconds = str(max(1, round(load.seconds)))
    usage = run_measured(
        [*prefix, "h2load", f"-c{load.concurrency}", "-m1", f"-D{seconds}", f"-d{message}", *headers, *times, load.url],
        timeout_s=MAX_RUN_S + load.seconds,
    )
    return read_h2load(usage, log.read_text(encoding="ascii") if times else "")


def run_perf_analyzer(program: pathlib.Path, load: Load, _folder: pathlib.Path) -> Reported:
    """perf_analyzer, from Triton. It keeps a copy of every request, so it gets a number of requests instead of a time."""
    shapes = [part for name in INPUTS for part in ("--shape", f"{name}:1,{load.elements}")]
    options = ["-m", load.model, "-x", VERSION, "-i", load.protocol, "-u", f"127.0.0.1:{load.port}", "--input-data", "zero", *shapes]
    limits = ["--concurrency-range", str(load.concurrency), "--request-count", str(load.requests)]
    return read_perf_analyzer(run_measured([str(program), *options, *limits], timeout_s=MAX_RUN_S + load.seconds))


def run_closed_loop(checkout: Checkout, load: Load, folder: pathlib.Path) -> Reported:
    """`perfkit run` of a checkout with one closed loop."""
    requests, point, usage = run_own(checkout, closed_scenario(load, load.seconds), folder, load.seconds)
    return Reported(requests, point["throughput_per_s"], point["service_time_ns"]["p50"] / 1e3, usage)


def closed_scenario(load: Load, seconds: float, think_time: str = "0s") -> dict[str, object]:
    """The scenario of a closed loop for `perfkit run`."""
    zeros = {"generate": "zeros", "shape": [1, load.elements]}
    return {
        "name": "compare",
        "target": {
            "url": f"{load.protocol}://127.0.0.1:{load.port}",
            "model": load.model,
            "version": VERSION,
            "max_connections": max(load.concurrency, 1024),
        },
        "workload": {"inputs": dict.fromkeys(INPUTS, zeros)},
        "load": {"closed": {"concurrency": [load.concurrency], "think_time": think_time}},
        "measure": {"warmup": "0s", "duration": f"{seconds}s", "repetitions": 1, "workers": 1},
    }


def run_own(checkout: Checkout, scenario: Mapping[str, object], folder: pathlib.Path, seconds: float) -> tuple[int, dict[str, Any], Usage]:
    """The requests of `perfkit run`, its only load point, and what it used; raises ClientError."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        command = [*checkout.perfkit, "run", str(write_scenario(pathlib.Path(name), scenario)), "--quiet", "--out", f"{name}/out"]
        # 5: against a server that does nothing, the load generator is the bottleneck; others share the machine with their server
        usage = run_measured(command, accepted_codes=(0, 5), timeout_s=MAX_RUN_S + seconds, cwd=checkout.folder)
        (point,) = json.loads(pathlib.Path(name, "out", "result.json").read_text(encoding="utf-8"))["points"]
    requests = point["requests"]
    if requests["ok"] != requests["sent"]:
        raise ClientError(f"perfkit had failures: {requests}")
    return requests["sent"], point, usage


def measure_perfkit(
    url: str, model: str, *, concurrency: int, seconds: float, batch_size: int = 1, inputs: Mapping[str, object] | None = None
) -> Speed:
    """A closed loop of `perfkit run` on a running server; `inputs` is the scenario's key. Raises ClientError."""
    scenario = {
        "target": {"url": url, "model": model, "timeout": "120s"},
        "workload": {"batch_size": batch_size, "variants": 2, **({} if inputs is None else {"inputs": inputs})},
        "load": {"closed": {"concurrency": [concurrency]}},
        "measure": {"warmup": f"{seconds / 4}s", "duration": f"{seconds}s", "repetitions": 1, "workers": 1},
    }
    run = run_perfkit(scenario)
    if run.exit_code not in (0, 5):  # 5: a fast server makes the load generator the bottleneck
        raise ClientError(f"perfkit ended with exit code {run.exit_code}: {run.stderr}")
    requests = run.point["requests"]
    if requests["ok"] != requests["sent"]:
        raise ClientError(f"perfkit had failures: {requests}")
    times = [run.point["service_time_ns"][name] for name in ("p50", "mean")]
    return Speed(run.point["throughput_per_s"], *(float("nan") if value is None else value / 1e3 for value in times))


def measure_perf_analyzer(program: pathlib.Path, url: str, model: str, *, concurrency: int, seconds: float) -> Speed:
    """perf_analyzer on a running server, in windows that add up to some seconds; raises ClientError."""
    protocol, _, address = url.partition("://")
    options = ["-m", model, "-i", protocol, "-u", address, "--concurrency-range", str(concurrency)]
    reported = read_perf_analyzer(run_windows([str(program), *options], seconds))
    return Speed(reported.per_s, reported.p50_us)


def run_windows(command: Sequence[str], seconds: float) -> Usage:
    """Runs a command line of perf_analyzer in three windows, of which fewer never suffice, that add up to some seconds; raises ClientError."""
    # the windows vary: its own limit on that would end the run without figures
    windows = ["--measurement-interval", str(round(1000 * seconds / _WINDOWS)), "--stability-percentage", "999"]
    return run_measured([*command, *windows, "--max-trials", str(_WINDOWS)], timeout_s=MAX_RUN_S + seconds)


def read_wrk(usage: Usage) -> Reported:
    """The figures of wrk; raises ClientError if requests failed."""
    if failures := re.search(r"Non-2xx[^\n]*|Socket errors[^\n]*", usage.output):
        raise ClientError(f"wrk had failures: {failures[0]}")
    (median,) = _groups(r"\n\s+50%\s+([\d.]+(?:us|ms|s|m))\b", usage)
    (requests,), (per_s,) = _groups(r"(\d+) requests in", usage), _groups(r"Requests/sec:\s+([\d.]+)", usage)
    return Reported(int(requests), float(per_s), duration_us(median), usage)


def read_h2load(usage: Usage, log: str) -> Reported:
    """The figures of h2load; without a log the median is nan. Raises ClientError if requests failed."""
    done, succeeded, failed = _groups(r"(\d+) done, (\d+) succeeded, (\d+) failed", usage)
    if done != succeeded or int(failed):
        raise ClientError(f"h2load had failures: {done} done, {succeeded} succeeded")
    (per_s,) = _groups(r"finished in [^,]+, ([\d.]+) req/s", usage)
    taken_us = [float(line.split("\t")[2]) for line in log.splitlines()]
    return Reported(int(succeeded), float(per_s), statistics.median(taken_us) if taken_us else float("nan"), usage)


def read_perf_analyzer(usage: Usage) -> Reported:
    """The figures of perf_analyzer, which ends with an error if a request failed."""
    (requests,), (per_s,) = _groups(r"Request count: (\d+)", usage), _groups(r"Throughput: ([\d.e+]+) infer/sec", usage)
    (median,) = _groups(r"p50 latency: (\d+) usec", usage)
    return Reported(int(requests), float(per_s), float(median), usage)


def duration_us(text: str) -> float:
    """Microseconds: `1.35ms` is 1350."""
    number, unit = _matched(re.fullmatch(r"([\d.]+)(us|ms|s|m)", text), text)
    return float(number) * _UNITS_US[unit]


def _groups(pattern: str, usage: Usage) -> tuple[str, ...]:
    return _matched(re.search(pattern, usage.output), usage.output)


def _matched(match: re.Match[str] | None, text: str) -> tuple[str, ...]:
    if match is None:
        raise ClientError(f"a client printed something unexpected: {text[-1000:]}")
    return match.groups()
