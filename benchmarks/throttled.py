"""Whether perfkit notices a CPU quota on itself: closed and open loop at the bundled server, with and without one.

    sudo python benchmarks/throttled.py [--share 0.05] [--seconds 5] [--out reports/throttled.md]

The load generator runs in a control group that this makes (version 1 or 2 of the hierarchy), the server outside of it.
While load is sent the group gets that share of one CPU: the point must then be invalid, exit code 5, with the warning
`throttled`; without a quota it must be valid. The exit code is 1 where one is not. Where no group can be made, which takes
root, nothing is tried, and that is what is said: it is neither passed nor failed.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))  # the tree that this file is in, installed or not
from perfkit.machine.cpus import usable_cpus

ROOT = pathlib.Path(__file__).parents[1]
HIERARCHY = pathlib.Path("/sys/fs/cgroup")
PERIOD_US, WARMUP_S, INVALID = 100_000, 1, 5
LOADS: Mapping[str, Mapping[str, Any]] = {
    "closed, concurrency 8": {"closed": {"concurrency": [8]}},
    "open, 2,000/s": {"open": {"rate": 2000, "arrivals": "poisson"}},
}
# the shell joins the group and becomes perfkit, so that nothing of perfkit runs outside
_JOIN = 'echo $$ > "$1" && shift && exec "$@"'


class QuotaError(Exception):
    """No group can be made here; the text says why."""


class Group:
    """A control group of its own, without a quota at first."""

    def __init__(self, folder: pathlib.Path, version: int) -> None:
        self._folder, self.version = folder, version
        self.members = folder / "cgroup.procs"

    def set_quota(self, share: float | None) -> None:
        """Allows that share of one CPU; None everything."""
        allowed_us = None if share is None else round(share * PERIOD_US)
        if self.version == 2:
            (self._folder / "cpu.max").write_text(f"{'max' if allowed_us is None else allowed_us} {PERIOD_US}", encoding="ascii")
        else:
            (self._folder / "cpu.cfs_period_us").write_text(str(PERIOD_US), encoding="ascii")
            (self._folder / "cpu.cfs_quota_us").write_text(str(-1 if allowed_us is None else allowed_us), encoding="ascii")

    def prefer(self) -> None:
        """Ten times a process's usual weight: what else runs here is not to make a run without a quota invalid."""
        name, weight = ("cpu.weight", 1000) if self.version == 2 else ("cpu.shares", 10240)
        (self._folder / name).write_text(str(weight), encoding="ascii")


class Run(NamedTuple):
    """What came of one run of perfkit."""

    exit_code: int
    is_valid: bool
    throttled_share: float
    warnings: tuple[str, ...]

    def is_as_wanted(self, *, has_quota: bool) -> bool:
        """Invalid for the quota's sake where there was one, valid where there was none."""
        if has_quota:
            return self.exit_code == INVALID and not self.is_valid and "throttled" in self.warnings
        return self.exit_code == 0 and self.is_valid and "throttled" not in self.warnings


@contextlib.contextmanager
def group() -> Iterator[Group]:
    """A group for the length of the block, empty at its end; raises QuotaError."""
    is_second = (HIERARCHY / "cgroup.controllers").exists()
    parent = HIERARCHY if is_second else HIERARCHY / "cpu"
    folder = parent / f"perfkit-throttled-{os.getpid()}"
    try:
        if is_second:
            (parent / "cgroup.subtree_control").write_text("+cpu", encoding="ascii")
        folder.mkdir()
    except OSError as error:
        raise QuotaError(f"{error.filename or parent}: {error.strerror}") from None
    made = Group(folder, 2 if is_second else 1)
    try:
        try:
            made.set_quota(None)
            made.prefer()
        except OSError as error:
            raise QuotaError(f"{error.filename}: {error.strerror}") from None
        yield made
    finally:
        folder.rmdir()


@contextlib.contextmanager
def serving() -> Iterator[int]:
    """The HTTP port of the bundled server, for the length of the block."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", "--model=simple"]
    command += [f"--cpus={min(usable_cpus())}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=ROOT) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        port: int = json.loads(server.stdout.readline())["http_port"]
        yield port
        server.stdin.close()


def inferences(port: int) -> int:
    """How many the server has done."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/models/simple/stats", timeout=10) as answer:
        return int(json.load(answer)["model_stats"][0]["inference_count"])


def measure(port: int, load: Mapping[str, Any], seconds: float, cpus: Group, share: float | None) -> Run:
    """One run in the group; the quota holds from the first requests on until the window is over."""
    scenario = {
        "target": {"url": f"http://127.0.0.1:{port}", "model": "simple"},
        "load": load,
        "measure": {"warmup": f"{WARMUP_S}s", "duration": f"{seconds}s", "repetitions": 1, "cpus": [max(usable_cpus())]},
    }
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "scenario.yaml")
        file.write_text(json.dumps(scenario), encoding="utf-8")  # JSON is YAML
        command = [sys.executable, "-m", "perfkit", "run", str(file), "--quiet", "--out", f"{folder}/out"]
        before = inferences(port)
        with subprocess.Popen(["/bin/sh", "-c", _JOIN, "sh", str(cpus.members), *command], stdout=subprocess.DEVNULL, cwd=ROOT) as client:
            while client.poll() is None and inferences(port) < before + 10:  # perfkit tries one before any load
                time.sleep(0.05)
            cpus.set_quota(share)
            with contextlib.suppress(subprocess.TimeoutExpired):
                client.wait(WARMUP_S + seconds)
            cpus.set_quota(None)  # the report need not be drawn slowly
        if client.returncode not in {0, INVALID}:
            sys.exit(f"throttled: perfkit ended with exit code {client.returncode}")
        (point,) = json.loads(pathlib.Path(folder, "out", "result.json").read_text(encoding="utf-8"))["points"]
    codes = tuple(one["code"] for one in point["warnings"])
    return Run(client.returncode, point["valid"], point["generator"]["throttled_share"], codes)


def main() -> int:
    """Prints the table, or that nothing was tried."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--share", type=float, default=0.05, help="of one CPU that the quota allows")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    lines = ["# perfkit under a CPU quota", ""]
    is_as_wanted = True
    try:
        with group() as cpus, serving() as port:
            lines += [
                f"{options.seconds:g} s each, a quota of {options.share:.0%} of one CPU in periods of {PERIOD_US // 1000} ms, control groups of version {cpus.version}.",
                "",
                "| load | quota | exit code | valid | stopped for | warnings | as it should be |",
                "|---|---|---:|---|---:|---|---|",
            ]
            for name, load in LOADS.items():
                for share in (options.share, None):
                    run = measure(port, load, options.seconds, cpus, share)
                    is_this = run.is_as_wanted(has_quota=share is not None)
                    is_as_wanted = is_as_wanted and is_this
                    cells = (name, "none" if share is None else f"{share:.0%}", str(run.exit_code), "yes" if run.is_valid else "no",
                             f"{run.throttled_share:.0%}", ", ".join(run.warnings) or "none", "yes" if is_this else "no")  # fmt: skip
                    lines.append(f"| {' | '.join(cells)} |")
    except QuotaError as error:
        lines += [
            f"**Not tried**: no control group with a quota can be made here ({error}). It takes root, and a hierarchy that may be written."
        ]
    print("\n".join(lines))
    if options.out:
        options.out.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0 if is_as_wanted else 1


if __name__ == "__main__":
    sys.exit(main())
