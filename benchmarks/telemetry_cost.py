"""What telemetry costs: CPU time of the sampling, and what it does to the p99 of a run of which the law is known.

    python -m benchmarks.telemetry_cost [--rounds 6] [--seconds 20] [--rate 20] [--out reports/telemetry-cost.md]

The GPUs are those of the fake library in tests/telemetry/fake_nvml, whose calls are nearly free (but for PCIe throughput,
which blocks for 20 ms a call): what a real driver's calls take comes on top. First the CPU time of the process that
samples, with two GPUs at 20 samples a second, alone and with all that a run samples besides; wanted: under 1 % of a core.

Then `perfkit run` in alternation: without that process, with it but without GPUs, with it and two GPUs. The bundled
server's `synthetic` answers as a declared queue does, with the same arrivals and services in all of a round; `simple` has
nothing to wait for, and shows the least. Wanted: the median p99 with telemetry differs from that without by less than the
95 % interval that perfkit gives for the p99 is wide. The exit code is 1 where a figure is not reached.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import psutil

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # the tree that this file is in, installed or not
from perfkit.process.messages import load_message, message_bytes
from perfkit.target.address import Address
from perfkit.telemetry.messages import FollowWorkers, GpuConfig, StatisticsConfig, TelemetryConfig, WindowRequest
from tests.telemetry.fake_nvml.library import compile_into

ROOT = pathlib.Path(__file__).parents[1]
ALLOWED_CPU_SHARE = 0.01
_GPU = "gpu\nname Fake GPU\npower_mw sine 200000 80000 7\nutilization sine 60 40 3\nmemory_used sine 1000000000 500000000 5\nsm_clock sine 1400 100 2\n"
SCRIPT = "pcie_blocks_s 0.02\n" + 2 * (_GPU + "temperature 60\nprocess 1 1000000\npcie_sent_kb_per_s 100\n")
WITHOUT, NO_GPUS, WITH = "no telemetry", "without GPUs", "two GPUs"


class Load(NamedTuple):
    """A load on a model of the bundled server."""

    title: str
    model: str
    rate: int
    law: str = ""


LOADS = (
    Load("`synthetic`, exponential services of 5 ms, Poisson arrivals at 100/s", "synthetic", 100, "service=exponential:5ms,seed={seed}"),
    Load("`simple`, Poisson arrivals at 500/s", "simple", 500),
)


class Percentile(NamedTuple):
    """A p99 of one run with its interval, in microseconds."""

    value: float
    low: float
    high: float


class Machine:
    """Where things run: with the fake library, or with one that cannot be loaded and hides a real one."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._script, self._libraries = folder / "script.txt", {True: folder / "fake", False: folder / "none"}
        for library in self._libraries.values():
            library.mkdir()
        compile_into(self._libraries[True])
        (self._libraries[False] / "libnvidia-ml.so.1").touch()
        self._script.write_text(SCRIPT, encoding="ascii")

    def environment(self, *, has_gpus: bool) -> Mapping[str, str]:
        """Of a process on it."""
        paths = {"LD_LIBRARY_PATH": str(self._libraries[has_gpus]), "FAKE_NVML_SCRIPT": str(self._script), "PYTHONPATH": str(ROOT)}
        return {**os.environ, **paths}


