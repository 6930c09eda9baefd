"""A Dask cluster of processes on this machine: a scheduler and two Dask workers, whose logs are kept."""

import os
import pathlib
import re
import signal
import subprocess
import sys

import psutil

from perfkit.fleet.dask_placement import environment_of_settings

_WORKER = ("--nthreads", "1", "--memory-limit", "0", "--no-dashboard", "--no-nanny")
_LOCAL = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False"}


class DaskCluster:
    """It runs until `end`. Its Dask workers have no nannies, so that a killed one stays away."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder, self._logs = folder, list[str]()
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        self.url = self._wait_for(self.scheduler, r"Scheduler at: +(tcp://\S+)")
        self.workers = [self._start("worker", self.url, *_WORKER) for _ in range(2)]
        for worker in self.workers:
            self._wait_for(worker, r"Registered to: +(tcp://\S+)")

    def _start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "dask", *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **environment_of_settings(), **_LOCAL}, cwd=self._folder,
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
