"""The clients that are compared: how each is run on one load, and what it says of it."""

import abc
import dataclasses
import json
import os
import pathlib
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from benchmarks.peers.canned import INPUTS, LARGE_MODEL, MODEL, VERSION, framed
from perfkit.protocol import protobuf, rest
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array

ROOT = pathlib.Path(__file__).parents[2]
_LOOKS_EVERY_S = 0.1
LONGEST_S = 120
_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6}


class ClientError(Exception):
    """A client failed, or said something unexpected; the text says which and what."""


class HungError(ClientError):
    """A client did not end in its time, and was ended: perf_analyzer hangs now and then."""


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """What a client is asked to do; the port is that of a canned server. The body is twice `elements` INT32."""

    protocol: Literal["http", "grpc"]
    elements: int
    port: int
    concurrency: int
    seconds: float
    requests: int
    """Instead of seconds, for a client that ends by itself only with a number of requests."""

    @property
    def model(self) -> str:
        """The one whose server awaits the body where that is large."""
        return LARGE_MODEL if self.protocol == "http" and self.elements > 4096 else MODEL

    @property
    def url(self) -> str:
        """Where requests go."""
        path = rest.model_path(self.model, VERSION, "infer") if self.protocol == "http" else protobuf.method_path("ModelInfer")
        return f"http://127.0.0.1:{self.port}{path}"

    @property
    def request(self) -> InferRequest:
        """The request, zeros."""
        zeros = np.zeros((1, self.elements), np.int32)
        return InferRequest(self.model, tuple(tensor_from_array(name, Datatype.INT32, zeros) for name in INPUTS), version=VERSION)


@dataclasses.dataclass(frozen=True, slots=True)
class Usage:
    """What a program printed, and what the kernel says that it and all programs it started took."""

    output: str
    cpu_s: float
    peak_mib: float
    """The first process's own, VmHWM."""


@dataclasses.dataclass(frozen=True, slots=True)
class Said:
    """What came of one run."""

    requests: int
    per_s: float
    p50_us: float
    usage: Usage


def run_measured(command: Sequence[str], *, accepted: Sequence[int] = (0,), longest_s: float) -> Usage:
    """Runs a program to its end. Raises ClientError where it ends with another exit code, HungError where it does not end."""
    with tempfile.TemporaryFile() as stream:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stream, stderr=subprocess.STDOUT, cwd=ROOT)
        peak_kib, end_s, hangs = 0, time.monotonic() + longest_s, False
        try:
            # the kernel tells what a process took to the one who waits for it, its own children that it waited for among that
            while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
                peak_kib = max(peak_kib, _peak_kib(process.pid))
                if hangs := time.monotonic() > end_s:
                    os.kill(process.pid, signal.SIGKILL)  # Popen's own would reap it
                time.sleep(_LOOKS_EVERY_S)
        except BaseException:
            process.kill()
            process.wait()
            raise
        _, status, taken = ended
        process.returncode = os.waitstatus_to_exitcode(status)
        stream.seek(0)
        output = stream.read().decode(errors="replace")
    if hangs:
        raise HungError(f"{shlex.join(command)[:200]} did not end within {longest_s:g} s")
    if process.returncode not in accepted:
        raise ClientError(f"{shlex.join(command)[:200]} ended with exit code {process.returncode}: {output[-1000:]}")
    return Usage(output, taken.ru_utime + taken.ru_stime, peak_kib / 1024)


class Client(abc.ABC):
    """One way to send requests, and the files that it takes in a folder."""

    @abc.abstractmethod
    def run(self, load: Load, folder: pathlib.Path) -> Said:
        """Raises ClientError."""


class Wrk(Client):
    """HTTP alone, one thread; the body comes out of a file through its script."""

    def run(self, load: Load, folder: pathlib.Path) -> Said:
        """See `Client.run`."""
        headers, buffers = rest.encode_infer_request(load.request)
        body, script = folder / "body", folder / "post.lua"
        body.write_bytes(b"".join(buffers))
        lines = ['wrk.method = "POST"', f'wrk.body = io.open("{body}", "rb"):read("*a")']
        script.write_text("\n".join([*lines, *(f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items())]), encoding="utf-8")
        seconds = str(max(1, round(load.seconds)))
        usage = run_measured(
            ["wrk", "-t1", f"-c{load.concurrency}", f"-d{seconds}s", "--latency", "-s", str(script), load.url],
            longest_s=LONGEST_S + load.seconds,
        )
        return read_wrk(usage)


class H2load(Client):
    """The same over HTTP/2: it knows nothing of gRPC, so it gets the bytes of a call. Its median comes from its log."""

    def run(self, load: Load, folder: pathlib.Path) -> Said:
        """See `Client.run`."""
        message, log = folder / "message", folder / "h2load.log"
        message.write_bytes(framed(protobuf.encode_infer_request(load.request)))
        log.unlink(missing_ok=True)
        # only where the median is wanted: it keeps every request until the end
        times = [f"--log-file={log}"] if load.concurrency == 1 else []
        headers = ("-H", "content-type: application/grpc", "-H", "te: trailers")
        seconds = str(max(1, round(load.seconds)))
        usage = run_measured(
            ["h2load", f"-c{load.concurrency}", "-m1", f"-D{seconds}", f"-d{message}", *headers, *times, load.url],
            longest_s=LONGEST_S + load.seconds,
        )
        return read_h2load(usage, log.read_text(encoding="ascii") if times else "")


