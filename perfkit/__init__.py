"""Load generation and benchmarking for servers that speak the v2 / Open Inference Protocol.

The house reads as the data flows:

    Scenario -> Workload -> Transport -> Sample -> Recording -> Result -> Summary -> Plan | Report

`address` where a target is · `scenario` what to measure, read from YAML · `protocol` the v2 codec, pure · `workload` requests made ahead of time ·
`transport` the ways to send one · `load` the loops that send many · `recorder` HDR histograms and counts ·
`telemetry` the machine behind it · `fleet` one event loop under load · `result` the folder that is the only truth ·
`stats` numbers from numbers · `calibration` what a request costs this machine · `doctor` what would spoil a measurement on it · `side_by_side` results compared without a verdict · `stored_gate` a verdict from stored results · `trend` one metric over many results · `history` the file of them · `command_server` one started by its command · `target` a server reached or started, and tried · `load_point` what is ordered of the workers · `steering` which load point is next · `observer` who is told · `measurement` a scenario turned into a result · `experiment` many runs, each decided by what those before said · `gate` a candidate against a baseline · `plan` results turned into a capacity plan · `report` a result or a plan turned into text and pictures ·
`cli` the commands · `api` the same from Python: `perfkit.run`, `perfkit.load_scenario`, `perfkit.Result`, imported when they are first used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.api import Result, load_scenario, run

__version__ = "0.1.0"
__all__ = ["Result", "__version__", "load_scenario", "run"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'perfkit' has no attribute {name!r}")
    from perfkit import api

    return getattr(api, name)
