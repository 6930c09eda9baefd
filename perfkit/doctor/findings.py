"""Problems for measurements that follow from facts about a machine, with their remedies; no access to the machine itself."""

import dataclasses
import enum
import functools
from collections.abc import Iterable, Iterator

from perfkit.calibration.model import CachedCalibration
from perfkit.machine.description import MachineFacts
from perfkit.machine.readings import IdleObservation
from perfkit.units import NS_PER_S, format_duration_ns

_GIB = 1 << 30
_MIN_FILES, _MIN_PORTS = 4096, 16_384
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


def find_problems(machine: MachineFacts, idle: IdleObservation, calibration: CachedCalibration) -> list[Finding]:
    """The findings about a machine, the severe ones first; `idle` is how it behaved while perfkit only slept."""
    return by_severity([
        *_cpu_findings(machine),
        *_idle_findings(machine, idle),
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


def _idle_findings(machine: MachineFacts, idle: IdleObservation) -> Iterator[Finding]:
    if idle.busy_share > 0.1:
        yield Finding(
            Severity.SPOILS if idle.busy_share > 0.5 else Severity.DISTURBS,
            "other work",
            f"other processes use {idle.busy_share:.0%} of the machine",
            "end them, or wait; `top` lists them",
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