class PerfAnalyzer(Client):
    """Triton's own. It keeps a copy of every request that it sent, so it gets a number of them, not a time."""

    def __init__(self, program: pathlib.Path) -> None:
        self._program = program

    def run(self, load: Load, folder: pathlib.Path) -> Said:
        """See `Client.run`."""
        shapes = [part for name in INPUTS for part in ("--shape", f"{name}:1,{load.elements}")]
        asked = ["-m", load.model, "-x", VERSION, "-i", load.protocol, "-u", f"127.0.0.1:{load.port}", "--input-data", "zero", *shapes]
        limits = ["--concurrency-range", str(load.concurrency), "--request-count", str(load.requests)]
        return read_perf_analyzer(run_measured([str(self._program), *asked, *limits], longest_s=LONGEST_S + load.seconds))


class Perfkit(Client):
    """`perfkit run` with one closed loop, as anybody would; the result comes out of its folder."""

    def __init__(self, program: str | None) -> None:
        self._command = [sys.executable, "-m", "perfkit"] if program is None else [program]

    def run(self, load: Load, folder: pathlib.Path) -> Said:
        """See `Client.run`."""
        zeros = {"generate": "zeros", "shape": [1, load.elements]}
        scenario = {
            "name": "compare",
            "target": {"url": f"{load.protocol}://127.0.0.1:{load.port}", "model": load.model, "version": VERSION},
            "workload": {"inputs": dict.fromkeys(INPUTS, zeros)},
            "load": {"closed": {"concurrency": [load.concurrency]}},
            "measure": {"warmup": "0s", "duration": f"{load.seconds}s", "repetitions": 1},
        }
        with tempfile.TemporaryDirectory(dir=folder) as name:
            file = pathlib.Path(name, "scenario.yaml")
            file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
            # 5: a server that does nothing leaves the generator as the bottleneck
            usage = run_measured(
                [*self._command, "run", str(file), "--quiet", "--out", f"{name}/out"], accepted=(0, 5), longest_s=LONGEST_S + load.seconds
            )
            (point,) = json.loads(pathlib.Path(name, "out", "result.json").read_text(encoding="utf-8"))["points"]
        requests = point["requests"]
        if requests["ok"] != requests["sent"]:
            raise ClientError(f"perfkit had failures: {requests}")
        return Said(requests["sent"], point["throughput_per_s"], point["service_time_ns"]["p50"] / 1e3, usage)


def read_wrk(usage: Usage) -> Said:
    """Wrk's figures; raises ClientError where there were failures."""
    if found := re.search(r"Non-2xx[^\n]*|Socket errors[^\n]*", usage.output):
        raise ClientError(f"wrk had failures: {found[0]}")
    (median,) = _groups(r"\n\s+50%\s+([\d.]+(?:us|ms|s|m))\b", usage)
    (requests,), (per_s,) = _groups(r"(\d+) requests in", usage), _groups(r"Requests/sec:\s+([\d.]+)", usage)
    return Said(int(requests), float(per_s), duration_us(median), usage)


def read_h2load(usage: Usage, log: str) -> Said:
    """H2load's figures; the median is nan where there is no log. Raises ClientError where there were failures."""
    done, succeeded, failed = _groups(r"(\d+) done, (\d+) succeeded, (\d+) failed", usage)
    if done != succeeded or int(failed):
        raise ClientError(f"h2load had failures: {done} done, {succeeded} succeeded")
    (per_s,) = _groups(r"finished in [^,]+, ([\d.]+) req/s", usage)
    taken_us = [float(line.split("\t")[2]) for line in log.splitlines()]
    return Said(int(succeeded), float(per_s), statistics.median(taken_us) if taken_us else float("nan"), usage)


def read_perf_analyzer(usage: Usage) -> Said:
    """perf_analyzer's figures; it ends with an error where a request failed."""
    (requests,), (per_s,) = _groups(r"Request count: (\d+)", usage), _groups(r"Throughput: ([\d.e+]+) infer/sec", usage)
    (median,) = _groups(r"p50 latency: (\d+) usec", usage)
    return Said(int(requests), float(per_s), float(median), usage)


def duration_us(text: str) -> float:
    """Reads `1.35ms` as 1350."""
    number, unit = _matched(re.fullmatch(r"([\d.]+)(us|ms|s|m)", text), text)
    return float(number) * _UNITS_US[unit]


def _groups(pattern: str, usage: Usage) -> tuple[str, ...]:
    return _matched(re.search(pattern, usage.output), usage.output)


def _matched(found: re.Match[str] | None, text: str) -> tuple[str, ...]:
    if found is None:
        raise ClientError(f"a client said something unexpected: {text[-1000:]}")
    return found.groups()


def _peak_kib(pid: int) -> int:
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except OSError:
        return 0
    return max((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")), default=0)
