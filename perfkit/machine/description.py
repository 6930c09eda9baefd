"""A description of this machine: for results, and as facts for `perfkit doctor`."""

import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import pathlib
import platform
from typing import Any

import psutil

from perfkit.machine.cpus import (
    ROOT,
    can_boost,
    count_cores,
    count_numa_nodes,
    cpu_model,
    frequency_governors,
    read_system_file,
    usable_cpus,
)
from perfkit.machine.limits import count_ephemeral_ports, cpu_cgroups, cpu_quota, hard_open_file_limit
from perfkit.machine.readings import read_tcp_sockets

_LIBRARIES = ("aiohttp", "grpcio", "hdrhistogram", "hpack", "httptools", "numpy", "uvloop")
_version = functools.cache(importlib.metadata.version)  # each would parse the package's whole description again


def describe_host() -> dict[str, Any]:
    """The machine and the software that generate the load, for `environment.generator` of a result."""
    return {
        "perfkit": _version("perfkit"),
        "python": platform.python_version(),
        "libraries": {name: _version(name) for name in _LIBRARIES},
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": cpu_model(),
        "cpus": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "cpu_quota": cpu_quota(cpu_cgroups()),
        "numa_nodes": count_numa_nodes(),
        "host_id": _host_id(),
    }


def _host_id() -> str:
    """PERFKIT_HOST_ID, or a digest of the machine's id, name and hardware, which identifies the machine and reveals nothing.

    The name is included because machines made from one image may share an id. So a container, which gets a new name each
    time, counts as a new host unless PERFKIT_HOST_ID is set.
    """
    if host_id := os.environ.get("PERFKIT_HOST_ID"):
        return host_id
    machine_id = read_system_file(ROOT / "etc/machine-id") or ""
    parts = (machine_id, platform.node(), platform.machine(), cpu_model(), str(os.cpu_count()), str(psutil.virtual_memory().total))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclasses.dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts that affect measurements; None where the system does not report them."""

    cpus: int
    """Logical CPUs that this process may use."""
    cores: int
    """Physical cores behind them."""
    quota_cpus: float | None
    """The CPU quota of this process's control groups, in CPUs."""
    governors: frozenset[str]
    can_boost: bool | None
    clock_source: str | None
    memory_available_bytes: int
    swap_used_bytes: int
    open_files: int
    """The most files and sockets that this process may open."""
    ephemeral_ports: int | None
    time_wait_sockets: int | None
    """Closed connections that still hold their local port."""


def read_machine_facts(root: pathlib.Path = ROOT) -> MachineFacts:
    """Reads the facts, those in files below `root`."""
    cpus = usable_cpus()
    return MachineFacts(
        cpus=len(cpus),
        cores=count_cores(cpus, root),
        quota_cpus=cpu_quota(cpu_cgroups(root)),
        governors=frequency_governors(cpus, root),
        can_boost=can_boost(root),
        clock_source=read_system_file(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        memory_available_bytes=psutil.virtual_memory().available,
        swap_used_bytes=psutil.swap_memory().used,
        open_files=hard_open_file_limit(),
        ephemeral_ports=count_ephemeral_ports(root),
        time_wait_sockets=read_tcp_sockets(root).get("tw"),
    )
