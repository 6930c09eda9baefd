"""Samples a fake GPU by all readers of the part `telemetry` for a second and a half, and prints the report's checks.

python sample_fake_gpu.py METRICS_URL FOLDER
"""

import json
import pathlib
import sys
import threading

from benchmarks.gpu.proof import Proof
from benchmarks.gpu.prove_telemetry import report, sample_during


def load():
    threading.Event().wait(1.5)
    return {"energy_per_inference_j": 0.25}


if __name__ == "__main__":
    proof = Proof("telemetry", "A title", "cpu", pathlib.Path(sys.argv[2]), 100.0)
    report(proof, sample_during(load, sys.argv[1]))
    proof.write()
    json.dump([[check.figure, check.is_met] for check in proof.checks], sys.stdout)
