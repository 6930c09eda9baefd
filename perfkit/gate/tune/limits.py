"""The limits of a tune on what the server may use: CPUs, and the memory of GPUs."""

import psutil

from perfkit.errors import UsageError
from perfkit.result.model import Point
from perfkit.scenario.measure import TuneConstraints
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from perfkit.telemetry.host.other_processes import TargetProcesses
from perfkit.units import format_bytes, write_size_bytes


def constraints_of(scenario: Scenario) -> TuneConstraints:
    """The limits of a scenario's tune; without any by default."""
    given = None if scenario.tune is None else scenario.tune.constraints
    return TuneConstraints() if given is None else given


def limit_texts(constraints: TuneConstraints) -> dict[str, str]:
    """The limits by the name of the figure, as a person writes them."""
    cpu, memory = constraints.cpu, constraints.gpu_memory_bytes
    return {
        **({} if cpu is None else {"CPUs": f"{cpu:g}"}),
        **({} if memory is None else {"GPU memory": write_size_bytes(memory)}),
    }


def check_limits(scenario: Scenario, address: Address | None) -> None:
    """Raises UsageError if a figure that is limited cannot be known; `address` is that of a running server."""
    constraints = constraints_of(scenario)
    if not (names := limit_texts(constraints)):
        return
    limited = f"a limit on {' and '.join(names)}"
    if not scenario.telemetry:
        raise UsageError(f"telemetry: false: {limited} needs telemetry: remove it")
    if address is not None and not address.is_local:
        raise UsageError(f"{address}: {limited} needs a server on this machine: run perfkit there, or leave the limit out")
    if constraints.cpu is not None and address is not None and server_process(address) is None:
        raise UsageError(
            f"{address}: the processes of the server are another user's or a container's, so that the CPUs they use are unknown: run perfkit as "
            "that user, have perfkit start the server (cmd:COMMAND), or leave out --max-cpu"
        )
    if constraints.gpu_memory_bytes is not None:
        from perfkit.clock import wall_ns
        from perfkit.telemetry.gpu.nvml import NoDriverError, open_driver

        try:
            open_driver(wall_ns).close()
        except NoDriverError as error:
            raise UsageError(f"--max-gpu-memory: {error.reason}: leave it out") from None


def server_process(address: Address) -> int | None:
    """The first process of a server on this machine; None if that is unknown."""
    find = TargetProcesses([address])
    pids = find()
    first = [pid for pid in pids if _parent(pid) not in pids]
    return first[0] if len(first) == 1 and not find.may_be_hidden else None


def used_cpus(point: Point) -> float | None:
    """How many CPUs the server's processes used, a mean over the window; None if that is unknown."""
    return None if point.server_cpu is None else point.server_cpu.cpus


def used_gpu_memory_bytes(point: Point) -> int | None:
    """The most memory that was used of the GPUs that the server may use, each GPU's own peak added; None if that is unknown."""
    gpus = [gpu for gpu in point.gpus if gpu.source == "nvml" and not gpu.mig]
    found = [gpu.memory_used_max_bytes for gpu in gpus if gpu.may_serve]
    known = [used for used in found if used is not None]
    return sum(known) if gpus and len(known) == len(found) else None


def excess(constraints: TuneConstraints, cpus: float | None, gpu_memory_bytes: int | None) -> str:
    """What is over its limit, with both figures, a sentence; empty if nothing is."""
    if constraints.cpu is not None and cpus is not None and cpus > constraints.cpu:
        return f"the server used {cpus:.2f} CPUs, and {constraints.cpu:g} are the limit"
    limit = constraints.gpu_memory_bytes
    if limit is not None and gpu_memory_bytes is not None and gpu_memory_bytes > limit:
        return f"{format_bytes(gpu_memory_bytes)} of GPU memory were used, and {write_size_bytes(limit)} are the limit"
    return ""


def unknown(constraints: TuneConstraints, cpus: float | None, gpu_memory_bytes: int | None) -> str:
    """Which limited figure a window lacks, a sentence; empty if it has all."""
    if constraints.cpu is not None and cpus is None:
        return "it is unknown how many CPUs the server used, which is limited"
    if constraints.gpu_memory_bytes is not None and gpu_memory_bytes is None:
        return "it is unknown how much GPU memory was used, which is limited"
    return ""


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None
