"""The `workloads` section of a scenario: several workloads in one run, each an overlay on the scenario's common parts."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from perfkit.scenario.load import (
    ClosedLoadSpec,
    ColdStartLoadSpec,
    IdleLoadSpec,
    LoadSpec,
    OpenLoadSpec,
    ReplayLoadSpec,
    SearchLoadSpec,
    SurgeLoadSpec,
    is_scan,
)
from perfkit.scenario.origins import KeyPath
from perfkit.scenario.section import Text
from perfkit.scenario.sequences import Sequences, Stream
from perfkit.scenario.slo import Slo
from perfkit.scenario.target import Version
from perfkit.scenario.workload import Check, SharedMemorySpec, Workload
from perfkit.target.address import Address, WireProtocol

MOST_WORKLOADS = 64
HIGHEST_WEIGHT = 1000
OVERLAID = ("load", "slo", "check", "sequences", "stream", "shared_memory")
"""The sections of a scenario that a workload may have for itself, besides `workload` and `target`."""
_OF_TARGET = ("model", "version")
_PLACES = ("url", "urls", "protocols")
# of the mix as a whole, or of a sweep
_NOT_OF_ONE = ("workloads", "alone", "slo", "sweep", "rank", "gate")


class MixedWorkload(Workload):
    """One workload of a mix: the keys of `workload`, and those below. What it leaves out is as in the rest of the scenario."""

    name: Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9][\w.-]*$", max_length=64)]
    """The name of the workload in results and reports."""
    weight: Annotated[int, Field(strict=True, ge=1, le=HIGHEST_WEIGHT)] | None = None
    """Its part of the requests of the scenario's `load`: weights of 70, 20 and 10 are 70 %, 20 % and 10 %."""
    load: LoadSpec | None = None
    """In place of a weight: a load of its own, with one concurrency or rate."""
    protocol: WireProtocol | None = None
    """Needed where the target has both protocols."""
    model: Text | None = None
    """The name of its model."""
    version: Version | None = None
    """The version of its model."""
    target: Annotated[dict[Text, Any], Field(min_length=1)] | None = None
    """Keys of `target` that differ from the scenario's, such as the `url` of another server."""
    slo: Slo | None = None
    """The limits for this workload; those of the scenario's `slo` are for all workloads together."""
    check: Check | None = None
    """How its answers are checked."""
    sequences: Sequences | None = None
    """Sequences of requests with one id, for a workload with a load of its own."""
    stream: Stream | None = None
    """Sends its requests on streams."""
    shared_memory: SharedMemorySpec = None
    """`none`, `system` or `cuda`, or a mapping: whether its inputs and outputs are in memory shared with the server."""


