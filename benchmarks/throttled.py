"""Whether perfkit detects a CPU quota on itself: a closed and an open loop against the bundled server, with and without a quota.

    sudo .venv/bin/python -m benchmarks.throttled [--share 0.05] [--seconds 5] [--out reports/throttled.md]

The load generator runs in a control group (version 1 or 2) made for it, the server outside. During the load, the quota is a
share of one CPU: the point must be invalid, with exit code 5 and the warning `throttled`. Without a quota it must be valid.
The exit code is 1 otherwise. Making a control group takes root; without it nothing is measured, and the report says so.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.processes import PerfkitRun, RunningServer, run_perfkit, running_server
from benchmarks.report import Report, program_options, yes_no
from benchmarks.synthetic import closed_loop, open_loop
from perfkit.machine.cpus import usable_cpus

HIERARCHY = pathlib.Path("/sys/fs/cgroup")
PERIOD_US, WARMUP_S, INVALID = 100_000, 1, 5
LOADS = {"closed, concurrency 8": closed_loop(8), "open, 2,000/s": open_loop(2000)}
_PROBE_REQUESTS = 10  # more than perfkit sends before the load
# the shell joins the group and is then replaced by perfkit, so that no part of perfkit runs outside
_JOIN = 'echo $$ > "$1" && shift && exec "$@"'


class QuotaError(Exception):
    """No control group with a quota can be made; the message says why."""


class ControlGroup:
    """A control group, at first without a quota."""

    def __init__(self, folder: pathlib.Path, version: int) -> None:
        self._folder, self.version = folder, version
        self.members = folder / "cgroup.procs"

    def set_quota(self, share: float | None) -> None:
        """Limits the group to a share of one CPU; None removes the limit."""
        allowed_us = None if share is None else round(share * PERIOD_US)
        if self.version == 2:
            (self._folder / "cpu.max").write_text(f"{'max' if allowed_us is None else allowed_us} {PERIOD_US}", encoding="ascii")
        else:
            (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US), encoding="ascii")
            (self._folder / "cpu.cfs_quota_us").write_text(str(-1 if allowed_us is None else allowed_us), encoding="ascii")

    def raise_weight(self) -> None:
        """Ten times the usual weight, so that other programs do not make a run without a quota invalid."""
        name, weight = ("cpu.weight", 1000) if self.version == 2 else ("cpu.shares", 10240)
        (self._folder / name).write_text(str(weight), encoding="ascii")


@contextlib.contextmanager
def control_group(hierarchy: pathlib.Path) -> Iterator[ControlGroup]:
    """A control group for the length of the block, which must leave it empty; raises QuotaError."""
    version = 2 if (hierarchy / "cgroup.controllers").exists() else 1
    parent = hierarchy if version == 2 else hierarchy / "cpu"
    folder = parent / f"perfkit-throttled-{os.getpid()}"
    group = ControlGroup(folder, version)
    with contextlib.ExitStack() as stack:
        try:
            if version == 2:
                (parent / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
            folder.mkdir()
            stack.callback(folder.rmdir)
            group.set_quota(None)
            group.raise_weight()
        except OSError as error:
            raise QuotaError(f"{error.filename or parent}: {error.strerror}") from None
        yield group


def measure(server: RunningServer, load: dict[str, Any], seconds: float, group: ControlGroup, share: float | None) -> PerfkitRun:
    """One run in the group, with a quota from the first requests of the load to the end of the window."""
    scenario = {
        "target": {"url": server.url(), "model": "simple"}, "load": load,
        "measure": {"warmup": f"{WARMUP_S}s", "duration": f"{seconds}s", "repetitions": 1, "cpus": [max(usable_cpus())]},
    }  # fmt: skip
    before = server.inference_count("simple")

    def limit(process: "subprocess.Popen[bytes]") -> None:
        while process.poll() is None and server.inference_count("simple") < before + _PROBE_REQUESTS:
            time.sleep(0.05)
        group.set_quota(share)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(WARMUP_S + seconds)
        group.set_quota(None)  # the rest of the run need not be slow

    run = run_perfkit(scenario, prefix=("/bin/sh", "-c", _JOIN, "sh", str(group.members)), during=limit)
    if run.exit_code not in {0, INVALID}:
        sys.exit(f"throttled: perfkit ended with exit code {run.exit_code}: {run.stderr}")
    return run


def main() -> int:
    """Prints the table, or why nothing was measured."""
    options = program_options(
        __doc__, share=(0.05, "the quota as a share of one CPU"), seconds=5.0, hierarchy=(HIERARCHY, "where control groups are mounted")
    )
    page = Report(options.out, "perfkit under a CPU quota")
    try:
        with control_group(options.hierarchy) as group, running_server("--model=simple", f"--cpus={min(usable_cpus())}") as server:
            page.add(
                f"{options.seconds:g} s per run, a quota of {options.share:.0%} of one CPU in periods of {PERIOD_US // 1000} ms, "
                f"control groups of version {group.version}.",
                "",
            )
            page.table("load", "quota", ">exit code", "valid", ">throttled", "warnings", "as expected")
            for name, load in LOADS.items():
                for share in (options.share, None):
                    run = measure(server, load, options.seconds, group, share)
                    codes, is_valid = [warning["code"] for warning in run.point["warnings"]], run.point["valid"]
                    expected = (0, True, False) if share is None else (INVALID, False, True)
                    throttled = f"{run.point['generator']['throttled_share']:.0%}"
                    cells = (run.exit_code, yes_no(is_valid), throttled, ", ".join(codes) or "none")
                    is_expected = (run.exit_code, is_valid, "throttled" in codes) == expected
                    page.judged_row(is_expected, name, "none" if share is None else f"{share:.0%}", *cells)
    except QuotaError as error:
        page.add(f"**Not measured**: no control group with a quota can be made ({error}). It takes root and a writable hierarchy.")
    return page.write()


if __name__ == "__main__":
    sys.exit(main())