@contextlib.contextmanager
def serving(model: str, law: str) -> Iterator[int]:
    """The HTTP port of the bundled server, for the length of the block."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", f"--model={model}"]
    command += [f"--synthetic={law}"] if law else []
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=ROOT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield int(json.loads(server.stdout.readline())["http_port"])
        server.stdin.close()


def cpu_share(machine: Machine, config: TelemetryConfig, seconds: float, *, has_gpus: bool) -> float:
    """The share of a core that the sampling process takes, from its start on and with one window at the end."""
    command, pipe = [sys.executable, "-m", "perfkit.telemetry.sampler_process"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, env=machine.environment(has_gpus=has_gpus)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for message in (config, FollowWorkers((os.getpid(),))):
            process.stdin.write(message_bytes(message))
        process.stdin.flush()
        load_message(process.stdout)  # it has started
        measured, before_ns = psutil.Process(process.pid), time.monotonic_ns()
        before = measured.cpu_times()
        time.sleep(seconds)
        process.stdin.write(message_bytes(WindowRequest(before_ns, time.monotonic_ns())))
        process.stdin.flush()
        load_message(process.stdout)
        after, after_ns = measured.cpu_times(), time.monotonic_ns()
        process.stdin.close()
    return max(after.user + after.system - before.user - before.system, 0.0) * 1e9 / (after_ns - before_ns)


def cpu_table(machine: Machine, rate: float, seconds: float) -> tuple[list[str], bool]:
    """The CPU share of what is sampled, and whether it is as wanted."""
    with serving("simple", "") as port:
        address = Address("http", "127.0.0.1", port)
        gpus, counts = GpuConfig(rate, 0, (address,)), StatisticsConfig(address, "simple", "", 10**9)
        rows = {
            "the generator's own machine alone": (TelemetryConfig(), False),
            f"and two GPUs, {rate:g} times a second": (TelemetryConfig(gpus=gpus), True),
            "and the server's statistics": (TelemetryConfig(gpus=gpus, statistics=counts), True),
        }
        shares = {name: cpu_share(machine, config, seconds, has_gpus=has_gpus) for name, (config, has_gpus) in rows.items()}
    alone, with_gpus, whole = shares.values()
    lines = ["| sampled | CPU, share of a core |", "|---|---:|", *(f"| {name} | {share:.2%} |" for name, share in shares.items()), ""]
    of_gpus = max(with_gpus - alone, 0.0)
    is_cheap = of_gpus < ALLOWED_CPU_SHARE
    lines.append(
        f"Two GPUs under {ALLOWED_CPU_SHARE:.0%} of a core: {'yes' if is_cheap else 'no'}, {of_gpus:.2%}; everything: {whole:.2%}."
    )
    return [*lines, ""], is_cheap


def run(machine: Machine, load: Load, kind: str, seed: int, seconds: float) -> Percentile:
    """One `perfkit run`, with a server of its own."""
    with serving(load.model, load.law.format(seed=seed)) as port, tempfile.TemporaryDirectory() as folder:
        scenario = {
            "target": {"url": f"http://127.0.0.1:{port}", "model": load.model},
            "workload": {"seed": seed},
            "load": {"open": {"rate": load.rate, "arrivals": "poisson"}},
            "measure": {"warmup": "2s", "duration": f"{seconds}s", "repetitions": 1, "workers": 1},
            "telemetry": kind != WITHOUT,
        }
        if load.model == "synthetic":
            scenario["workload"]["inputs"] = {"INPUT0": {"generate": "ones", "shape": [4]}}  # type: ignore[index]
        file = pathlib.Path(folder, "scenario.yaml")
        file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", f"{folder}/out"]
        environment = machine.environment(has_gpus=kind == WITH)
        subprocess.run(command, check=False, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)  # an invalid point has figures, too
        (point,) = json.loads(pathlib.Path(folder, "out", "result.json").read_text(encoding="utf-8"))["points"]
    assert bool(point["gpus"]) == (kind == WITH)
    value = point["response_time_ns"]["p99"]
    if value is None or "p99" not in point["intervals"]:
        sys.exit(f"telemetry_cost: {point['requests']['ok']} requests are too few for a p99: give more --seconds")
    low, high = point["intervals"]["p99"]
    return Percentile(value / 1e3, low / 1e3, (high or value) / 1e3)


def percentile_table(machine: Machine, load: Load, rounds: int, seconds: float) -> tuple[list[str], bool]:
    """The p99 in each round, and whether telemetry moves it by less than its interval is wide."""
    found: dict[str, list[Percentile]] = {WITHOUT: [], NO_GPUS: [], WITH: []}
    lines = [f"{load.title}:", "", f"| round | {' | '.join(f'p99, {kind}' for kind in found)} |", f"|---:{'|---:' * len(found)}|"]
    for number in range(rounds):
        order = list(found) if number % 2 == 0 else list(found)[::-1]
        for kind in order:
            found[kind].append(run(machine, load, kind, number, seconds))
        cells = (found[kind][-1] for kind in found)
        lines.append(f"| {number + 1} | {' | '.join(f'{one.value:,.0f} us ({one.low:,.0f} to {one.high:,.0f})' for one in cells)} |")
        print(lines[-1], flush=True)
    middle = {kind: statistics.median(one.value for one in some) for kind, some in found.items()}
    width = statistics.fmean(one.high - one.low for some in found.values() for one in some)
    moved = {kind: middle[kind] - middle[WITHOUT] for kind in (NO_GPUS, WITH)}
    lines += [f"| median | {' | '.join(f'{p99:,.0f} us' for p99 in middle.values())} |", ""]
    is_still = all(abs(by) < width for by in moved.values())
    changes = ", ".join(f"{by:+,.0f} us {kind}" for kind, by in moved.items())
    lines.append(f"Moved by less than the interval, {width:,.0f} us wide in the mean: {'yes' if is_still else 'no'}, {changes}.")
    return [*lines, ""], is_still


def main() -> int:
    """Prints the tables; 1 where a figure is not reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    load_average = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(pathlib.Path(folder))
        cpu, is_right = cpu_table(machine, options.rate, options.seconds)
        print("\n".join(cpu), flush=True)
        tables = list[str]()
        for load in LOADS:
            lines, is_still = percentile_table(machine, load, options.rounds, options.seconds)
            print("\n".join(lines), flush=True)
            tables += lines
            is_right = is_right and is_still
    if options.out:
        setting = (
            f"{os.cpu_count()} CPUs, load average {load_average:.1f} at the begin; {options.seconds:g} s a measurement, {options.rounds} rounds. "
            "The GPUs are the fake library's, whose calls are nearly free, but for PCIe throughput, which blocks for 20 ms a call: "
            "this is the cost of perfkit's own part, and a real driver's calls come on top. It has not run on a GPU."
        )
        options.out.write_text("\n".join(["# What telemetry costs", "", setting, "", *cpu, *tables]), encoding="utf-8")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
