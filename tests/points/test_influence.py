"""How stops and readings of the load generator are joined to a verdict."""

import dataclasses
import os
import types
from typing import Any

import numpy as np
import pytest

from perfkit.calibration.model import Cost
from perfkit.figures.resources import BusyProcess, MachineFigures, OtherProcesses
from perfkit.machine import readings
from perfkit.machine.readings import BusyMeter
from perfkit.measurement.target_probe import ProbedWorkload
from perfkit.measurement.worker_specs import calibrated_transport_ns
from perfkit.points.measured import Resources
from perfkit.points.point import LoadSummary, point
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address
from tests.clocks import SettableClock
from tests.points.made_measurement import stopped_measurement

MS, S = 1_000_000, 1_000_000_000
OTHERS = "a signal, a debugger, swapping or other processes may have stopped it"


@pytest.fixture
def stopped():
    return stopped_measurement


def warning(found, code):
    return next((one.message for one in found.warnings if one.code == code), None)


def test_stops_of_several_workers_at_the_same_time_count_once(stopped):
    spans = [(S, S + 50 * MS, S + 60 * MS), (S + 20 * MS, S + 90 * MS, S + 95 * MS), (3 * S, 3 * S + 12 * MS, 3 * S + 20 * MS)]
    made = stopped(*spans, touched=7)
    stops = point(made).generator.stops
    assert stops is not None
    assert (stops.count, stops.total_ns, stops.max_ns, stops.touched_requests) == (2, 102 * MS, 90 * MS, 7)
    pooled = LoadSummary([made, made]).pooled().generator.stops
    assert pooled is not None
    assert (pooled.count, pooled.total_ns, pooled.max_ns, pooled.touched_requests) == (4, 204 * MS, 90 * MS, 14)


def test_a_stop_that_moved_a_figure_makes_the_point_invalid_and_is_explained(stopped):
    found = point(stopped((S, S + 800 * MS, S + 805 * MS), touched_ns=[800 * MS] * 60, touched=60))
    assert not found.valid
    said = f"The load generator stood still for 800 ms ({OTHERS}), and touched 60 requests. Without that, the p99 would be about 11.0 ms instead of 800 ms"
    assert (warning(found, "generator_stopped") or "").startswith(said)


def test_a_stop_that_moved_nothing_is_a_warning(stopped):
    found = point(stopped((S, S + 12 * MS, S + 17 * MS), touched_ns=[21 * MS] * 4, touched=4))
    assert found.valid
    assert "stood still for 12.0 ms" in (warning(found, "generator_paused") or "")


def test_without_stops_there_is_neither(stopped):
    found = point(stopped())
    assert (found.valid, [one.code for one in found.warnings]) == (True, ["few_samples"])


def test_a_time_out_that_a_stop_may_have_caused_moves_an_error_rate_of_none(stopped):
    span = (S, S + 20 * MS, S + 25 * MS)
    lost = {"timed_out": [30 * MS]}
    found = point(stopped(span, touched_ns=[30 * MS], touched=1, touched_failed=1, others=lost))
    assert "the error rate would be about 0.00%" in (warning(found, "generator_stopped") or "")
    assert point(stopped(span, touched_ns=[30 * MS], touched=1, others=lost)).valid


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({}, OTHERS),
        ({"throttled_share": 0.009}, "a CPU quota stopped it"),
        ({"throttled_share": 0.004}, OTHERS),
        ({"steal_share": 0.003}, "the machine's host gave its CPUs to others (steal)"),
        ({"steal_share": 0.002}, OTHERS),
    ],
)
def test_the_cause_is_named_where_a_reading_explains_half_of_the_time(stopped, monkeypatch, changes, cause):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    found = point(stopped((S, S + 100 * MS, S + 105 * MS), touched_ns=[100 * MS] * 4, touched=4, **changes))
    assert f"({cause})" in str(found.warnings)


def test_busy_processes_are_named_as_the_cause_before_the_generator_is_blamed(stopped):
    made = stopped((S, S + 800 * MS, S + 805 * MS), touched_ns=[800 * MS] * 60, touched=60)
    others = OtherProcesses(1.2, (BusyProcess("cc1plus", 77, 0.95),))
    found = point(dataclasses.replace(made, resources=Resources(machine=MachineFigures(others=others))))
    codes = [one.code for one in found.warnings]
    assert codes.index("busy_machine") < codes.index("generator_stopped")
    assert "cc1plus (pid 77) 95% of a CPU" in (warning(found, "busy_machine") or "")
    assert "(most likely other processes on its machine: cc1plus (pid 77) 95% of a CPU)" in (warning(found, "generator_stopped") or "")


def test_a_machine_that_was_suspended_makes_the_point_invalid(stopped):
    found = point(stopped(suspended_ns=3 * S))
    assert not found.valid
    assert "suspended for 3.00 s" in (warning(found, "suspended") or "")


@pytest.mark.parametrize(
    ("url", "engine", "expected"),
    [("http://127.0.0.1:8000", "wire", 140_000), ("http://127.0.0.1:8000", "reference", None), ("http://10.9.8.7:8000", "wire", None)],
)
def test_the_calibrated_transport_is_that_of_the_wire_engine_and_of_a_server_on_this_machine(url, engine, expected):
    scenario = Scenario.model_validate(
        {"name": "x", "target": {"url": url, "model": "m", "engine": engine}, "load": {"closed": {"concurrency": 1}}}
    )
    cost = Cost(
        protocol="http",
        tensor_bytes=4,
        cpu_ns_per_request=1,
        ceiling_per_s=1,
        service_time_p50_ns=140_000,
        bare_p50_ns=1,
        overhead_p50_ns=0,
    )
    request = InferRequest("m", (tensor_from_array("INPUT0", Datatype.FP32, np.zeros(1, np.float32)),))
    probed: Any = types.SimpleNamespace(requests=(request,))
    calibration: Any = types.SimpleNamespace(costs=(cost,))
    address = Address("http", url.split("/")[2].split(":")[0], 8000)
    assert calibrated_transport_ns(ProbedWorkload(scenario, address, probed), calibration) == expected
    assert calibrated_transport_ns(ProbedWorkload(scenario, address, probed), None) is None


@pytest.mark.parametrize(("slept_ns", "reported_ns"), [(0, 0), (40_000, 0), (2 * S, 2 * S)])
def test_a_suspension_is_the_growth_of_the_difference_between_two_clocks(monkeypatch, slept_ns, reported_ns):
    differences = iter([5 * S, 5 * S + slept_ns])
    monkeypatch.setattr(readings, "suspended_ns", lambda: next(differences))
    assert BusyMeter(SettableClock(), []).read().suspended_ns == reported_ns
