"""The findings from single facts, on a machine without other problems."""

import dataclasses

import pytest

from perfkit.calibration.model import CachedCalibration, Calibration
from perfkit.doctor import Finding, Severity, conclusion, find_problems
from perfkit.figures.resources import BusyProcess
from perfkit.machine.description import MachineFacts
from perfkit.machine.idle import IdleObservation

CALIBRATED = CachedCalibration(object.__new__(Calibration))
GOOD = MachineFacts(
    cpus=8,
    cores=4,
    quota_cpus=None,
    governors=frozenset({"performance"}),
    can_boost=False,
    clock_source="tsc",
    memory_available_bytes=8 << 30,
    swap_used_bytes=0,
    open_files=65_536,
    ephemeral_ports=64_512,
    time_wait_sockets=10,
)
IDLE = IdleObservation(busy_share=0.01, steal_share=0.0, throttled_share=0.0, late_p50_ns=60_000, late_p99_ns=90_000)


def test_a_good_machine_has_no_findings():
    assert find_problems(GOOD, IDLE, CALIBRATED) == []


def test_unknown_facts_are_no_findings():
    unknown = dataclasses.replace(
        GOOD, governors=frozenset(), can_boost=None, clock_source=None, ephemeral_ports=None, time_wait_sockets=None
    )
    assert find_problems(unknown, IDLE, CALIBRATED) == []


@pytest.mark.parametrize(
    ("facts", "severity", "sentence"),
    [
        ({"cpus": 1, "cores": 1}, Severity.SPOILS, "there is only one CPU"),
        ({"cpus": 2, "cores": 1}, Severity.DISTURBS, "the 2 CPUs are threads of one core"),
        ({"quota_cpus": 1.5}, Severity.DISTURBS, "allows 1.5 of 8 CPUs"),
        ({"governors": frozenset({"performance", "powersave"})}, Severity.DISTURBS, "the governor is powersave"),
        ({"can_boost": True}, Severity.DISTURBS, "boost is on"),
        ({"clock_source": "hpet"}, Severity.SPOILS, "the kernel's clock source is hpet"),
        (
            {"swap_used_bytes": 3 << 30, "memory_available_bytes": 1 << 29},
            Severity.SPOILS,
            "3.0 GiB are swapped out and only 0.5 GiB are available",
        ),
        ({"open_files": 1024}, Severity.DISTURBS, "1,024 files, enough for about 819 connections"),
        ({"ephemeral_ports": 28_232, "time_wait_sockets": 20_000}, Severity.DISTURBS, "8,232 ports are free"),
    ],
)
def test_a_problematic_fact_is_a_finding_with_a_remedy(facts, severity, sentence):
    (finding,) = find_problems(dataclasses.replace(GOOD, **facts), IDLE, CALIBRATED)
    assert finding.severity is severity
    assert sentence in finding.sentence
    assert finding.remedy


@pytest.mark.parametrize(
    ("seen", "severity", "sentence"),
    [
        ({"busy_share": 0.2}, Severity.DISTURBS, "use 20% of the machine"),
        ({"busy_share": 0.9}, Severity.SPOILS, "use 90% of the machine"),
        ({"steal_share": 0.05}, Severity.DISTURBS, "gives 5.0% of this machine's CPU time to others"),
        ({"throttled_share": 0.1}, Severity.SPOILS, "stopped this process for 10.0%"),
        ({"late_p99_ns": 4_000_000}, Severity.DISTURBS, "4.00 ms late at p99"),
        ({"late_p50_ns": 2_000_000, "late_p99_ns": 4_000_000}, Severity.SPOILS, "end 2.00 ms late at the median"),
    ],
)
def test_a_disturbance_of_the_idle_machine_is_a_finding(seen, severity, sentence):
    (finding,) = find_problems(GOOD, dataclasses.replace(IDLE, **seen), CALIBRATED)
    assert finding.severity is severity
    assert sentence in finding.sentence


def test_other_work_is_named_the_busiest_first():
    busy = [
        BusyProcess(name, pid, cpus) for name, pid, cpus in (("ffmpeg", 77, 0.9), ("cc1plus", 80, 0.5), ("rsync", 81, 0.2), ("sh", 82, 0.1))
    ]
    (finding,) = find_problems(GOOD, dataclasses.replace(IDLE, busy_share=0.2), CALIBRATED, busy)
    assert finding.sentence == (
        "other processes use 20% of the machine: ffmpeg (pid 77) 90% of a CPU, cc1plus (pid 80) 50% of a CPU, rsync (pid 81) 20% of a CPU"
    )


@pytest.mark.parametrize(
    ("kept", "sentence"),
    [(CachedCalibration(), "there is no calibration"), (CachedCalibration(unusable="it is of another kernel"), "another kernel")],
)
def test_a_missing_calibration_is_a_note_that_says_it_is_optional(kept, sentence):
    (finding,) = find_problems(GOOD, IDLE, kept)
    assert finding.severity is Severity.NOTE
    assert "optional" in finding.sentence
    assert sentence in finding.sentence
    assert finding.remedy == "perfkit calibrate"


def test_severe_findings_come_first():
    findings = find_problems(dataclasses.replace(GOOD, open_files=64, clock_source="hpet"), IDLE, CachedCalibration())
    assert [finding.severity for finding in findings] == [Severity.SPOILS, Severity.DISTURBS, Severity.NOTE]


@pytest.mark.parametrize(
    ("severities", "sentence"),
    [
        ([], "this machine is ready to measure"),
        ([Severity.NOTE], "this machine is ready to measure"),
        ([Severity.NOTE, Severity.DISTURBS], "this machine can measure; findings marked 'disturbs' may make figures vary more"),
        ([Severity.DISTURBS, Severity.SPOILS], "a measurement made now would be invalid or misleading"),
    ],
)
def test_the_conclusion_is_that_of_the_most_severe_finding(severities, sentence):
    assert conclusion([Finding(one, "governor", "It is powersave.", "Change it.") for one in severities]) == sentence
