"""A fleet on the hosts of a laboratory: its machines, the run that drives them, and what the target noted."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from benchmarks.fleet.namespaces import Host, Laboratory
from benchmarks.fleet.recording_target import INPUT, MODEL
from benchmarks.processes import PerfkitRun, run_perfkit

_TARGET_PORT, _JOIN_PORT = 8000, 8790
_TOKEN = "the token of a trial, which nobody else reaches"  # noqa: S105 - it protects nothing
_WORKER_PROCESS = "perfkit.workers.worker_process"


@dataclasses.dataclass(frozen=True, slots=True)
class Arrivals:
    """The inference requests that the target noted, in the order in which they came."""

    at_ns: Sequence[int]
    senders: Sequence[str]
    numbers: Sequence[int | None]

    def of(self, *senders: str) -> "Arrivals":
        """The arrivals of some senders."""
        kept = [place for place, sender in enumerate(self.senders) if sender in senders]
        return Arrivals(
            [self.at_ns[place] for place in kept], [self.senders[place] for place in kept], [self.numbers[place] for place in kept]
        )

    @property
    def are_each_once(self) -> bool:
        """Whether no number is there twice."""
        return len(set(self.numbers)) == len(self.numbers)

    def lateness_ns(self, schedule: "Schedule") -> list[int]:
        """How long after its scheduled instant each one came; the origin of the schedule is unknown, and the same for all."""
        pairs = zip(self.at_ns, self.numbers, strict=True)
        return [at_ns - schedule.at_ns[number] for at_ns, number in pairs if number is not None]


class RecordingTarget:
    """The target on its host."""

    def __init__(self, host: Host) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "benchmarks.fleet.recording_target", host.ip, str(_TARGET_PORT)]
        self.url = f"http://{host.ip}:{_TARGET_PORT}"
        self._process = host.start(command, stdin=pipe, stdout=pipe)
        self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the target that notes requests ended")
        return line

    def _ask(self, question: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return self._read_line()

    def take(self) -> Arrivals:
        """What it has noted since the call before."""
        return Arrivals(*json.loads(self._ask("take")))

    def count(self) -> int:
        """The number of requests that it has noted since the last `take`."""
        return int(self._ask("count"))

    def close(self) -> None:
        """Ends it."""
        self._process.communicate(timeout=60)


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """A trace of requests that carry their numbers, with the instants at which they are to be sent."""

    at_ns: Sequence[int]

    @classmethod
    def poisson(cls, rate_per_s: float, seconds: float, seed: int = 25) -> "Schedule":
        """Poisson arrivals."""
        chance, at_ns = random.Random(seed), [0]
        while (following := at_ns[-1] + max(1, round(chance.expovariate(rate_per_s) * 1e9))) < seconds * 1e9:
            at_ns.append(following)
        return cls(at_ns)

    def write(self, file: pathlib.Path) -> None:
        """Writes the trace as JSON lines."""
        tensor = {"name": INPUT, "datatype": "INT32", "shape": [1]}
        rows = ({"timestamp_ns": at, "request": {"inputs": [{**tensor, "data": [number]}]}} for number, at in enumerate(self.at_ns))
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="ascii")


class Running:
    """A run of a fleet while it lasts, for those who disturb it."""

    def __init__(self, driver: "subprocess.Popen[bytes]", machines: "Mapping[str, subprocess.Popen[str]]", fleet: "TrialFleet") -> None:
        self.disturbed_ns: int | None = None
        self._driver, self._machines, self._fleet = driver, machines, fleet

    def after(self, requests: int) -> "Running":
        """Waits until the target has noted so many requests; raises RuntimeError if the run ends before."""
        while self._fleet.target.count() < requests:
            if self._driver.poll() is not None:
                raise RuntimeError("the run ended before it was disturbed")
            time.sleep(0.02)
        self.disturbed_ns = time.monotonic_ns()
        return self

    def kill_worker(self, name: str) -> None:
        """Kills one of a machine's worker processes."""
        processes = self._fleet.machines[name].processes()
        os.kill(next(pid for pid, line in processes.items() if f" {_WORKER_PROCESS}" in line), signal.SIGKILL)

    def kill_machine(self, name: str) -> None:
        """Kills a machine's `perfkit worker`."""
        self._machines[name].kill()

    def kill_driver(self) -> None:
        """Kills the `perfkit run` that drives the fleet."""
        self._driver.kill()

    def cut(self, name: str) -> None:
        """Cuts the link of a machine, or of the driver."""
        self._fleet.hosts[name].cut()


@dataclasses.dataclass(frozen=True, slots=True)
class FleetRun:
    """How the run of a fleet ended."""

    run: PerfkitRun
    arrivals: Arrivals
    machine_exit_codes: Mapping[str, int | None]
    """None for one that had not ended in time."""
    left: Mapping[str, Sequence[str]]
    """The processes that ran on each machine after its `perfkit worker` had ended; hosts without any are left out."""
    kept: Sequence[str]
    """The files that the driver left."""
    last_arrival_s: float
    """How long after the disturbance, or after the driver's end, the last request came; below zero for one that came before."""


