"""What the facts mean for a measurement, and what to do about it. Pure."""

import dataclasses
import enum

from perfkit.calibration.cache import Kept
from perfkit.machine.description import MachineFacts
from perfkit.machine.readings import IdleObservation
from perfkit.units import NS_PER_S, format_duration_ns

_GIB = 1 << 30
_FEW_FILES, _FEW_PORTS = 4096, 16_384
_SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"})


class Severity(enum.Enum):
    """How much a finding matters."""

    SPOILS = "spoils"
    """A measurement made now would be of something else, or invalid."""
    DISTURBS = "disturbs"
    """Figures scatter more than they have to, or a limit is near."""


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    severity: Severity
    subject: str
    sentence: str
    remedy: str


def find(machine: MachineFacts, watched: IdleObservation, kept: Kept) -> list[Finding]:
    """What was found, what spoils first."""
    found = [*_of_cpus(machine), *_of_the_moment(machine, watched), *_of_limits(machine), *_of_calibration(kept)]
    return sorted(found, key=lambda one: one.severity is not Severity.SPOILS)


def _of_cpus(machine: MachineFacts) -> list[Finding]:
    found = []
    if machine.cpus == 1:
        found.append(
            Finding(
                Severity.SPOILS,
                "CPUs",
                "there is one CPU, so the load generator and a server on this machine take it from each other",
                "measure a server on another machine, or allow this process a second CPU",
            )
        )
    elif machine.cores == 1:
        found.append(
            Finding(
                Severity.DISTURBS,
                "CPUs",
                f"the {machine.cpus} CPUs are threads of one core: what the generator does slows a server beside it",
                "allow this process CPUs of two cores, or measure a server on another machine",
            )
        )
    if machine.quota_cpus is not None and machine.quota_cpus < machine.cpus:
        found.append(
            Finding(
                Severity.DISTURBS,
                "CPU quota",
                f"a control group allows {machine.quota_cpus:g} of {machine.cpus} CPUs, and stops everything for the rest of a period once they are used up",
                "raise the quota, or give whole CPUs (cpuset) in its place",
            )
        )
    if slow := machine.governors - {"performance"}:
        found.append(
            Finding(
                Severity.DISTURBS,
                "CPU frequency",
                f"the governor is {', '.join(sorted(slow))}: CPUs are slower while there is little to do, and so are answers at a low load",
                "sudo cpupower frequency-set -g performance",
            )
        )
    if machine.can_boost:
        found.append(
            Finding(
                Severity.DISTURBS,
                "CPU frequency",
                "boost is on: the clock depends on temperature and on how many cores work",
                "switch it off where runs are compared, in /sys/devices/system/cpu/cpufreq/boost or intel_pstate/no_turbo",
            )
        )
    if machine.clock_source in _SLOW_CLOCKS:
        found.append(
            Finding(
                Severity.SPOILS,
                "clock",
                f"the kernel's clock is {machine.clock_source}, which takes about a microsecond to read",
                "find out in the kernel's log why tsc was given up; clocksource=tsc",
            )
        )
    return found


def _of_the_moment(machine: MachineFacts, watched: IdleObservation) -> list[Finding]:
    found = []
    if watched.busy_share > 0.1:
        found.append(
            Finding(
                Severity.SPOILS if watched.busy_share > 0.5 else Severity.DISTURBS,
                "other work",
                f"other processes use {watched.busy_share:.0%} of the machine",
                "end them, or wait; `top` shows which they are",
            )
        )
    if watched.steal_share > 0.01:
        found.append(
            Finding(
                Severity.DISTURBS,
                "steal",
                f"the host takes {watched.steal_share:.1%} of this machine's time for others",
                "measure on a machine of its own",
            )
        )
    if watched.throttled_share > 0:
        found.append(
            Finding(
                Severity.SPOILS,
                "CPU quota",
                f"a CPU quota stopped this process for {watched.throttled_share:.1%} of the time, although it did nothing",
                "raise the quota, or end what else is in its control group",
            )
        )
    if watched.late_p99_ns > NS_PER_S // 1000:
        found.append(
            Finding(
                Severity.SPOILS if watched.late_p50_ns > NS_PER_S // 1000 else Severity.DISTURBS,
                "timers",
                f"a sleep of 1 ms ends {format_duration_ns(watched.late_p50_ns)} late, and one in a hundred {format_duration_ns(watched.late_p99_ns)}",
                "end other work; in a virtual machine, give its CPUs cores of their own",
            )
        )
    if machine.swap_used_bytes and machine.memory_available_bytes < _GIB:
        found.append(
            Finding(
                Severity.SPOILS,
                "memory",
                f"{machine.swap_used_bytes / _GIB:.1f} GiB are swapped out and {machine.memory_available_bytes / _GIB:.1f} GiB available",
                "end what takes the memory: a server that waits for its own pages is not what is to be measured",
            )
        )
    return found


def _of_limits(machine: MachineFacts) -> list[Finding]:
    found = []
    if machine.open_files < _FEW_FILES:
        found.append(
            Finding(
                Severity.DISTURBS,
                "open files",
                f"this process may have {machine.open_files:,} files open, so some {machine.open_files * 4 // 5:,} connections",
                "ulimit -Hn 65536 as root, or LimitNOFILE= of the service",
            )
        )
    free_ports = None if machine.ephemeral_ports is None else machine.ephemeral_ports - (machine.time_wait_sockets or 0)
    if free_ports is not None and free_ports < _FEW_PORTS:
        found.append(
            Finding(
                Severity.DISTURBS,
                "ports",
                f"{max(free_ports, 0):,} ports are left for new connections to one address: of {machine.ephemeral_ports:,} ended"
                f" connections hold {machine.time_wait_sockets or 0:,}",
                "sysctl net.ipv4.ip_local_port_range='1024 65535'; wait a minute for ended connections",
            )
        )
    return found


def _of_calibration(kept: Kept) -> list[Finding]:
    if kept.calibration is not None:
        return []
    why = f"is not used: {kept.unusable}" if kept.unusable else "was not made"
    return [
        Finding(
            Severity.DISTURBS,
            "calibration",
            f"a calibration {why}; results then do not say how near the generator was to its ceiling, and `workers: auto` is one",
            "perfkit calibrate",
        )
    ]
