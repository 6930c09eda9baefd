"""A scenario for gates, with the standard profile."""

import pathlib
from typing import Any

import yaml


def write_gate_scenario(folder: pathlib.Path, *metrics: str, **sections: Any) -> pathlib.Path:
    """The file of a scenario whose gate decides by these metrics."""
    path = folder / "scenario.yaml"
    document = {
        "target": {"model": "synthetic"},
        "workload": {"inputs": {"INPUT0": {"generate": "zeros", "shape": [4]}}},
        "load": {"open": {"rate": 10}},
        "measure": {"warmup": "50ms", "duration": "300ms"},
        "gate": {"profile": "standard", "metrics": list(metrics)},
        **sections,
    }
    path.write_text(yaml.safe_dump(document))
    return path
