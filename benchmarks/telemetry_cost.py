"""The cost of telemetry: CPU time of sampling, and its effect on the p99 of a run with a known distribution.

    python -m benchmarks.telemetry_cost [--rounds 6] [--seconds 20] [--rate 20] [--out reports/telemetry-cost.md]

The GPUs are those of the fake library in tests/telemetry/fake_nvml, whose calls are nearly free, except for PCIe throughput,
which blocks for 20 ms per call: the calls of a real driver come on top. First, the CPU time of the sampler process, with two GPUs
at 20 samples per second, alone and with everything else that a run samples. Required: below 1 % of a core.

Then `perfkit run` without telemetry, with telemetry but no GPUs, and with two GPUs, in turn. The bundled server's `synthetic`
answers as a declared queue, with the same arrivals and service times within a round; `simple` has no queue, so it shows the
smallest effects. Required: telemetry changes the median p99 by less than the width of the 95 % interval that perfkit gives for
the p99. The exit code is 1 if a requirement is missed.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import NamedTuple

import psutil

from benchmarks.processes import ROOT, run_perfkit, running_server
from benchmarks.report import Report, describe_machine, program_options, rounds_text, yes_no
from benchmarks.synthetic import open_loop, scenario
from perfkit.process.messages import load_message, message_bytes
from perfkit.target.address import Address
from perfkit.telemetry.messages import FollowWorkers, GpuConfig, StatisticsConfig, TelemetryConfig, WindowRequest
from tests.telemetry.fake_nvml.library import compile_into

ALLOWED_CPU_SHARE = 0.01
_GPU = "gpu\nname Fake GPU\npower_mw sine 200000 80000 7\nutilization sine 60 40 3\nmemory_used sine 1000000000 500000000 5\nsm_clock sine 1400 100 2\n"
SCRIPT = "pcie_blocks_s 0.02\n" + 2 * (_GPU + "temperature 60\nprocess 1 1000000\npcie_sent_kb_per_s 100\n")
WITHOUT, NO_GPUS, WITH_GPUS = "no telemetry", "telemetry without GPUs", "telemetry with two GPUs"
LOADS = (
    ("`synthetic`, exponential service of 5 ms, Poisson arrivals at 100/s", "synthetic", 100),
    ("`simple`, Poisson arrivals at 500/s", "simple", 500),
)
"""Each load's title, its model on the bundled server, and its rate."""


class Percentile(NamedTuple):
    """The p99 of one run with its interval, in microseconds."""

    value: float
    low: float
    high: float


class FakeGpuEnvironment:
    """Environments for child processes: with the fake library, or with one that cannot be loaded and hides a real one."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._script, self._libraries = folder / "script.txt", {True: folder / "fake", False: folder / "none"}
        for library in self._libraries.values():
            library.mkdir()
        compile_into(self._libraries[True])
        (self._libraries[False] / "libnvidia-ml.so.1").touch()
        self._script.write_text(SCRIPT, encoding="ascii")

    def variables(self, *, has_gpus: bool) -> Mapping[str, str]:
        """The environment variables of a child process."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self._libraries[has_gpus]), "PERFKIT_FAKE_NVML_SCRIPT": str(self._script)}


def cpu_share(environment: Mapping[str, str], config: TelemetryConfig, seconds: float) -> float:
    """The share of a core that the sampler process takes after its start, with one window at the end."""
    command, pipe = [sys.executable, "-m", "perfkit.telemetry.sampler_process"], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(message_bytes(config) + message_bytes(FollowWorkers((os.getpid(),))))
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


