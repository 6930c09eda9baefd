"""The hardware that a result's model ran on, in words: the GPUs, otherwise the CPUs."""

import re
from collections import Counter

from perfkit.figures.resources import IDLE_GPU_SHARE, GpuFigures
from perfkit.result.json_file import as_list, as_mapping
from perfkit.result.model import Result

_GPU_MAKER = re.compile(r"^(NVIDIA\s+)?(Tesla\s+)?")
_CPU_NOISE = re.compile(r"\((R|TM)\)|\bCPU\b|\bProcessor\b|@.*$|\b\d+-Core\b", re.IGNORECASE)


def hardware_of(result: Result) -> str:
    """Such as `4 × H100 80GB HBM3`, or `2 CPUs (Intel Xeon Gold 6248)`; empty if the server is elsewhere and no GPU was sampled.

    GPUs that the target is known not to use are left out. The CPUs are those of the load generator's machine, if the server ran there too;
    of a server that perfkit started, only those that it was given. Empty as well if perfkit did not start the server and the machine has GPUs
    that were not sampled: it may have used either.
    """
    host, target = as_mapping(result.environment.get("generator")), as_mapping(result.environment.get("target"))
    server, described = as_mapping(target.get("bundled_server")), as_list(result.environment.get("gpus"))
    names = [gpu.name for gpu in server_gpus(result)] if server.get("device") != "cpu" else []
    if not names and str(server.get("device")).startswith("cuda"):
        names = [str(as_mapping(gpu).get("name")) for gpu in described][:1]
    if names:
        return ", ".join(f"{number} × {name}" for name, number in Counter(_GPU_MAKER.sub("", name) for name in names).items())
    paths = {str(as_mapping(protocol).get("path")) for protocol in as_mapping(target.get("protocols")).values()}
    is_here = bool(paths) and paths <= {"loopback", "unix socket"}
    if not host.get("cpu_model") or not (server or (is_here and not described)):
        return ""
    number = len(as_list(server.get("cpus"))) or host.get("cpus")
    model = " ".join(_CPU_NOISE.sub(" ", str(host["cpu_model"])).split())
    return f"{number} CPU{'' if number == 1 else 's'} ({model})" if number else model


def is_on_gpu(result: Result) -> bool:
    """Whether a GPU served the run: the bundled server's device is CUDA, or the samples of a GPU that the target may use show that it worked.

    Where it is unknown whose work that was, a GPU that was idle does not count.
    """
    device = as_mapping(as_mapping(result.environment.get("target")).get("bundled_server")).get("device")
    if device is not None:
        return str(device).startswith("cuda")
    gpus = [gpu for point in result.summary for gpu in point.server_gpus]
    return any((gpu.utilization_mean or 0.0) > (0.0 if gpu.used_by_server else IDLE_GPU_SHARE) for gpu in gpus)


def server_gpus(result: Result) -> list[GpuFigures]:
    """The GPUs of the first load point that has any; see `Point.server_gpus`."""
    return next((point.server_gpus for point in result.summary if point.gpus), [])