class TrialFleet:
    """A target, a driver and machines, each on a host of its own; a context manager."""

    def __init__(self, machines: Mapping[str, Mapping[str, Any]]) -> None:
        """`machines` are the options of `Laboratory.add_host` by name."""
        self._options = machines

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            laboratory = stack.enter_context(Laboratory())
            self.folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="perfkit-fleet-")))
            self.target = RecordingTarget(laboratory.add_host("target"))
            stack.callback(self.target.close)
            self.driver = laboratory.add_host("driver")
            self.machines = {name: laboratory.add_host(name, **options) for name, options in self._options.items()}
            self.hosts = {"driver": self.driver, **self.machines}
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def delay_ns(self, name: str) -> int:
        """The delay of what a machine sends."""
        return int((self._options[name].get("delays_ns") or (0, 0))[0])

    def shift_ns(self, name: str) -> int:
        """How far a machine's clock is ahead."""
        return int(self._options[name].get("clock_shift_ns", 0))

    def scenario(self, load: Mapping[str, Any], *, workers: int = 1, **measure: Any) -> dict[str, Any]:
        """A scenario with the target; requests of no schedule carry -1."""
        return {
            "target": {"url": self.target.url, "model": MODEL},
            "workload": {"inputs": {INPUT: {"value": [-1], "encoding": "json"}}},
            "load": load,
            "measure": {"repetitions": 1, "workers": workers, **measure},
            "telemetry": False,
        }

    def replay(self, schedule: Schedule) -> dict[str, Any]:
        """The load of a schedule."""
        file = self.folder / "trace.jsonl"
        schedule.write(file)
        return {"replay": {"trace": str(file)}}

    def run_alone(self, scenario: Mapping[str, Any]) -> tuple[PerfkitRun, Arrivals]:
        """Runs a scenario from the driver's host, without a fleet."""
        self.target.take()
        return run_perfkit(scenario, prefix=self.driver.prefix), self.target.take()

    def run(
        self, scenario: Mapping[str, Any], disturb: Callable[[Running], None] = lambda _: None, *, ends_within_s: float = 40
    ) -> FleetRun:
        """Runs a scenario by the fleet; `disturb` is called when the machines have been started, and links that it cuts are mended afterwards."""
        self.target.take()
        environment = {**os.environ, "PERFKIT_FLEET_TOKEN": _TOKEN}
        out, ended_ns = self.folder / "out", 0
        machines: dict[str, subprocess.Popen[str]] = {}
        with contextlib.ExitStack() as stack:
            logs = {name: stack.enter_context(tempfile.TemporaryFile("w+")) for name in self.machines}

            def during(driver: "subprocess.Popen[bytes]") -> None:
                nonlocal ended_ns
                for name, host in self.machines.items():
                    command = [sys.executable, "-m", "perfkit", "worker", f"--join=tcp://{self.driver.ip}:{_JOIN_PORT}"]
                    machines[name] = host.start(command, stderr=logs[name].fileno(), environment=environment)
                running = Running(driver, machines, self)
                disturb(running)
                driver.wait()
                ended_ns = running.disturbed_ns or time.monotonic_ns()

            fleet = ["--fleet", f"listen://0.0.0.0:{_JOIN_PORT}", "--machines", str(len(self.machines))]
            run = run_perfkit(scenario, *fleet, prefix=self.driver.prefix, environment=environment, out=out, during=during)
            codes = {name: _exit_code(process, ends_within_s) for name, process in machines.items()}
            left = {name: lines for name, host in self.machines.items() if (lines := self._left(host, machines[name]))}
            for name, process in machines.items():
                process.kill()
                process.wait()
                logs[name].seek(0)
                run = run._replace(stderr=f"{run.stderr}{name}: {logs[name].read()}\n")
        for host in self.hosts.values():
            host.mend()
        arrivals = self.target.take()
        kept = sorted(
            f"{path.relative_to(self.folder)}" for path in self.folder.rglob("*") if path.is_file() and path.name != "trace.jsonl"
        )
        for name in ("out", "out.partial"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        last_s = (max(arrivals.at_ns, default=ended_ns) - ended_ns) / 1e9
        return FleetRun(run, arrivals, codes, left, kept, last_s)

    @staticmethod
    def _left(host: Host, machine: "subprocess.Popen[str]") -> list[str]:
        """Processes of a host besides its `perfkit worker`; the kernel may need a moment to end those whose parent was killed."""
        for _ in range(250):
            lines = [line for pid, line in host.processes().items() if pid != machine.pid]
            if not lines:
                break
            time.sleep(0.02)
        return lines


def _exit_code(process: "subprocess.Popen[str]", within_s: float) -> int | None:
    try:
        return process.wait(within_s)
    except subprocess.TimeoutExpired:
        return None
