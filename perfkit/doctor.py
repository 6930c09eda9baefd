"""Problems for measurements that follow from facts about a machine, its GPUs, their driver and their packages, with their remedies.

Nothing here accesses the machine itself.
"""

import dataclasses
import enum
import functools
from collections.abc import Iterable, Iterator, Sequence

from perfkit.calibration.model import CachedCalibration
from perfkit.figures.resources import BusyProcess
from perfkit.installation import install_command
from perfkit.machine.description import MachineFacts
from perfkit.machine.gpu_packages import CupyBuild, GpuPackages, OnnxRuntimeBuild
from perfkit.machine.idle import IdleObservation
from perfkit.telemetry.gpu.nvml import DriverFacts
from perfkit.telemetry.gpu.queries import GpuSettings
from perfkit.units import NS_PER_S, format_duration_ns

_GIB = 1 << 30
_MIN_FILES, _MIN_PORTS = 4096, 16_384
_MOST_NAMED = 3
_SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"})


class Severity(enum.Enum):
    """How much a finding affects measurements."""

    SPOILS = "spoils"
    """A measurement made now would be invalid or misleading."""
    DISTURBS = "disturbs"
    """Figures vary more than necessary, or a limit is near."""
    NOTE = "note"
    """Nothing that would be measured is affected."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """A problem of this machine, and its remedy."""

    severity: Severity
    subject: str
    sentence: str
    remedy: str


_spoils, _disturbs = functools.partial(Finding, Severity.SPOILS), functools.partial(Finding, Severity.DISTURBS)


def find_problems(
    machine: MachineFacts, idle: IdleObservation, calibration: CachedCalibration, busiest: Sequence[BusyProcess] = ()
) -> list[Finding]:
    """The findings about a machine, the severe ones first; `idle` is how it behaved while perfkit only slept, `busiest` who else worked then."""
    return by_severity([
        *_cpu_findings(machine),
        *_idle_findings(machine, idle, busiest),
        *_limit_findings(machine),
        *_calibration_findings(calibration),
    ])  # fmt: skip


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """Findings in their order, but the severe ones first."""
    return sorted(findings, key=lambda finding: list(Severity).index(finding.severity))


def _cpu_findings(machine: MachineFacts) -> Iterator[Finding]:
    if machine.cpus == 1:
        yield _spoils(
            "CPUs",
            "there is only one CPU, so the load generator and a server on this machine compete for it",
            "measure a server on another machine, or allow this process a second CPU",
        )
    elif machine.cores == 1:
        yield _disturbs(
            "CPUs",
            f"the {machine.cpus} CPUs are threads of one core, so the load generator slows down a server on this machine",
            "allow this process CPUs of two cores, or measure a server on another machine",
        )
    if machine.quota_cpus is not None and machine.quota_cpus < machine.cpus:
        yield _disturbs(
            "CPU quota",
            f"a control group allows {machine.quota_cpus:g} of {machine.cpus} CPUs; once they are used up, everything stops until the"
            " period ends",
            "raise the quota, or assign whole CPUs (cpuset) instead",
        )
    if slow := machine.governors - {"performance"}:
        yield _disturbs(
            "CPU frequency",
            f"the governor is {', '.join(sorted(slow))}: CPUs, and so responses, are slower at low load",
            "sudo cpupower frequency-set -g performance",
        )
    if machine.can_boost:
        yield _disturbs(
            "CPU frequency",
            "boost is on: the clock frequency depends on temperature and on the number of busy cores",
            "disable it when comparing runs, in /sys/devices/system/cpu/cpufreq/boost or intel_pstate/no_turbo",
        )
    if machine.clock_source in _SLOW_CLOCKS:
        yield _spoils(
            "clock",
            f"the kernel's clock source is {machine.clock_source}, which takes about a microsecond to read",
            "look in the kernel's log for why tsc was rejected; boot with clocksource=tsc",
        )


def _idle_findings(machine: MachineFacts, idle: IdleObservation, busiest: Sequence[BusyProcess]) -> Iterator[Finding]:
    if idle.busy_share > 0.1:
        named = ", ".join(f"{one.name} (pid {one.pid}) {one.cpus:.0%} of a CPU" for one in busiest[:_MOST_NAMED])
        yield Finding(
            Severity.SPOILS if idle.busy_share > 0.5 else Severity.DISTURBS,
            "other work",
            f"other processes use {idle.busy_share:.0%} of the machine{f': {named}' if named else ''}",
            "end them, or wait" if named else "end them, or wait; `top` lists them",
        )
    if idle.steal_share > 0.01:
        yield _disturbs(
            "steal",
            f"the host gives {idle.steal_share:.1%} of this machine's CPU time to others",
            "measure on a dedicated machine",
        )
    if idle.throttled_share > 0:
        yield _spoils(
            "CPU quota",
            f"a CPU quota stopped this process for {idle.throttled_share:.1%} of the time although it was idle",
            "raise the quota, or end the other processes in its control group",
        )
    if idle.late_p99_ns > NS_PER_S // 1000:
        yield Finding(
            Severity.SPOILS if idle.late_p50_ns > NS_PER_S // 1000 else Severity.DISTURBS,
            "timers",
            f"sleeps of 1 ms end {format_duration_ns(idle.late_p50_ns)} late at the median and {format_duration_ns(idle.late_p99_ns)} late"
            " at p99",
            "end other work; for a virtual machine, dedicate cores to its CPUs",
        )
    if machine.swap_used_bytes and machine.memory_available_bytes < _GIB:
        yield _spoils(
            "memory",
            f"{machine.swap_used_bytes / _GIB:.1f} GiB are swapped out and only {machine.memory_available_bytes / _GIB:.1f} GiB are available",
            "end the processes that use the memory, so that the server does not wait for swapped pages",
        )


def _limit_findings(machine: MachineFacts) -> Iterator[Finding]:
    if machine.open_files < _MIN_FILES:
        yield _disturbs(
            "open files",
            f"this process may open {machine.open_files:,} files, enough for about {machine.open_files * 4 // 5:,} connections",
            "run `ulimit -Hn 65536` as root, or set LimitNOFILE= of the service",
        )
    free_ports = None if machine.ephemeral_ports is None else machine.ephemeral_ports - (machine.time_wait_sockets or 0)
    if free_ports is not None and free_ports < _MIN_PORTS:
        yield _disturbs(
            "ports",
            f"{max(free_ports, 0):,} ports are free for new connections to one address: closed connections still hold"
            f" {machine.time_wait_sockets or 0:,} of {machine.ephemeral_ports:,}",
            "run `sysctl net.ipv4.ip_local_port_range='1024 65535'`, or wait a minute for closed connections",
        )


def _calibration_findings(calibration: CachedCalibration) -> Iterator[Finding]:
    if calibration.calibration is None:
        reason = f"the calibration cannot be used ({calibration.unusable})" if calibration.unusable else "there is no calibration"
        yield Finding(
            Severity.NOTE,
            "calibration",
            f"{reason}. It is optional: with one, results show how close the load generator was to its maximum rate, and `workers: auto`"
            " may start more than one worker",
            "perfkit calibrate",
        )


def conclusion(findings: Iterable[Finding]) -> str:
    """What the findings mean for a measurement made now, in a sentence without a full stop."""
    severities = {finding.severity for finding in findings}
    if Severity.SPOILS in severities:
        return "a measurement made now would be invalid or misleading"
    if Severity.DISTURBS in severities:
        return "this machine can measure; findings marked 'disturbs' may make figures vary more"
    return "this machine is ready to measure"


# the oldest driver for each major version of CUDA: NVIDIA, CUDA Compatibility, Minor Version Compatibility, table 1
_OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}


def find_gpu_problems(driver: DriverFacts, packages: GpuPackages, *, target_is_local: bool = True) -> list[Finding]:
    """The findings about GPUs; only notes where no GPU of this machine would be measured: it has none, or the target is elsewhere."""
    findings = [*_package_findings(driver, packages), *_driver_findings(driver)]
    for gpu in driver.gpus:
        findings += _settings_findings(gpu)
    if target_is_local and driver.gpus:
        return findings
    return [dataclasses.replace(finding, severity=Severity.NOTE) for finding in findings]


def _driver_findings(driver: DriverFacts) -> Iterator[Finding]:
    if driver.unusable is not None:
        yield Finding(
            Severity.DISTURBS,
            "GPU driver",
            f"a driver is loaded{f' ({driver.version})' if driver.version else ''}, but NVML lists no GPU: {driver.unusable}",
            "load the driver anew or reboot; in a container, pass the GPU and its libraries through",
        )


def _package_findings(driver: DriverFacts, packages: GpuPackages) -> Iterator[Finding]:
    onnxruntime, cupy = packages.onnxruntime, packages.cupy
    if onnxruntime is not None:
        yield from _onnxruntime_findings(onnxruntime, driver)
    if cupy is not None:
        yield from _cupy_findings(cupy, driver)
    needed = {build.cuda: title for title, build in (("CuPy", cupy), ("ONNX Runtime", onnxruntime)) if build is not None and build.cuda}
    if len(needed) > 1:
        assert onnxruntime is not None
        yield Finding(
            Severity.DISTURBS,
            "GPU packages",
            f"{' and '.join(f'{title} is built for CUDA {major}' for major, title in needed.items())}:"
            " each needs libraries of its own, and one of them may find none",
            _install(driver, onnxruntime.cuda),
        )
    for major, title in needed.items():
        if (supported := _unsupported(driver, major)) is not None:
            yield Finding(
                Severity.SPOILS,
                "GPU driver",
                f"{title} is built for CUDA {major}, and {supported}",
                f"update the driver to {_OLDEST_DRIVER.get(major, 'a newer version')} or newer"
                + (f"; or {install_command('cuda12')}, into a new environment" if major == 13 else ""),
            )


def _onnxruntime_findings(build: OnnxRuntimeBuild, driver: DriverFacts) -> Iterator[Finding]:
    subject = "ONNX Runtime"
    if len(build.packages_in_folder) > 1:
        yield Finding(
            Severity.SPOILS,
            subject,
            f"{' and '.join(build.packages_in_folder)} are installed in one folder and overwrite each other's files;"
            f" those of {build.package} {build.version} are in effect",
            f"pip uninstall -y {' '.join(build.packages_in_folder)}, then {_install(driver, build.cuda)}",
        )
    if build.cuda is not None and not build.has_cuda_provider:
        yield Finding(
            Severity.SPOILS,
            subject,
            f"{build.package} {build.version} lists no CUDA provider: its library is not installed",
            f"install it anew: {_install(driver, build.cuda)}",
        )
    elif build.cuda is None and driver.gpus:
        yield Finding(
            Severity.DISTURBS,
            subject,
            f"{build.package} {build.version} is built for CPUs and lists no CUDA provider, so the bundled server runs ONNX models on the CPU",
            f"pip uninstall -y {build.package}, then {_install(driver)}; this does not matter to other servers",
        )
    if cudnn := [name for name in build.missing_libraries if name.startswith("libcudnn")]:
        yield Finding(
            Severity.SPOILS,
            subject,
            f"cuDNN is missing ({', '.join(cudnn)}), so the CUDA provider cannot execute convolutions",
            _install(driver, build.cuda),
        )
    if others := [name for name in build.missing_libraries if name not in cudnn]:
        yield Finding(
            Severity.SPOILS,
            subject,
            f"libraries of CUDA {build.cuda} are missing ({', '.join(others)}), so the CUDA provider cannot be loaded",
            _install(driver, build.cuda),
        )


def _cupy_findings(build: CupyBuild, driver: DriverFacts) -> Iterator[Finding]:
    if len(build.packages) > 1:
        yield Finding(
            Severity.SPOILS,
            "CuPy",
            f"{' and '.join(sorted(build.packages))} are installed beside each other, and overwrite each other's files",
            f"pip uninstall -y {' '.join(sorted(build.packages))}, then {_install(driver, build.cuda)}",
        )
    if build.missing_libraries:
        yield Finding(
            Severity.SPOILS,
            "CuPy",
            f"its compiler is missing ({', '.join(build.missing_libraries)}), so the built-in models cannot run on the GPU",
            f"pip install 'cupy-cuda{build.cuda}x[ctk]'",
        )


def _settings_findings(gpu: GpuSettings) -> Iterator[Finding]:
    if gpu.compute_mode == "prohibited":
        yield Finding(Severity.SPOILS, gpu.title, "its compute mode forbids all computation", "sudo nvidia-smi -c DEFAULT")
    elif gpu.compute_mode not in (None, "default"):
        message = f"its compute mode ({gpu.compute_mode}) lets one process use it, so CUDA shared memory of a client is refused"
        yield Finding(Severity.DISTURBS, gpu.title, message, "sudo nvidia-smi -c DEFAULT")
    if gpu.is_divided:
        message = "it is divided (MIG): power, energy, clocks and temperature are those of all instances together"
        yield Finding(Severity.DISTURBS, gpu.title, message, "sudo nvidia-smi -mig 0, or measure while the other instances are idle")
    if gpu.persistence is False:
        message = (
            "persistence mode is off: the driver unloads when no process uses the GPU, so the next server starts slowly and clocks change"
        )
        yield Finding(Severity.DISTURBS, gpu.title, message, "sudo nvidia-smi -pm 1, or run nvidia-persistenced")
    if gpu.throttle_reasons:
        message = f"its clocks are lowered now ({', '.join(gpu.throttle_reasons)})"
        yield Finding(
            Severity.DISTURBS, gpu.title, message, "wait until it has cooled and its other work has ended; `nvidia-smi -q -d PERFORMANCE`"
        )
    limit_mhz, default_mhz = gpu.sm_clock_limit_mhz, gpu.default_sm_clock_limit_mhz
    if limit_mhz is not None and default_mhz is not None and limit_mhz < default_mhz:
        message = f"its application clock is set to {limit_mhz:,} MHz, below the default of {default_mhz:,} MHz"
        yield Finding(Severity.DISTURBS, gpu.title, message, "sudo nvidia-smi -rac, unless that is intended")
    limit_w, default_w = gpu.power_limit_w, gpu.default_power_limit_w
    if limit_w is not None and default_w is not None and limit_w < default_w:
        message = f"its power limit is {limit_w:.0f} W, below the default of {default_w:.0f} W"
        yield Finding(Severity.DISTURBS, gpu.title, message, f"sudo nvidia-smi -pl {default_w:.0f}, unless that is intended")
    if gpu.utilization is not None and gpu.utilization > 0.1:
        named = ", ".join(gpu.processes[:_MOST_NAMED]) + ", …" * (len(gpu.processes) > _MOST_NAMED) if gpu.processes else ""
        holders = f"; its memory is held by {named}" if named else ""
        message = f"other work uses it to {gpu.utilization:.0%}{holders}"
        severity = Severity.SPOILS if gpu.utilization > 0.5 else Severity.DISTURBS
        yield Finding(severity, gpu.title, message, "end the other work; `nvidia-smi` lists it")


def _unsupported(driver: DriverFacts, major: int) -> str | None:
    """What the driver supports instead of a major version of CUDA, as a clause; None if it supports it, or nothing says."""
    name = f"the driver{f' ({driver.version})' if driver.version else ''}"
    if driver.cuda is not None:
        return f"{name} supports CUDA {driver.cuda[0]}.{driver.cuda[1]} at most" if driver.cuda[0] < major else None
    if driver.version is None or major not in _OLDEST_DRIVER or int(driver.version.split(".")[0]) >= _OLDEST_DRIVER[major]:
        return None
    return f"{name} is older than {_OLDEST_DRIVER[major]}"


def _install(driver: DriverFacts, major: int | None = None) -> str:
    """How to install what fits the driver; `major` is the CUDA of the packages that are there."""
    return install_command("cuda12" if major == 12 or _unsupported(driver, 13) else "cuda")
