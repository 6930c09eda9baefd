"""What follows from the facts: each fact alone, on a machine on which nothing else is wrong."""

import dataclasses

import pytest

from perfkit.calibration.cache import Kept
from perfkit.calibration.model import Calibration
from perfkit.doctor.findings import Severity, find
from perfkit.machine.description import MachineFacts
from perfkit.machine.readings import IdleObservation

CALIBRATED = Kept(object.__new__(Calibration))
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
QUIET = IdleObservation(busy_share=0.01, steal_share=0.0, throttled_share=0.0, late_p50_ns=60_000, late_p99_ns=90_000)


def test_a_good_machine_has_no_findings():
    assert find(GOOD, QUIET, CALIBRATED) == []


def test_what_a_system_does_not_say_is_no_finding():
    silent = dataclasses.replace(
        GOOD,
        governors=frozenset(),
        can_boost=None,
        clock_source=None,
        ephemeral_ports=None,
        time_wait_sockets=None,
    )
    assert find(silent, QUIET, CALIBRATED) == []


@pytest.mark.parametrize(
    ("facts", "severity", "sentence"),
    [
        ({"cpus": 1, "cores": 1}, Severity.SPOILS, "there is one CPU"),
        ({"cpus": 2, "cores": 1}, Severity.DISTURBS, "the 2 CPUs are threads of one core"),
        ({"quota_cpus": 1.5}, Severity.DISTURBS, "allows 1.5 of 8 CPUs"),
        ({"governors": frozenset({"performance", "powersave"})}, Severity.DISTURBS, "the governor is powersave"),
        ({"can_boost": True}, Severity.DISTURBS, "boost is on"),
        ({"clock_source": "hpet"}, Severity.SPOILS, "the kernel's clock is hpet"),
        ({"swap_used_bytes": 3 << 30, "memory_available_bytes": 1 << 29}, Severity.SPOILS, "3.0 GiB are swapped out and 0.5 GiB available"),
        ({"open_files": 1024}, Severity.DISTURBS, "1,024 files open, so some 819 connections"),
        ({"ephemeral_ports": 28_232, "time_wait_sockets": 20_000}, Severity.DISTURBS, "8,232 ports are left"),
    ],
)
def test_a_fact_that_matters_is_said(facts, severity, sentence):
    (found,) = find(dataclasses.replace(GOOD, **facts), QUIET, CALIBRATED)
    assert found.severity is severity
    assert sentence in found.sentence
    assert found.remedy


@pytest.mark.parametrize(
    ("seen", "severity", "sentence"),
    [
        ({"busy_share": 0.2}, Severity.DISTURBS, "use 20% of the machine"),
        ({"busy_share": 0.9}, Severity.SPOILS, "use 90% of the machine"),
        ({"steal_share": 0.05}, Severity.DISTURBS, "takes 5.0% of this machine's time"),
        ({"throttled_share": 0.1}, Severity.SPOILS, "stopped this process for 10.0%"),
        ({"late_p99_ns": 4_000_000}, Severity.DISTURBS, "one in a hundred 4.00 ms"),
        ({"late_p50_ns": 2_000_000, "late_p99_ns": 4_000_000}, Severity.SPOILS, "ends 2.00 ms late"),
    ],
)
def test_what_went_on_in_a_moment_is_said(seen, severity, sentence):
    (found,) = find(GOOD, dataclasses.replace(QUIET, **seen), CALIBRATED)
    assert found.severity is severity
    assert sentence in found.sentence


@pytest.mark.parametrize(("kept", "sentence"), [(Kept(), "was not made"), (Kept(unusable="it is of another kernel"), "another kernel")])
def test_a_calibration_that_is_missing_is_said_and_how_to_make_one(kept, sentence):
    (found,) = find(GOOD, QUIET, kept)
    assert sentence in found.sentence
    assert found.remedy == "perfkit calibrate"


def test_what_spoils_comes_first():
    found = find(dataclasses.replace(GOOD, open_files=64, clock_source="hpet"), QUIET, Kept())
    assert [one.severity for one in found] == [Severity.SPOILS, Severity.DISTURBS, Severity.DISTURBS]
