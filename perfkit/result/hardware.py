"""The hardware that a result's model ran on, in words: the GPUs, otherwise the CPUs."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from perfkit.result.model import Result
from perfkit.telemetry.figures import GpuFigures

_GPU_MAKER = re.compile(r"^(NVIDIA|Tesla)\s+|^NVIDIA\s+Tesla\s+")
_CPU_NOISE = re.compile(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*$|\b\d+-Core\b", re.IGNORECASE)


def hardware_of(result: Result) -> str:
    """Such as `4 × H100 80GB HBM3`, or `2 CPUs (Intel Xeon Gold 6248)`; empty if the server is elsewhere and no GPU was sampled.

    GPUs on which no process of the target computed are left out where that is known. CPUs are those of the load generator's
    machine, if the server ran there too, and as many as a server that perfkit started was given. A server that perfkit did not start, on a machine
    whose GPUs were not sampled, may have used either: unknown.
    """
    host, target = _mapping(result.environment.get("generator")), _mapping(result.environment.get("target"))
    server, described = _mapping(target.get("bundled_server")), _list(result.environment.get("gpus"))
    names = [gpu.name for gpu in server_gpus(result)] if server.get("device") != "cpu" else []
    if not names and str(server.get("device")).startswith("cuda"):
        names = [str(_mapping(gpu).get("name")) for gpu in described][:1]
    if names:
        return ", ".join(f"{number} × {name}" for name, number in Counter(_GPU_MAKER.sub("", name) for name in names).items())
    paths = {str(_mapping(protocol).get("path")) for protocol in _mapping(target.get("protocols")).values()}
    is_here = paths <= {"loopback", "unix socket"} and paths
    if not host.get("cpu_model") or not (server or (is_here and not described)):
        return ""
    number = len(_list(server.get("cpus"))) or host.get("cpus")
    return f"{number} CPU{'' if number == 1 else 's'} ({' '.join(_CPU_NOISE.sub(' ', str(host['cpu_model'])).split())})"


def server_gpus(result: Result) -> list[GpuFigures]:
    """The GPUs of the first load point that has any, without those that the target is known not to use."""
    sampled = next((point.gpus for point in result.summary if point.gpus), ())
    return [gpu for gpu in sampled if gpu.used_by_server is not False]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
