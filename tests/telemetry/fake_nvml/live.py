"""Runs a sampler thread on the fake library in real time until it has sampled everything, and prints what it reported."""

import json
import sys
import threading

from perfkit.clock import MonotonicClock
from perfkit.telemetry.gpu.sampler import GpuSampler
from perfkit.telemetry.series import SamplerThread

WANTED = {"gpu_power", "gpu_utilization", "gpu_memory_used", "gpu_pcie_sent", "gpu_pcie_received"}


def main():
    clock = MonotonicClock()
    thread = SamplerThread("gpus", GpuSampler(100.0, clock), clock)
    seen: set[str] = set()
    start_ns = clock.now_ns()
    while not seen >= WANTED:  # the test's timeout ends this loop
        seen = {series.name for series in thread.submit(lambda sampler: sampler.latest()).result()}
    report = thread.submit(lambda sampler: sampler.window(start_ns, clock.now_ns())).result()
    thread.close(60)
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    json.dump({"power_mean_w": report.summary[0].power_mean_w if report.summary else None, "threads": left}, sys.stdout)


if __name__ == "__main__":
    main()
