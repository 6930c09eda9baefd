"""Plays a sampler of GPUs against the fake library, in virtual time: what to do is read from stdin, what was seen is printed.

In a process of its own, since a library stays loaded. Seconds are the script's; the monotonic clock is 1,000 s ahead of them.
"""

import ctypes
import dataclasses
import json
import os
import sys

from perfkit.telemetry.gpu.sampler import GpuSampler

EPOCH_NS, AHEAD_NS = 1_700_000_000 * 10**9, 1000 * 10**9


class ScriptClock:
    """The sampler's clock, the wall clock and the library's, all one."""

    def __init__(self):
        self.t_ns = 0
        self.library = ctypes.CDLL("libnvidia-ml.so.1") if "FAKE_NVML_SCRIPT" in os.environ else None
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
        rest_ns=round(play["rest_s"] * 1e9),
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
        observed = sampler.window(AHEAD_NS + round(start_s * 1e9), AHEAD_NS + round(end_s * 1e9))
        windows.append({
            "figures": [dataclasses.asdict(one) for one in observed.summary],
            "warnings": [dataclasses.asdict(one) for one in observed.warnings],
            "series": {
                f"{one.name} {one.labels['gpu']}": [list(pair) for pair in zip(map(seconds_of, one.times_ns), one.values, strict=True)]
                for one in observed.series
            },
        })  # fmt: skip
    calls = {name: clock.calls(name) for name in play["count_calls"]}
    latest = [[one.name, one.labels["gpu"], one.values[-1]] for one in sampler.latest()]
    sampler.close()
    json.dump({"started": started, "notes": sampler.notes, "windows": windows, "calls": calls, "latest": latest}, sys.stdout)


if __name__ == "__main__":
    main()
