"""Why a verdict is invalid, and what the load generator and other processes used of its machine at the time."""

import statistics
from collections.abc import Sequence
from typing import Literal

from perfkit.errors import MeasurementError
from perfkit.figures.resources import BusyProcess, OtherProcesses
from perfkit.result.part import Part

_MOST_PROCESSES = 3
_DISTURBING_CPUS = 0.1


class GeneratorLoad(Part):
    """How busy the load generator's machine was; a mean over runs."""

    cpu_share: float
    """Of the load generator itself, the share of one core."""
    machine_cpu_share: float | None = None
    """Of all processes, the target included: the share of all CPUs."""
    others: OtherProcesses | None = None
    """What processes besides perfkit and the target used."""

    @classmethod
    def mean(cls, loads: Sequence["GeneratorLoad"]) -> "GeneratorLoad | None":
        """The mean of several; processes of one name count as one, whose number is that of the busiest. None for none."""
        if not loads:
            return None
        shares = [load.machine_cpu_share for load in loads if load.machine_cpu_share is not None]
        others = [load.others for load in loads if load.others is not None]
        processes = [process for one in others for process in one.busiest]
        busiest = [
            BusyProcess(
                name,
                max((process for process in processes if process.name == name), key=lambda process: process.cpus).pid,
                sum(process.cpus for process in processes if process.name == name) / len(others),
            )
            for name in dict.fromkeys(process.name for process in processes)
        ]
        pooled = None
        if others:
            pooled = OtherProcesses(
                statistics.fmean(one.cpus for one in others),
                tuple(sorted(busiest, key=lambda process: -process.cpus)[:_MOST_PROCESSES]),
                any(one.may_include_target for one in others),
            )
        return cls(
            cpu_share=statistics.fmean(load.cpu_share for load in loads),
            machine_cpu_share=statistics.fmean(shares) if shares else None,
            others=pooled,
        )


def describe_others(load: GeneratorLoad) -> str:
    """A sentence, with a space after it, about the processes that used the machine besides the load generator; empty if none did."""
    if load.others is None or load.others.cpus < _DISTURBING_CPUS:
        return ""
    named = ", ".join(f"{one.name} (pid {one.pid}) {one.cpus:.0%} of a CPU" for one in load.others.busiest)
    busy = "" if load.machine_cpu_share is None else f", the machine's CPUs {load.machine_cpu_share:.0%}"
    target = ", among them perhaps the target" if load.others.may_include_target else ""
    return (
        f"Processes besides perfkit and the target used {load.others.cpus:.1f} CPUs{target}{f': {named}' if named else ''}; the load generator "
        f"itself kept {load.cpu_share:.0%} of a core busy{busy}. "
    )


FaultCode = Literal["generator", "missing_metric", "failed_requests", "not_steady", "overloaded", "control", "trial"]


class Fault(Part):
    """Why a verdict is invalid."""

    code: FaultCode
    """`generator` and `trial`: the load generator could not keep up, in the pairs or in the trial. `control`: the control pairs alarmed."""
    reason: str
    """A sentence."""
    warning: str = ""
    """The code of the measurement warning that says so, if there is one."""
    metric: str = ""
    """The metric that is missing."""
    run: str = ""
    """The result folder of a run with the fault, within the gate's `runs`."""
    generator: GeneratorLoad | None = None
    """Of the runs with the fault, if the load generator could not keep up."""


def first_sentence(message: str) -> str:
    """What a measurement warning says, without its hints: the next steps of a verdict know more."""
    return f"{message.partition('. ')[0].rstrip('.')}."


class TrialError(MeasurementError):
    """The trial could not be measured, because of a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.reason)
        self.fault = fault
