"""A driven sampler on the fake library in the machine's own time, until it has seen everything; prints what that was."""

import json
import sys
import threading

from perfkit.clock import MonotonicClock
from perfkit.telemetry.gpu.sampler import GpuSampler
from perfkit.telemetry.sampler_thread import SamplerThread

WANTED = {"gpu_power", "gpu_utilization", "gpu_memory_used", "gpu_pcie_sent", "gpu_pcie_received"}


def main():
    clock = MonotonicClock()
    driven = SamplerThread("gpus", GpuSampler(100.0, clock), clock)
    seen: set[str] = set()
    start_ns = clock.now_ns()
    while not seen >= WANTED:  # the test's time-out ends it
        seen = {one.name for one in driven.ask(lambda sampler: sampler.latest()).result()}
    observed = driven.ask(lambda sampler: sampler.window(start_ns, clock.now_ns())).result()
    driven.close(60)
    left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    json.dump({"power_mean_w": observed.summary[0].power_mean_w if observed.summary else None, "threads": left}, sys.stdout)


if __name__ == "__main__":
    main()
