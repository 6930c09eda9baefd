import json
import subprocess
import sys

import pytest

from perfkit.calibration.measurement import cost
from perfkit.calibration.model import Calibration
from perfkit.result.distribution import Distribution
from tests import forked

SPREAD = Distribution(count=1000, min=1, mean=2.0, stddev=1.0, p50=2, p90=3, p95=4, p99=5, p99_9=6, p99_99=None, max=7)


@pytest.fixture(scope="module")
def canned_ports():
    """The ports of the server; that it ends with its stdin is waited for."""
    process = forked.start(
        [sys.executable, "-m", "perfkit.calibration.canned_server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield json.loads(process.stdout.readline())
    process.stdin.close()
    assert process.wait() == 0
    assert process.stdout.read() == ""
    process.stdout.close()


@pytest.fixture
def calibration():
    """One made by hand."""
    return Calibration(
        measured_at="2026-01-02T03:04:05+00:00",
        host={
            "perfkit": "0.1.0", "python": "3.12.1", "system": "Linux", "kernel": "6.1", "machine": "x86_64", "cpu_model": "A CPU",
            "usable_cpus": [0, 1],
        },
        server_cpus=(0,),
        driver_cpus=(1,),
        rounds=3,
        costs=(cost("http", 128, [(20_000.0, 70_000, 50_000)]),),
        start_delay_rate_per_s=1000.0,
        start_delay_ns=SPREAD,
        timer_late_ns=SPREAD,
        clock_resolution_ns=1.0,
    )  # fmt: skip