def add_cpu_table(page: Report, environment: FakeGpuEnvironment, rate: float, seconds: float) -> None:
    """The CPU share by what is sampled."""
    with running_server("--model=simple") as server:
        address = Address("http", "127.0.0.1", server.http_port)
        gpus, counts = GpuConfig(rate, 0), StatisticsConfig(address, "simple", "", 10**9)
        configs = {
            "the load generator's machine": (TelemetryConfig(), False),
            f"and two GPUs, {rate:g} times per second": (TelemetryConfig((address,), gpus=gpus), True),
            "and the server's statistics": (TelemetryConfig((address,), gpus=gpus, statistics=counts), True),
        }
        shares = {name: cpu_share(environment.variables(has_gpus=has_gpus), one, seconds) for name, (one, has_gpus) in configs.items()}
    alone, with_gpus, whole = shares.values()
    gpu_share = max(with_gpus - alone, 0.0)
    page.is_met &= gpu_share < ALLOWED_CPU_SHARE
    page.table("sampled", ">CPU, share of a core")
    for name, share in shares.items():
        page.row(name, f"{share:.2%}")
    page.add("", f"Two GPUs below {ALLOWED_CPU_SHARE:.0%} of a core: {yes_no(page.is_met)}, {gpu_share:.2%}; everything: {whole:.2%}.", "")


def run(environment: FakeGpuEnvironment, model: str, rate: int, kind: str, seed: int, seconds: float) -> Percentile:
    """The p99 of one `perfkit run` on a server of its own."""
    with running_server(f"--model={model}", f"--synthetic=service=exponential:5ms,seed={seed}") as server:
        own = {"target": {"model": model}, "measure": {"warmup": "2s", "workers": 1}, "telemetry": kind != WITHOUT}
        document = scenario(server.url(), open_loop(rate), seconds, seed=seed, **own)
        if model == "simple":
            del document["workload"]["inputs"]
        point = run_perfkit(document, environment=environment.variables(has_gpus=kind == WITH_GPUS)).point
    assert bool(point["gpus"]) == (kind == WITH_GPUS)
    value = point["response_time_ns"]["p99"]
    if value is None or "p99" not in point["intervals"]:
        sys.exit(f"telemetry_cost: {point['requests']['ok']} requests are too few for a p99; give more --seconds")
    low, high = point["intervals"]["p99"]
    return Percentile(value / 1e3, low / 1e3, (high or value) / 1e3)


def add_percentiles(page: Report, environment: FakeGpuEnvironment, model: str, rate: int, rounds: int, seconds: float) -> None:
    """The p99 in each round; telemetry must change it by less than the width of its interval."""
    p99s: dict[str, list[Percentile]] = {WITHOUT: [], NO_GPUS: [], WITH_GPUS: []}
    page.table(">round", *(f">p99, {kind}" for kind in p99s))
    for number in range(rounds):
        for kind in list(p99s) if number % 2 == 0 else list(p99s)[::-1]:
            p99s[kind].append(run(environment, model, rate, kind, number, seconds))
        latest = (values[-1] for values in p99s.values())
        page.row(number + 1, *(f"{p99.value:,.0f} us ({p99.low:,.0f} to {p99.high:,.0f})" for p99 in latest))
    medians = {kind: statistics.median(p99.value for p99 in values) for kind, values in p99s.items()}
    width = statistics.fmean(p99.high - p99.low for values in p99s.values() for p99 in values)
    changes = {kind: medians[kind] - medians[WITHOUT] for kind in (NO_GPUS, WITH_GPUS)}
    is_met = all(abs(change) < width for change in changes.values())
    page.is_met &= is_met
    page.row("median", *(f"{median:,.0f} us" for median in medians.values()))
    texts = ", ".join(f"{change:+,.0f} us {kind}" for kind, change in changes.items())
    page.add("", f"Changed by less than the mean width of the intervals, {width:,.0f} us: {yes_no(is_met)}, {texts}.", "")


def main() -> int:
    """Prints the tables; the exit code is 1 if a requirement is missed."""
    options = program_options(__doc__, rounds=6, seconds=20.0, rate=(20.0, "GPU samples per second"))
    page = Report(options.out, "The cost of telemetry")
    page.add(
        f"{describe_machine()} {options.seconds:g} s per measurement, {rounds_text(options.rounds)}.",
        "The GPUs are the fake library's, whose calls are nearly free, except for PCIe throughput, which blocks for 20 ms per call:",
        "this is the cost of perfkit's own part, without a real driver's calls. It has not run on a GPU.",
        "",
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = FakeGpuEnvironment(pathlib.Path(folder))
        add_cpu_table(page, environment, options.rate, options.seconds)
        for title, model, rate in LOADS:
            page.add(f"{title}:", "")
            add_percentiles(page, environment, model, rate, options.rounds, options.seconds)
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
