"""What the bundled server gets through: beside real Triton on `simple`, and beside ONNX Runtime called directly on DenseNet-121.

    python -m benchmarks.server_throughput [--rounds 2] [--seconds 3] [--parts simple densenet batching] [--peers FOLDER]
                                           [--out reports/server-throughput.md]

`simple` at concurrency 8, both servers up all the while, one load a few seconds after the other on either, by
perf_analyzer and by perfkit. Two layouts: server and client on CPUs of their own, and both on all of them. DenseNet with
one thread, the server and the direct loop on the same CPU in turn, the client on another. Ratios are taken within a
round, and are medians over the rounds. The exit code is 1 where a target is missed.
"""

import argparse
import contextlib
import functools
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import TritonError, running_triton

ROOT = pathlib.Path(__file__).parents[1]
CONCURRENCY = 8
WANTED = {"http": 1.0, "grpc": 0.6}
WANTED_DIRECT, WANTED_BATCHING = 0.95, 0.97
BATCH_SIZES, CONCURRENCIES = (1, 2, 4, 8), (2, 4, 8, 16)
PARTS = ("simple", "densenet", "batching")
_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


class Row(NamedTuple):
    """A line of a table: what was compared, both figures, and the ratio of every round."""

    name: str
    ours_per_s: float
    other_per_s: float
    ratios: list[float]
    wanted: float

    @property
    def is_reached(self) -> bool:
        """Whether the median ratio is what it should be."""
        return statistics.median(self.ratios) >= self.wanted

    def line(self) -> str:
        """The row as Markdown."""
        spread = f"{min(self.ratios):.3f} to {max(self.ratios):.3f}"
        ratio = f"{statistics.median(self.ratios):.3f} | {spread} | {self.wanted:g} | {'yes' if self.is_reached else 'no'}"
        return f"| {self.name} | {self.ours_per_s:,.1f} | {self.other_per_s:,.1f} | {ratio} |"


@contextlib.contextmanager
def on_cpus(cpus: set[int]) -> Iterator[None]:
    """What is started within the block runs there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def running_server(*models: str) -> Iterator[dict[str, Any]]:
    """The bundled server with one thread an inference, and what it says when it is ready."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--threads=1", "--device=cpu", "--exit-with-stdin"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "--model", *models], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=_ENVIRONMENT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield json.loads(server.stdout.readline())
        server.stdin.close()