def fill_common_parts(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A mix with the model and the load that a scenario needs, where each workload has its own; other documents as they are."""
    entries = document.get("workloads")
    if not isinstance(entries, list | tuple) or not all(isinstance(entry, Mapping) for entry in entries) or not entries:
        return document
    filled, target = dict(document), document.get("target", {})
    models = [entry.get("model") or (entry.get("target") or {}).get("model") for entry in entries if _has_mapping(entry)]
    if isinstance(target, Mapping) and "model" not in target and len(models) == len(entries) and all(models):
        filled["target"] = {**target, "model": models[0]}
    if "load" not in document and all(entry.get("load") is not None for entry in entries):
        filled["load"] = entries[0]["load"]
    elif any(entry.get("load") is not None for entry in entries):
        raise ValueError(
            "workloads: give either every workload a load of its own, and the scenario none, or every workload a weight and the scenario a load"
        )
    return filled


def _has_mapping(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("target") or {}, Mapping)


def check_mix(
    entries: Sequence[MixedWorkload], load: LoadSpec, *, alone: bool, sequences: Sequences | None, shared_memory: SharedMemorySpec
) -> None:
    """Raises ValueError if the workloads cannot be measured together; the other arguments are the scenario's sections for all of them."""
    if own := [entry.name for entry in entries if entry.target is not None and "command" in entry.target]:
        raise ValueError(
            f"workloads: '{own[0]}' has a command of its own, and a run starts one server: give target.command for the whole scenario, "
            "or url for a server that runs already"
        )
    names = [entry.name for entry in entries]
    if duplicates := [name for index, name in enumerate(names) if name in names[:index]]:
        raise ValueError(f"workloads: names must be unique, found '{duplicates[0]}' twice")
    if isinstance(load, SearchLoadSpec) or any(isinstance(entry.load, SearchLoadSpec) for entry in entries):
        raise ValueError("workloads: a search varies the rate of one workload: give load.open with several rates instead")
    for one in (load, *(entry.load for entry in entries)):
        if is_scan(one) or isinstance(one, IdleLoadSpec | ColdStartLoadSpec | SurgeLoadSpec):
            raise ValueError(
                "workloads: load.idle, load.cold_start, load.surge and scans are for one workload: measure each in a scenario of its own"
            )
    if entries[0].load is None:
        if missing := [entry.name for entry in entries if entry.weight is None]:
            raise ValueError(f"workloads: '{missing[0]}' has neither a weight nor a load: give every workload a weight")
        if sequences is not None or any(entry.sequences is not None for entry in entries):
            raise ValueError("workloads: sequences need a load of their own: give every workload a load in place of its weight")
        if isinstance(load, ReplayLoadSpec):
            raise ValueError(
                "workloads: give every workload a load.replay of its own, with the same trace and the model whose requests it sends"
            )
        if not isinstance(load, ClosedLoadSpec | OpenLoadSpec):
            raise ValueError("workloads: with weights, the load is closed or open: give load.closed or load.open")
        if any(one is not None and one.outputs for one in (shared_memory, *(entry.shared_memory for entry in entries))):
            raise ValueError("workloads: with weights, requests in flight would share outputs: set shared_memory.outputs to false")
        if alone and isinstance(load, OpenLoadSpec) and load.open.trace is not None:
            raise ValueError("alone: true needs a rate, of which each workload has its part: give load.open.rate in place of a trace")
        return
    if both := [entry.name for entry in entries if entry.weight is not None]:
        raise ValueError(f"workloads: '{both[0]}' has both a weight and a load of its own: remove one")
    for entry in entries:
        if isinstance(entry.load, OpenLoadSpec):
            levels = len(entry.load.open.rates_per_s) or 1
        else:
            levels = len(entry.load.closed.levels) if isinstance(entry.load, ClosedLoadSpec) else 1
        if levels > 1:
            raise ValueError(f"workloads: the load of '{entry.name}' has {levels} values: give one, and use sweep for several")


def plain_document(document: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The document of the scenario that has workload `index` alone, with the load of the mix unless it has its own.

    Raises ValueError if it is not clear over which protocol it is sent.
    """
    entry: Mapping[str, Any] = document["workloads"][index]
    plain = {key: value for key, value in document.items() if key not in _NOT_OF_ONE}
    of_workload = {key: value for key, value in entry.items() if key in _WORKLOAD_KEYS}
    plain["workload"] = {**document.get("workload", {}), **of_workload}
    plain["target"] = _overlaid_target(document.get("target", {}), entry)
    if isinstance(measure := plain.get("measure"), Mapping):  # whether verdicts are open is judged for the mix
        plain["measure"] = {key: value for key, value in measure.items() if key != "until_decided"}
    plain |= {key: entry[key] for key in OVERLAID if entry.get(key) is not None}
    return plain


def _overlaid_target(common: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {key: value for key, value in (entry.get("target") or {}).items() if value is not None}
    own |= {key: str(entry[key]) for key in _OF_TARGET if entry.get(key) is not None}
    replaced = {*_PLACES} if any(key in own for key in _PLACES) else set[str]()
    replaced |= {"command"} if "url" in own or "urls" in own else set()
    target = {key: value for key, value in common.items() if key not in replaced} | own
    protocol, urls, url = entry.get("protocol"), target.get("urls"), target.get("url")
    if isinstance(urls, Mapping) and not url:
        offered: list[str] = [str(key) for key in urls]
    elif url:
        try:
            offered = [Address.parse(url if isinstance(url, str) else url[0]).protocol]
        except ValueError:  # the target's own check says so
            return target
    else:
        offered = list(target.get("protocols") or ())
    if protocol is None and len(offered) > 1:
        raise ValueError(f"protocol: the target has {' and '.join(offered)}, and a workload is sent over one: give protocol: {offered[0]}")
    if protocol is not None and offered and protocol not in offered:
        raise ValueError(f"protocol: the target has no {protocol} URL, only {' and '.join(offered)}: give target.urls, or change protocol")
    if isinstance(urls, Mapping) and not url:
        target["urls"] = {offered[0] if protocol is None else protocol: urls[protocol or offered[0]]}
    elif protocol is not None and not url:
        target["protocols"] = [protocol]
    return target


def place_in_mix(path: KeyPath, entry: Mapping[str, Any], index: int) -> KeyPath:
    """Where a key of a plain scenario comes from: the workload's own entry, or the common parts of the mix."""
    own = ("workloads", index)
    match path:
        case ("workload", key, *_) if key in entry:
            return (*own, *path[1:])
        case ("target", "model" | "version" as key, *_) if key in entry:
            return (*own, *path[1:])
        case ("target", key, *_) if key in (entry.get("target") or {}):
            return (*own, *path)
        case (key, *_) if key in OVERLAID and key in entry:
            return (*own, *path)
    return path or own


_WORKLOAD_KEYS = frozenset(field.alias or name for name, field in Workload.model_fields.items())
