"""Which cases of a sweep are measured interleaved: those that can share a server, since they differ in their requests alone."""

import json
from collections.abc import Sequence

from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec

# keys of `target` that are of the client alone
_OF_CLIENT = {"engine", "timeout_ns", "max_connections", "streams_per_connection", "max_answer_bytes", "compression"}
_OF_SERVER = {"target", "server", "measure", "fleet", "telemetry", "metrics", "gpu"}
_MOST_INTERLEAVED = 32
"""Their requests are all in memory."""


def interleaved_groups(cases: Sequence[tuple[int, LoadedScenario]]) -> list[list[int]]:
    """The cases, given with their numbers, in groups that are measured interleaved, in the order of their first cases.

    The cases of a group have the same server, the same telemetry, `measure` and `fleet`, and fixed loads: a search chooses its rates by
    itself, and is measured alone, and so is a mix.
    """
    groups: dict[str, list[int]] = {}
    for number, loaded in cases:
        groups.setdefault(_key(number, loaded), []).append(number)
    return [group[at : at + _MOST_INTERLEAVED] for group in groups.values() for at in range(0, len(group), _MOST_INTERLEAVED)]


def _key(number: int, loaded: LoadedScenario) -> str:
    scenario = loaded.scenario
    if scenario.workloads is not None or not isinstance(scenario.load, ClosedLoadSpec | OpenLoadSpec):
        return str(number)
    exclude = {"target": _OF_CLIENT}
    return json.dumps(scenario.model_dump(mode="json", include=_OF_SERVER, exclude=exclude), sort_keys=True)