def perfkit_per_s(url: str, model: str, concurrency: int, seconds: float, batch_size: int = 1) -> float:
    """Rows a second, by the requests that `perfkit run` tells; raises RuntimeError where one failed."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = {
            "target": {"url": url, "model": model, "timeout": "120s"},
            "workload": {"batch_size": batch_size, "variants": 2},
            "load": {"closed": {"concurrency": [concurrency]}},
            "measure": {"warmup": f"{seconds / 4}s", "duration": f"{seconds}s", "repetitions": 1, "workers": 1},
        }
        file = pathlib.Path(folder, "scenario.yaml")
        file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", f"{folder}/out"]
        ended = subprocess.run(command, env=_ENVIRONMENT, capture_output=True, text=True, check=False)
        if ended.returncode not in (0, 5):  # 5: a fast server makes the generator the bottleneck
            raise RuntimeError(f"perfkit ended with exit code {ended.returncode}: {ended.stderr}")
        (point,) = json.loads(pathlib.Path(folder, "out", "result.json").read_text(encoding="utf-8"))["points"]
    if point["requests"]["ok"] != point["requests"]["sent"]:
        raise RuntimeError(f"perfkit had failures: {point['requests']}")
    return batch_size * float(point["throughput_per_s"])


def perf_analyzer_per_s(program: pathlib.Path, protocol: str, port: int, seconds: float) -> float:
    """Inferences a second of `simple`, as perf_analyzer tells them from three windows; raises RuntimeError where it fails."""
    command = [str(program), "-m", "simple", "-i", protocol, "-u", f"127.0.0.1:{port}", "--concurrency-range", str(CONCURRENCY)]
    windows = ["--measurement-interval", str(round(seconds * 1000 / 3)), "--stability-percentage", "999"]
    ended = subprocess.run([*command, *windows], capture_output=True, text=True, check=False)
    found = re.search(r"Throughput: ([\d.e+]+) infer/sec", ended.stdout)
    if ended.returncode or found is None:
        raise RuntimeError(f"perf_analyzer ended with exit code {ended.returncode}: {ended.stdout[-1000:]}{ended.stderr[-1000:]}")
    return float(found[1])


def compare(name: str, ours: Callable[[], float], other: Callable[[], float], rounds: int, wanted: float) -> Row:
    """Both, one after the other in random order, round by round."""
    figures: dict[str, list[float]] = {"ours": [], "other": []}
    for _ in range(rounds):
        order = [("ours", ours), ("other", other)]
        random.shuffle(order)
        for key, measure in order:
            figures[key].append(measure())
    ratios = [one / two for one, two in zip(figures["ours"], figures["other"], strict=True)]
    row = Row(name, statistics.median(figures["ours"]), statistics.median(figures["other"]), ratios, wanted)
    print(row.line(), flush=True)
    return row


def measure_simple(folder: pathlib.Path, rounds: int, seconds: float, cpus: Sequence[int]) -> Iterator[Row]:
    """Beside Triton."""
    program = folder / "bin" / "perf_analyzer"
    layouts = {"apart": ({cpus[0]}, set(cpus[1:])), "together": (set(cpus), set(cpus))} if len(cpus) > 1 else {"together": (set(cpus),) * 2}
    for layout, (server_cpus, client_cpus) in layouts.items():
        with contextlib.ExitStack() as stack:
            with on_cpus(server_cpus):
                triton = stack.enter_context(running_triton(folder))
                ready = stack.enter_context(running_server("simple"))
            stack.enter_context(on_cpus(client_cpus))
            ports = {"http": (ready["http_port"], triton.http_port), "grpc": (ready["grpc_port"], triton.grpc_port)}
            for protocol, pair in ports.items():
                by_perf_analyzer = [functools.partial(perf_analyzer_per_s, program, protocol, port, seconds) for port in pair]
                by_perfkit = [
                    functools.partial(perfkit_per_s, f"{protocol}://127.0.0.1:{port}", "simple", CONCURRENCY, seconds) for port in pair
                ]
                for client, (ours, theirs) in (("perf_analyzer", by_perf_analyzer), ("perfkit", by_perfkit)):
                    yield compare(f"{protocol}, {client}, CPUs {layout}", ours, theirs, rounds, WANTED[protocol])


def direct_per_s(model: str, batch_size: int, seconds: float, cpu: int) -> float:
    """Images a second of ONNX Runtime alone, in a process of its own on the server's CPU."""
    command = [sys.executable, "-m", "benchmarks.server_throughput", "--direct", model, str(batch_size), str(seconds), str(cpu)]
    return batch_size * float(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def run_direct(model: str, batch_size: int, seconds: float, cpu: int) -> float:
    """The loop in that process: executions a second."""
    os.sched_setaffinity(0, {cpu})
    import numpy as np

    from server_stub.executors.onnx import OnnxExecutor
    from server_stub.models.densenet import seeded_file

    executor = OnnxExecutor(seeded_file(model), 1)
    image = np.random.default_rng(0).random((batch_size, 3, 224, 224), dtype=np.float32)
    executor.execute({"data_0": image})
    count, start_s = 0, time.perf_counter()
    while time.perf_counter() < start_s + seconds:
        executor.execute({"data_0": image})
        count += 1
    return count / (time.perf_counter() - start_s)


def measure_densenet(rounds: int, seconds: float, cpus: Sequence[int]) -> Iterator[Row]:
    """Beside ONNX Runtime: at saturation, with one request executed and one in line."""
    with contextlib.ExitStack() as stack:
        with on_cpus({cpus[0]}):
            ready = stack.enter_context(running_server("densenet_onnx", "densenet_batch"))
        stack.enter_context(on_cpus(set(cpus[1:] or cpus)))
        for protocol in ("http", "grpc"):
            url = f"{protocol}://127.0.0.1:{ready[f'{protocol}_port']}"
            cases = [("densenet_onnx", 1), *(("densenet_batch", size) for size in BATCH_SIZES if protocol == "http")]
            for model, size in cases:
                long_s = seconds * (1 if size < 4 else 2)
                yield compare(
                    f"{model}, {protocol}, batch {size}",
                    functools.partial(perfkit_per_s, url, model, 2, long_s, size),
                    functools.partial(direct_per_s, model, size, long_s, cpus[0]),
                    rounds,
                    WANTED_DIRECT,
                )


def measure_batching(rounds: int, seconds: float, cpus: Sequence[int]) -> Iterator[Row]:
    """Single images, batched by the server, beside the same images one by one."""
    with contextlib.ExitStack() as stack:
        with on_cpus({cpus[0]}):
            ready = stack.enter_context(running_server("densenet_onnx", "densenet_batch"))
        stack.enter_context(on_cpus(set(cpus[1:] or cpus)))
        url = f"http://127.0.0.1:{ready['http_port']}"
        for concurrency in CONCURRENCIES:
            long_s = seconds * (1 if concurrency < 8 else 2)
            yield compare(
                f"concurrency {concurrency}",
                functools.partial(perfkit_per_s, url, "densenet_batch", concurrency, long_s),
                functools.partial(perfkit_per_s, url, "densenet_onnx", concurrency, long_s),
                rounds,
                WANTED_BATCHING,
            )


TITLES = {
    "simple": ("`simple` at concurrency 8, requests a second", "this server | Triton"),
    "densenet": ("DenseNet-121 at saturation, images a second", "this server | ONNX Runtime directly"),
    "batching": ("Dynamic batching of single images, images a second", "`densenet_batch` | `densenet_onnx`, one by one"),
}


def main() -> int:
    """Prints the tables; the exit code is 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--peers", type=pathlib.Path, help="where Triton and perf_analyzer are installed")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--direct", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.direct:
        model, batch_size, seconds, cpu = options.direct
        print(run_direct(model, int(batch_size), float(seconds), int(cpu)))
        return 0
    cpus = sorted(os.sched_getaffinity(0))
    parts = {
        "simple": lambda: measure_simple(peers_folder(options.peers), options.rounds, options.seconds, cpus),
        "densenet": lambda: measure_densenet(options.rounds, options.seconds, cpus),
        "batching": lambda: measure_batching(options.rounds, options.seconds, cpus),
    }
    load_average = os.getloadavg()[0]
    lines = [
        f"{len(cpus)} CPUs, load average {load_average:.1f} at the begin. {options.rounds} rounds of {options.seconds:g} s and more a run."
    ]
    are_reached = True
    try:
        for part in options.parts:
            title, columns = TITLES[part]
            table = [f"## {title}", "", f"| load | {columns} | ratio | rounds | at least | reached |", "|---|---:|---:|---:|---|---:|---|"]
            print("\n".join(["", *table]), flush=True)
            rows = list(parts[part]())
            lines += ["", *table, *(row.line() for row in rows)]
            are_reached = are_reached and all(row.is_reached for row in rows)
    except (TritonError, OSError) as error:
        sys.stderr.write(f"server_throughput: {error}\n")
        return 1
    if options.out:
        options.out.write_text("\n".join([*_HEAD, *lines, ""]), encoding="utf-8")
    return 0 if are_reached else 1


_HEAD = (
    "# What the bundled server gets through",
    "",
    "Beside NVIDIA's Triton, whose `simple` is a model of its Python backend, and beside ONNX Runtime called directly. One load",
    "comes a few seconds after the other, so only the ratios mean something: absolute figures move with the machine. *CPUs apart*:",
    "the server on the first CPU, the client on the others; *together*: both on all of them.",
    "",
)

if __name__ == "__main__":
    sys.exit(main())
