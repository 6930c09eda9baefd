"""A Dask cluster of processes on this machine: a scheduler and two Dask workers, whose logs are kept."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import psutil

from perfkit.target.started_server import free_ports

# without an address of its own, Dask's HTTP server listens on all interfaces, also without the dashboard
_HERE = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")
_WORKER = ("--nthreads", "1", "--memory-limit", "0", *_HERE)
_LOCAL = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}


class DaskCluster:
    """It runs until `end`, with Dask's own settings. A Dask worker that is killed stays away; with a nanny, it comes back at its address."""

    def __init__(self, folder: pathlib.Path, *, has_nannies: bool = False) -> None:
        self._folder, self._logs = folder, list[str]()
        self.scheduler = self._start("scheduler", "--port", "0", *_HERE)
        self.url = self._wait_for(self.scheduler, r"Scheduler at: +(tcp://\S+)")
        own = [("--worker-port", str(port)) for port in free_ports(2)] if has_nannies else [("--no-nanny",)] * 2
        self.workers = [self._start("worker", self.url, *_WORKER, *options) for options in own]
        for worker in self.workers:
            self._wait_for(worker, r"Registered to: +(tcp://\S+)")

    def _start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **_LOCAL}, cwd=self._folder,
        )  # fmt: skip

    @staticmethod
    def _wait_for(process: "subprocess.Popen[str]", pattern: str) -> str:
        assert process.stderr is not None
        for line in process.stderr:
            if match := re.search(pattern, line):
                return match[1]
        raise RuntimeError(f"Dask ended with exit code {process.wait()}")

    @staticmethod
    def processes_of(worker: "subprocess.Popen[str]") -> list[psutil.Process]:
        """What a Dask worker has started."""
        return psutil.Process(worker.pid).children(recursive=True)

    def cpu_time_s(self) -> float:
        """The CPU time of Dask's own processes so far."""
        times = (psutil.Process(process.pid).cpu_times() for process in (self.scheduler, *self.workers))
        return sum(time.user + time.system for time in times)

    def end(self) -> list[str]:
        """Ends everything; returns what each Dask worker has logged since it was ready."""
        processes = (self.scheduler, *self.workers)
        for process in processes:
            process.send_signal(signal.SIGKILL)
        if not self._logs:
            self._logs = [process.communicate()[1] for process in processes]
        return self._logs[1:]
