"""Fleets on hosts of their own: the short form of `python -m benchmarks.fleet.trial`, which also loses parts of them.

In the suite `tests/cli/test_fleet.py` and `test_fleet_on_dask.py` do, on one host.
"""

import pytest

from benchmarks.fleet.fleet_run import Schedule, TrialFleet
from benchmarks.fleet.namespaces import NamespacesUnavailableError
from benchmarks.fleet.trial import CLOCK_SHIFT_NS, check_arrivals, check_end, check_totals

_SCHEDULE = Schedule.poisson(200, 1.5)


@pytest.fixture(scope="module")
def fleet():
    try:
        with TrialFleet({"near": {}, "far": {"delays_ns": (2_000_000, 3_000_000), "clock_shift_ns": CLOCK_SHIFT_NS}}) as made:
            yield made
    except NamespacesUnavailableError as error:
        pytest.skip(str(error))


def test_machines_with_other_clocks_and_ways_send_one_schedule_and_their_figures_add_up(fleet):
    run = fleet.run(fleet.scenario(fleet.replay(_SCHEDULE)))
    checks = [
        *check_totals("", run),
        *check_arrivals("", run, fleet, _SCHEDULE),
        *check_end("", run, run.run.exit_code, {"near": 0, "far": 0}),
    ]
    assert [one for one in checks if not one.holds] == []
    assert run.run.exit_code == (0 if run.run.point["valid"] else 5), run.run.stderr  # a busy machine may disturb the load
    machines = {machine["name"]: machine for machine in run.run.point["machines"]}
    for name, machine in machines.items():
        assert abs(machine["clock_offset_ns"] - fleet.shift_ns(name)) <= machine["clock_bound_ns"]
    assert machines["far"]["clock_bound_ns"] >= 2_500_000  # half of the round trip: the two ways may be as unequal as they like
    earliest = [min(run.arrivals.of(host.ip).lateness_ns(_SCHEDULE)) for host in fleet.machines.values()]
    assert max(earliest) - min(earliest) < CLOCK_SHIFT_NS / 2
