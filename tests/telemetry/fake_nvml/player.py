"""Runs a GPU sampler on the fake library in virtual time: reads an order from stdin, and prints what the sampler reported.

It is a process of its own because a library stays loaded. Seconds are the script's; the monotonic clock is 1,000 s ahead.
"""

import ctypes
import dataclasses
import json
import os
import sys

from perfkit.telemetry.gpu.sampler import GpuSampler

EPOCH_NS, AHEAD_NS = 1_700_000_000 * 10**9, 1000 * 10**9


class ScriptClock:
    """The clock of the sampler and of the library, and the wall clock, in one."""

    def __init__(self):
        self.t_ns = 0
        self.library = ctypes.CDLL("libnvidia-ml.so.1") if "PERFKIT_FAKE_NVML_SCRIPT" in os.environ else None
        self.move_to(0)

    def move_to(self, seconds):
        self.t_ns = round(seconds * 1e9)
        if self.library is not None:
            self.library.fake_nvml_set_clock_us(ctypes.c_ulonglong(self.wall_ns() // 1000))

    def now_ns(self):
        return AHEAD_NS + self.t_ns

    def wall_ns(self):
        return EPOCH_NS + self.t_ns

    async def sleep_until_ns(self, instant_ns):
        raise NotImplementedError

    def wait_s(self, seconds):
        self.move_to(self.t_ns / 1e9 + seconds)

    def calls(self, name):
        self.library.fake_nvml_calls.restype = ctypes.c_ulonglong
        return self.library.fake_nvml_calls(name.encode())


def seconds_of(time_ns):
    return (time_ns - AHEAD_NS) / 1e9


def main():
    play, clock = json.load(sys.stdin), ScriptClock()
    sampler = GpuSampler(
        play["rate_per_s"],
        clock,
        idle_ns=round(play["idle_s"] * 1e9),
        server_pids=lambda: play["server_pids"],
        wall_ns=clock.wall_ns,
        wait_s=clock.wait_s,
        pcie_thread=False,
    )
    started, windows, tick_s, next_pcie_s = sampler.start(), [], 1 / play["rate_per_s"], 0.0
    for start_s, end_s in play["windows"]:
        while clock.t_ns < end_s * 1e9:
            clock.move_to(clock.t_ns / 1e9 + tick_s)
            sampler.sample()
            if clock.t_ns / 1e9 >= next_pcie_s:
                sampler.sample_pcie()
                next_pcie_s += 1
        report = sampler.window(AHEAD_NS + round(start_s * 1e9), AHEAD_NS + round(end_s * 1e9))
        windows.append({
            "figures": [dataclasses.asdict(figures) for figures in report.summary],
            "warnings": [dataclasses.asdict(warning) for warning in report.warnings],
            "series": {
                f"{series.name} {series.labels['gpu']}": [*zip(map(seconds_of, series.times_ns), series.values, strict=True)]
                for series in report.series
            },
        })  # fmt: skip
    calls = {name: clock.calls(name) for name in play["count_calls"]}
    latest = [[series.name, series.labels["gpu"], series.values[-1]] for series in sampler.latest()]
    sampler.close()
    json.dump({"started": started, "notes": sampler.notes, "windows": windows, "calls": calls, "latest": latest}, sys.stdout)


if __name__ == "__main__":
    main()
